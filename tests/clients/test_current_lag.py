"""LagConsumer.current_lag (KIP-695): the results of Java's consumer, step by step.

The topic has five committed records and three of an open transaction. librdkafka does not expose
the last stable offset of fetch responses: where Java's consumer knows it from a response with
records, the lag is None at first, and known a moment later.
"""

from __future__ import annotations

import time

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaException, Producer, TopicPartition

from headrace.client import LagConsumer
from tests.clients.confluent import PATIENCE_S, create_topic, produce
from tests.support import unique, wait_until

UNKNOWN = None


@pytest.fixture
def topic(bootstrap_servers: str, topic_name: str):
    create_topic(bootstrap_servers, topic_name)
    produce(bootstrap_servers, topic_name, [b"committed"] * 5, partition=0)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": unique("tx")})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(topic_name, b"open", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    yield topic_name
    producer.abort_transaction(PATIENCE_S)


def conf_of(bootstrap_servers: str, isolation: str, **more: object) -> dict[str, object]:
    return {
        "bootstrap.servers": bootstrap_servers,
        "group.id": unique("group"),
        "isolation.level": isolation,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 100,
        **more,
    }


def lag_in_time(consumer: LagConsumer, partition: TopicPartition) -> int:
    """Ask for the lag until it is known, without polling."""
    wait_until(lambda: consumer.current_lag(partition) is not UNKNOWN, PATIENCE_S, "a lag")
    lag = consumer.current_lag(partition)
    assert lag is not None
    return lag


def read(consumer: LagConsumer, count: int) -> None:
    """Read `count` records.

    :raises AssertionError: fewer come in time
    """
    deadline = time.monotonic() + PATIENCE_S
    while count:
        assert time.monotonic() < deadline
        count -= len(consumer.consume(count, 1.0))


@pytest.mark.parametrize(
    ("isolation", "at_1", "at_4", "then"),
    [("read_uncommitted", 7, 4, [(7, 1), (8, 0)]), ("read_committed", 4, 1, [(5, 0)])],
)
def test_the_table_of_observations(bootstrap_servers, topic, isolation, at_1, at_4, then):
    partition = TopicPartition(topic, 0)
    with LagConsumer(conf_of(bootstrap_servers, isolation)) as consumer:
        with pytest.raises(KafkaException, match=f"No current assignment for partition {topic}-0"):
            consumer.current_lag(partition)
        consumer.assign([partition])
        assert consumer.current_lag(partition) is UNKNOWN, "no position"
        consumer.assign([TopicPartition(topic, 0, 1)])
        consumer.pause([partition])
        assert consumer.current_lag(partition) is UNKNOWN, "no end"
        assert lag_in_time(consumer, partition) == at_1, "asked for in the background, without poll"
        assert consumer.poll(0.3) is None
        assert consumer.current_lag(partition) == at_1
        consumer.resume([partition])
        read(consumer, 3)
        assert consumer.current_lag(partition) == at_4
        position = 4
        for after, lag in then:
            read(consumer, after - position)
            position = after
            assert lag_in_time(consumer, partition) == lag
            assert consumer.current_lag(partition) == lag
        consumer.seek(TopicPartition(topic, 0, 0))
        assert consumer.current_lag(partition) == position
    with pytest.raises(RuntimeError, match="closed"):
        consumer.current_lag(partition)


def test_it_never_waits_for_a_broker(topic):
    """Without a broker the lag is None, and closing takes no longer than the background request."""
    partition = TopicPartition(topic, 0, 0)
    consumer = LagConsumer(conf_of("127.0.0.1:1", "read_committed", log_level=0))
    consumer.assign([partition])
    assert [consumer.current_lag(partition) for _ in range(1_000)] == [UNKNOWN] * 1_000
    consumer.close()


def test_an_empty_fetch_proves_that_there_is_no_lag(bootstrap_servers, topic_name):
    create_topic(bootstrap_servers, topic_name)
    partition = TopicPartition(topic_name, 0)
    with LagConsumer(conf_of(bootstrap_servers, "read_committed"), [topic_name]) as consumer:
        wait_until(
            lambda: consumer.poll(0.1) is None and consumer.assignment(),
            PATIENCE_S,
            "an assignment",
        )
        name = (topic_name, 0)
        wait_until(
            lambda: consumer.poll(0.1) is None and consumer.known_lag(name) == 0,
            PATIENCE_S,
            "a fetch",
        )
        assert consumer.current_lag(partition) == 0


def test_the_end_of_an_earlier_assignment_is_forgotten(bootstrap_servers, topic):
    """librdkafka caches watermarks of revoked partitions; meanwhile others have written."""
    partition = TopicPartition(topic, 0, OFFSET_BEGINNING)
    with LagConsumer(conf_of(bootstrap_servers, "read_uncommitted")) as consumer:
        consumer.assign([partition])
        read(consumer, 8)
        assert consumer.current_lag(partition) == 0
        consumer.unassign()
        with pytest.raises(KafkaException, match="No current assignment"):
            consumer.current_lag(partition)
        produce(bootstrap_servers, topic, [b"more"] * 4, partition=0)
        again = TopicPartition(topic, 0, 8)
        consumer.assign([again])
        consumer.pause([again])
        # Unknown until the background request is answered, and then the new end: never the old one.
        assert consumer.current_lag(again) in (UNKNOWN, 4)
        assert lag_in_time(consumer, again) == 4


def test_the_application_may_have_the_end_of_partition_events_too(bootstrap_servers, topic):
    with LagConsumer(
        conf_of(bootstrap_servers, "read_committed", **{"enable.partition.eof": True})
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        seen = []
        while not any(message.error() for message in seen):
            seen += consumer.consume(10, 0.2)
        assert [m.offset() for m in seen] == [0, 1, 2, 3, 4, 5]
        assert consumer.current_lag(TopicPartition(topic, 0)) == 0
