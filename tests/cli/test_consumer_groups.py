"""``headrace consumer-groups`` without a broker: regular expressions, rows, plans."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Node, TopicPartition
from confluent_kafka.admin import MemberAssignment

from headrace.admin import ConsumerGroupDescription, MemberDescription
from headrace.cli.consumer_groups.actions import _rows
from headrace.cli.consumer_groups.offsets import Plan, _read_plan
from headrace.cli.errors import BadUsage
from headrace.cli.main import main
from tests.cli.command import parsed_options


def plan(line: str) -> Plan:
    return _read_plan(parsed_options("consumer-groups", line))


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
        plan(f"reset-offsets g --from-file {file}")
    with pytest.raises(BadUsage, match="cannot read"):
        plan(f"reset-offsets g --from-file {tmp_path / 'missing'}")


def test_a_file_may_name_groups(tmp_path: Path) -> None:
    file = tmp_path / "plan.csv"
    file.write_text('g,t,0,5\ng,"a,b",1,7\r\n"new\nline ""x""",t,0,1\n', newline="")
    expected = {"g": {("t", 0): 5, ("a,b", 1): 7}, 'new\nline "x"': {("t", 0): 1}}
    assert plan(f"reset-offsets g --from-file {file}") == expected
    assert plan(f"reset-offsets --all-groups --from-file {file}") == expected
    file.write_text("t,0,5\n")
    assert plan(f"reset-offsets g --from-file {file}") == {"g": {("t", 0): 5}}
    with pytest.raises(BadUsage):
        plan(f"reset-offsets --all-groups --from-file {file}")
