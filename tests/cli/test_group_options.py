"""The options of the commands on groups, without a broker."""

from __future__ import annotations

from argparse import ArgumentTypeError
from datetime import UTC, datetime, timedelta, timezone

import pytest

from headrace.cli.errors import BadUsage
from headrace.cli.groups.options import (
    date_and_time,
    duration,
    timestamp_ms,
    topic_and_partitions,
)
from headrace.cli.main import main
from tests.cli.command import parsed_options

SAME = {
    "share-groups": [
        ("list", "--list"),
        ("list --state stable,Empty", "--state stable,Empty --list"),
        ("describe g", "--describe --group g"),
        ("describe g h", "--group h --group g --describe --offsets"),
        ("describe --members g", "--describe --members --group g"),
        ("describe --state g", "--describe --group g --state"),
        ("describe g --state --verbose", "--group g --state --verbose --describe"),
        ("delete --all-groups", "--delete --all-groups"),
        ("delete-offsets g --topic t", "--topic t --group g --delete-offsets"),
        (
            "reset-offsets g --topic t --to-latest --dry-run",
            "--reset-offsets --group g --topic t --to-latest --dry-run",
        ),
    ],
    "consumer-groups": [
        ("list", "--list"),
        ("list --state stable,Empty --type classic", "--type Classic --state Stable,empty --list"),
        ("describe g", "--describe --group g"),
        ("describe --state g", "--describe --group g --state"),
        ("describe g --members --verbose", "--group g --describe --members --verbose"),
        ("delete g h", "--delete --group g --group h"),
        ("delete-offsets g --topic t:0,1", "--topic t:0,1 --group g --delete-offsets"),
        (
            ("reset-offsets g --topic t --shift-by -3"),
            "--reset-offsets --group g --topic t --shift-by -3",
        ),
        (
            ("reset-offsets --all-groups --topic t --to-offset 0"),
            "--all-groups --reset-offsets --topic t --to-offset 0",
        ),
    ],
    "streams-groups": [
        ("list", "--list"),
        ("list --state stable,NotReady", "--state stable,NotReady --list"),
        ("describe g", "--describe --group g"),
        ("describe --members g", "--describe --members --group g"),
        ("describe --state g", "--describe --group g --state"),
        ("delete --all-groups", "--delete --all-groups"),
    ],
}
"""Command → the options of headrace, and those of Kafka's tool with the same meaning."""

REFUSED = {
    "share-groups": [
        ("", "Command must include exactly one action"),
        ("lisst", "'lisst' is not an action"),
        ("--list --describe --group g", "Command must include exactly one action"),
        ("list g", 'Option "[group]" can\'t be used with option "[list]"'),
        ("list --members", 'Option "[members]" can\'t be used with option "[list]"'),
        (
            "list --state Empty,Bogus",
            "Invalid state list 'Empty,Bogus'. Valid states are: Empty, Stable, Dead",
        ),
        ("describe", "Option [describe] takes one of these options: [all-groups], [group]"),
        ("describe g --all-groups", 'Option "[group]" can\'t be used with option "[all-groups]"'),
        ("describe g --members --state", "Option [describe] takes at most one of these options:"),
        (
            "--describe --group g --state Empty",
            "Option [describe] does not take a value for [state]",
        ),
        ("describe g --topic t", 'Option "[topic]" can\'t be used with option "[describe]"'),
        ("delete", "Option [delete] takes the options [group] or [all-groups]"),
        ("delete g --topic t", 'Option "[topic]" can\'t be used with option "[delete]"'),
        (
            "delete-offsets g",
            "Option [delete-offsets] takes the following options: [group], [topic]",
        ),
        (
            "delete-offsets g h --topic t",
            "Option [delete-offsets] takes the following options: [group], [topic]",
        ),
        (
            "reset-offsets g --topic t --to-latest",
            "Option [reset-offsets] takes the option: [execute] or [dry-run]",
        ),
        (
            "reset-offsets g --topic t --to-latest --execute --dry-run",
            "only accepts one of [execute] and [dry-run]",
        ),
        (
            "reset-offsets --topic t --to-latest --execute",
            "Option [reset-offsets] takes the option: [group]",
        ),
        (
            "reset-offsets g --topic t --execute",
            "Option [reset-offsets] takes one of these options: [to-datetime]",
        ),
        (
            "reset-offsets g --to-latest --execute",
            "takes one of these options: [all-topics], [topic]",
        ),
        (
            "reset-offsets g --topic t --to-latest --to-earliest --execute",
            'Option "[to-earliest]" can\'t be used with option "[to-latest]"',
        ),
        ("reset-offsets g --topic t:a --to-latest --execute", "not 't:a'"),
    ],
    "consumer-groups": [
        ("", "Command must include exactly one action"),
        (
            "list --state Bogus",
            "Invalid state list 'Bogus'. Valid states are: PreparingRebalance, CompletingRebalance",
        ),
        ("list --type share", "Invalid types list 'share'. Valid types are: Classic, Consumer"),
        ("describe g --type", 'Option "[type]" can\'t be used with option "[describe]"'),
        ("list --to-offset 0", 'Option "[to-offset]" can\'t be used with option "[list]"'),
        ("describe g --offsets --state", "Option [describe] takes at most one of these options:"),
        ("delete", "Option [delete] takes the options [group] or [all-groups]"),
        ("delete g --topic t", 'Option "[topic]" can\'t be used with option "[delete]"'),
        (
            "delete-offsets g",
            "Option [delete-offsets] takes the following options: [group], [topic]",
        ),
        ("delete-offsets g --topic t:x", "Option [topic] takes TOPIC or TOPIC:0,1,2"),
        (
            "reset-offsets --topic t --to-latest",
            "takes one of these options: [all-groups], [group]",
        ),
        ("reset-offsets g --topic t", "takes one of these options: [to-datetime], [by-duration]"),
        (
            "reset-offsets g --to-latest",
            "One of the reset scopes should be defined: --all-topics, --topic.",
        ),
        (
            "reset-offsets g --topic t --to-latest --dry-run --execute",
            "only accepts one of [execute] and [dry-run]",
        ),
        (
            "reset-offsets g --topic t --to-offset 0 --shift-by 0",
            'Option "[shift-by]" can\'t be used with option "[to-offset]"',
        ),
        (
            "reset-offsets g --topic t --from-file f",
            'Option "[from-file]" can\'t be used with option "[topic]"',
        ),
        (
            "reset-offsets g --topic t --to-latest --export --json",
            'Option "[export]" can\'t be used with',
        ),
    ],
    "streams-groups": [
        ("", "Command must include exactly one action"),
        ("reset-offsets g", "'reset-offsets' is not an action"),
        ("list g", 'Option "[group]" can\'t be used with option "[list]"'),
        ("list --state Bogus", "Invalid state list 'Bogus'. Valid states are: Empty, NotReady"),
        ("describe", "Option [describe] takes one of these options: [all-groups], [group]"),
        ("delete", "Option [delete] takes the options [group] or [all-groups]"),
    ],
    "groups": [
        ("", "Command must include exactly one action: list"),
        ("list g", "'g' is not an option"),
        ("list --share --consumer", 'Option "[consumer]" can\'t be used with option "[share]"'),
        (
            "list --share --protocol share",
            'Option "[share]" can\'t be used with option "[protocol]"',
        ),
        (
            "list --group-type bogus",
            "Invalid types list 'bogus'. Valid types are: Classic, Consumer, Share, Streams",
        ),
    ],
}
"""Command → options that do not go together, and a part of the complaint."""


