"""Share groups through the consumer of records, on each target."""

from __future__ import annotations

import asyncio
import time

import pytest
import uvloop
from confluent_kafka import Producer
from confluent_kafka.admin import ResourceType

from headrace import Record, ShareConsumer
from tests.clients.confluent import PATIENCE_S, create_topic, produce, set_configs
from tests.support import story, unique


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    """A topic with ten records in one batch."""
    name = create_topic(bootstrap_servers, unique("topic"))
    produce(bootstrap_servers, name, [b"%d" % number for number in range(10)])
    return name


@pytest.fixture
def conf(bootstrap_servers: str) -> dict[str, str]:
    return {"bootstrap.servers": bootstrap_servers, "group.id": unique("group")}


async def take(queue: ShareConsumer, number: int) -> list[Record]:
    records: list[Record] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(records) < number:
        assert time.monotonic() < deadline_s, records
        records += await queue.poll(number - len(records))
    return records


@story
async def test_a_released_record_comes_until_the_limit_of_deliveries(
    conf: dict[str, str], topic: str
) -> None:
    async with ShareConsumer(conf, [topic], start="earliest") as queue:
        first, *others = await take(queue, 10)
        await queue.accept(others)
        counts = [first.delivery_count]
        await queue.release(first)
        while len(counts) < 5:
            (record,) = await take(queue, 1)
            assert record.offset == first.offset
            counts.append(record.delivery_count)
            await queue.release(record)
        assert counts == [1, 2, 3, 4, 5]
        assert await queue.poll(timeout=1) == []


@story
async def test_each_of_two_members_holds_other_records(conf: dict[str, str], topic: str) -> None:
    async with (
        ShareConsumer(conf, [topic], start="earliest") as left,
        ShareConsumer(conf, [topic], start="earliest") as right,
    ):
        of_left = await take(left, 4)
        of_right = await take(right, 6)
        assert sorted(r.offset for r in of_left + of_right) == list(range(10))
        await left.release(of_left)
        again = await take(right, 4)
        assert {r.offset for r in again} == {r.offset for r in of_left}
        assert {r.delivery_count for r in again} == {2}
        await right.accept(of_right + again)
        assert await left.poll(timeout=0.5) == []


def test_the_event_loop_of_uvloop_will_do(conf: dict[str, str], topic: str) -> None:
    async def drain() -> None:
        async with ShareConsumer(conf, [topic], start="earliest") as queue:
            await queue.accept(await take(queue, 10))

    uvloop.run(drain())


@story
async def test_a_rejected_record_does_not_come_again(conf: dict[str, str], topic: str) -> None:
    async with ShareConsumer(conf, [topic], start="earliest") as queue:
        records = await take(queue, 10)
        await asyncio.gather(queue.reject(records[::2]), queue.release(records[1::2]))
        again = await take(queue, 5)
        assert {r.offset for r in again} == {r.offset for r in records[1::2]}
        await queue.accept(again)
        assert await queue.poll(timeout=0.5) == []


@story
async def test_a_close_gives_the_records_to_others_at_once(
    conf: dict[str, str], topic: str
) -> None:
    async with ShareConsumer(conf, [topic], start="earliest") as first:
        await first.accept((await take(first, 10))[:3])
    async with ShareConsumer(conf, [topic]) as second:
        assert sorted(r.offset for r in await take(second, 7)) == list(range(3, 10))


@story
async def test_aborted_records_do_not_come_to_a_group_that_reads_committed_ones(
    conf: dict[str, str], bootstrap_servers: str, topic: str
) -> None:
    set_configs(
        bootstrap_servers,
        ResourceType.GROUP,
        conf["group.id"],
        share_isolation_level="read_committed",
    )
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": unique("t")})
    producer.init_transactions(PATIENCE_S)
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.produce(topic, end.__name__)
        producer.flush(PATIENCE_S)
        end(PATIENCE_S)
    async with ShareConsumer(conf, [topic], start="earliest") as queue:
        records = await take(queue, 11)
        assert records[-1].value == b"commit_transaction"
        await queue.accept(records)
        assert await queue.poll(timeout=0.5) == []


@story
async def test_the_limit_of_records_ends_in_what_compaction_has_emptied(
    conf: dict[str, str], bootstrap_servers: str
) -> None:
    name = unique("compacted")
    create_topic(
        bootstrap_servers,
        name,
        cleanup_policy="compact",
        max_compaction_lag_ms="100",
        min_cleanable_dirty_ratio="0.001",
        segment_ms="100",
    )

    def produce_batch(*keys: str) -> None:
        producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 100})
        for key in keys:
            producer.produce(name, b"v", key=key)
        assert producer.flush(PATIENCE_S) == 0

    produce_batch("a", "b", "c")
    for _ in range(8):
        produce_batch("d", "e", "f", "g", "h")

    async def offsets_left() -> list[int]:
        """Read all records with a group of its own."""
        own = {**conf, "group.id": unique("group")}
        async with ShareConsumer(own, [name], start="earliest") as reader:
            return [r.offset for r in await reader.poll(timeout=PATIENCE_S)]

    deadline_s = time.monotonic() + PATIENCE_S
    while not {3, 4, 5, 6, 7}.isdisjoint(await offsets_left()):
        assert time.monotonic() < deadline_s
        produce_batch("z")  # only segments that are not the last one are compacted
        await asyncio.sleep(0.5)
    async with ShareConsumer(conf, [name], start="earliest") as queue:
        assert [r.offset for r in await queue.poll(5, timeout=PATIENCE_S)] == [0, 1, 2]
        assert (await queue.poll(1, timeout=PATIENCE_S))[0].offset > 7
