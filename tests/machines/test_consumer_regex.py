"""Regular expressions of subscriptions: RE2's syntax and errors, in linear time."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.consumer.regex import MAX_PROGRAM, InvalidRegex, Regex

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
def test_what_keeps_others_busy_for_ever_is_answered(pattern):
    assert not Regex(pattern).matches("a" * 249 + "!")


@pytest.mark.parametrize(
    "pattern", ["(a{1000}){1000}", "((a{100}){100}){100}", "(" * 1_000 + ")" * 1_000]
)
def test_what_is_too_large_is_refused(pattern):
    with pytest.raises(InvalidRegex, match="too"):
        Regex(pattern)
    assert MAX_PROGRAM < 1_000_000


@given(st.text("ab()[]{}|*+?\\.^$:P<>-,12", max_size=12))
def test_anything_is_read_or_refused(pattern):
    with contextlib.suppress(InvalidRegex):
        assert Regex(pattern).matches("ab") in (True, False)