@pytest.mark.parametrize(
    ("command", "ours", "kafkas"),
    [(command, *lines) for command, rows in SAME.items() for lines in rows],
)
def test_both_ways_of_saying_it_mean_the_same(command: str, ours: str, kafkas: str) -> None:
    left, right = (
        {**vars(parsed_options(command, line)), "words": None, "actions": None, "offsets": None}
        for line in (ours, kafkas)
    )
    for options in (left, right):
        options["group"] = set(options["group"])
        if "states" in options:
            options["state"] = set(options.pop("states"))
        if "types" in options:
            options["type"] = options.pop("types")
    assert left == right


@pytest.mark.parametrize(
    ("command", "line", "complaint"),
    [(command, *row) for command, rows in REFUSED.items() for row in rows],
)
def test_what_does_not_go_together_is_refused(
    command: str, line: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadUsage) as refused:
        parsed_options(command, line)
    assert complaint in str(refused.value)
    assert main([command, *line.split()]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"headrace {command}: {refused.value}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-20T08:30:00.500", datetime(2026, 11, 20, 8, 30, 0, 500_000, UTC)),
        ("2026-11-20T08:30:00.500Z", datetime(2026, 11, 20, 8, 30, 0, 500_000, UTC)),
        ("2026-11-20T08:30", datetime(2026, 11, 20, 8, 30, tzinfo=UTC)),
        (
            "2026-11-20T08:30:00+02:00",
            datetime(2026, 11, 20, 8, 30, tzinfo=timezone(timedelta(hours=2))),
        ),
    ],
)
def test_times_are_utc_unless_they_say_otherwise(text: str, expected: datetime) -> None:
    assert date_and_time(text) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01T00:00:00", "12:00"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="YYYY-MM-DDThh"):
        date_and_time(text)


def test_topics_may_name_partitions() -> None:
    assert topic_and_partitions("t") == ("t", None)
    assert topic_and_partitions("t:2,0,2") == ("t", [0, 2])
    for text in ("t:", ":1", "t:-1", "t:0;1", "t:0,", "t:2147483648"):
        with pytest.raises(BadUsage):
            topic_and_partitions(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PT30M", timedelta(minutes=30)),
        ("P1DT12H", timedelta(days=1, hours=12)),
        ("p2dt3h4m5.5s", timedelta(days=2, hours=3, minutes=4, seconds=5.5)),
        ("PT0S", timedelta()),
        ("-PT6H", timedelta(hours=-6)),
        ("P-1DT+6H", timedelta(days=-1, hours=6)),
    ],
)
def test_durations_are_those_of_kafkas_tools(text: str, expected: timedelta) -> None:
    assert duration(text) == expected


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "1H", "P1H", "PT1D", "P1Y", "PT1.5H", "PT1S2M", "P9999999999D"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        duration(text)


def test_times_are_exact_to_the_millisecond() -> None:
    assert timestamp_ms("1978-07-14T19:32:55.520Z") == 269_292_775_520
    assert timestamp_ms("2026-11-20T08:00:00.123Z") == 1_795_161_600_123
    assert timestamp_ms("1969-12-31T23:59:59.9995Z") == -1
    assert timestamp_ms("1795161600123") == 1_795_161_600_123
