"""Regular expressions of subscriptions: RE2's syntax and errors, in linear time."""

from __future__ import annotations

import contextlib
import re

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.consumer.regex import MAX_REGEX_BYTES, InvalidRegex, Regex

ATOMS = st.sampled_from(
    [
        "a",
        "b",
        ".",
        r"\.",
        "[ab]",
        "[^a]",
        "[a-c-]",
        r"\w",
        r"\D",
        "(?:ab)",
        "(a|b)",
        "^",
        "$",
        r"\b",
    ]
)
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,}", "*?"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
    ),
    max_leaves=6,
)


@given(pattern=PATTERNS, text=st.text("abc._", max_size=6))
def test_they_match_what_python_matches(pattern, text):
    assert Regex(pattern).matches(text) == bool(re.fullmatch(pattern, text))


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(?i)Topic", "tOPIC"),
        ("((?i)a)b", "Ab"),
        ("(?i:a)b", "Ab"),
        (r"\Qa.b\E+", "a.bb"),
        ("[[:alpha:]]+", "abc"),
        ("[[:^digit:]]", "a"),
        ("(?P<n>a)(?<m>b)", "ab"),
        (r"\Q(?<n>\E[](?<n>]\(?<n>(?<n>a)", "(?<n>](<n>a"),
        ("x{", "x{"),
        ("a{,2}", "a{,2}"),
        ("[]a]+", "]a"),
        (r"\x41", "A"),
        ("a|", ""),
        ("a{1000}", "a" * 1000),
    ],
)
def test_what_is_special_to_re2(pattern, text):
    assert Regex(pattern).matches(text)
    assert not Regex(pattern).matches(text + "!")


def test_flags_end_with_their_group():
    assert not Regex("((?i)a)b").matches("AB")


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*", "(a*)*(a*)*", "(.*.*)*x"])
def test_expressions_that_backtrack_without_end_elsewhere_are_answered(pattern):
    assert not Regex(pattern).matches("a" * 249 + "!")


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("[", "missing closing ]"),
        ("(", "missing closing )"),
        (")", "regexp/syntax: internal error"),
        ("a**", "invalid nested repetition operator"),
        ("*", "missing argument to repetition operator"),
        ("a{2,1}", "invalid repeat count"),
        ("a{1001}", "invalid repeat count"),
        ("\\", "trailing backslash at end of expression"),
        (r"\8", "invalid escape sequence"),
        ("[b-a]", "invalid character class range"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("(?P<n", "invalid named capture"),
        ("(?P<é>a)", "invalid named capture"),
        ("(?P<n>a)(?<n>b)", "duplicate capture group name"),
        (r"\Q(?<n>\E[](?<n>](?<n>a)(?<n>b)", "duplicate capture group name"),
        ("\udc80", "invalid UTF-8"),
    ],
)
def test_reasons_are_those_of_kafkas_library(pattern, reason):
    with pytest.raises(InvalidRegex) as refused:
        Regex(pattern)
    assert str(refused.value) == reason


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(a{1000}){1000}", "invalid repeat count"),
        ("((a{100}){100}){100}", "invalid repeat count"),
        ("(?:[ab]?[a-z]?){450}" * 24, "expression too large"),
        ("[^x]{1000}" * 10, "expression too large"),
        ("a|" * 5_001, "expression too large"),
        (r"(\pL|" * 101, "expression too large"),
        (r"\PL|" * 101, "expression too large"),
    ],
)
def test_what_is_too_large_is_refused(pattern, reason):
    """The work of matching grows with the program: see ``MAX_REGEX_BYTES``."""
    with pytest.raises(InvalidRegex, match=reason):
        Regex(pattern)


def test_re2_matches_within_the_limit(monkeypatch):
    """The work is RE2's, with a program of limited size and no groups to capture."""
    given, compile_ = [], re2.compile

    def compiled(pattern, options):
        given.append(options)
        return compile_(pattern, options)

    monkeypatch.setattr(re2, "compile", compiled)
    assert Regex("(a)(?P<n>b)?").matches("a")
    (options,) = given
    assert (options.max_mem, options.never_capture) == (MAX_REGEX_BYTES, True)
    assert re2.Options().max_mem > MAX_REGEX_BYTES


def test_deep_nesting_is_answered():
    with contextlib.suppress(InvalidRegex):
        assert not Regex("(" * 16_000 + ")" * 16_000).matches("a")


def test_unicode_classes():
    assert Regex(r"\p{Greek}+-\pN").matches("αβ-1")


@given(st.text("ab()[]{}|*+?\\.^$:P<>-,12", max_size=12))
def test_anything_is_read_or_refused(pattern):
    with contextlib.suppress(InvalidRegex):
        assert Regex(pattern).matches("ab") in (True, False)
