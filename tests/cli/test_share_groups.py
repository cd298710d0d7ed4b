"""The checks of `headrace share-groups` on its options, without a broker."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from headrace.cli.errors import BadUsage
from headrace.cli.groups.options import date_and_time, topic_and_partitions
from headrace.cli.main import main
from headrace.cli.share_groups import command
from headrace.cli.tables import Column, as_json, table
from tests.cli.command import parsed_options


def parsed(line: str) -> Namespace:
    return parsed_options(command, line)


@pytest.mark.parametrize(
    ("ours", "kafkas"),
    [
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
)
def test_both_ways_of_saying_it_mean_the_same(ours: str, kafkas: str) -> None:
    left, right = vars(parsed(ours)), vars(parsed(kafkas))
    for different in ("words", "actions", "offsets"):
        del left[different], right[different]
    assert {**left, "group": set(left["group"])} == {**right, "group": set(right["group"])}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
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
        ("list --timeout 0", "Option [timeout]"),
    ],
)
def test_what_does_not_go_together_is_refused(
    line: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadUsage) as refused:
        parsed(line)
    assert complaint in str(refused.value)
    assert main(["share-groups", *line.split()]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"headrace share-groups: {refused.value}\n"


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
    for text in ("t:", ":1", "t:-1", "t:0;1", "t:0,"):
        with pytest.raises(BadUsage):
            topic_and_partitions(text)


def test_a_table_is_as_wide_as_its_longest_values() -> None:
    columns = [Column("GROUP"), Column("N", 3), Column("LAG", None)]
    assert table(columns, []) == "GROUP           N   LAG"
    rows = [("g", 1, None), ("a-group-with-a-long-name", 2000, 5)]
    assert table(columns, rows).splitlines() == [
        "GROUP                    N    LAG",
        "g                        1    -",
        "a-group-with-a-long-name 2000 5",
    ]


def test_json_is_an_array_with_a_line_for_each_object() -> None:
    assert as_json([]) == "[]"
    assert as_json([{"a": "é"}, {"a": None}]) == '[{"a": "é"},\n {"a": null}]'


def test_a_broker_that_is_not_there_ends_it_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["share-groups", "list", "--bootstrap-server", "127.0.0.1:1"]) == 1
    assert capsys.readouterr().err == (
        "headrace share-groups: no broker answers at 127.0.0.1:1: Connection refused\n"
    )
    assert main(["share-groups", "list", "--bootstrap-server", "nowhere"]) == 2
