"""Regular expressions over names that others choose: matched by RE2, wherever they are given."""

from __future__ import annotations

import asyncio
from argparse import ArgumentTypeError
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.cli.options import pattern
from headrace.client.dead_letters.letters import LetterFilter, parse_letter
from headrace.client.groups import ListedGroup
from headrace.client.lag.model import LagQuery
from headrace.client.records import Record
from headrace.patterns import InvalidPattern, matches, occurs
from headrace.security.principal_mapping import InvalidRules, PrincipalMapping
from headrace.spark.errors import SourceError
from headrace.spark.option_parsing import Subscription, UserOptions

SLOW = r"([a-z0-9]+[-_.]?)+"
"""Python's re tries 2**40 ways to match it."""
NAME = "a" * 40 + "!"
SUBSCRIBE = "subscribePattern"
LOOK_AHEAD = "a(?=b)"


def test_a_pattern_matches_the_whole_or_a_part() -> None:
    assert matches("a|ab", "ab")
    assert not matches("a", "ab")
    assert matches(".*é\\d{2}", "naïvé12")
    assert occurs("NO SUCH", "There is no such item")
    assert not occurs("^such", "no such")
    assert not matches("a.", "a\n")
    assert matches("a\\?", "a\ud800")  # half of a character


def test_no_name_takes_long() -> None:
    group = ListedGroup(NAME, "consumer", "consumer", "Empty", 1)
    headers = {"topic": b"t", "partition": b"0", "offset": b"5", "message": NAME.encode()}
    letter_headers = tuple((f"__dlq.errors.{name}", value) for name, value in headers.items())
    letter = parse_letter(Record("dlq", 0, 7, None, None, letter_headers, 1000, "CreateTime", 0))
    assert letter is not None
    assert not LagQuery(groups_pattern=SLOW).wants_group(group)
    assert LagQuery(groups_excluded=SLOW).wants_group(group)
    assert not LagQuery(topics_pattern=SLOW).wants_topic(NAME)
    assert not LetterFilter(reason=f"^{SLOW}$").selects(letter)
    topics = {NAME: SimpleNamespace(is_internal=False)}
    cluster: Any = SimpleNamespace(all_topics=lambda: asyncio.sleep(0, topics))
    assert asyncio.run(Subscription(pattern=SLOW).existing(cluster)) == {}
    assert PrincipalMapping(f"RULE:{SLOW}/x/,DEFAULT").name_of(NAME) == NAME


@pytest.mark.parametrize(
    ("give", "error"),
    [
        (lambda pattern: matches(pattern, "a"), InvalidPattern),
        (pattern, ArgumentTypeError),
        (lambda pattern: PrincipalMapping(f"RULE:{pattern}/x/"), InvalidRules),
        (
            lambda pattern: UserOptions({SUBSCRIBE: pattern}, [SUBSCRIBE]).subscription(),
            SourceError,
        ),
    ],
)
@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (LOOK_AHEAD, r"invalid perl operator: \(\?="),
        (r"(a)\1", r"invalid escape sequence"),
        ("[", r"missing \]"),
    ],
)
def test_what_re2_has_not_is_refused_when_it_is_given(
    give: Callable[[str], object], error: type[Exception], pattern: str, reason: str
) -> None:
    with pytest.raises(error, match=f"{reason}.*RE2's, without look-around"):
        give(pattern)


def test_rules_of_principals_keep_their_groups() -> None:
    rules = PrincipalMapping("RULE:^CN=(.*?),O=(.*)$/$2-$1/L,DEFAULT")
    assert rules.name_of("CN=Ann,O=Ops") == "ops-ann"
    assert rules.name_of("OU=x") == "OU=x"
    with pytest.raises(InvalidRules):
        PrincipalMapping("RULE:(a)/$2/")
