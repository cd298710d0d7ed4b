"""Ordinary work with librdkafka's admin client."""

from __future__ import annotations

import contextlib

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
    Uuid,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.clients.confluent import (
    PATIENCE_S,
    admin,
    consumer,
    create_topic,
    produce,
    set_configs,
    take,
)
from tests.support import COMMON_CONFIGS, unique, wait_until


@pytest.fixture
def client(bootstrap_servers: str) -> AdminClient:
    return admin(bootstrap_servers)


def refusal(future: object) -> int:
    """Return the error code of a refused call."""
    with pytest.raises(KafkaException) as refused:
        future.result(PATIENCE_S)  # type: ignore[attr-defined]
    return int(refused.value.args[0].code())


def test_topics_are_created_described_listed_and_deleted(
    client: AdminClient, topic_name: str
) -> None:
    client.create_topics([NewTopic(topic_name, 3, 1)])[topic_name].result(PATIENCE_S)
    listed = wait_until(
        lambda: client.list_topics(timeout=PATIENCE_S).topics.get(topic_name),
        PATIENCE_S,
        "the topic to be listed",
    )
    assert sorted(listed.partitions) == [0, 1, 2]

    described = client.describe_topics(TopicCollection([topic_name]))[topic_name].result(PATIENCE_S)
    assert described.name == topic_name
    assert not described.is_internal
    assert [p.id for p in described.partitions] == [0, 1, 2]
    assert [
        (p.leader.id, [r.id for r in p.replicas], [r.id for r in p.isr])
        for p in described.partitions
    ] == [(1, [1], [1])] * 3

    client.delete_topics([topic_name])[topic_name].result(PATIENCE_S)
    wait_until(
        lambda: topic_name not in client.list_topics(timeout=PATIENCE_S).topics,
        PATIENCE_S,
        "the deletion",
    )
    again = client.describe_topics(TopicCollection([topic_name]))[topic_name]
    assert refusal(again) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_created_anew_is_empty_and_has_a_new_id(
    client: AdminClient, bootstrap_servers: str, topic_name: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    produce(bootstrap_servers, topic_name, [b"old"])
    first = (
        client.describe_topics(TopicCollection([topic_name]))[topic_name]
        .result(PATIENCE_S)
        .topic_id
    )
    client.delete_topics([topic_name])[topic_name].result(PATIENCE_S)
    wait_until(
        lambda: topic_name not in client.list_topics(timeout=PATIENCE_S).topics,
        PATIENCE_S,
        "the deletion",
    )
    create_topic(bootstrap_servers, topic_name)

    def topic_id() -> Uuid | None:  # Kafka may describe it a little later
        with contextlib.suppress(KafkaException):
            found = client.describe_topics(TopicCollection([topic_name]))[topic_name]
            return found.result(PATIENCE_S).topic_id
        return None

    assert str(first) != str(wait_until(topic_id, PATIENCE_S, "the new topic"))
    produce(bootstrap_servers, topic_name, [b"new"])
    with consumer(bootstrap_servers, unique("group")) as source:
        source.subscribe([topic_name])
        message = take(source, 1)[0]
    assert (message.offset(), message.value()) == (0, b"new")


def test_what_cannot_be_created_is_refused_with_kafkas_error(
    client: AdminClient, topic_name: str
) -> None:
    client.create_topics([NewTopic(topic_name, 1, 1)])[topic_name].result(PATIENCE_S)
    refusals = {
        "again": NewTopic(topic_name, 1, 1),
        "bad name": NewTopic("no spaces please", 1, 1),
        "replication": NewTopic(unique("topic"), 1, 2),
        "config": NewTopic(unique("topic"), 1, 1, config={"no.such.config": "1"}),
        "config value": NewTopic(unique("topic"), 1, 1, config={"retention.ms": "soon"}),
    }
    codes = {
        why: refusal(client.create_topics([topic])[topic.topic]) for why, topic in refusals.items()
    }
    assert codes == {
        "again": KafkaError.TOPIC_ALREADY_EXISTS,
        "bad name": KafkaError.TOPIC_EXCEPTION,
        "replication": KafkaError.INVALID_REPLICATION_FACTOR,
        "config": KafkaError.INVALID_CONFIG,
        "config value": KafkaError.INVALID_CONFIG,
    }
    only_checked = unique("topic")
    client.create_topics([NewTopic(only_checked, 1, 1)], validate_only=True)[only_checked].result(
        PATIENCE_S
    )
    assert only_checked not in client.list_topics(timeout=PATIENCE_S).topics


def test_partitions_are_added_and_never_taken_away(client: AdminClient, topic_name: str) -> None:
    client.create_topics([NewTopic(topic_name, 2, 1)])[topic_name].result(PATIENCE_S)
    client.create_partitions([NewPartitions(topic_name, 5)])[topic_name].result(PATIENCE_S)
    wait_until(
        lambda: (
            len(client.list_topics(topic_name, timeout=PATIENCE_S).topics[topic_name].partitions)
            == 5
        ),
        PATIENCE_S,
        "five partitions",
    )
    fewer = client.create_partitions([NewPartitions(topic_name, 3)])[topic_name]
    assert refusal(fewer) == KafkaError.INVALID_PARTITIONS


def test_topic_configs_are_described_changed_and_reset(
    client: AdminClient, bootstrap_servers: str, topic_name: str
) -> None:
    create_topic(
        bootstrap_servers, topic_name, retention_ms="1234567", delete_retention_ms="7654321"
    )

    def described() -> dict[str, ConfigEntry]:
        resource = ConfigResource(ResourceType.TOPIC, topic_name)
        return client.describe_configs([resource])[resource].result(PATIENCE_S)  # type: ignore[no-any-return]

    entries = described()
    assert entries["retention.ms"].value == "1234567"
    assert entries["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert entries["segment.bytes"].value == str(1 << 30)
    assert entries["segment.bytes"].is_default
    assert entries["cleanup.policy"].value == "delete"

    set_configs(
        bootstrap_servers,
        ResourceType.TOPIC,
        topic_name,
        segment_bytes="2000000",
        cleanup_policy="compact",
    )
    wait_until(lambda: described()["segment.bytes"].value == "2000000", PATIENCE_S, "the new value")
    entries = described()
    assert entries["retention.ms"].value == "1234567"
    assert entries["cleanup.policy"].value == "compact"

    resource = ConfigResource(ResourceType.TOPIC, topic_name)
    for name in ("retention.ms", "delete.retention.ms"):
        resource.add_incremental_config(
            ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE)
        )
    resource.add_incremental_config(
        ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.APPEND)
    )
    client.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
    default = COMMON_CONFIGS["log.retention.ms"]
    wait_until(
        lambda: described()["retention.ms"].value == default, PATIENCE_S, "the broker's default"
    )
    assert described()["delete.retention.ms"].value == str(24 * 3600 * 1000)
    assert described()["cleanup.policy"].value == "compact,delete"

    bad = ConfigResource(ResourceType.TOPIC, topic_name)
    bad.add_incremental_config(
        ConfigEntry("retention.ms", "x", incremental_operation=AlterConfigOpType.SET)
    )
    assert refusal(client.incremental_alter_configs([bad])[bad]) == KafkaError.INVALID_CONFIG
    missing = ConfigResource(ResourceType.TOPIC, unique("missing"))
    assert refusal(client.describe_configs([missing])[missing]) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_group_configs_and_broker_configs(
    client: AdminClient, bootstrap_servers: str, group_id: str
) -> None:
    set_configs(
        bootstrap_servers, ResourceType.GROUP, group_id, share_record_lock_duration_ms="20000"
    )
    group = ConfigResource(ResourceType.GROUP, group_id)
    wait_until(
        lambda: (
            client.describe_configs([group])[group]
            .result(PATIENCE_S)["share.record.lock.duration.ms"]
            .value
            == "20000"
        ),
        PATIENCE_S,
        "the group's config",
    )
    bad = ConfigResource(ResourceType.GROUP, group_id)
    bad.add_incremental_config(
        ConfigEntry(
            "share.record.lock.duration.ms", "1", incremental_operation=AlterConfigOpType.SET
        )
    )
    assert refusal(client.incremental_alter_configs([bad])[bad]) == KafkaError.INVALID_CONFIG

    broker = ConfigResource(ResourceType.BROKER, "1")
    entries = client.describe_configs([broker])[broker].result(PATIENCE_S)
    assert entries["group.initial.rebalance.delay.ms"].value == "0"
    assert (
        entries["group.initial.rebalance.delay.ms"].source
        == ConfigSource.STATIC_BROKER_CONFIG.value
    )
    assert entries["log.retention.hours"].value == "168"


