"""The checks of `headrace consumer-groups` on its options, without a broker."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError, Namespace
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Node, TopicPartition
from confluent_kafka.admin import MemberAssignment

from headrace.admin import ConsumerGroupDescription, MemberDescription
from headrace.cli.consumer_groups import command
from headrace.cli.consumer_groups.actions import _rows
from headrace.cli.consumer_groups.offsets import _read_plan
from headrace.cli.errors import BadUsage
from headrace.cli.groups.options import duration
from headrace.cli.main import main
from tests.cli.command import parsed_options


def parsed(line: str) -> Namespace:
    return parsed_options(command, line)


@pytest.mark.parametrize(
    ("ours", "kafkas"),
    [
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
)
def test_both_ways_of_saying_it_mean_the_same(ours: str, kafkas: str) -> None:
    left, right = vars(parsed(ours)), vars(parsed(kafkas))
    for different in ("words", "actions", "offsets", "state", "type"):
        del left[different], right[different]
    assert {**left, "states": set(left.get("states", ()))} == {
        **right,
        "states": set(right.get("states", ())),
    }


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
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
)
def test_what_does_not_go_together_is_refused(
    line: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadUsage) as refused:
        parsed(line)
    assert complaint in str(refused.value)
    assert main(["consumer-groups", *line.split()]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"headrace consumer-groups: {refused.value}\n"


@pytest.mark.parametrize("how", ["validate-regex", "--validate-regex"])
def test_regular_expressions_are_validated_without_a_broker(
    how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*words: str) -> tuple[int, str, str]:
        status = main(["consumer-groups", *words])
        out, err = capsys.readouterr()
        return status, out, err

    assert said(how, "a|b") == (0, "The regular expression `a|b` is valid.\n", "")
    assert said(how, "") == (0, "The regular expression `` is valid.\n", "")
    complaint = (
        "headrace consumer-groups: The regular expression `[` is invalid: missing closing ].\n"
    )
    assert said(how, "[") == (1, "", complaint)
    status, out, err = said(how, "[", "--json")
    assert (status, err) == (1, complaint)
    assert json.loads(out) == [{"regex": "[", "valid": False, "error": "missing closing ]"}]
    assert json.loads(said(how, "a", "--json")[1]) == [{"regex": "a", "valid": True, "error": None}]
    for words in ((how, "a", "list"), ("--list", how, "a"), (how, "a", "b"), ("validate-regex",)):
        assert said(*words)[0] == 2, words


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


def test_partitions_are_shown_by_member_and_what_is_not_known_is_left_open() -> None:
    def member(name: str, *partitions: int) -> MemberDescription:
        return MemberDescription(
            name, "c", "/h", MemberAssignment([TopicPartition("t", n) for n in partitions])
        )

    members = [member("b", 4), member("c", 2, 1), member("a", 3), member("idle")]
    group = ConsumerGroupDescription(
        "g", False, members, "range", None, Node(1, "h", 9092), state_name="Stable"
    )
    committed = [TopicPartition("u", 0, 5), TopicPartition("t", 2, 7), TopicPartition("t", 0, 9)]
    rows = _rows(group, committed, {("t", 2): 9, ("t", 1): 4, ("t", 0): 9, ("u", 1): 1})
    assert [
        (
            row.member.member_id if row.member else None,
            row.partition.topic,
            row.partition.partition,
            row.lag,
        )
        for row in rows
    ] == [
        ("c", "t", 1, None),
        ("c", "t", 2, 2),
        ("a", "t", 3, None),
        ("b", "t", 4, None),
        (None, "t", 0, 0),
        (None, "u", 0, None),
    ]


@pytest.mark.parametrize(
    ("content", "complaint"), [("t,0\n", "line 1"), ("t,0,1\n\nt,x,1\n", "line 3")]
)
def test_a_file_that_is_no_plan_is_refused(content: str, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.csv"
    file.write_text(content)
    with pytest.raises(BadUsage, match=complaint):
        _read_plan(parsed(f"reset-offsets g --from-file {file}"))
    with pytest.raises(BadUsage, match="cannot read"):
        _read_plan(parsed(f"reset-offsets g --from-file {tmp_path / 'missing'}"))


def test_a_file_may_name_groups(tmp_path: Path) -> None:
    file = tmp_path / "plan.csv"
    file.write_text('g,t,0,5\ng,"a,b",1,7\r\n"new\nline ""x""",t,0,1\n', newline="")
    expected = {"g": {("t", 0): 5, ("a,b", 1): 7}, 'new\nline "x"': {("t", 0): 1}}
    assert _read_plan(parsed(f"reset-offsets g --from-file {file}")) == expected
    assert _read_plan(parsed(f"reset-offsets --all-groups --from-file {file}")) == expected
    file.write_text("t,0,5\n")
    assert _read_plan(parsed(f"reset-offsets g --from-file {file}")) == {"g": {("t", 0): 5}}
    with pytest.raises(BadUsage):
        _read_plan(parsed(f"reset-offsets --all-groups --from-file {file}"))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
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
)
def test_groups_of_all_types_refuses_what_does_not_go_together(
    line: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["groups", *line.split()]) == 2
    assert complaint in capsys.readouterr().err
