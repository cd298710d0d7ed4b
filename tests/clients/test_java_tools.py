"""Ordinary work with Kafka's own command-line tools.

A JVM takes a second or two to start, so a test runs several commands on one topic.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from headrace.coordinators.hashing import internal_partition
from headrace.share.records import SharePartitionKey
from tests.clients.confluent import (
    PATIENCE_S,
    consumer,
    create_topic,
    produce,
    share_from_earliest,
    take,
)
from tests.conformance.classic import ClassicGroup, subscription
from tests.conformance.producers import Transactional
from tests.conformance.streams import HEARTBEAT, heartbeat, subtopology
from tests.conformance.world import OK, Group, ShareState, World
from tests.peer import run_tool
from tests.support import COMMON_CONFIGS, unique, wait_until

pytestmark = [pytest.mark.java, pytest.mark.slow]

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "org.apache.kafka.tools.ConfigCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSOLE_SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
STREAMS_GROUPS = "org.apache.kafka.tools.streams.StreamsGroupCommand"
GROUPS = "org.apache.kafka.tools.GroupsCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
DUMP_LOG = "org.apache.kafka.tools.DumpLogSegments"
SHARE_STATE_FORMATTER = (
    "org.apache.kafka.tools.consumer.group.share.ShareGroupStateMessageFormatter"
)
OFFSETS_FORMATTER = "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"
GROUPS_FORMATTER = "org.apache.kafka.tools.consumer.GroupMetadataMessageFormatter"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
CLIENT_METRICS = "org.apache.kafka.tools.ClientMetricsCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"

Tool = Callable[..., str]


@pytest.fixture
def tool(kafka_libs: Path, bootstrap_servers: str) -> Tool:
    """Run a tool against the broker under test, and check that it succeeds; return its output."""

    def run(tool_class: str, *args: str, stdin: str = "", bootstrap: bool = True) -> str:
        where = ["--bootstrap-server", bootstrap_servers] if bootstrap else []
        done = run_tool(tool_class, *where, *args, stdin=stdin)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        assert "Exception" not in done.stdout, done.stdout
        return done.stdout

    return run


def rows(output: str) -> list[list[str]]:
    """Return the non-empty lines of a table, split into words."""
    return [line.split() for line in output.splitlines() if line.strip()]


def test_topic_command(tool: Tool, topic_name: str) -> None:
    created = tool(
        TOPICS,
        "--create",
        "--topic",
        topic_name,
        "--partitions",
        "3",
        "--replication-factor",
        "1",
        "--config",
        "retention.ms=3600000",
    )
    assert f"Created topic {topic_name}." in created
    tool(TOPICS, "--alter", "--topic", topic_name, "--partitions", "4")
    described = tool(TOPICS, "--describe", "--topic", topic_name)
    assert re.search(
        rf"Topic: {topic_name}\tTopicId: [\w-]{{22}}\tPartitionCount: 4\tReplicationFactor: 1\t"
        r"Configs: .*retention.ms=3600000",
        described,
    )
    assert re.search(r"Partition: 3\tLeader: 1\tReplicas: 1\tIsr: 1", described)
    assert topic_name in tool(TOPICS, "--list").split()
    tool(TOPICS, "--delete", "--topic", topic_name)
    assert topic_name not in tool(TOPICS, "--list").split()


def test_config_command(tool: Tool, bootstrap_servers: str, topic_name: str, group_id: str) -> None:
    create_topic(bootstrap_servers, topic_name)
    of_topic = ["--entity-type", "topics", "--entity-name", topic_name]
    tool(
        CONFIGS,
        *of_topic,
        "--alter",
        "--add-config",
        "retention.ms=1234567,cleanup.policy=[compact,delete]",
    )
    shown = tool(CONFIGS, *of_topic, "--describe")
    assert "retention.ms=1234567 sensitive=false" in shown
    assert "cleanup.policy=compact,delete" in shown
    tool(CONFIGS, *of_topic, "--alter", "--delete-config", "retention.ms,cleanup.policy")
    assert "retention.ms" not in tool(CONFIGS, *of_topic, "--describe")

    of_group = ["--entity-type", "groups", "--entity-name", group_id]
    tool(CONFIGS, *of_group, "--alter", "--add-config", "share.auto.offset.reset=earliest")
    assert "share.auto.offset.reset=earliest" in tool(CONFIGS, *of_group, "--describe")
    brokers = tool(CONFIGS, "--entity-type", "brokers", "--entity-name", "1", "--describe", "--all")
    assert "group.initial.rebalance.delay.ms=0" in brokers


def test_console_producer_and_consumer(tool: Tool, topic_name: str, group_id: str) -> None:
    tool(TOPICS, "--create", "--topic", topic_name)
    tool(CONSOLE_PRODUCER, "--topic", topic_name, stdin="one\ntwo\nthree\n")
    tool(
        CONSOLE_PRODUCER,
        "--topic",
        topic_name,
        "--reader-property",
        "parse.key=true",
        "--reader-property",
        "key.separator=:",
        "--compression-codec",
        "zstd",
        stdin="k:four\n",
    )
    first = tool(
        CONSOLE_CONSUMER,
        "--topic",
        topic_name,
        "--group",
        group_id,
        "--from-beginning",
        "--max-messages",
        "4",
        "--formatter-property",
        "print.key=true",
        "--formatter-property",
        "print.offset=true",
        "--timeout-ms",
        "60000",
    )
    assert first.splitlines() == [
        "Offset:0\tnull\tone",
        "Offset:1\tnull\ttwo",
        "Offset:2\tnull\tthree",
        "Offset:3\tk\tfour",
    ]
    tool(CONSOLE_PRODUCER, "--topic", topic_name, stdin="five\n")
    rest = tool(
        CONSOLE_CONSUMER,
        *f"--topic {topic_name} --group {group_id} --max-messages 1 --timeout-ms 60000".split(),
    )
    assert rest.splitlines() == ["five"]


def test_console_share_consumer(
    tool: Tool, bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    share_from_earliest(bootstrap_servers, group_id)
    produce(bootstrap_servers, topic_name, [b"one", b"two", b"three"])
    shown = [
        "--formatter-property",
        "print.offset=true",
        "--formatter-property",
        "print.delivery=true",
    ]
    wanted = f"--topic {topic_name} --group {group_id} --max-messages 3 --timeout-ms 60000".split()
    released = tool(CONSOLE_SHARE_CONSUMER, *wanted, *shown, "--release")
    values = ["one", "two", "three"]
    assert released.splitlines() == [
        f"Offset:{i}\tDelivery:1\t{value}" for i, value in enumerate(values)
    ]
    accepted = tool(CONSOLE_SHARE_CONSUMER, *wanted, *shown)
    assert accepted.splitlines() == [
        f"Offset:{i}\tDelivery:2\t{value}" for i, value in enumerate(values)
    ]


def test_share_group_command(
    tool: Tool, bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    share_from_earliest(bootstrap_servers, group_id)
    produce(bootstrap_servers, topic_name, [f"{i}".encode() for i in range(10)])
    consume = (
        f"--topic {topic_name} --group {group_id} --max-messages 10 --timeout-ms 60000".split()
    )
    assert len(tool(CONSOLE_SHARE_CONSUMER, *consume).splitlines()) == 10
    produce(bootstrap_servers, topic_name, [b"10", b"11"])

    assert group_id in tool(SHARE_GROUPS, "--list").split()
    assert [group_id, "Empty"] in rows(tool(SHARE_GROUPS, "--list", "--state"))
    header, row = rows(tool(SHARE_GROUPS, "--describe", "--group", group_id))
    assert header == ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"]
    assert row[:3] == [group_id, topic_name, "0"]
    assert row[4] == "2"
    state = rows(tool(SHARE_GROUPS, "--describe", "--group", group_id, "--state"))
    assert state[-1] == [group_id, bootstrap_servers, "(1)", "Empty", "0"]
    # it says so on stderr
    assert rows(tool(SHARE_GROUPS, "--describe", "--group", group_id, "--members")) == []
    assert [group_id, "Share", "share"] in rows(tool(GROUPS, "--list"))


def test_consumer_group_command(
    tool: Tool, bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    produce(bootstrap_servers, topic_name, [f"{i}".encode() for i in range(10)])
    with consumer(bootstrap_servers, group_id, client_id="worker-7") as source:
        source.subscribe([topic_name])
        source.commit(message=take(source, 4)[-1], asynchronous=False)
        (_, row) = rows(tool(CONSUMER_GROUPS, "--describe", "--group", group_id))
        assert row[:6] == [group_id, topic_name, "0", "4", "10", "6"]
        assert row[6].startswith("worker-7-")
        assert row[7:] == ["/127.0.0.1", "worker-7"]
    described = rows(tool(CONSUMER_GROUPS, "--describe", "--group", group_id))
    assert described[-1] == [group_id, topic_name, "0", "4", "10", "6", "-", "-", "-"]
    state = rows(tool(CONSUMER_GROUPS, "--describe", "--group", group_id, "--state"))
    assert state[-1][:4] == [group_id, bootstrap_servers, "(1)", "range"] or state[-1][-2:] == [
        "Empty",
        "0",
    ]
    reset = tool(
        CONSUMER_GROUPS,
        *f"--reset-offsets --group {group_id} --topic {topic_name} --to-earliest --execute".split(),
    )
    assert rows(reset)[-1] == [group_id, topic_name, "0", "0"]
    deleted = tool(CONSUMER_GROUPS, "--delete", "--group", group_id)
    assert f"Deletion of requested consumer groups ('{group_id}') was successful." in deleted
    assert group_id not in tool(CONSUMER_GROUPS, "--list").split()


def test_streams_group_command(
    tool: Tool, bootstrap_servers: str, target: str, group_id: str
) -> None:
    world = World(bootstrap_servers, target)
    world.warm_up()
    topic = world.topic(partitions=2)
    no_delay = Group(world, group_id).configure("streams.initial.rebalance.delay.ms", "0")
    assert no_delay == OK
    topology = {"epoch": 0, "subtopologies": [subtopology("0", topic.name)]}
    assert world.ask(HEARTBEAT, 0, **heartbeat(group_id, "m", 0, topology=topology)).status == ()
    assert world.ask(HEARTBEAT, 0, **heartbeat(group_id, "m", -1)).error_code == 0
    world.close()

    assert group_id in tool(STREAMS_GROUPS, "--list").split()
    assert [group_id, "Empty"] in rows(tool(STREAMS_GROUPS, "--list", "--state"))
    state = rows(tool(STREAMS_GROUPS, "--describe", "--group", group_id, "--state"))
    columns = [*state[-1][:3], *state[-1][-2:]]  # without the assignor
    assert columns == [group_id, bootstrap_servers, "(1)", "Empty", "0"]
    assert [group_id, "Streams", "streams"] in rows(tool(GROUPS, "--list"))
    deleted = tool(STREAMS_GROUPS, "--delete", "--group", group_id)
    assert f"Deletion of requested streams groups ('{group_id}') was successful." in deleted
    assert group_id not in tool(STREAMS_GROUPS, "--list").split()


def test_offsets_and_deleted_records(
    tool: Tool, bootstrap_servers: str, topic_name: str, tmp_path: Path
) -> None:
    create_topic(bootstrap_servers, topic_name, partitions=2)
    produce(bootstrap_servers, topic_name, [b"x"] * 10, partition=0)
    assert tool(OFFSETS, "--topic", topic_name).split() == [
        f"{topic_name}:0:10",
        f"{topic_name}:1:0",
    ]
    order = tmp_path / "delete.json"
    order.write_text(
        f'{{"partitions": [{{"topic": "{topic_name}", "partition": 0, "offset": 4}}], '
        f'"version": 1}}'
    )
    assert "low_watermark: 4" in tool(DELETE_RECORDS, "--offset-json-file", str(order))
    earliest = tool(OFFSETS, "--topic", topic_name, "--time", "earliest").split()
    assert earliest == [f"{topic_name}:0:4", f"{topic_name}:1:0"]


def test_api_versions_are_understood(tool: Tool) -> None:
    shown = tool(API_VERSIONS)
    assert re.search(r"Produce\(0\): \d+ to 13 \[usable: 13\]", shown)
    assert re.search(r"ShareFetch\(78\): 1 to 2 \[usable: 2\]", shown)


def test_quorum_and_feature_commands(tool: Tool) -> None:
    status = dict(
        line.split(":", 1) for line in tool(QUORUM, "describe", "--status").splitlines() if line
    )
    assert status["LeaderId"].strip() == "1"
    assert int(status["LeaderEpoch"]) >= 0
    assert int(status["HighWatermark"]) >= 0
    assert '"id": 1' in status["CurrentVoters"]
    replication = rows(tool(QUORUM, "describe", "--replication"))
    assert replication[1][0] == "1"
    assert replication[1][-1] == "Leader"

    described = tool(FEATURES, "describe")
    for name, levels in (("group.version", "0 1 1"), ("transaction.version", "0 2 2")):
        lowest, highest, level = levels.split()
        assert re.search(
            rf"Feature: {name}\s+SupportedMinVersion: {lowest}\s+SupportedMaxVersion: {highest}\s+"
            rf"FinalizedVersionLevel: {level}\s+Epoch: \d+",
            described,
        )
    upgraded = tool(FEATURES, "upgrade", "--feature", "group.version=1")
    assert "group.version was upgraded to 1." in upgraded
    downgraded = tool(FEATURES, "downgrade", "--feature", "transaction.version=1", "--dry-run")
    assert "transaction.version can be downgraded to 1." in downgraded


def test_reassignment_and_election_commands(
    tool: Tool, bootstrap_servers: str, topic_name: str, tmp_path: Path
) -> None:
    create_topic(bootstrap_servers, topic_name, partitions=2)
    assert "No partition reassignments found." in tool(REASSIGN, "--list")
    wanted = tmp_path / "topics.json"
    wanted.write_text(json.dumps({"topics": [{"topic": topic_name}], "version": 1}))
    generated = tool(
        REASSIGN, "--topics-to-move-json-file", str(wanted), "--broker-list", "1", "--generate"
    )
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(json_values(generated)[-1]))
    executed = tool(REASSIGN, "--reassignment-json-file", str(plan), "--execute")
    assert "Successfully started partition reassignments for" in executed
    verified = tool(REASSIGN, "--reassignment-json-file", str(plan), "--verify")
    for partition in range(2):
        assert f"Reassignment of partition {topic_name}-{partition} is completed." in verified
    elected = tool(
        ELECTION,
        *f"--election-type preferred --topic {topic_name} --partition 0".split(),
    )
    assert f"Valid replica already elected for partitions {topic_name}-0" in elected
    assert tool(ELECTION, "--election-type", "unclean", "--all-topic-partitions").strip() == ""


def test_client_metrics_command(tool: Tool) -> None:
    name = unique("metrics")
    altered = tool(
        CLIENT_METRICS,
        *f"--alter --name {name} --metrics org.apache.kafka.producer. --interval 30000".split(),
        "--match",
        "client_id=a.*,client_software_name=x",
    )
    assert f"Altered client metrics config for {name}." in altered
    assert name in tool(CLIENT_METRICS, "--list").split()
    described = tool(CLIENT_METRICS, "--describe", "--name", name)
    for setting in ("interval.ms=30000", "metrics=org.apache.kafka.producer.", "match=client_id=a"):
        assert setting in described
    tool(CLIENT_METRICS, "--delete", "--name", name)
    assert name not in tool(CLIENT_METRICS, "--list").split()


def test_levels_of_loggers(tool: Tool) -> None:
    loggers = ["--entity-type", "broker-loggers", "--entity-name", "1"]
    before = tool(CONFIGS, *loggers, "--describe")
    level = re.search(r"root=(\w+)", before)
    assert level
    tool(CONFIGS, *loggers, "--alter", "--add-config", "root=ERROR")
    assert "root=ERROR" in tool(CONFIGS, *loggers, "--describe")
    tool(CONFIGS, *loggers, "--alter", "--add-config", f"root={level[1]}")


def test_a_hanging_transaction_is_aborted(tool: Tool, bootstrap_servers: str, target: str) -> None:
    world = World(bootstrap_servers, target)
    topic, producer = world.topic(), Transactional(world)
    producer.init()
    assert producer.add(topic) == OK
    assert producer.write(topic, 3) == OK
    assert topic.end_offset(committed=True) == 0
    tool(TRANSACTIONS, *f"abort --topic {topic.name} --partition 0 --start-offset 0".split())
    assert topic.end_offset(committed=True) == 4
    world.close()


def test_segments_are_read_by_the_dump_tool(
    tool: Tool, request: pytest.FixtureRequest, target: str, bootstrap_servers: str
) -> None:
    if target != "headrace":
        pytest.skip("looks into headrace's own data directory")
    data_dir: Path = request.getfixturevalue("headrace_server").data_dir
    topic = create_topic(
        bootstrap_servers, unique("topic"), segment_bytes="1048576", index_interval_bytes="4096"
    )
    rng = random.Random(1)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        produce(
            bootstrap_servers,
            topic,
            [rng.randbytes(400).hex().encode() for _ in range(1000)],
            compression_type=codec,
            enable_idempotence=True,
            batch_size=50_000,
        )
    segments = sorted((data_dir / f"{topic}-0").glob("*.log"))
    assert len(segments) >= 2
    dumped = tool(
        DUMP_LOG, "--files", ",".join(map(str, segments)), "--print-data-log", bootstrap=False
    )
    assert "isvalid: false" not in dumped
    assert len(re.findall(r"^\| offset: ", dumped, re.MULTILINE)) == 5000
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        assert f"compresscodec: {codec}" in dumped
    indexes = wait_until(
        lambda: sorted((data_dir / f"{topic}-0").glob("*index")), PATIENCE_S, "indexes"
    )
    checked = tool(
        DUMP_LOG,
        "--files",
        ",".join(str(i) for i in indexes if i.stat().st_size),
        "--index-sanity-check",
        bootstrap=False,
    )
    assert "Found" not in checked, checked


def json_values(text: str) -> list[dict[str, Any]]:
    """Return the JSON objects in `text`."""
    found, position = [], text.find("{")
    while position >= 0:
        value, end = json.JSONDecoder().raw_decode(text, position)
        found.append(value)
        position = text.find("{", end)
    return found


def test_share_state_is_read_by_kafkas_tools(
    tool: Tool,
    request: pytest.FixtureRequest,
    target: str,
    bootstrap_servers: str,
    topic_name: str,
    group_id: str,
) -> None:
    with World(bootstrap_servers, target) as world:
        topic = world.topic(name=topic_name)
        state = ShareState(world, group_id, topic.id)
        assert state.initialize(1, 3) == OK
        written = ((3, 4, 2, 1), (6, 6, 0, 1))
        assert state.write(*written, start_offset=3, delivery_complete_count=2) == OK
        assert state.read(4) == "se 1 start 3: 3-4 state 2 c1, 6-6 state 0 c1"
        assert state.write((7, 7, 4, 5), leader_epoch=4, version=0) == OK
        assert state.delete() == OK
    key = SharePartitionKey(group_id, topic.id, 0)
    partition = internal_partition(
        str(key), int(COMMON_CONFIGS["share.coordinator.state.topic.num.partitions"])
    )
    with consumer(bootstrap_servers, unique("group")) as source:
        _, end = source.get_watermark_offsets(
            TopicPartition("__share_group_state", partition), timeout=PATIENCE_S
        )
    printed = tool(
        CONSOLE_CONSUMER,
        "--topic",
        "__share_group_state",
        "--partition",
        str(partition),
        "--offset",
        str(end - 5),
        "--max-messages",
        "5",
        "--formatter",
        SHARE_STATE_FORMATTER,
        "--timeout-ms",
        "60000",
    )
    records = json_values(printed)
    topic_id = str(key).split(":")[1]
    assert {json.dumps(one["key"]["data"]) for one in records} == {
        json.dumps({"groupId": group_id, "topicId": topic_id, "partition": 0})
    }
    assert [one["key"]["type"] for one in records] == [0, 1, 1, 1, 0]
    snapshot, *updates, tombstone = (one["value"] for one in records)
    assert tombstone is None
    assert snapshot["version"] == 0
    times = {name: snapshot["data"].pop(name) for name in ("createTimestamp", "writeTimestamp")}
    assert times["createTimestamp"] == times["writeTimestamp"] > 1_700_000_000_000
    assert snapshot["data"] == {
        "snapshotEpoch": 0,
        "stateEpoch": 1,
        "leaderEpoch": 0,
        "startOffset": 3,
        "deliveryCompleteCount": 0,
        "stateBatches": [],
    }
    batches = [
        {"firstOffset": first, "lastOffset": last, "deliveryState": state, "deliveryCount": count}
        for first, last, state, count in ((3, 4, 2, 1), (6, 6, 0, 1), (7, 7, 4, 5))
    ]
    common = {"snapshotEpoch": 0, "deliveryCompleteCount": 2, "startOffset": 3}
    assert [one["data"] for one in updates] == [
        {**common, "leaderEpoch": 0, "stateBatches": batches[:2]},
        {**common, "leaderEpoch": 4, "stateBatches": []},
        {**common, "leaderEpoch": 4, "stateBatches": batches[2:]},
    ]
    if target != "headrace":
        return
    directory = (
        request.getfixturevalue("headrace_server").data_dir / f"__share_group_state-{partition}"
    )
    (segment,) = directory.glob("*.log")
    dumped = tool(DUMP_LOG, "--files", str(segment), "--share-group-state-decoder", bootstrap=False)
    lines = [line for line in dumped.splitlines() if f'"{group_id}"' in line]
    assert len(lines) == 5, dumped
    assert '"startOffset":3,"deliveryCompleteCount":2' in lines[1]


def test_groups_and_offsets_are_read_by_kafkas_formatters(
    tool: Tool, bootstrap_servers: str, target: str
) -> None:
    world = World(bootstrap_servers, target)
    topic, group = world.topic(partitions=2), ClassicGroup(world)
    member = group.join(subscription(topic.name), instance_id="one")
    assert member.commit(topic, {0: 5}, metadata="m", leader_epoch=3) == {0: OK}
    assert member.commit(topic, {1: 6}, version=3, retention_ms=3_600_000) == {1: OK}
    assert group.delete_offsets({topic.name: [0]}) == [(topic.name, 0, "GROUP_SUBSCRIBED_TO_TOPIC")]
    assert ClassicGroup(world, group.id).state == "Stable"
    partition = internal_partition(group.id, int(COMMON_CONFIGS["offsets.topic.num.partitions"]))

    def printed(formatter: str) -> list[dict[str, Any]]:
        """Return the printed records of this group."""
        with consumer(bootstrap_servers, unique("group")) as source:
            _, end = source.get_watermark_offsets(
                TopicPartition("__consumer_offsets", partition), timeout=PATIENCE_S
            )
        text = tool(
            CONSOLE_CONSUMER,
            *f"--topic __consumer_offsets --partition {partition} --offset {end - 3}".split(),
            *f"--max-messages 3 --formatter {formatter} --timeout-ms 60000".split(),
        )
        return [one for one in json_values(text) if one["key"]["data"]["group"] == group.id]

    in_0, in_1 = printed(OFFSETS_FORMATTER)
    world.close()
    assert in_0["key"] == {
        "type": 1,
        "data": {"group": group.id, "topic": topic.name, "partition": 0},
    }
    assert in_0["value"]["version"] == 4
    assert in_0["value"]["data"].pop("commitTimestamp") > 1_700_000_000_000
    assert in_0["value"]["data"].pop("topicId", None)
    assert in_0["value"]["data"] == {"offset": 5, "leaderEpoch": 3, "metadata": "m"}
    assert in_1["value"]["version"] == 1
    times = in_1["value"]["data"]
    assert times["expireTimestamp"] == times["commitTimestamp"] + 3_600_000

    (joined,) = printed(GROUPS_FORMATTER)
    assert joined["key"] == {"type": 2, "data": {"group": group.id}}
    generation = joined["value"]["data"]
    assert joined["value"]["version"] == 3
    assert generation.pop("currentStateTimestamp") > 1_700_000_000_000
    (described,) = generation.pop("members")
    assert generation == {
        "protocolType": "consumer",
        "generation": 1,
        "protocol": "protocol-0",
        "leader": member.id,
    }
    assert (described["memberId"], described["groupInstanceId"]) == (member.id, "one")
    assert (described["sessionTimeout"], described["rebalanceTimeout"]) == (10_000, 30_000)