def test_the_cluster_describes_itself(client: AdminClient, bootstrap_servers: str) -> None:
    cluster = client.describe_cluster().result(PATIENCE_S)
    assert len(cluster.cluster_id) == 22
    assert [(node.id, f"{node.host}:{node.port}") for node in cluster.nodes] == [
        (1, bootstrap_servers)
    ]
    assert cluster.controller.id == 1
    assert client.list_topics(timeout=PATIENCE_S).cluster_id == cluster.cluster_id


def test_offsets_are_listed_by_every_spec(
    client: AdminClient, bootstrap_servers: str, topic_name: str
) -> None:
    create_topic(bootstrap_servers, topic_name, partitions=2)
    produce(bootstrap_servers, topic_name, [b"a", b"b", b"c"], partition=0)
    here, empty = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)

    def listed(spec: OffsetSpec) -> tuple[int, int]:
        futures = client.list_offsets({here: spec, empty: spec})
        return futures[here].result(PATIENCE_S).offset, futures[empty].result(PATIENCE_S).offset

    assert listed(OffsetSpec.earliest()) == (0, 0)
    assert listed(OffsetSpec.latest()) == (3, 0)
    assert listed(OffsetSpec.for_timestamp(0)) == (0, -1)
    latest_of_all = listed(OffsetSpec.max_timestamp())
    assert latest_of_all[0] in (0, 1, 2)
    assert latest_of_all[1] == -1


