"""The output of Kafka's own command-line tools about groups: the layouts, and the words of their
errors.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from headrace.cli.main import main
from headrace.coordinators.hashing import internal_partition
from tests.conformance.classic import ClassicGroup, subscription
from tests.conformance.members import Member
from tests.conformance.world import EARLIEST, LATEST, OK, Group, Topic, World
from tests.peer import run_tool
from tests.support import COMMON_CONFIGS, unique

pytestmark = pytest.mark.java

SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SHARE_PERF = "org.apache.kafka.tools.ShareConsumerPerformance"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
STATE_FORMATTER = "org.apache.kafka.tools.consumer.group.share.ShareGroupStateMessageFormatter"
STATE_PARTITIONS = int(COMMON_CONFIGS["share.coordinator.state.topic.num.partitions"])


@dataclass(frozen=True, slots=True)
class Done:
    """The output of a tool and its exit status."""

    status: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        """Return the lines that are not empty, without trailing blanks."""
        return [line.rstrip() for line in self.stdout.splitlines() if line.strip()]


Tool = Callable[..., Done]


@pytest.fixture
def tool(kafka_libs: Path, world: World) -> Tool:
    """Run a tool against the broker under test."""

    def run(tool_class: str, *args: str) -> Done:
        done = run_tool(tool_class, "--bootstrap-server", world.bootstrap_servers, *args)
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def topic(world: World) -> Topic:
    return world.topic(records=10)


@pytest.fixture
def group(world: World) -> Group:
    return world.earliest_group()


@pytest.fixture
def member(topic: Topic, group: Group) -> Member:
    """A member that has accepted the first four records, then rejected the next one."""
    joined = group.join(topic)
    assert joined.fetch() == "0-9 c1"
    assert joined.ack("0-3 accept") == OK
    assert joined.ack("4 reject") == OK
    return joined


def kafka_id(topic: Topic) -> str:
    """Return a topic id as Kafka writes it."""
    return base64.urlsafe_b64encode(topic.id.bytes).decode().rstrip("=")


# case 70
def test_describing_offsets(tool: Tool, member: Member, topic: Topic, group: Group) -> None:
    start, lag = group.offsets(topic)
    assert lag == 5
    shown = tool(SHARE_GROUPS, "--describe", "--group", group.id)
    assert shown.status == 0
    assert [re.split(" +", line) for line in shown.lines] == [
        ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"],
        [group.id, topic.name, "0", str(start), "5"],
    ]
    assert shown.lines[0] == (
        f"{'GROUP':<{len(group.id)}} {'TOPIC':<{len(topic.name)}} PARTITION  START-OFFSET  LAG"
    )
    verbose = tool(SHARE_GROUPS, "--describe", "--group", group.id, "--offsets", "--verbose")
    assert [re.split(" +", line) for line in verbose.lines] == [
        ["GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "START-OFFSET", "LAG"],
        [group.id, topic.name, "0", "0", str(start), "5"],
    ]


# case 70
def test_describing_offsets_that_are_not_known(tool: Tool, topic: Topic, group: Group) -> None:
    group.join(topic)
    shown = tool(SHARE_GROUPS, "--describe", "--group", group.id)
    assert shown.lines[1].split() == [group.id, topic.name, "0", "-", "-"]


def test_describing_members_and_state(
    tool: Tool, member: Member, topic: Topic, group: Group
) -> None:  # case 70
    members = tool(SHARE_GROUPS, "--describe", "--group", group.id, "--members", "--verbose")
    assert [line.split() for line in members.lines] == [
        ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "MEMBER-EPOCH", "ASSIGNMENT"],
        [group.id, member.id, "/127.0.0.1", "raw", "1", str(member.epoch), f"{topic.name}:0"],
    ]
    state = tool(SHARE_GROUPS, "--describe", "--group", group.id, "--state", "--verbose")
    group_epoch, assignment_epoch = group.epochs
    coordinator = f"{group.world.bootstrap_servers}  (1)"
    assert [re.split(" {2,}| (?=[A-Z#0-9])", line) for line in state.lines] == [
        ["GROUP", "COORDINATOR (ID)", "STATE", "GROUP-EPOCH", "ASSIGNMENT-EPOCH", "#MEMBERS"],
        [
            group.id,
            *coordinator.split("  "),
            "Stable",
            str(group_epoch),
            str(assignment_epoch),
            "1",
        ],
    ]


# case 70
def test_describing_a_group_without_members(tool: Tool, topic: Topic, group: Group) -> None:
    group.join(topic).leave()
    shown = tool(SHARE_GROUPS, "--describe", "--group", group.id, "--state")
    assert shown.status == 0
    assert f"Share group '{group.id}' has no active members." in shown.stdout + shown.stderr
    assert shown.lines[-1].split() == [group.id, group.world.bootstrap_servers, "(1)", "Empty", "0"]


def test_describing_a_group_that_is_not_there(tool: Tool, group: Group) -> None:  # case 70
    shown = tool(SHARE_GROUPS, "--describe", "--group", group.id)
    assert shown.status == 0
    assert (
        "Error: Executing share group command failed due to "
        f"org.apache.kafka.common.errors.GroupIdNotFoundException: Group {group.id} not found."
    ) in shown.lines


def test_resetting_offsets(tool: Tool, topic: Topic, group: Group) -> None:  # case 71
    asked = ["--reset-offsets", "--group", group.id, "--topic", topic.name, "--to-latest"]
    refused = tool(SHARE_GROUPS, *asked)
    assert refused.status == 1
    assert "Option [reset-offsets] takes the option: [execute] or [dry-run]" in refused.stderr
    table = [["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"], [group.id, topic.name, "0", "10"]]
    for how, offsets in (("--dry-run", {}), ("--execute", {topic.name: {0: (10, 0)}})):
        done = tool(SHARE_GROUPS, *asked, how)
        assert (done.status, [line.split() for line in done.lines]) == (0, table)
        assert group.topics_with_offsets == offsets


def test_deleting_offsets(tool: Tool, topic: Topic, group: Group) -> None:
    group.alter(topic.name, {0: 4})
    done = tool(
        SHARE_GROUPS,
        *f"--delete-offsets --group {group.id} --topic {topic.name} --topic nope".split(),
    )
    assert {tuple(line.split(maxsplit=1)) for line in done.lines} >= {
        ("TOPIC", "STATUS"),
        (topic.name, "Successful"),
        ("nope", "Error: This server does not host this topic-partition."),
    }
    assert group.topics_with_offsets == {}


def test_deleting_groups(tool: Tool, topic: Topic, group: Group) -> None:  # case 72
    group.alter(topic.name, {0: 4})
    missing = group.world.group().id
    done = tool(SHARE_GROUPS, "--delete", "--group", missing, "--group", group.id)
    assert done.status == 0
    assert done.lines == [
        "Error: Deletion of some share groups failed:",
        f"* Group '{missing}' could not be deleted due to: "
        "org.apache.kafka.common.errors.GroupIdNotFoundException: "
        f"Group '{missing}' is not a share group.",
        f"These share groups were deleted successfully: '{group.id}'",
    ]
    assert group.listed is None


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        ("list", "--list --state"),
        ("describe {group}", "--describe --group {group} --state"),
        ("describe {group} -o wide", "--describe --group {group} --state --verbose"),
        ("members {group}", "--describe --group {group} --members"),
        ("members {group} -o wide", "--describe --group {group} --members --verbose"),
        ("offsets {group}", "--describe --group {group}"),
        ("offsets {group} -o wide", "--describe --group {group} --offsets --verbose"),
    ],
)
def test_our_command_prints_the_table_of_the_tool(
    tool: Tool,
    member: Member,
    group: Group,
    capsys: pytest.CaptureFixture[str],
    verb: str,
    options: str,
) -> None:
    words = f"groups {verb} --kafka-format -b {group.world.bootstrap_servers}"
    assert main(words.format(group=group.id).split()) == 0
    ours = capsys.readouterr().out.splitlines()
    kafkas = tool(SHARE_GROUPS, *options.format(group=group.id).split()).stdout.splitlines()
    if verb == "list":  # other groups, too, which make columns wider
        ours, kafkas = (
            [" ".join(line.split()) for line in lines if line.split()[0] in ("GROUP", group.id)]
            for lines in (ours, kafkas)
        )
    assert ours == [line.rstrip() for line in kafkas]


def test_our_command_prints_the_table_of_changed_offsets(
    tool: Tool, topic: Topic, group: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, options in (
        ("reset {group} --to latest --type share", "--reset-offsets --to-latest --execute"),
        ("delete-offsets {group}", "--delete-offsets"),
    ):
        group.alter(topic.name, {0: 4})
        kafkas = tool(
            SHARE_GROUPS, *options.split(), "--group", group.id, "--topic", topic.name
        ).stdout
        group.alter(topic.name, {0: 4})
        named = f"--topic {topic.name} --kafka-format --yes -b {group.world.bootstrap_servers}"
        assert main(["groups", *words.format(group=group.id).split(), *named.split()]) == 0
        assert capsys.readouterr().out == kafkas


# case 73
def test_deleting_offsets_of_a_consumer_group(tool: Tool, world: World, topic: Topic) -> None:
    group, other = ClassicGroup(world), world.topic(partitions=2)

    def deleted(group_id: str, *topics: str) -> list[tuple[str, ...]]:
        named = [word for name in topics for word in ("--topic", name)]
        done = tool(CONSUMER_GROUPS, "--delete-offsets", "--group", group_id, *named)
        assert done.status == 0
        return [tuple(line.split(maxsplit=2)) for line in done.lines]

    def said(text: str) -> tuple[str, ...]:
        return tuple(text.split(maxsplit=2))

    errors = "Error: org.apache.kafka.common.errors."
    header = ("TOPIC", "PARTITION", "STATUS")
    no_group = f"{errors}GroupIdNotFoundException: The group id does not exist."
    no_topic = (
        f"{errors}UnknownTopicOrPartitionException: This server does not host this topic-partition."
    )
    subscribed = (
        f"{errors}GroupSubscribedToTopicException: Deleting offsets of a topic is forbidden "
        "while the consumer group is actively subscribed to it."
    )
    assert deleted(unique("group"), f"{topic.name}:0", "nope") == [
        said("Error: The group id does not exist."),
        header,
        ("nope", "-", no_topic),
        (topic.name, "0", no_group),
    ]
    assert [group.commit(one, {0: 1}) for one in (topic, other)] == [{0: OK}, {0: OK}]
    assert deleted(group.id, f"{topic.name}:0,9") == [
        said("Error: Encountered some partition-level error, see the follow-up details."),
        header,
        (topic.name, "0", "Successful"),
        (topic.name, "9", no_topic),
    ]
    assert group.committed == {other.name: {0: 1}}
    group.commit(topic, {0: 1})
    group.join(subscription(topic.name))
    table = {
        (topic.name, "0", subscribed),
        (other.name, "0", "Successful"),
        (other.name, "1", "Successful"),
    }
    assert set(deleted(group.id, topic.name, other.name)[2:]) == table
    assert group.committed == {topic.name: {0: 1}}
    assert deleted(group.id, other.name) == [
        said(f"Request succeeded for deleting offsets from group {group.id}."),
        header,
        (other.name, "0", "Successful"),
        (other.name, "1", "Successful"),
    ]


def test_our_command_prints_the_table_of_deleted_offsets_of_a_consumer_group(
    tool: Tool, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = world.topic(partitions=2)
    ours, kafkas = ClassicGroup(world), ClassicGroup(world)
    for group in (ours, kafkas):
        assert group.commit(topic, {0: 1, 1: 1}) == {0: OK, 1: OK}
    words = f"groups delete-offsets {ours.id} --topic {topic.name} --kafka-format --yes"
    assert main([*words.split(), "-b", world.bootstrap_servers]) == 0
    printed = capsys.readouterr().out.splitlines()
    options = f"--delete-offsets --group {kafkas.id} --topic {topic.name}"
    assert printed[1:] == tool(CONSUMER_GROUPS, *options.split()).lines[1:]


def test_printing_share_state(tool: Tool, world: World, topic: Topic, group: Group) -> None:
    state = group.state(topic)
    assert state.initialize(state_epoch=1, start_offset=0) == OK
    assert (
        state.write(
            (0, 3, 2, 1), state_epoch=1, leader_epoch=0, start_offset=0, delivery_complete_count=4
        )
        == OK
    )
    assert state.delete() == OK
    key = {"groupId": group.id, "topicId": kafka_id(topic), "partition": 0}
    shard = internal_partition(f"{group.id}:{kafka_id(topic)}:0", STATE_PARTITIONS)
    states = Topic(world, "__share_group_state", UUID(int=0))
    count = states.list_offset(LATEST, shard) - states.list_offset(EARLIEST, shard)
    options = (
        f"--topic {states.name} --partition {shard} --offset earliest --max-messages {count} "
        f"--formatter {STATE_FORMATTER} --timeout-ms 60000"
    )
    done = tool(CONSOLE_CONSUMER, *options.split())
    printed, rest, decoder = [], done.stdout.strip(), json.JSONDecoder()
    while rest:
        one, end = decoder.raw_decode(rest)
        printed.append(one)
        rest = rest[end:].lstrip()
    (first, snapshot), (second, update), tombstone = (
        (one["key"]["type"], one["value"] and one["value"]["data"])
        for one in printed
        if one["key"]["data"] == key
    )
    assert (first, second, tombstone) == (0, 1, (0, None))
    assert snapshot.pop("createTimestamp") == snapshot.pop("writeTimestamp")
    assert snapshot == {
        "snapshotEpoch": 0,
        "stateEpoch": 1,
        "leaderEpoch": 0,
        "startOffset": 0,
        "deliveryCompleteCount": 0,
        "stateBatches": [],
    }
    assert update == {
        "snapshotEpoch": 0,
        "leaderEpoch": 0,
        "startOffset": 0,
        "deliveryCompleteCount": 4,
        "stateBatches": [
            {"firstOffset": 0, "lastOffset": 3, "deliveryState": 2, "deliveryCount": 1}
        ],
    }


def test_measuring_a_share_consumer(tool: Tool, world: World, group: Group) -> None:  # case 74
    topic = world.topic()
    topic.produce(*[500] * 10)
    done = tool(
        SHARE_PERF,
        *f"--topic {topic.name} --group {group.id} --num-records 5000 --timeout 60000".split(),
    )
    assert done.status == 0
    header, measured = done.lines[-2:]
    assert header == (
        "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, "
        "data.consumed.in.nMsg, fetch.time.ms"
    )
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
    assert re.fullmatch(
        rf"{time}, {time}, \d+\.\d{{4}}, \d+\.\d{{4}}, \d+\.\d{{4}}, 5000, \d+", measured
    )
