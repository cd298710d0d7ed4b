"""Ordinary work with librdkafka's producer and consumer."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import NewPartitions, ResourceType

from tests.clients.confluent import (
    PATIENCE_S,
    admin,
    consumer,
    create_topic,
    produce,
    set_configs,
    take,
)
from tests.support import unique, wait_until

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_sent(
    bootstrap_servers: str, topic_name: str, codec: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 20,
        }
    )
    sent_at_ms = 1_700_000_000_123
    acknowledged: list[tuple[int, KafkaError | None]] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        acknowledged.append((message.offset(), error))

    for i in range(200):
        producer.produce(
            topic_name,
            value=f"value {i} ".encode() * 20,
            key=None if i % 5 == 0 else f"key {i}".encode(),
            headers=[("n", str(i).encode()), ("none", None), ("n", b"again")],
            timestamp=sent_at_ms + i,
            on_delivery=delivered,
        )
    producer.produce(topic_name, value=None, key=b"tombstone", on_delivery=delivered)
    assert producer.flush(PATIENCE_S) == 0
    assert acknowledged == [(offset, None) for offset in range(201)]

    with consumer(bootstrap_servers, unique("group"), check_crcs=True) as source:
        source.subscribe([topic_name])
        messages = take(source, 201)
    assert [m.offset() for m in messages] == list(range(201))
    assert [m.value() for m in messages[:200]] == [f"value {i} ".encode() * 20 for i in range(200)]
    assert messages[5].key() is None
    assert messages[6].key() == b"key 6"
    assert messages[6].headers() == [("n", b"6"), ("none", None), ("n", b"again")]
    assert messages[6].timestamp() == (TIMESTAMP_CREATE_TIME, sent_at_ms + 6)
    assert messages[200].value() is None


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks_setting_stores_the_records(
    bootstrap_servers: str, topic_name: str, acks: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    produce(bootstrap_servers, topic_name, [b"a", b"b", b"c"], acks=acks)
    with consumer(bootstrap_servers, unique("group")) as source:
        source.assign([TopicPartition(topic_name, 0, OFFSET_BEGINNING)])
        assert [m.value() for m in take(source, 3)] == [b"a", b"b", b"c"]


def test_a_topic_is_created_when_first_produced_to(bootstrap_servers: str, topic_name: str) -> None:
    produce(bootstrap_servers, topic_name, [b"first"])
    with consumer(bootstrap_servers, unique("group")) as source:
        source.subscribe([topic_name])
        assert take(source, 1)[0].value() == b"first"


def test_keys_spread_over_partitions_and_each_keeps_its_order(
    bootstrap_servers: str, topic_name: str
) -> None:
    create_topic(bootstrap_servers, topic_name, partitions=4)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
    for i in range(400):
        producer.produce(topic_name, key=f"{i % 20}".encode(), value=f"{i}".encode())
    assert producer.flush(PATIENCE_S) == 0
    with consumer(bootstrap_servers, unique("group")) as source:
        source.subscribe([topic_name])
        messages = take(source, 400)
    by_key: dict[bytes, list[Message]] = {}
    for message in messages:
        by_key.setdefault(message.key(), []).append(message)
    assert len({m.partition() for m in messages}) == 4
    for key, of_key in by_key.items():
        assert len({m.partition() for m in of_key}) == 1
        assert [int(m.value()) for m in of_key] == list(range(int(key), 400, 20))


def test_a_record_over_the_limit_is_refused_and_the_producer_goes_on(
    bootstrap_servers: str, topic_name: str
) -> None:
    create_topic(bootstrap_servers, topic_name, max_message_bytes="2000")
    with pytest.raises(KafkaException) as refused:
        produce(bootstrap_servers, topic_name, [b"x" * 5000])
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    produce(bootstrap_servers, topic_name, [b"x" * 500])
    with consumer(bootstrap_servers, unique("group")) as source:
        source.subscribe([topic_name])
        message = take(source, 1)[0]
    assert (message.offset(), message.value()) == (0, b"x" * 500)


def test_log_append_time_is_the_brokers(bootstrap_servers: str, topic_name: str) -> None:
    create_topic(bootstrap_servers, topic_name, message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    produce(bootstrap_servers, topic_name, [b"a"])
    after_ms = int(time.time() * 1000)
    with consumer(bootstrap_servers, unique("group")) as source:
        source.subscribe([topic_name])
        kind, timestamp_ms = take(source, 1)[0].timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert before_ms <= timestamp_ms <= after_ms


def test_committed_offsets_are_where_the_next_member_begins(
    bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    produce(bootstrap_servers, topic_name, [f"{i}".encode() for i in range(20)])
    with consumer(bootstrap_servers, group_id) as source:
        source.subscribe([topic_name])
        last = take(source, 8)[-1]
        committed = source.commit(message=last, asynchronous=False)
        assert [(c.topic, c.partition, c.offset) for c in committed] == [(topic_name, 0, 8)]
    with consumer(bootstrap_servers, group_id) as source:
        source.subscribe([topic_name])
        assert take(source, 1)[0].value() == b"8"
        assert source.committed([TopicPartition(topic_name, 0)], timeout=PATIENCE_S)[0].offset == 8


def test_commit_metadata_is_kept(bootstrap_servers: str, topic_name: str, group_id: str) -> None:
    create_topic(bootstrap_servers, topic_name, partitions=2)
    with consumer(bootstrap_servers, group_id) as source:
        source.commit(
            offsets=[TopicPartition(topic_name, 0, 5, metadata="hello")], asynchronous=False
        )
        first, second = source.committed(
            [TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)], PATIENCE_S
        )
    assert (first.offset, first.metadata) == (5, "hello")
    assert second.offset < 0


def test_seek_pause_and_watermarks(bootstrap_servers: str, topic_name: str, group_id: str) -> None:
    create_topic(bootstrap_servers, topic_name)
    produce(bootstrap_servers, topic_name, [f"{i}".encode() for i in range(50)])
    here = TopicPartition(topic_name, 0)
    with consumer(bootstrap_servers, group_id) as source:
        source.assign([TopicPartition(topic_name, 0, 10)])
        assert [int(m.value()) for m in take(source, 5)] == [10, 11, 12, 13, 14]
        source.seek(TopicPartition(topic_name, 0, 40))
        assert [int(m.value()) for m in take(source, 10)] == list(range(40, 50))
        assert source.get_watermark_offsets(here, timeout=PATIENCE_S) == (0, 50)
        assert source.position([here])[0].offset == 50
        source.pause([here])
        produce(bootstrap_servers, topic_name, [b"50"])
        assert source.consume(1, timeout=0.5) == []
        source.resume([here])
        assert take(source, 1)[0].value() == b"50"


def test_offsets_for_times(bootstrap_servers: str, topic_name: str) -> None:
    create_topic(bootstrap_servers, topic_name)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    base_ms = 1_700_000_000_000
    for i in range(100):
        producer.produce(topic_name, f"{i}".encode(), timestamp=base_ms + 1000 * i)
        if i % 10 == 9:
            producer.flush(PATIENCE_S)  # several batches, so that the answer lies within one
    with consumer(bootstrap_servers, unique("group")) as source:

        def offset_at(timestamp_ms: int) -> int:
            asked = [TopicPartition(topic_name, 0, timestamp_ms)]
            return int(source.offsets_for_times(asked, timeout=PATIENCE_S)[0].offset)

        assert offset_at(0) == 0
        assert offset_at(base_ms + 42_000) == 42
        assert offset_at(base_ms + 42_001) == 43
        assert offset_at(base_ms + 99_000) == 99
        assert offset_at(base_ms + 99_001) == -1  # librdkafka's OFFSET_END


def test_an_offset_out_of_range_resets_or_fails_as_configured(
    bootstrap_servers: str, topic_name: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    produce(bootstrap_servers, topic_name, [b"0", b"1"])
    with consumer(bootstrap_servers, unique("group")) as source:
        source.assign([TopicPartition(topic_name, 0, 1000)])
        assert take(source, 1)[0].offset() == 0
    with consumer(bootstrap_servers, unique("group"), auto_offset_reset="error") as source:
        source.assign([TopicPartition(topic_name, 0, 1000)])
        message = source.poll(PATIENCE_S)
        assert message is not None
        assert message.error().code() == KafkaError._AUTO_OFFSET_RESET


class Member(threading.Thread):
    """A group member on its own thread that consumes, commits, and records its assignments and
    messages.
    """

    def __init__(
        self, bootstrap_servers: str, group_id: str, topic: str, **configs: object
    ) -> None:
        super().__init__(daemon=True)
        self.bootstrap_servers, self.group_id, self.topic, self.configs = (
            bootstrap_servers,
            group_id,
            topic,
            configs,
        )
        self.owned: frozenset[int] = frozenset()
        self.values: list[bytes] = []
        self.rebalances: Counter[str] = Counter()
        self.leave = threading.Event()

    def run(self) -> None:
        with consumer(self.bootstrap_servers, self.group_id, **self.configs) as source:
            source.subscribe([self.topic], on_assign=self._on_assign, on_revoke=self._on_revoke)
            while not self.leave.is_set():
                message = source.poll(0.1)
                if message is not None and message.error() is None:
                    self.values.append(message.value())
                    source.commit(message=message, asynchronous=False)
                self.owned = frozenset(p.partition for p in source.assignment())

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.rebalances["assigned"] += 1

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.rebalances["revoked"] += 1


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_the_partitions_and_take_over_from_one_that_leaves(
    bootstrap_servers: str, topic_name: str, group_id: str, strategy: str
) -> None:
    create_topic(bootstrap_servers, topic_name, partitions=4)
    quick = {
        "partition_assignment_strategy": strategy,
        "session_timeout_ms": 10_000,
        "heartbeat_interval_ms": 300,
    }
    first, second = (Member(bootstrap_servers, group_id, topic_name, **quick) for _ in range(2))
    first.start()
    wait_until(
        lambda: first.owned == {0, 1, 2, 3}, PATIENCE_S, "the first member to own everything"
    )
    second.start()
    wait_until(
        lambda: len(first.owned) == len(second.owned) == 2,
        PATIENCE_S,
        "the members to own half each",
    )
    assert first.owned | second.owned == {0, 1, 2, 3}
    for partition in range(4):
        produce(bootstrap_servers, topic_name, [f"{partition}".encode()], partition=partition)
    wait_until(lambda: len(first.values) + len(second.values) == 4, PATIENCE_S, "all records")
    assert {int(v) for v in first.values} == first.owned

    second.leave.set()
    second.join(PATIENCE_S)
    wait_until(lambda: first.owned == {0, 1, 2, 3}, PATIENCE_S, "the first member to take over")
    produce(bootstrap_servers, topic_name, [b"more"], partition=min(second.owned))
    wait_until(
        lambda: b"more" in first.values, PATIENCE_S, "a record of a partition that was taken over"
    )
    first.leave.set()
    first.join(PATIENCE_S)
    # committed, so nothing twice
    assert sorted(first.values + second.values) == [b"0", b"1", b"2", b"3", b"more"]
    assert first.rebalances["revoked"] >= 1


def test_a_static_member_keeps_its_partitions_over_a_restart(
    bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    create_topic(bootstrap_servers, topic_name, partitions=2)
    quick = {"session_timeout_ms": 20_000, "heartbeat_interval_ms": 300}
    other = Member(bootstrap_servers, group_id, topic_name, group_instance_id="other", **quick)
    other.start()
    wait_until(lambda: len(other.owned) == 2, PATIENCE_S, "the first static member")
    returning = Member(
        bootstrap_servers, group_id, topic_name, group_instance_id="returning", **quick
    )
    returning.start()
    wait_until(
        lambda: len(other.owned) == len(returning.owned) == 1, PATIENCE_S, "both static members"
    )
    owned, rebalances = returning.owned, other.rebalances["assigned"]
    returning.leave.set()
    returning.join(PATIENCE_S)

    again = Member(bootstrap_servers, group_id, topic_name, group_instance_id="returning", **quick)
    again.start()
    wait_until(lambda: again.owned, PATIENCE_S, "the static member to be back")
    assert again.owned == owned
    assert other.rebalances["assigned"] == rebalances
    for member in (other, again):
        member.leave.set()
        member.join(PATIENCE_S)


def test_a_raised_partition_count_reaches_consumers(
    bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    with consumer(bootstrap_servers, group_id, topic_metadata_refresh_interval_ms=500) as source:
        source.subscribe([topic_name])
        produce(bootstrap_servers, topic_name, [b"a"], partition=0)
        assert take(source, 1)[0].partition() == 0
        source.commit(asynchronous=False)
        admin(bootstrap_servers).create_partitions([NewPartitions(topic_name, 3)])[
            topic_name
        ].result(PATIENCE_S)
        wait_until(
            lambda: source.poll(0.1) or len(source.assignment()) == 3,
            PATIENCE_S,
            "the new partitions",
        )
        produce(bootstrap_servers, topic_name, [b"b"], partition=2)
        assert take(source, 1)[0].partition() == 2


def test_configs_take_effect_while_a_producer_runs(bootstrap_servers: str, topic_name: str) -> None:
    create_topic(bootstrap_servers, topic_name)
    produce(bootstrap_servers, topic_name, [b"x" * 3000])
    set_configs(bootstrap_servers, ResourceType.TOPIC, topic_name, max_message_bytes="1000")
    with pytest.raises(KafkaException):
        produce(bootstrap_servers, topic_name, [b"x" * 3000])


def test_the_newer_of_two_producers_with_one_transactional_id_wins(
    bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    configs = {
        "bootstrap.servers": bootstrap_servers,
        "transactional.id": unique("transactions"),
        "log_level": 2,
    }
    older, newer = Producer(configs), Producer(configs)
    older.init_transactions(PATIENCE_S)
    older.begin_transaction()
    older.produce(topic_name, b"of the older")
    assert older.flush(PATIENCE_S) == 0
    newer.init_transactions(PATIENCE_S)  # aborts what is open
    newer.begin_transaction()
    newer.produce(topic_name, b"of the newer")
    with pytest.raises(KafkaException) as refused:
        older.commit_transaction(PATIENCE_S)
    error = refused.value.args[0]
    assert (error.code(), error.fatal()) == (KafkaError._FENCED, True)
    newer.commit_transaction(PATIENCE_S)
    with consumer(bootstrap_servers, group_id, isolation_level="read_committed") as source:
        source.subscribe([topic_name])
        assert [message.value() for message in take(source, 1)] == [b"of the newer"]
