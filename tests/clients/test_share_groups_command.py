"""`headrace share-groups` against a broker, and beside Kafka's own tool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, Message, ShareConsumer

from tests.clients.confluent import (
    PATIENCE_S,
    poll_share,
    produce,
    share_consumer,
    share_from_earliest,
)
from tests.clients.conftest import Run, objects
from tests.peer import run_tool
from tests.support import unique, wait_until

SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"

COMMAND = "share-groups"


@pytest.fixture
def group(bootstrap_servers: str, topic: str) -> str:
    """A group without members that has accepted all ten records."""
    group_id = share_from_earliest(bootstrap_servers, unique("group"))
    seen = []
    with share_consumer(bootstrap_servers, group_id, [topic]) as source:

        def accept(message: Message) -> None:
            seen.append(message.offset())
            source.acknowledge(message, AcknowledgeType.ACCEPT)

        poll_share(source, lambda: len(seen) >= 10, accept)
        source.commit_sync(PATIENCE_S)
    return group_id


@pytest.fixture
def busy(bootstrap_servers: str, topic: str, run: Run) -> Iterator[str]:
    """A group with one member that has both partitions."""
    group_id = unique("group")
    configs = {"client_id": "packer-7", "share_acknowledgement_mode": "implicit"}
    with share_consumer(bootstrap_servers, group_id, [topic], **configs) as source:
        wait_until(lambda: _assigned(source, run, group_id), PATIENCE_S, "an assignment")
        yield group_id


def _assigned(source: ShareConsumer, run: Run, group_id: str) -> bool:
    source.poll(0.1)
    if group_id not in run("list"):
        return False
    members = objects(run("describe", group_id, "--members", "--json"))
    return [len(numbers) for member in members for numbers in member["assignment"].values()] == [2]


def test_groups_are_listed_with_and_without_states(run: Run, group: str) -> None:
    assert group in run("list")
    header, *rows = run("--list", "--state")
    assert header.split() == ["GROUP", "STATE"]
    assert [group, "Empty"] in [row.split() for row in rows]
    assert group not in "".join(run("list", "--state", "stable"))
    assert {"group": group, "state": "Empty"} in objects(run("list", "--json"))


def test_offsets_and_lag_are_described(
    run: Run, bootstrap_servers: str, topic: str, group: str
) -> None:
    produce(bootstrap_servers, topic, [b"y"] * 3, partition=0)
    empty, header, first, second = run("describe", group)
    assert empty == ""
    assert header.split() == ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"]
    assert first.split()[:3] + first.split()[4:] == [group, topic, "0", "3"]
    assert second.split()[:3] == [group, topic, "1"]
    of_first, of_second = objects(run("--describe", "--group", group, "--json"))
    assert (of_first["topic"], of_first["partition"], of_first["lag"]) == (topic, 0, 3)
    assert of_second["partition"] == 1
    assert run("describe", group, "--verbose")[1].split()[3] == "LEADER-EPOCH"


def test_members_and_states_are_described(
    run: Run, bootstrap_servers: str, topic: str, busy: str
) -> None:
    _, header, row = run("describe", busy, "--members", "--verbose")
    assert header.split() == [
        "GROUP",
        "CONSUMER-ID",
        "HOST",
        "CLIENT-ID",
        "#PARTITIONS",
        "MEMBER-EPOCH",
        "ASSIGNMENT",
    ]
    assert row.split()[2:5] + row.split()[6:] == ["/127.0.0.1", "packer-7", "2", f"{topic}:0,1"]
    (member,) = objects(run("describe", busy, "--members", "--json"))
    assert (member["client_id"], member["assignment"]) == ("packer-7", {topic: [0, 1]})
    _, header, row = run("describe", busy, "--state")
    assert header.split() == ["GROUP", "COORDINATOR", "(ID)", "STATE", "#MEMBERS"]
    assert row.split() == [busy, bootstrap_servers, "(1)", "Stable", "1"]
    (state,) = objects(run("describe", busy, "--state", "--json"))
    assert (state["group"], state["state"], state["members"]) == (busy, "Stable", 1)


def test_a_group_without_members_says_so(run: Run, group: str) -> None:
    assert run("describe", group, "--members") == [
        "",
        f"Share group '{group}' has no active members.",
    ]
    assert run("describe", group, "--state")[2].split()[-2:] == ["Empty", "0"]


def test_a_missing_group_fails_and_the_others_are_shown(run: Run, group: str) -> None:
    missing = unique("group")
    for what in ((), ("--members",), ("--state",)):
        (complaint,) = run("describe", missing, *what, status=1)
        assert complaint == f"headrace share-groups: Group {missing} not found."
    shown = run("describe", missing, group, status=1)
    assert any(line.startswith(group) for line in shown)
    assert shown[-1].endswith(f"Group {missing} not found.")


def test_a_dry_run_of_a_reset_changes_nothing(run: Run, topic: str, group: str) -> None:
    before = objects(run("describe", group, "--json"))
    _, header, *rows = run("reset-offsets", group, "--topic", topic, "--to-earliest", "--dry-run")
    assert header.split() == ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
    assert [row.split() for row in rows] == [[group, topic, "0", "0"], [group, topic, "1", "0"]]
    assert objects(run("describe", group, "--json")) == before


def test_times_are_found_as_offsets(run: Run, topic: str, group: str) -> None:
    def target(when: str) -> list[int]:
        lines = run(
            "reset-offsets",
            group,
            "--topic",
            f"{topic}:0",
            "--to-datetime",
            when,
            "--dry-run",
            "--json",
        )
        return [
            one["new_offset"]
            for one in objects([line for line in lines if not line.startswith("Warn")])
        ]

    assert target("2026-06-01T04:00:00.000") == [4]
    assert target("2026-06-01T04:00:00.000+02:00") == [2]
    assert target("2026-06-01T03:30:00Z") == [4]
    assert target("2026-06-02T00:00:00.000") == [10]


def test_a_reset_is_done(run: Run, topic: str, group: str) -> None:
    def standing() -> list[tuple[int, int]]:
        return [
            (one["start_offset"], one["lag"]) for one in objects(run("describe", group, "--json"))
        ]

    run(
        "reset-offsets",
        group,
        "--all-topics",
        "--to-datetime",
        "2026-06-01T07:00:00.000",
        "--execute",
    )
    assert standing() == [(7, 3), (0, 0)]
    run("reset-offsets", group, "--topic", f"{topic}:0", "--to-earliest", "--execute")
    assert standing() == [(0, 10), (0, 0)]
    run("reset-offsets", group, "--topic", topic, "--to-latest", "--execute")
    assert standing() == [(10, 0), (0, 0)]


def test_a_new_group_can_be_reset_before_it_exists(run: Run, topic: str) -> None:
    new = unique("group")
    run("reset-offsets", new, "--topic", f"{topic}:0", "--to-earliest", "--execute")
    (one,) = objects(run("describe", new, "--json"))
    assert (one["start_offset"], one["lag"]) == (0, 10)


def test_what_cannot_be_reset_is_said(run: Run, topic: str, group: str) -> None:
    missing = unique("missing")
    for scope, reason in (
        (missing, f"Topic '{missing}' does not exist."),
        (f"{topic}:7,0", f'The partitions "{topic}-7" do not exist'),
    ):
        (complaint,) = run(
            "reset-offsets", group, "--topic", scope, "--to-latest", "--dry-run", status=1
        )
        assert complaint == f"headrace share-groups: {reason}"


def test_a_group_with_members_is_left_alone(run: Run, topic: str, busy: str) -> None:
    (complaint,) = run(
        "reset-offsets", busy, "--topic", topic, "--to-latest", "--execute", status=1
    )
    assert complaint == f"headrace share-groups: Share group '{busy}' is not empty."
    lines = run("delete-offsets", busy, "--topic", topic, status=1)
    assert lines[2].split(maxsplit=1) == [topic, "Error: The group is not empty."]
    (complaint,) = run("delete", busy, status=1)
    assert complaint == (
        f"headrace share-groups: Group '{busy}' could not be deleted: Share group '{busy}' "
        f"is not empty."
    )
    assert busy in run("list")


def test_offsets_are_deleted(run: Run, topic: str, group: str) -> None:
    missing = unique("zz")
    _, header, first, second, complaint = run(
        "delete-offsets", group, "--topic", topic, "--topic", missing, status=1
    )
    assert header.split() == ["TOPIC", "STATUS"]
    assert first.split() == [topic, "Successful"]
    assert second.split(maxsplit=1)[1] == "Error: This server does not host this topic-partition."
    assert complaint.endswith(f"{missing}: This server does not host this topic-partition.")
    assert run("describe", group) == ["", f"Share group '{group}' has no offset information."]
    assert objects(run("describe", group, "--json")) == []


def test_groups_are_deleted(run: Run, group: str) -> None:
    missing = unique("group")
    shown = run("delete", group, missing, status=1)
    assert shown[0] == f"These share groups were deleted successfully: '{group}'"
    assert missing in shown[1] and group not in shown[1]
    assert group not in run("list")


def test_deleting_says_what_was_deleted(run: Run, group: str) -> None:
    assert run("delete", group) == [
        f"Deletion of requested share groups ('{group}') was successful."
    ]


@pytest.mark.java
@pytest.mark.slow
def test_it_prints_what_kafkas_tool_prints(
    run: Run, bootstrap_servers: str, kafka_libs: Path, topic: str, group: str, busy: str
) -> None:
    def kafkas(*arguments: str) -> list[str]:
        where = ("--bootstrap-server", bootstrap_servers)
        done = run_tool(SHARE_GROUPS, *where, *arguments, check=True)
        return done.stdout.splitlines()

    def compare(*arguments: str) -> None:
        # Kafka's warnings are among the results, and its partitions of a reset are in no order
        theirs, ours = (
            sorted(line for line in lines if line and not line.startswith("Warn"))
            for lines in (kafkas(*arguments), run(*arguments))
        )
        assert ours == theirs

    reset = ["--reset-offsets", "--group", group, "--topic", topic]
    compare("--describe", "--group", group)
    compare("--describe", "--group", group, "--group", busy, "--offsets", "--verbose")
    compare("--describe", "--group", busy, "--members")
    compare("--describe", "--group", busy, "--members", "--verbose")
    compare("--describe", "--group", busy, "--state")
    compare("--describe", "--group", busy, "--state", "--verbose")
    compare(*reset, "--to-latest", "--dry-run")
    compare(*reset, "--to-datetime", "2026-06-01T04:00:00.000+01:00", "--execute")
    assert run("--list", "--state", "Stable")[0] == kafkas("--list", "--state", "Stable")[0]

    deleted = kafkas("--delete-offsets", "--group", group, "--topic", topic)
    compare("--describe", "--group", group)
    run(*reset, "--to-earliest", "--execute")
    assert run("--delete-offsets", "--group", group, "--topic", topic) == deleted
    deleted = kafkas("--delete", "--group", group)
    run(*reset, "--to-earliest", "--execute")
    assert run("--delete", "--group", group) == [line for line in deleted if line]
