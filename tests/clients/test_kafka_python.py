"""Ordinary work with kafka-python."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import KafkaError, NonEmptyGroupError, TopicAlreadyExistsError
from kafka.structs import OffsetAndMetadata

from tests.support import unique, wait_until

PATIENCE_S = 60.0


@pytest.fixture
def admin(bootstrap_servers: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    yield client
    client.close()


@pytest.fixture
def topic(admin: KafkaAdminClient, topic_name: str) -> str:
    """A topic with two partitions."""
    admin.create_topics([NewTopic(topic_name, num_partitions=2, replication_factor=1)])
    return topic_name


def consumer(bootstrap_servers: str, group_id: str | None, **configs: object) -> KafkaConsumer:
    return KafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        group_id=group_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **configs,
    )


def take(source: KafkaConsumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(records) < count:
        assert time.monotonic() < deadline, f"got {len(records)} of {count} records"
        for batch in source.poll(timeout_ms=500).values():
            records.extend(batch)
    return records


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [True, False])
def test_records_come_back(
    bootstrap_servers: str, topic: str, codec: str | None, idempotent: bool
) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap_servers,
        compression_type=codec,
        enable_idempotence=idempotent,
        linger_ms=5,
    )
    futures = [
        producer.send(
            topic,
            f"value {i}".encode() * 10,
            b"k",
            [("h", b"1")],
            partition=0,
            timestamp_ms=1000 + i,
        )
        for i in range(100)
    ]
    assert [f.get(timeout=PATIENCE_S).offset for f in futures] == list(range(100))
    producer.close()
    source = consumer(bootstrap_servers, None)
    source.assign([TopicPartition(topic, 0)])
    records = take(source, 100)
    source.close()
    assert [r.value for r in records] == [f"value {i}".encode() * 10 for i in range(100)]
    assert {(r.key, tuple(r.headers)) for r in records} == {(b"k", (("h", b"1"),))}
    assert [r.timestamp for r in records] == list(range(1000, 1100))


def test_a_group_consumes_commits_and_goes_on(
    bootstrap_servers: str, topic: str, group_id: str
) -> None:
    with_keys = KafkaProducer(bootstrap_servers=bootstrap_servers)
    for i in range(20):
        with_keys.send(topic, f"{i}".encode(), partition=i % 2)
    with_keys.flush(PATIENCE_S)
    with_keys.close()

    first = consumer(bootstrap_servers, group_id)
    first.subscribe([topic])
    records = take(first, 20)
    assert sorted(int(r.value) for r in records) == list(range(20))
    first.commit({TopicPartition(topic, 0): OffsetAndMetadata(7, "so far", -1)})
    first.close()

    second = consumer(bootstrap_servers, group_id)
    second.subscribe([topic])
    records = take(second, 13)
    assert [r.offset for r in records if r.partition == 0] == [7, 8, 9]
    assert second.committed(TopicPartition(topic, 0)) == 7
    assert second.committed(TopicPartition(topic, 0), metadata=True).metadata == "so far"
    assert second.committed(TopicPartition(topic, 1)) is None
    second.close()


def test_positions_and_times(bootstrap_servers: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers)
    base_ms = 1_700_000_000_000
    for i in range(10):
        producer.send(topic, f"{i}".encode(), partition=0, timestamp_ms=base_ms + 1000 * i).get(
            PATIENCE_S
        )
    producer.close()
    here, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    source = consumer(bootstrap_servers, None)
    source.assign([here, empty])
    assert source.beginning_offsets([here, empty]) == {here: 0, empty: 0}
    assert source.end_offsets([here, empty]) == {here: 10, empty: 0}
    found = source.offsets_for_times({here: base_ms + 4500, empty: base_ms})
    assert (found[here].offset, found[here].timestamp) == (5, base_ms + 5000)
    assert found[empty] is None
    source.seek(here, 8)
    assert [r.offset for r in take(source, 2)] == [8, 9]
    assert source.position(here) == 10
    source.close()


class Member(threading.Thread):
    """A group member that polls on its own thread until told to leave."""

    def __init__(self, bootstrap_servers: str, group_id: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.source = consumer(bootstrap_servers, group_id, heartbeat_interval_ms=300)
        self.source.subscribe([topic])
        self.owned: frozenset[int] = frozenset()
        self.leave = threading.Event()

    def run(self) -> None:
        while not self.leave.is_set():
            # kafka-python 3.0.12 forgets an assignment that comes when the time of a poll is over.
            self.source.poll(timeout_ms=1_000)
            self.owned = frozenset(p.partition for p in self.source.assignment())
        self.source.close()


def test_two_members_share_the_partitions(
    bootstrap_servers: str, topic: str, group_id: str
) -> None:
    first, second = (Member(bootstrap_servers, group_id, topic) for _ in range(2))
    first.start()
    wait_until(lambda: first.owned == {0, 1}, PATIENCE_S, "the first member to own everything")
    second.start()
    wait_until(
        lambda: len(first.owned) == len(second.owned) == 1 and first.owned | second.owned == {0, 1},
        PATIENCE_S,
        "each member to own one partition",
    )
    second.leave.set()
    second.join(PATIENCE_S)
    wait_until(lambda: first.owned == {0, 1}, PATIENCE_S, "the first member to take over")
    first.leave.set()
    first.join(PATIENCE_S)


def test_administration(
    bootstrap_servers: str, admin: KafkaAdminClient, topic: str, group_id: str
) -> None:
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    assert topic in admin.list_topics()
    admin.create_partitions({topic: 4})
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 4

    resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "123456"})
    admin.alter_configs([resource])
    assert "123456" in str(
        admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    )

    producer = KafkaProducer(bootstrap_servers=bootstrap_servers)
    for _ in range(5):
        producer.send(topic, b"x", partition=0)
    producer.flush(PATIENCE_S)
    producer.close()
    source = consumer(bootstrap_servers, group_id)
    source.subscribe([topic])
    take(source, 5)
    source.commit()
    assert group_id in str(admin.list_groups())
    assert group_id in str(admin.describe_groups([group_id]))
    assert "NonEmptyGroup" in _outcome(lambda: admin.delete_groups([group_id])) or pytest.fail(
        "a busy group went"
    )
    source.close()
    offsets = admin.list_group_offsets({group_id: None})[group_id]
    assert offsets[TopicPartition(topic, 0)].offset == 5

    admin.delete_records({TopicPartition(topic, 0): 3})
    left = consumer(bootstrap_servers, None)
    assert left.beginning_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 3}
    left.close()
    admin.delete_groups([group_id])
    assert group_id not in str(admin.list_groups())
    admin.delete_topics([topic])
    wait_until(lambda: topic not in admin.list_topics(), PATIENCE_S, "the topic to go")


def _outcome(call: object) -> str:
    """Return the result or the exception of a call, as text: which one depends on kafka-python's
    version.
    """
    try:
        return repr(call())  # type: ignore[operator]
    except NonEmptyGroupError as error:
        return repr(error)


def test_a_topic_is_created_when_first_used(bootstrap_servers: str) -> None:
    name = unique("topic")
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers)
    assert producer.send(name, b"a").get(timeout=PATIENCE_S).offset == 0
    producer.close()


def test_transactions(bootstrap_servers: str, topic: str, group_id: str) -> None:
    """A copy in two transactions, one of them aborted: read_committed sees the other."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap_servers, transactional_id=unique("transactions")
    )
    producer.init_transactions()
    where = TopicPartition(topic, 0)
    reader = consumer(bootstrap_servers, group_id, isolation_level="read_committed")
    reader.assign([where])
    for value, commits in ((b"kept", True), (b"dropped", False), (b"last", True)):
        producer.begin_transaction()
        for _ in range(3):
            producer.send(topic, value, partition=0)
        offset = OffsetAndMetadata(3 if commits else 99, "", -1)
        producer.send_offsets_to_transaction({where: offset}, group_id)
        if commits:
            producer.commit_transaction()
        else:
            producer.flush()
            producer.abort_transaction()
    assert reader.committed(where) == 3
    reader.seek_to_beginning(where)
    assert [record.value for record in take(reader, 6)] == [b"kept"] * 3 + [b"last"] * 3
    reader.close()
    zombie, producer = (
        producer,
        KafkaProducer(
            bootstrap_servers=bootstrap_servers,
            transactional_id=producer.config["transactional_id"],
        ),
    )
    producer.init_transactions()
    zombie.begin_transaction()
    late = zombie.send(topic, b"late", partition=0)
    with pytest.raises(KafkaError):
        late.get(PATIENCE_S)
    producer.close()
    zombie.close(timeout=1)
