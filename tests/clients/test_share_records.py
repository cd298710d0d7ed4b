"""Share groups through the consumer of records, on each target."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

import pytest
import uvloop
from confluent_kafka import Producer
from confluent_kafka.admin import ResourceType

from headrace import Record, ShareConsumer
from headrace.client import Cluster, OutcomesFailed, RequestRefused
from headrace.client.offsets import alter_share_offsets
from tests.clients.confluent import (
    PATIENCE_S,
    admin,
    consumer,
    create_topic,
    produce,
    set_configs,
)
from tests.clients.confluent import take as take_messages
from tests.support import story, unique

LOCK_MS = 1000
MAX_WAITS = 100
"""More than any call has."""
T = TypeVar("T")


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    """A topic with ten records in one batch."""
    name = create_topic(bootstrap_servers, unique("topic"))
    produce(bootstrap_servers, name, [b"%d" % number for number in range(10)])
    return name


@pytest.fixture
def conf(bootstrap_servers: str) -> dict[str, str]:
    return {"bootstrap.servers": bootstrap_servers, "group.id": unique("group")}


@pytest.fixture
def short_locks(bootstrap_servers: str, conf: dict[str, str]) -> None:
    """Locks of the group last a second."""
    set_configs(
        bootstrap_servers,
        ResourceType.GROUP,
        conf["group.id"],
        share_record_lock_duration_ms=str(LOCK_MS),
    )


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
async def test_a_record_at_the_limit_of_deliveries_goes_to_the_dead_letter_queue(
    conf: dict[str, str], bootstrap_servers: str, topic: str
) -> None:
    letters = create_topic(
        bootstrap_servers, unique("dlq.t"), errors_deadletterqueue_group_enable="true"
    )
    set_configs(
        bootstrap_servers,
        ResourceType.GROUP,
        conf["group.id"],
        errors_deadletterqueue_topic_name=letters,
        errors_deadletterqueue_copy_record_enable="true",
        share_delivery_count_limit="2",
    )
    async with ShareConsumer(conf, [topic], start="earliest") as queue:
        records = await take(queue, 10)
        await asyncio.gather(queue.release(records[3]), queue.accept(records[:3] + records[4:]))
        (again,) = await take(queue, 1)
        assert (again.offset, again.delivery_count) == (3, 2)
        await queue.release(again)
        assert await queue.poll(timeout=0.5) == []
    with consumer(bootstrap_servers, unique("group")) as reader:
        reader.subscribe([letters])
        (letter,) = take_messages(reader, 1)
    assert letter.value() == b"3"
    headers = dict(letter.headers() or ())
    assert headers["__dlq.errors.offset"] == b"3"
    assert headers["__dlq.errors.delivery.count"] == b"2"


@story
async def test_a_lock_that_times_out_lets_another_member_have_the_records(
    conf: dict[str, str], short_locks: None, topic: str
) -> None:
    async with (
        ShareConsumer(conf, [topic], start="earliest", renew="manual") as slow,
        ShareConsumer(conf, [topic], start="earliest") as quick,
    ):
        late = await take(slow, 4)
        own = await take(quick, 6)
        again = await take(quick, 4)
        assert {record.offset for record in again} == {record.offset for record in late}
        assert {record.delivery_count for record in again} == {2}
        with pytest.raises(OutcomesFailed, match="4 of 4 outcomes failed") as error:
            await slow.accept(late)
        assert set(error.value.failed) == set(late)
        await quick.accept(own + again)  # the late outcome has ended nothing


@story
async def test_records_are_held_longer_than_a_lock_lasts_though_the_clock_jumps(
    conf: dict[str, str], short_locks: None, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        ShareConsumer(conf, [topic], start="earliest") as holder,
        ShareConsumer(conf, [topic], start="earliest") as other,
    ):
        records = await take(holder, 10)
        for days in (1, -1):
            now_s = time.time() + days * 86_400
            monkeypatch.setattr(time, "time", lambda now_s=now_s: now_s)
            assert await other.poll(timeout=2 * LOCK_MS / 1000) == []
        await holder.accept(records)
        assert await other.poll(timeout=0.5) == []


@story
async def test_a_group_begins_again_where_its_offset_is_reset_to(
    conf: dict[str, str], bootstrap_servers: str, topic: str
) -> None:
    reset = {(topic, 0): 7}
    async with Cluster(bootstrap_servers) as cluster:
        async with ShareConsumer(conf, [topic], start="earliest") as queue:
            await queue.accept(await take(queue, 10))
            (refusal,) = (await alter_share_offsets(cluster, conf["group.id"], reset)).values()
            assert isinstance(refusal, RequestRefused), refusal
        (outcome,) = (await alter_share_offsets(cluster, conf["group.id"], reset)).values()
        assert outcome is None
    async with ShareConsumer(conf, [topic]) as queue:
        records = await take(queue, 3)
        assert [(r.offset, r.delivery_count) for r in records] == [(7, 1), (8, 1), (9, 1)]
        await queue.accept(records)


@story
async def test_large_records(conf: dict[str, str], bootstrap_servers: str) -> None:
    """Records of 10 MB, and one of 100 MB as a batch of a few KB, come one after the other."""
    topic = create_topic(bootstrap_servers, unique("large"), max_message_bytes="11000000")
    large = [os.urandom(10_000_000), b"small", os.urandom(10_000_000)]
    produce(bootstrap_servers, topic, large, message_max_bytes=11_000_000)
    produce(
        bootstrap_servers,
        topic,
        [bytes(100_000_000)],
        compression_type="zstd",
        message_max_bytes=110_000_000,
    )
    async with ShareConsumer(conf, [topic], start="earliest", max_held_bytes=1) as queue:
        for value in (*large, bytes(100_000_000)):
            (record,) = await take(queue, 1)
            assert record.value == value
            await queue.accept(record)
        assert await queue.poll(timeout=0.5) == []


@story
async def test_a_topic_that_is_deleted_and_made_again_while_its_records_are_held(
    conf: dict[str, str], bootstrap_servers: str, short_locks: None, topic: str
) -> None:
    lost: list[Record] = []
    async with ShareConsumer(conf, [topic], start="earliest", on_lock_lost=lost.extend) as queue:
        records = await take(queue, 10)
        admin(bootstrap_servers).delete_topics([topic])[topic].result(PATIENCE_S)
        async with asyncio.timeout(PATIENCE_S):
            while len(lost) < 10:
                await asyncio.sleep(0.01)
        create_topic(bootstrap_servers, topic)
        produce(bootstrap_servers, topic, [b"new"])
        (new,) = await take(queue, 1)
        assert (new.value, new.offset, new.delivery_count) == (b"new", 0, 1)
        with pytest.raises(OutcomesFailed, match="10 of 10"):
            await queue.accept(records)
        await queue.accept(new)


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
    while not (left := await offsets_left()) or not {3, 4, 5, 6, 7}.isdisjoint(left):
        assert time.monotonic() < deadline_s
        produce_batch("z")  # only segments that are not the last one are compacted
        await asyncio.sleep(0.5)
    async with ShareConsumer(conf, [name], start="earliest") as queue:
        assert [r.offset for r in await queue.poll(5, timeout=PATIENCE_S)] == [0, 1, 2]
        assert (await queue.poll(1, timeout=PATIENCE_S))[0].offset > 7


@types.coroutine
def cancelled_at(number: int, call: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Run a call, and cancel its task as it waits for so many other times before."""
    task = asyncio.current_task()
    assert task is not None
    steps, error = call.__await__(), None
    for waits in itertools.count():
        try:
            future = steps.send(None) if error is None else steps.throw(error)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        if waits == number:
            task.cancel()
        error = None
        try:
            yield future
        except BaseException as raised:
            error = raised
    raise AssertionError