def test_records_are_deleted_from_the_front(
    client: AdminClient, bootstrap_servers: str, topic_name: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    produce(bootstrap_servers, topic_name, [f"{i}".encode() for i in range(10)])
    here = TopicPartition(topic_name, 0, 4)
    assert client.delete_records([here])[here].result(PATIENCE_S).low_watermark == 4
    with consumer(bootstrap_servers, unique("group")) as source:
        source.subscribe([topic_name])
        assert take(source, 1)[0].value() == b"4"
        assert source.get_watermark_offsets(TopicPartition(topic_name, 0), timeout=PATIENCE_S) == (
            4,
            10,
        )
    beyond = TopicPartition(topic_name, 0, 11)
    assert refusal(client.delete_records([beyond])[beyond]) == KafkaError.OFFSET_OUT_OF_RANGE


def test_groups_are_listed_described_and_deleted(
    client: AdminClient, bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    create_topic(bootstrap_servers, topic_name, partitions=2)
    produce(bootstrap_servers, topic_name, [b"a"], partition=0)
    with consumer(bootstrap_servers, group_id, client_id="worker-7") as source:
        source.subscribe([topic_name])
        source.commit(message=take(source, 1)[0], asynchronous=False)
        described = client.describe_consumer_groups([group_id])[group_id].result(PATIENCE_S)
        assert described.state == ConsumerGroupState.STABLE
        assert described.type == ConsumerGroupType.CLASSIC
        assert described.partition_assignor == "range"
        assert described.coordinator.id == 1
        (member,) = described.members
        assert member.client_id == "worker-7"
        assert [(p.topic, p.partition) for p in member.assignment.topic_partitions] == [
            (topic_name, 0),
            (topic_name, 1),
        ]
        assert (
            refusal(client.delete_consumer_groups([group_id])[group_id])
            == KafkaError.NON_EMPTY_GROUP
        )
        listed = client.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(PATIENCE_S)
        assert group_id in {group.group_id for group in listed.valid}
    empty = client.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(PATIENCE_S)
    assert group_id in {group.group_id for group in empty.valid}

    offsets = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])[group_id]
    assert [
        (p.topic, p.partition, p.offset) for p in offsets.result(PATIENCE_S).topic_partitions
    ] == [(topic_name, 0, 1)]
    moved = ConsumerGroupTopicPartitions(group_id, [TopicPartition(topic_name, 1, 0)])
    client.alter_consumer_group_offsets([moved])[group_id].result(PATIENCE_S)
    offsets = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])[group_id]
    assert {(p.partition, p.offset) for p in offsets.result(PATIENCE_S).topic_partitions} == {
        (0, 1),
        (1, 0),
    }

    client.delete_consumer_groups([group_id])[group_id].result(PATIENCE_S)
    listed = client.list_consumer_groups().result(PATIENCE_S)
    assert group_id not in {group.group_id for group in listed.valid}
    assert (
        refusal(client.delete_consumer_groups([group_id])[group_id])
        == KafkaError.GROUP_ID_NOT_FOUND
    )
