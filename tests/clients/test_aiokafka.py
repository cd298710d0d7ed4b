"""Ordinary work with aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import ProducerFenced

from tests.clients.confluent import create_topic
from tests.support import story, unique

PATIENCE_S = 60.0


def consumer(
    bootstrap_servers: str, group_id: str | None, *topics: str, **configs: object
) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap_servers,
        group_id=group_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **configs,
    )


async def take(source: AIOKafkaConsumer, count: int) -> list[ConsumerRecord]:
    async with asyncio.timeout(PATIENCE_S):
        return [await source.getone() for _ in range(count)]


async def eventually(condition: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"waited in vain for {what}") from None


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@story
async def test_records_come_back(
    bootstrap_servers: str, topic_name: str, codec: str | None
) -> None:
    create_topic(bootstrap_servers, topic_name)
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers,
        compression_type=codec,
        enable_idempotence=True,
        linger_ms=5,
    ) as producer:
        futures = [
            await producer.send(
                topic_name, f"value {i}".encode() * 10, key=b"k", headers=[("h", b"1")]
            )
            for i in range(100)
        ]
        assert [(await f).offset for f in futures] == list(range(100))
    async with consumer(bootstrap_servers, None, topic_name) as source:
        records = await take(source, 100)
    assert [r.value for r in records] == [f"value {i}".encode() * 10 for i in range(100)]
    assert {(r.key, r.headers) for r in records} == {(b"k", (("h", b"1"),))}


@story
async def test_a_group_consumes_commits_and_goes_on(
    bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    here = TopicPartition(topic_name, 0)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        for i in range(10):
            await producer.send_and_wait(topic_name, f"{i}".encode())
    async with consumer(bootstrap_servers, group_id, topic_name) as source:
        assert [r.offset for r in await take(source, 4)] == [0, 1, 2, 3]
        await source.commit({here: (4, "so far")})
    async with consumer(bootstrap_servers, group_id, topic_name) as source:
        assert [r.offset for r in await take(source, 2)] == [4, 5]
        assert await source.committed(here) == 4
        source.seek(here, 9)
        assert [r.offset for r in await take(source, 1)] == [9]
        assert await source.beginning_offsets([here]) == {here: 0}
        assert await source.end_offsets([here]) == {here: 10}
        await source.seek_to_committed()
        assert await source.position(here) == 4


@story
async def test_two_members_share_the_partitions(
    bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    create_topic(bootstrap_servers, topic_name, partitions=2)
    both = {TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)}
    async with consumer(
        bootstrap_servers, group_id, topic_name, heartbeat_interval_ms=300
    ) as first:
        await eventually(lambda: first.assignment() == both, "the first member to own everything")
        async with consumer(
            bootstrap_servers, group_id, topic_name, heartbeat_interval_ms=300
        ) as second:
            await eventually(
                lambda: len(first.assignment()) == len(second.assignment()) == 1,
                "the members to own one each",
            )
            assert first.assignment() | second.assignment() == both
        await eventually(lambda: first.assignment() == both, "the first member to take over")


@story
async def test_offsets_for_times(bootstrap_servers: str, topic_name: str) -> None:
    create_topic(bootstrap_servers, topic_name)
    here = TopicPartition(topic_name, 0)
    base_ms = 1_700_000_000_000
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        for i in range(10):
            await producer.send_and_wait(topic_name, b"x", timestamp_ms=base_ms + 1000 * i)
    async with consumer(bootstrap_servers, None, topic_name) as source:
        found = await source.offsets_for_times({here: base_ms + 4500})
        assert (found[here].offset, found[here].timestamp) == (5, base_ms + 5000)


@story
async def test_administration(bootstrap_servers: str, topic_name: str, group_id: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic_name, num_partitions=2, replication_factor=1)])
        assert topic_name in await admin.list_topics()
        async with consumer(bootstrap_servers, group_id, topic_name) as source:
            await source.commit({TopicPartition(topic_name, 0): 0})
            assert (group_id, "consumer") in [
                tuple(g)[:2] for g in await admin.list_consumer_groups()
            ]
        offsets = await admin.list_consumer_group_offsets(group_id)
        assert offsets[TopicPartition(topic_name, 0)].offset == 0
        await admin.delete_topics([topic_name])
    finally:
        await admin.close()


@story
async def test_transactions(bootstrap_servers: str, topic_name: str, group_id: str) -> None:
    """A copy in transactions, one of them aborted: read_committed sees the others."""
    create_topic(bootstrap_servers, topic_name)
    transactional_id, where = unique("transactions"), TopicPartition(topic_name, 0)
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers, transactional_id=transactional_id
    )
    await producer.start()
    for value, commits in ((b"kept", True), (b"dropped", False), (b"last", True)):
        await producer.begin_transaction()
        for _ in range(3):
            await producer.send_and_wait(topic_name, value)
        await producer.send_offsets_to_transaction({where: 3 if commits else 99}, group_id)
        await (producer.commit_transaction() if commits else producer.abort_transaction())
    reader = consumer(bootstrap_servers, group_id, isolation_level="read_committed")
    await reader.start()
    reader.assign([where])
    assert await reader.committed(where) == 3
    await reader.seek_to_beginning(where)
    assert [record.value for record in await take(reader, 6)] == [b"kept"] * 3 + [b"last"] * 3
    await reader.stop()
    successor = AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers, transactional_id=transactional_id
    )
    await successor.start()
    with pytest.raises(ProducerFenced):
        async with producer.transaction():
            await producer.send_and_wait(topic_name, b"late")
    await successor.stop()
    await producer.stop()
