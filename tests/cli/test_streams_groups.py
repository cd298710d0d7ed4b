"""The checks of `headrace streams-groups` on its options, without a broker."""

from __future__ import annotations

import pytest

from headrace.cli.errors import BadUsage
from headrace.cli.streams_groups import command
from tests.cli.command import parsed_options


@pytest.mark.parametrize(
    ("ours", "kafkas"),
    [
        ("list", "--list"),
        ("list --state stable,NotReady", "--state stable,NotReady --list"),
        ("describe g", "--describe --group g"),
        ("describe --members g", "--describe --members --group g"),
        ("describe --state g", "--describe --group g --state"),
        ("delete --all-groups", "--delete --all-groups"),
    ],
)
def test_both_ways_of_saying_it_mean_the_same(ours: str, kafkas: str) -> None:
    left, right = (vars(parsed_options(command, line)) for line in (ours, kafkas))
    for different in ("words", "actions", "offsets"):
        del left[different], right[different]
    assert left == right


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("", "Command must include exactly one action"),
        ("reset-offsets g", "'reset-offsets' is not an action"),
        ("list g", 'Option "[group]" can\'t be used with option "[list]"'),
        ("list --state Bogus", "Invalid state list 'Bogus'. Valid states are: Empty, NotReady"),
        ("describe", "Option [describe] takes one of these options: [all-groups], [group]"),
        ("delete", "Option [delete] takes the options [group] or [all-groups]"),
    ],
)
def test_bad_usage(line: str, complaint: str) -> None:
    with pytest.raises(BadUsage) as refused:
        parsed_options(command, line)
    assert str(refused.value).startswith(complaint)