async def at_each_wait(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Call, each time cancelled one wait later, until it ends."""
    for number in range(MAX_WAITS):
        try:
            return await asyncio.create_task(cancelled_at(number, call()))
        except asyncio.CancelledError:
            pass
    raise AssertionError(f"cancelled at each of {MAX_WAITS} waits")


@story
async def test_a_call_that_is_cancelled_at_any_wait_loses_no_record_and_no_outcome(
    conf: dict[str, str], topic: str
) -> None:
    async with ShareConsumer(conf, [topic], start="earliest") as queue:
        records: list[Record] = []
        while len(records) < 10:
            records += await at_each_wait(lambda: queue.poll(1))
        assert [(r.offset, r.delivery_count) for r in records] == [(n, 1) for n in range(10)]
        await at_each_wait(lambda: queue.renew(records))
        left = iter(records)
        for end in (queue.accept, queue.reject, queue.release):
            for number in range(3):
                call = asyncio.create_task(cancelled_at(number, end(next(left))))
                await asyncio.wait([call])
        again = await take(queue, 3)
        assert [(r.offset, r.delivery_count) for r in again] == [(6, 2), (7, 2), (8, 2)]
        await queue.accept([*again, *left])
        assert await queue.poll(timeout=0.5) == []


@pytest.mark.parametrize("call", [ShareConsumer.open, ShareConsumer.close])
@story
async def test_a_consumer_that_is_cancelled_as_it_opens_or_closes_keeps_no_record_from_others(
    conf: dict[str, str], topic: str, call: Callable[[ShareConsumer], Coroutine[Any, Any, None]]
) -> None:
    for number in range(MAX_WAITS):
        own = {**conf, "group.id": unique("group")}
        queue = ShareConsumer(own, [topic], start="earliest")
        if call is ShareConsumer.close:
            await queue.open()
            await take(queue, 10)
        task = asyncio.create_task(cancelled_at(number, call(queue)))
        await asyncio.wait([task])
        async with ShareConsumer(own, [topic], start="earliest") as other:
            if not task.cancelled():
                await queue.close()
            await other.accept(await take(other, 10))
        if not task.cancelled():
            return await task
    raise AssertionError(f"cancelled at each of {MAX_WAITS} waits")
