"""Topics drained as queues by librdkafka's share consumer."""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import AcknowledgeType, KafkaException, Message, TopicPartition

from tests.clients.confluent import (
    PATIENCE_S,
    create_topic,
    poll_share,
    produce,
    share_consumer,
    share_from_earliest,
)

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


def test_each_record_is_delivered_once_when_accepted(
    bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    create_topic(bootstrap_servers, topic_name, partitions=2)
    share_from_earliest(bootstrap_servers, group_id)
    produce(bootstrap_servers, topic_name, [f"{i}".encode() for i in range(100)], linger_ms=5)
    got: list[Message] = []
    with share_consumer(bootstrap_servers, group_id, [topic_name]) as source:

        def accept(message: Message) -> None:
            got.append(message)
            source.acknowledge(message, ACCEPT)

        poll_share(source, lambda: len(got) >= 100, accept)
        assert list(source.commit_sync(timeout=PATIENCE_S).values()).count(None) >= 1
        assert len(source.poll(timeout=1.0)) == 0
    assert sorted(int(m.value()) for m in got) == list(range(100))
    assert {m.delivery_count() for m in got} == {1}


def test_released_records_come_again_and_rejected_ones_do_not(
    bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    share_from_earliest(bootstrap_servers, group_id)
    produce(bootstrap_servers, topic_name, [f"{i}".encode() for i in range(9)])
    deliveries: dict[int, list[int]] = {}
    done: set[int] = set()
    with share_consumer(bootstrap_servers, group_id, [topic_name]) as source:

        def decide(message: Message) -> None:
            deliveries.setdefault(message.offset(), []).append(message.delivery_count())
            if message.offset() % 3 == 1 and message.delivery_count() == 1:
                source.acknowledge(message, RELEASE)
                return
            source.acknowledge(message, REJECT if message.offset() % 3 == 2 else ACCEPT)
            done.add(message.offset())

        poll_share(source, lambda: len(done) == 9, decide)
        source.commit_sync(timeout=PATIENCE_S)
        assert len(source.poll(timeout=1.0)) == 0
    assert deliveries == {offset: [1, 2] if offset % 3 == 1 else [1] for offset in range(9)}


def test_a_record_that_is_always_released_is_given_up_at_the_delivery_limit(
    bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    share_from_earliest(bootstrap_servers, group_id)
    produce(bootstrap_servers, topic_name, [b"poison", b"good"])
    poison: list[int] = []
    with share_consumer(bootstrap_servers, group_id, [topic_name]) as source:

        def decide(message: Message) -> None:
            if message.value() == b"poison":
                poison.append(message.delivery_count())
            source.acknowledge(message, RELEASE if message.value() == b"poison" else ACCEPT)

        poll_share(source, lambda: len(poison) == 5, decide)
        source.commit_sync(timeout=PATIENCE_S)
        assert len(source.poll(timeout=1.0)) == 0
    assert poison == [1, 2, 3, 4, 5]  # group.share.delivery.count.limit


def test_implicit_acknowledgement_accepts_what_was_polled(
    bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    share_from_earliest(bootstrap_servers, group_id)
    produce(bootstrap_servers, topic_name, [f"{i}".encode() for i in range(20)])
    seen: list[int] = []
    with share_consumer(
        bootstrap_servers, group_id, [topic_name], share_acknowledgement_mode="implicit"
    ) as source:
        poll_share(source, lambda: len(seen) >= 20, lambda message: seen.append(message.offset()))
        source.commit_sync(timeout=PATIENCE_S)
    with share_consumer(bootstrap_servers, group_id, [topic_name]) as later:
        produce(bootstrap_servers, topic_name, [b"20"])
        more: list[int] = []

        def accept(message: Message) -> None:
            more.append(message.offset())
            later.acknowledge(message)

        poll_share(later, lambda: bool(more), accept)
    assert seen == list(range(20))
    assert more == [20]


def test_what_a_closed_consumer_held_goes_to_another(
    bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    share_from_earliest(bootstrap_servers, group_id)
    produce(bootstrap_servers, topic_name, [f"{i}".encode() for i in range(10)])
    held: list[Message] = []
    with share_consumer(bootstrap_servers, group_id, [topic_name]) as first:
        poll_share(first, lambda: len(held) >= 10, held.append)
        for message in held[:4]:
            first.acknowledge(message, ACCEPT)
        first.commit_sync(timeout=PATIENCE_S)
    got: dict[int, int] = {}
    with share_consumer(bootstrap_servers, group_id, [topic_name]) as second:

        def accept(message: Message) -> None:
            got[message.offset()] = message.delivery_count()
            second.acknowledge(message)

        poll_share(second, lambda: len(got) >= 6, accept)
    assert sorted(got) == [4, 5, 6, 7, 8, 9]
    assert set(got.values()) <= {1, 2}  # a release by closing may or may not count as a delivery


def test_two_consumers_share_one_partition(
    bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    share_from_earliest(bootstrap_servers, group_id)
    with (
        share_consumer(bootstrap_servers, group_id, [topic_name], max_poll_records=10) as first,
        share_consumer(bootstrap_servers, group_id, [topic_name], max_poll_records=10) as second,
    ):
        counts: Counter[str] = Counter()
        offsets: Counter[int] = Counter()
        sent = 0
        for _ in range(200):
            if counts["first"] and counts["second"]:
                break
            produce(bootstrap_servers, topic_name, [b"x"] * 20, batch_num_messages=5)
            sent += 20
            for name, source in (("first", first), ("second", second)):
                for message in source.poll(timeout=0.3):
                    assert message.error() is None
                    counts[name] += 1
                    offsets[message.offset()] += 1
                    source.acknowledge(message, ACCEPT)
                source.commit_sync(timeout=PATIENCE_S)
        assert counts["first"] > 0
        assert counts["second"] > 0
        while sum(offsets.values()) < sent:
            for source in (first, second):
                for message in source.poll(timeout=0.3):
                    offsets[message.offset()] += 1
                    source.acknowledge(message, ACCEPT)
    assert offsets == Counter(range(sent))


def test_two_groups_each_get_everything(
    bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    produce(bootstrap_servers, topic_name, [b"a", b"b", b"c"])
    for name in (group_id, f"{group_id}-other"):
        share_from_earliest(bootstrap_servers, name)
        got: list[bytes] = []
        with share_consumer(bootstrap_servers, name, [topic_name]) as source:

            def accept(message: Message, source: object = source, got: list[bytes] = got) -> None:
                got.append(message.value())
                source.acknowledge(message)  # type: ignore[attr-defined]

            poll_share(source, lambda got=got: len(got) >= 3, accept)
        assert got == [b"a", b"b", b"c"]


def test_the_commit_callback_tells_what_was_acknowledged(
    bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    share_from_earliest(bootstrap_servers, group_id)
    produce(bootstrap_servers, topic_name, [b"a", b"b", b"c"])
    told: list[tuple[dict[TopicPartition, set[int]], KafkaException | None]] = []
    with share_consumer(bootstrap_servers, group_id, [topic_name]) as source:
        source.set_acknowledgement_commit_callback(
            lambda offsets, error: told.append((offsets, error))
        )
        got: list[Message] = []

        def accept(message: Message) -> None:
            got.append(message)
            source.acknowledge_offset(
                message.topic(), message.partition(), message.offset(), ACCEPT
            )

        poll_share(source, lambda: len(got) >= 3, accept)
        source.commit_async()
        poll_share(
            source,
            lambda: sum(len(o) for offsets, _ in told for o in offsets.values()) >= 3,
            accept,
        )
    assert all(error is None for _, error in told)
    assert {offset for offsets, _ in told for group in offsets.values() for offset in group} == {
        0,
        1,
        2,
    }


@pytest.mark.slow
def test_an_acquisition_lock_that_runs_out_gives_the_record_to_another(
    bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    share_from_earliest(bootstrap_servers, group_id, share_record_lock_duration_ms="3000")
    produce(bootstrap_servers, topic_name, [b"a"])
    with share_consumer(bootstrap_servers, group_id, [topic_name]) as holder:
        held: list[Message] = []
        poll_share(holder, lambda: bool(held), held.append)
        with share_consumer(bootstrap_servers, group_id, [topic_name]) as other:
            got: list[int] = []

            def accept(message: Message) -> None:
                got.append(message.delivery_count())
                other.acknowledge(message)

            poll_share(other, lambda: bool(got), accept)
        assert got == [2]
