"""`headrace consumer-groups` against a broker, and beside Kafka's own tool."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition

from headrace.admin import AdminClient
from headrace.cli.main import main
from tests.clients.confluent import PATIENCE_S, admin, consumer, create_topic, share_consumer, take
from tests.clients.conftest import Run, objects
from tests.peer import run_tool
from tests.support import unique, wait_until

CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"

COMMAND = "consumer-groups"


def commit(bootstrap_servers: str, group_id: str, **offsets: int) -> str:
    """Commit for a group without members. A name is a topic, `__` and a partition."""
    partitions = [
        TopicPartition(*name.rsplit("__", 1)[:1], int(name.rsplit("__", 1)[1]), o)
        for name, o in offsets.items()
    ]
    asked = ConsumerGroupTopicPartitions(group_id, partitions)
    answer = (
        admin(bootstrap_servers).alter_consumer_group_offsets([asked])[group_id].result(PATIENCE_S)
    )
    assert not any(one.error for one in answer.topic_partitions)
    return group_id


@pytest.fixture
def group(bootstrap_servers: str, topic: str) -> str:
    """A group without members that has committed offset 4 of partition 0."""
    return commit(bootstrap_servers, unique("group"), **{f"{topic}__0": 4})


@pytest.fixture
def busy(bootstrap_servers: str, topic: str, run: Run) -> Iterator[str]:
    """A group with a member that has both partitions and has committed offset 4 of one."""
    group_id = unique("group")
    with consumer(
        bootstrap_servers, group_id, client_id="worker-7", group_instance_id="seven"
    ) as source:
        source.subscribe([topic])
        source.commit(message=take(source, 4)[-1], asynchronous=False)
        wait_until(
            lambda: "Stable" in run("describe", group_id, "--state")[2],
            PATIENCE_S,
            "a stable group",
        )
        yield group_id


@pytest.fixture
def modern(bootstrap_servers: str, topic: str, run: Run) -> Iterator[str]:
    """A group of the consumer protocol whose member has both partitions."""
    group_id = unique("group")
    with consumer(
        bootstrap_servers, group_id, client_id="worker-8", group_protocol="consumer"
    ) as source:
        source.subscribe([topic])
        take(source, 1)

        def settled() -> bool:
            (state,) = objects(run("describe", group_id, "--state", "--json"))
            (member,) = objects(run("describe", group_id, "--members", "--json"))
            return state["state"] == "Stable" and member["assignment"] == {topic: [0, 1]}

        wait_until(settled, PATIENCE_S, "a stable group")
        yield group_id


def targets(run: Run, *arguments: str) -> list[int]:
    """Return the new offsets of a reset."""
    return [one["new_offset"] for one in objects(run("reset-offsets", *arguments, "--json"))]


def test_groups_are_listed_with_states_and_types(run: Run, group: str, busy: str) -> None:
    assert {group, busy} <= set(run("list"))
    header, *rows = run("--list", "--state", "--type")
    assert header.split() == ["GROUP", "TYPE", "STATE"]
    assert [group, "Classic", "Empty"] in [row.split() for row in rows]
    stable = [row.split() for row in run("list", "--state", "stable")]
    assert [busy, "Stable"] in stable and group not in [row[0] for row in stable]
    assert group not in "".join(run("list", "--type", "consumer"))
    assert {"group": group, "type": "Classic", "state": "Empty"} in objects(run("list", "--json"))


def test_share_groups_are_none_of_its_business(
    run: Run, bootstrap_servers: str, topic: str
) -> None:
    shared = unique("group")
    client = AdminClient({"bootstrap.servers": bootstrap_servers})
    with client, share_consumer(bootstrap_servers, shared, [topic]) as source:

        def joined() -> bool:
            source.poll(0.1)
            return shared in [
                one.group_id for one in client.list_all_groups().result(PATIENCE_S).valid
            ]

        wait_until(joined, PATIENCE_S, "the member to join")
        assert shared not in run("list")
        for action in ("describe", "delete"):
            assert shared in run(action, shared, status=1)[-1]
        assert shared in run("delete-offsets", shared, "--topic", topic, status=1)[-1]
        for action in ("--dry-run", "--execute"):
            complaint = run(
                "reset-offsets", shared, "--topic", topic, "--to-latest", action, status=1
            )[-1]
            assert complaint == f"headrace consumer-groups: Group {shared} is not a consumer group."


def test_groups_of_all_types_are_listed(
    bootstrap_servers: str, group: str, busy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def listed(*arguments: str) -> list[str]:
        capsys.readouterr()
        assert main(["groups", *arguments, "--bootstrap-server", bootstrap_servers]) == 0
        return capsys.readouterr().out.splitlines()

    header, *rows = [line.split() for line in listed("--list")]
    assert header == ["GROUP", "TYPE", "PROTOCOL"]
    assert [busy, "Classic", "consumer"] in rows and [group, "Classic"] in rows
    assert {group, busy} <= {line.split()[0] for line in listed("list", "--consumer")}
    assert not {group, busy} & {line.split()[0] for line in listed("list", "--share")}
    assert {"group": group, "type": "Classic", "protocol": "", "state": "Empty"} in objects(
        listed("list", "--json")
    )
    only = [
        line.split()[0]
        for line in listed("list", "--group-type", "classic", "--protocol", "consumer")
    ]
    assert busy in only and group not in only


def test_offsets_and_lag_are_described(run: Run, topic: str, group: str) -> None:
    empty, header, row, _, said = run("describe", group)
    assert (empty, said) == ("", f"Consumer group '{group}' has no active members.")
    assert header.split() == [
        "GROUP",
        "TOPIC",
        "PARTITION",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "CONSUMER-ID",
        "HOST",
        "CLIENT-ID",
    ]
    assert row.split() == [group, topic, "0", "4", "10", "6", "-", "-", "-"]
    (one,) = objects(run("--describe", "--group", group, "--json"))
    assert (
        one["topic"],
        one["partition"],
        one["current_offset"],
        one["log_end_offset"],
        one["lag"],
    ) == (topic, 0, 4, 10, 6)
    assert run("describe", group, "--verbose")[1].split()[3] == "LEADER-EPOCH"


def test_a_group_with_a_member_is_described(
    run: Run, bootstrap_servers: str, topic: str, busy: str
) -> None:
    first, second = objects(run("describe", busy, "--json"))
    assert [(one["partition"], one["current_offset"], one["lag"]) for one in (first, second)] == [
        (0, 4, 6),
        (1, None, None),
    ]
    assert (first["host"], first["client_id"]) == ("/127.0.0.1", "worker-7")
    _, header, row = run("describe", busy, "--members")
    assert header.split() == [
        "GROUP",
        "CONSUMER-ID",
        "GROUP-INSTANCE-ID",
        "HOST",
        "CLIENT-ID",
        "#PARTITIONS",
    ]
    assert row.split()[2:] == ["seven", "/127.0.0.1", "worker-7", "2"]
    assert run("describe", busy, "--members", "--verbose")[2].split()[6:] == [
        "-",
        f"{topic}:0,1",
        "-",
        "-",
    ]
    (member,) = objects(run("describe", busy, "--members", "--json"))
    assert (member["group_instance_id"], member["assignment"]) == ("seven", {topic: [0, 1]})
    _, header, row = run("describe", busy, "--state")
    assert header.split() == [
        "GROUP",
        "COORDINATOR",
        "(ID)",
        "ASSIGNMENT-STRATEGY",
        "STATE",
        "#MEMBERS",
    ]
    assert row.split() == [busy, bootstrap_servers, "(1)", "range", "Stable", "1"]
    (state,) = objects(run("describe", busy, "--state", "--json"))
    assert (state["state"], state["members"], state["group_epoch"]) == ("Stable", 1, None)


def test_a_group_of_the_consumer_protocol_is_described(
    run: Run, topic: str, group: str, modern: str
) -> None:
    assert [one["type"] for one in objects(run("list", "--json")) if one["group"] == modern] == [
        "Consumer"
    ]
    assert [modern, "Consumer"] in [line.split() for line in run("list", "--type", "consumer")]
    (state,) = objects(run("describe", modern, "--state", "--json"))
    assert (state["state"], state["members"], state["assignment_strategy"]) == (
        "Stable",
        1,
        "uniform",
    )
    assert state["group_epoch"] == state["target_assignment_epoch"] >= 1
    (member,) = objects(run("describe", modern, "--members", "--json"))
    assert (member["assignment"], member["target_assignment"]) == ({topic: [0, 1]}, {topic: [0, 1]})
    assert member["current_epoch"] == member["target_epoch"] == state["group_epoch"]
    assert member["upgraded"] is True
    rows = objects(run("describe", modern, group, "--json"))
    clients = [(one["partition"], one["client_id"]) for one in rows if one["group"] == modern]
    assert clients == [(0, "worker-8"), (1, "worker-8")]
    complaint = run(
        "reset-offsets", modern, "--topic", topic, "--to-latest", "--execute", status=1
    )[-1]
    assert complaint.endswith(
        f"if the group '{modern}' is inactive, but the current state is Stable."
    )


def test_a_missing_group_fails_and_the_others_are_shown(run: Run, group: str) -> None:
    missing = unique("group")
    for what in ((), ("--members",), ("--state",)):
        (complaint,) = run("describe", missing, *what, status=1)
        assert complaint == f"headrace consumer-groups: Group {missing} not found."
    shown = run("describe", missing, group, status=1)
    assert any(line.startswith(group) for line in shown)
    assert shown[-1].endswith(f"Group {missing} not found.")


def test_all_groups_are_described_at_once(
    run: Run, bootstrap_servers: str, topic: str, group: str, busy: str
) -> None:
    many = [commit(bootstrap_servers, unique("group"), **{f"{topic}__0": n}) for n in range(3)]
    found = {
        (one["group"], one["partition"]): one["lag"]
        for one in objects(run("describe", "--all-groups", "--json"))
    }
    expected = {group: 6, busy: 6, **{group_id: 10 - n for n, group_id in enumerate(many)}}
    assert {(group_id, 0): lag for group_id, lag in expected.items()}.items() <= found.items()


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (("--to-earliest",), [0, 0]),
        (("--to-latest",), [10, 0]),
        (("--to-current",), [4, 0]),
        (("--to-offset", "7"), [7, 0]),
        (("--to-offset", "99"), [10, 0]),
        (("--to-datetime", "2026-06-01T03:30:00.000"), [4, 0]),
        (("--to-datetime", "2026-06-01T03:30:00.000+02:00"), [2, 0]),
        (("--to-datetime", "2026-06-02T00:00:00.000"), [10, 0]),
        (("--by-duration", "P3650D"), [0, 0]),
        (("--by-duration", "PT0S"), [10, 0]),
    ],
)
def test_all_ways_to_say_where_to_go(
    run: Run, topic: str, group: str, how: tuple[str, ...], expected: list[int]
) -> None:
    assert targets(run, group, "--topic", topic, *how, "--dry-run") == expected
    assert targets(run, group, "--all-topics", *how, "--dry-run") == expected[:1]
    assert targets(run, group, "--topic", f"{topic}:1", *how) == expected[1:]
    assert objects(run("describe", group, "--json"))[0]["current_offset"] == 4


def test_a_duration_leads_to_the_first_record_that_is_young_enough(
    run: Run, bootstrap_servers: str, topic_name: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    now_ms = time.time_ns() // 1_000_000
    for hours in (5, 3, 1):
        producer.produce(topic_name, b"x", partition=0, timestamp=now_ms - hours * 3_600_000)
    assert producer.flush(PATIENCE_S) == 0
    group_id = commit(bootstrap_servers, unique("group"), **{f"{topic_name}__0": 0})
    for duration, offset in (("PT6H", 0), ("PT4H", 1), ("PT1H30M", 2), ("PT30M", 3)):
        how = ("--by-duration", duration, "--dry-run")
        assert targets(run, group_id, "--topic", topic_name, *how) == [offset]


def test_offsets_are_shifted_within_the_log(run: Run, topic: str, group: str) -> None:
    def shifted(by: int) -> list[int]:
        return targets(run, group, "--all-topics", "--shift-by", str(by), "--dry-run")

    assert [shifted(by) for by in (2, -3, 0, 100, -100)] == [[6], [1], [4], [10], [0]]
    lines = run("reset-offsets", group, "--topic", topic, "--shift-by", "1", "--dry-run", status=1)
    assert lines[2].split() == [group, topic, "0", "5"]
    assert lines[-1] == (
        f"headrace consumer-groups: Cannot shift offset for partition {topic}-1 "
        "since there is no current committed offset"
    )


def test_a_reset_is_done_for_one_group_or_several(run: Run, topic: str, group: str) -> None:
    new = unique("group")
    _, header, *rows = run(
        "reset-offsets", group, new, "--topic", topic, "--to-offset", "3", "--execute"
    )
    assert header.split() == ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
    assert [row.split() for row in rows[:4]] == [
        [group_id, topic, partition, offset]
        for group_id in sorted([group, new])
        for partition, offset in ("03", "10")
    ]
    lags = {
        one["group"]: one["lag"]
        for one in objects(run("describe", group, new, "--json"))
        if not one["partition"]
    }
    assert lags == {group: 7, new: 7}


def test_an_exported_plan_is_carried_out(
    run: Run, bootstrap_servers: str, topic: str, group: str, tmp_path: Path
) -> None:
    other = commit(bootstrap_servers, unique("group"), **{f"{topic}__0": 9})
    file = tmp_path / "plan.csv"
    for groups, plan in (
        ([group], [f"{topic},0,4"]),
        ([group, other], [f"{group},{topic},0,4", f"{other},{topic},0,9"]),
    ):
        exported = run(
            "reset-offsets", *groups, "--all-topics", "--to-current", "--export", "--dry-run"
        )
        assert sorted(exported) == sorted(plan)
        file.write_text("\n".join(exported) + "\n")
        run("reset-offsets", *groups, "--all-topics", "--to-earliest", "--execute")
        assert targets(run, *groups, "--from-file", str(file), "--execute") in ([4], [4, 9], [9, 4])
        described = {
            one["group"]: one["current_offset"]
            for one in objects(run("describe", *groups, "--json"))
        }
        assert described == {group: 4, other: 9} if len(groups) == 2 else {group: 4}
    stranger = unique("group")
    assert run("reset-offsets", stranger, "--from-file", str(file), status=1)[-1].endswith(
        f"No reset plan for group {stranger} found."
    )
    file.write_text(f"{group},{topic},2147483648,0\n")
    assert "line 1 of" in run("reset-offsets", group, "--from-file", str(file), status=2)[-1]


def test_what_cannot_be_reset_is_said(run: Run, topic: str, group: str, busy: str) -> None:
    missing = unique("missing")
    for scope, reason in (
        (missing, f"Topic '{missing}' does not exist."),
        (f"{topic}:7,0", f'The partitions "{topic}-7" do not exist'),
    ):
        (complaint,) = run(
            "reset-offsets", group, "--topic", scope, "--to-latest", "--execute", status=1
        )
        assert complaint == f"headrace consumer-groups: {reason}"
    lines = run(
        "reset-offsets", busy, group, "--topic", f"{topic}:0", "--to-latest", "--execute", status=1
    )
    assert [line.split() for line in lines[2:3]] == [[group, topic, "0", "10"]]
    assert lines[-1] == (
        f"headrace consumer-groups: Assignments can only be reset if the group '{busy}' is "
        f"inactive, "
        "but the current state is Stable."
    )


def test_without_execute_nothing_is_reset(run: Run, topic: str, group: str) -> None:
    assert (
        run("reset-offsets", group, "--topic", topic, "--to-latest")[-1]
        == "Nothing is reset without --execute."
    )
    assert objects(run("describe", group, "--json"))[0]["current_offset"] == 4


def test_offsets_are_deleted(run: Run, bootstrap_servers: str, topic: str, group: str) -> None:
    commit(bootstrap_servers, group, **{f"{topic}__1": 0})
    success, empty, header, first, second = run(
        "delete-offsets", "--group", group, "--topic", topic
    )
    assert (success, empty) == (f"Request succeeded for deleting offsets from group {group}.", "")
    assert header.split() == ["TOPIC", "PARTITION", "STATUS"]
    assert [first.split(), second.split()] == [
        [topic, "0", "Successful"],
        [topic, "1", "Successful"],
    ]
    assert run("describe", group) == ["", f"Consumer group '{group}' has no active members."]


def test_what_offsets_are_not_deleted_is_said(run: Run, topic: str, group: str, busy: str) -> None:
    missing, unknown = unique("zz"), "This server does not host this topic-partition."
    _, _, *rows, complaint = run(
        "delete-offsets", group, "--topic", f"{topic}:0,7", "--topic", missing, status=1
    )
    assert [row.split(maxsplit=2) for row in rows] == [
        [topic, "0", "Successful"],
        [topic, "7", f"Error: {unknown}"],
        [missing, "-", f"Error: {unknown}"],
    ]
    assert complaint == f"headrace consumer-groups: {topic}:7;{missing}: {unknown}"
    _, _, row, complaint = run("delete-offsets", unique("group"), "--topic", f"{topic}:0", status=1)
    assert row.split(maxsplit=2) == [topic, "0", "Error: The group id does not exist."]
    assert complaint == "headrace consumer-groups: The group id does not exist."
    subscribed = (
        "Deleting offsets of a topic is forbidden while the consumer group is actively "
        "subscribed to it."
    )
    *_, complaint = run("delete-offsets", busy, "--topic", topic, status=1)
    assert complaint == f"headrace consumer-groups: {topic}:0,1: {subscribed}"
    found = objects(run("delete-offsets", busy, "--topic", f"{topic}:1", "--json", status=1))
    assert found == [{"topic": topic, "partition": 1, "error": subscribed}]


def test_groups_are_deleted(
    run: Run, bootstrap_servers: str, topic: str, group: str, busy: str
) -> None:
    missing = unique("group")
    shown = run("delete", group, missing, busy, status=1)
    assert shown[0] == f"These consumer groups were deleted successfully: '{group}'"
    for group_id, reason in (
        (missing, f"Group {missing} not found"),
        (busy, "The group is not empty"),
    ):
        assert f"Group '{group_id}' could not be deleted: {reason}" in shown[-1]
    listed = run("list")
    assert group not in listed and busy in listed
    other = commit(bootstrap_servers, unique("group"), **{f"{topic}__0": 1})
    assert run("delete", other) == [
        f"Deletion of requested consumer groups ('{other}') was successful."
    ]


@pytest.mark.java
@pytest.mark.slow
def test_it_prints_what_kafkas_tool_prints(
    run: Run,
    bootstrap_servers: str,
    kafka_libs: Path,
    topic: str,
    group: str,
    busy: str,
    modern: str,
    tmp_path: Path,
) -> None:
    def kafkas(*arguments: str) -> list[str]:
        where = ("--bootstrap-server", bootstrap_servers)
        done = run_tool(CONSUMER_GROUPS, *where, *arguments, check=True)
        return [*done.stdout.splitlines(), *done.stderr.splitlines()]

    def compare(*arguments: str) -> None:
        # Kafka's partitions of a reset are in no order, its warnings come with a time, its last
        # column is padded, and long names are quoted
        def relevant(line: str) -> bool:
            return bool(line) and not re.match(
                r"NOTE|\[?\S+ \S+ WARN |WARN|Warn|Nothing is reset", line
            )

        theirs, ours = (
            sorted(line.rstrip().replace('"', "") for line in lines if relevant(line))
            for lines in (kafkas(*arguments), run(*arguments))
        )
        assert ours == theirs

    reset = ["--reset-offsets", "--group", group, "--topic", topic]
    compare("--describe", "--group", group)
    compare(
        "--describe", "--group", group, "--group", busy, "--group", modern, "--offsets", "--verbose"
    )
    compare("--describe", "--group", busy, "--members")
    compare("--describe", "--group", busy, "--members", "--verbose")
    compare("--describe", "--group", modern, "--members", "--verbose")
    compare("--describe", "--group", modern, "--state", "--verbose")
    compare("--describe", "--group", group, "--members")
    compare("--describe", "--group", busy, "--group", group, "--state")
    compare("--describe", "--group", busy, "--state", "--verbose")
    compare(*reset, "--to-offset", "99")
    compare(*reset, "--to-current", "--export", "--dry-run")
    compare(*reset, "--by-duration", "PT1H", "--dry-run")
    compare(*reset, "--to-datetime", "2026-06-01T04:00:00.000+01:00", "--execute")
    compare("--reset-offsets", "--group", group, "--all-topics", "--shift-by", "-2", "--dry-run")
    plan = tmp_path / "plan.csv"
    plan.write_text(
        "".join(
            f"{line}\n"
            for line in kafkas(*reset, "--to-latest", "--export", "--dry-run")
            if topic in line
        )
    )
    compare("--reset-offsets", "--group", group, "--from-file", str(plan), "--execute")
    assert (
        run("--list", "--state", "Stable", "--type")[0]
        == kafkas("--list", "--state", "Stable", "--type")[0].rstrip()
    )

    deleted = kafkas("--delete", "--group", group)
    run(*reset, "--to-earliest", "--execute")
    assert run("--delete", "--group", group) == [
        line for line in deleted if line and not line.startswith("NOTE")
    ]
