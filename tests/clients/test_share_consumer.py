"""The share consumer of records, on headrace and on Apache Kafka."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from math import inf
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ResourceType

import headrace.blocking
from headrace import Broker, Record, ShareConsumer
from headrace.client import (
    ClientError,
    Cluster,
    OutcomesFailed,
    RangeConsumer,
    Undecodable,
    UnreadableBatch,
    connection,
)
from headrace.client.share_state import release_records
from tests.clients.confluent import (
    PATIENCE_S,
    admin,
    consumer,
    create_topic,
    produce,
    set_configs,
    take,
)
from tests.support import story, unique, wait_until

BOXES = [b"box %d" % number for number in range(6)]
SHORT_LOCK_MS = 1000


@pytest.fixture
def topic(bootstrap_servers: str, topic_name: str) -> str:
    """A topic with six records in one partition."""
    create_topic(bootstrap_servers, topic_name)
    produce(bootstrap_servers, topic_name, BOXES)
    return topic_name


@pytest.fixture
def conf(bootstrap_servers: str, group_id: str) -> dict[str, str]:
    return {"bootstrap.servers": bootstrap_servers, "group.id": group_id}


async def take_all(queue: ShareConsumer, number: int) -> list[Record]:
    """Return so many records, in the order of their offsets."""
    records: list[Record] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(records) < number:
        assert time.monotonic() < deadline_s, records
        records += await queue.poll(number - len(records))
    return sorted(records, key=lambda record: record.offset)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


def failed(error: pytest.ExceptionInfo[OutcomesFailed]) -> dict[int, str]:
    return {record.offset: reason for record, reason in error.value.failed.items()}


# --- outcomes ---


@story
async def test_each_outcome(conf: dict[str, str], topic: str, bootstrap_servers: str, target: str):
    letters = create_topic(
        bootstrap_servers, unique("dlq.t"), errors_deadletterqueue_group_enable="true"
    )
    set_configs(
        bootstrap_servers,
        ResourceType.GROUP,
        conf["group.id"],
        errors_deadletterqueue_topic_name=letters,
    )
    async with ShareConsumer(conf, [topic], start="earliest") as queue:
        records = await take_all(queue, 6)
        assert [record.value for record in records] == BOXES
        assert queue.assignment == {(topic, 0)}
        assert queue.held == 6
        await queue.accept(records[:3])
        await queue.release(records[3])
        await queue.reject(records[4:5], reason="no such item\x1b[31m")
        (again,) = await take_all(queue, 1)
        assert (again.offset, again.delivery_count) == (3, 2)
        await queue.renew([again, records[5]])
        await queue.accept([again, records[5]])
        assert queue.held == 0
        assert await queue.poll(timeout=0) == []
    with consumer(bootstrap_servers, unique("g")) as reader:
        reader.subscribe([letters])
        (letter,) = take(reader, 1)
    said = dict(letter.headers())["__dlq.errors.message"]
    if target == "headrace":
        assert said == b"Offset rejected by client: no such item\\x1b[31m"
    else:
        assert said == b"Offset rejected by client."


@story
async def test_a_released_record_comes_again_after_its_delay(conf: dict[str, str], topic: str):
    async with ShareConsumer(conf, [topic], start="earliest") as queue:
        records = await take_all(queue, 6)
        await queue.accept(records[1:])
        began_s = time.monotonic()
        await queue.release(records[0], delay=1.5)
        with pytest.raises(OutcomesFailed, match="it is not held"):
            await queue.accept(records[0])
        (again,) = await take_all(queue, 1)
        assert time.monotonic() - began_s > 1.4
        assert (again.offset, again.delivery_count) == (0, 2)
        for delay in (-1.0, 90_000.0, float("nan")):
            with pytest.raises(ClientError, match="delay is"):
                await queue.release(again, delay=delay)
        await queue.accept(again)


@story
async def test_a_close_releases_what_is_held(conf: dict[str, str], topic: str, target: str):
    """On headrace's broker, what was not handed out does not count as delivered."""
    async with ShareConsumer(conf, [topic], start="earliest") as queue:
        assert len(await queue.poll(2, timeout=PATIENCE_S)) == 2
        await queue._acquire(4, 1.0)
        assert queue.held == 6
    async with ShareConsumer(conf, [topic]) as queue:
        counts = [record.delivery_count for record in await take_all(queue, 6)]
        assert counts == [2, 2, 1, 1, 1, 1] if target == "headrace" else [2] * 6


@story
async def test_an_outcome_of_a_record_that_is_not_held_hurts_no_other(
    conf: dict[str, str], topic: str
):
    async with (
        ShareConsumer(conf, [topic], start="earliest") as queue,
        ShareConsumer({**conf, "group.id": unique("g")}, [topic], start="earliest") as other,
    ):
        records, elsewhere = await take_all(queue, 6), await take_all(other, 6)
        await queue.accept(records[0])
        with pytest.raises(OutcomesFailed, match=r"2 of 4 outcomes failed: .* offset 0:") as error:
            await queue.accept([records[0], records[1], elsewhere[2], records[3]])
        assert set(failed(error)) == {0, 2}
        with pytest.raises(OutcomesFailed):
            await queue.accept([records[2]._replace(value=b"forged")])
        await queue.accept([records[2], records[2]])
        with pytest.raises(ClientError, match="str is not a record"):
            await queue.accept("x")  # type: ignore[arg-type]
        await queue.accept(records[4:])
        await queue.accept([])
        assert queue.held == 0


@story
async def test_outcomes_of_many_calls_travel_together(
    conf: dict[str, str], topic: str, monkeypatch: pytest.MonkeyPatch
):
    requests: list[Any] = []
    send = connection.Connection.ask

    async def request(self: connection.Connection, payload: Any, **more: Any) -> Any:
        if type(payload).__name__ == "ShareAcknowledgeRequest":
            requests.append(payload)
        return await send(self, payload, **more)

    monkeypatch.setattr(connection.Connection, "ask", request)
    async with ShareConsumer(conf, [topic], start="earliest") as queue:
        records = await take_all(queue, 6)
        await queue.accept(records[:2])
        assert len(requests) == 1
        await asyncio.gather(*map(queue.accept, records[2:]))
        assert len(requests) == 2


@story
async def test_a_broker_that_refuses_one_record_accepts_the_others(
    conf: dict[str, str], topic: str, target: str, bootstrap_servers: str
):
    """A broker refuses the outcomes of a partition together."""
    if target == "kafka":
        pytest.skip("only headrace's broker releases records of others")
    lost: list[list[Record]] = []
    async with (
        ShareConsumer(conf, [topic], start="earliest", on_lock_lost=lost.append) as queue,
        Cluster(bootstrap_servers) as cluster,
    ):
        records = await take_all(queue, 6)
        for offset in (2, 4):
            await release_records(cluster, conf["group.id"], (topic, 0), offset, offset)
        with pytest.raises(OutcomesFailed, match=r"2 of 5 outcomes failed.*not.*acquired") as error:
            await queue.accept(records[:5])
        assert set(failed(error)) == {2, 4}
        assert [record.offset for record in await take_all(queue, 2)] == [2, 4]
        await release_records(cluster, conf["group.id"], (topic, 0), 5, 5)
        with pytest.raises(OutcomesFailed, match="its lock was lost"):
            await queue.renew(records[5])
        assert lost == [[records[5]]]


@story
async def test_a_delayed_release_does_not_end_the_next_delivery(conf: dict[str, str], topic: str):
    async with ShareConsumer(conf, [topic], start="earliest") as queue:
        queue._delays_at_broker = False
        records = await take_all(queue, 6)
        await queue.release(records, delay=1.5)
        assert queue.held == 6
        (node,) = queue._ranges._nodes.values()
        await node._connection.close()
        again = await take_all(queue, 6)
        assert queue.held == 6
        await until(lambda: not queue._delayed)
        assert await queue.poll(timeout=0.5) == []
        await queue.accept(again)


# --- locks ---


@pytest.fixture
def short_locks() -> Any:
    """A broker whose locks last a second, with six records in a topic."""
    config = {
        "group.share.min.record.lock.duration.ms": str(SHORT_LOCK_MS),
        "group.share.record.lock.duration.ms": str(SHORT_LOCK_MS),
    }
    with Broker(config=config) as broker:
        create_topic(broker.bootstrap_servers, "t")
        produce(broker.bootstrap_servers, "t", BOXES)
        yield {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}


@story
async def test_records_are_held_longer_than_their_locks(short_locks: dict[str, str]):
    """Also those that wait for iteration."""
    async with ShareConsumer(short_locks, ["t"], start="earliest") as queue:
        first = await anext(queue)
        await queue._acquire(5, 1.0)
        await asyncio.sleep(3 * SHORT_LOCK_MS / 1000)
        await queue.accept([first, *await take_all(queue, 5)])
    async with ShareConsumer(short_locks, ["t"]) as queue:
        assert await queue.poll(timeout=0.5) == []


@story
async def test_without_renewal_a_lock_ends(short_locks: dict[str, str]):
    async with ShareConsumer(short_locks, ["t"], start="earliest", renew="manual") as queue:
        records = await take_all(queue, 6)
        for _ in range(3):
            await asyncio.sleep(0.6 * SHORT_LOCK_MS / 1000)
            await queue.renew(records[:2])
        with pytest.raises(OutcomesFailed, match="4 of 6 outcomes failed") as error:
            await queue.accept(records)
        assert set(failed(error)) == {2, 3, 4, 5}


@story
async def test_a_group_that_does_not_renew(
    short_locks: dict[str, str], caplog: pytest.LogCaptureFixture
):
    set_configs(
        short_locks["bootstrap.servers"],
        ResourceType.GROUP,
        "g",
        share_renew_acknowledge_enable="false",
    )
    async with ShareConsumer(short_locks, ["t"], start="earliest") as queue:
        records = await take_all(queue, 6)
        await until(lambda: "does not renew acquisition locks" in caplog.text)
        await queue.accept(records)  # no lock was lost by the attempt
        with pytest.raises(ClientError, match="does not renew"):
            await queue.renew(records)


@story
async def test_a_broker_that_cannot_renew(
    conf: dict[str, str],
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    """Apache Kafka 4.1."""
    for name in ("ShareFetchRequest", "ShareAcknowledgeRequest"):
        monkeypatch.setitem(connection._SUPPORTED, name, (1, 1))
    async with ShareConsumer(conf, [topic], start="earliest") as queue:
        queue._delays_at_broker = False
        records = await take_all(queue, 6)
        await until(lambda: "does not renew acquisition locks" in caplog.text)
        with pytest.raises(ClientError, match="does not renew"):
            await queue.renew(records)
        with pytest.raises(ClientError, match=r"a delay of 3600 s .* end after 30.0 s"):
            await queue.release(records, delay=3600)
        await queue.release(records[:1], delay=0.5)
        await queue.accept(records[1:])
        (again,) = await take_all(queue, 1)
        await queue.accept(again)
    assert caplog.text.count("does not renew acquisition locks") == 1


@story
async def test_lost_locks_are_told(conf: dict[str, str], topic: str):
    told: list[list[int]] = []

    async def tell(records: list[Record]) -> None:
        told.append([record.offset for record in records])
        raise RuntimeError("a mistake of the application")

    async with ShareConsumer(conf, [topic], start="earliest", on_lock_lost=tell) as queue:
        records = await take_all(queue, 6)
        await queue.accept(records[0])
        (node,) = queue._ranges._nodes.values()
        await node._connection.close()
        again = await take_all(queue, 5)
        assert told == [[1, 2, 3, 4, 5]]
        assert [record.delivery_count for record in again] == [2] * 5
        with pytest.raises(OutcomesFailed) as error:
            await queue.accept(records)
        reasons = failed(error)
        assert reasons.pop(0).startswith("it is not held")
        assert set(reasons.values()) == {"its lock was lost: the connection has ended"}
        await queue.accept(again)


@story
async def test_records_of_a_deleted_topic_are_lost(short_locks: dict[str, str]):
    told: list[Record] = []
    async with ShareConsumer(short_locks, ["t"], start="earliest", on_lock_lost=told.extend) as q:
        records = await take_all(q, 6)
        admin(short_locks["bootstrap.servers"]).delete_topics(["t"])["t"].result(PATIENCE_S)
        await until(lambda: len(told) == 6)
        create_topic(short_locks["bootstrap.servers"], "t")
        produce(short_locks["bootstrap.servers"], "t", BOXES[:1])
        (new,) = await take_all(q, 1)
        with pytest.raises(OutcomesFailed, match="6 of 6"):
            await q.accept(records)
        await q.accept(new)


# --- bad input ---


@story
async def test_records_that_do_not_decode(conf: dict[str, str], topic: str, bootstrap_servers: str):
    produce(bootstrap_servers, topic, [b'{"item": 7}'])

    def other(record: Record, _: Exception) -> Record:
        if record.offset == 0:
            raise KeyError("no fallback")
        return Record(*record[:4], record.offset, *record[5:9])

    def nothing(_: Record, __: Exception) -> None:
        return None

    def elsewhere(record: Record, _: Exception) -> Record:
        return record._replace(offset=9)

    for on_undecodable, values in (
        ("reject", []),
        (other, [1, 2, 3, 4, 5]),
        (nothing, []),
        (elsewhere, []),
    ):
        group = {**conf, "group.id": unique("g")}
        async with ShareConsumer(
            group, [topic], start="earliest", value=json, on_undecodable=on_undecodable
        ) as queue:
            records = await take_all(queue, len(values) + 1)
            assert [record.value for record in records] == [*values, {"item": 7}]
            await queue.accept(records)
            assert queue.held == 0
        async with ShareConsumer(group, [topic]) as queue:
            assert await queue.poll(timeout=0.5) == []
    async with ShareConsumer(
        conf, [topic], start="earliest", value=json, on_undecodable="raise"
    ) as queue:
        refused = []
        while len(refused) < 6:
            try:
                await queue.accept(await queue.poll())
            except Undecodable as error:
                refused.append(error.record.value)
                await queue.reject(error.record)
        assert refused == BOXES
        while queue.held or (records := await queue.poll()):
            await queue.accept(records)


@story
async def test_a_batch_that_cannot_be_read(
    conf: dict[str, str],
    topic: str,
    bootstrap_servers: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    produce(bootstrap_servers, topic, [b"after"])
    acquire = RangeConsumer.acquire
    is_damaged = True

    async def damaged(self: RangeConsumer, **limits: Any) -> Any:
        acquired = await acquire(self, **limits)
        if is_damaged and acquired.data:
            data = bytearray(acquired.data[topic, 0])
            data[70] ^= 1
            acquired = replace(acquired, data={(topic, 0): bytes(data)})
        return acquired

    monkeypatch.setattr(RangeConsumer, "acquire", damaged)
    async with ShareConsumer(conf, [topic], start="earliest") as queue:
        (after,) = await queue.poll(timeout=PATIENCE_S)
        assert after.value == b"after"
        with pytest.raises(UnreadableBatch, match="cannot be read from offset 0 to 5") as error:
            await queue.poll(timeout=PATIENCE_S)
        assert error.value.offset == 0
        is_damaged = False
        queue._problems.clear()
        records = await take_all(queue, 6)
        assert {record.delivery_count for record in records} <= {2, 3, 4}
        await queue.release(records)
        is_damaged = True
        waiting = asyncio.create_task(anext(queue))
        await until(lambda: "cannot be read from offset 0 to " in caplog.text)
        is_damaged = False
        produce(bootstrap_servers, topic, [b"more"])
        assert (await waiting).value in (*BOXES, b"more")


@story
async def test_markers_of_transactions_are_no_records(
    conf: dict[str, str], topic: str, bootstrap_servers: str
):
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": unique("x"), "log_level": 2}
    )
    producer.init_transactions(PATIENCE_S)
    for value in (b"a", b"b"):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.commit_transaction(PATIENCE_S)
    async with ShareConsumer(conf, [topic], start="earliest") as queue:
        records = await take_all(queue, 8)
        assert [record.value for record in records[6:]] == [b"a", b"b"]
        await queue.accept(records)
        await queue.poll(timeout=0.2)
        assert queue.held == 0
        assert not queue._ranges.held()


# --- flow ---


@story
async def test_no_more_is_acquired_than_may_be_held(conf: dict[str, str], topic: str):
    async with ShareConsumer(conf, [topic], start="earliest", max_held_records=4) as queue:
        held = await take_all(queue, 4)
        assert await queue.poll(timeout=0.3) == []
        waiting = asyncio.create_task(queue.poll(timeout=PATIENCE_S))
        await asyncio.sleep(0.05)
        await queue.accept(held[:3])
        assert 1 <= len(await waiting) <= 2
        assert queue.held <= 4
    async with ShareConsumer(conf, [topic], max_held_bytes=1) as queue:
        first = await anext(queue)
        assert await queue.poll(timeout=0.3) == []
        await queue.accept(first)
        assert len(await queue.poll(timeout=PATIENCE_S)) == 1


@story
async def test_limits_that_no_request_has(conf: dict[str, str], topic: str):
    async with ShareConsumer(
        conf, [topic], start="earliest", max_held_records=2**40, max_held_bytes=2**40
    ) as queue:
        records: list[Record] = []
        while len(records) < 6:
            records += await queue.poll(2**40)
        await queue.accept(records)
    for limits in ({"max_held_records": 0}, {"max_held_bytes": -1}):
        with pytest.raises(ClientError, match="not a whole number from 1"):
            ShareConsumer(conf, [topic], **limits)


@story
async def test_paused_partitions(conf: dict[str, str], topic: str):
    async with ShareConsumer(conf, [topic], start="earliest") as queue:
        queue.pause([(topic, 0)])
        assert await queue.poll(timeout=1) == []
        queue.resume([(topic, 0)])
        assert len(await take_all(queue, 6)) == 6


@story
async def test_several_tasks_share_one_consumer(
    conf: dict[str, str], topic_name: str, bootstrap_servers: str
):
    create_topic(bootstrap_servers, topic_name, partitions=3)
    values = [b"%d" % number for number in range(300)]
    produce(bootstrap_servers, topic_name, values)
    processed: list[bytes] = []

    async def work(queue: ShareConsumer) -> None:
        async for record in queue:
            await queue.accept(record)
            processed.append(record.value)
            if len(processed) == len(values):
                await queue.close()

    async with ShareConsumer(conf, [topic_name], start="earliest") as queue:
        await asyncio.gather(*(work(queue) for _ in range(7)))
    assert sorted(processed) == sorted(values)


@story
async def test_cancelled_calls_lose_nothing(conf: dict[str, str], topic: str):
    taken: list[Record] = []
    async with ShareConsumer(conf, [topic], start="earliest") as queue:
        for pause in range(200):
            call = asyncio.create_task(queue.poll(1, timeout=1))
            await asyncio.sleep(pause / 2000)
            call.cancel()
            try:
                taken += await call
            except asyncio.CancelledError:
                continue
            if len(taken) == 6:
                break
        taken += await take_all(queue, 6 - len(taken))
        assert {(record.offset, record.delivery_count) for record in taken} == {
            (offset, 1) for offset in range(6)
        }
        for record in taken:
            call = asyncio.create_task(queue.accept(record))
            await asyncio.sleep(0)
            call.cancel()
        await until(lambda: not queue._ranges.held())
    async with ShareConsumer(conf, [topic]) as queue:
        assert await queue.poll(timeout=0.5) == []


# --- groups ---


@story
async def test_where_a_new_group_begins(
    conf: dict[str, str], topic: str, bootstrap_servers: str, caplog: pytest.LogCaptureFixture
):
    async with ShareConsumer(conf, [topic], start=timedelta(hours=1)) as queue:
        assert len(await take_all(queue, 6)) == 6
    assert not caplog.records
    async with ShareConsumer(conf, [topic], start=3600):
        assert not caplog.records
    async with ShareConsumer(conf, [topic], start="latest"):
        (line,) = [record.message for record in caplog.records]
        assert "exists, so start=latest changes nothing" in line
        assert "by_duration:PT3600.000S" in line
    async with ShareConsumer({**conf, "group.id": unique("g")}, [topic], start="latest") as queue:
        await until(lambda: queue.assignment)
        assert await queue.poll(timeout=0.5) == []


@story
async def test_a_group_of_another_type(conf: dict[str, str], topic: str, bootstrap_servers: str):
    with consumer(bootstrap_servers, conf["group.id"]) as reader:
        reader.subscribe([topic])
        take(reader, 1)
        with pytest.raises(ClientError, match=r"not a share group: choose another group.id"):
            async with ShareConsumer(conf, [topic], start="earliest"):
                pass


@story
async def test_a_long_reason_does_not_prevent_a_dead_letter():
    with Broker() as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "t")
        produce(servers, "t", BOXES)
        create_topic(
            servers, "dlq.t", errors_deadletterqueue_group_enable="true", max_message_bytes="500"
        )
        set_configs(servers, ResourceType.GROUP, "g", errors_deadletterqueue_topic_name="dlq.t")
        conf = {"bootstrap.servers": servers, "group.id": "g"}
        async with ShareConsumer(conf, ["t"], start="earliest") as queue:
            await queue.reject(await anext(queue), reason="x: " * 300)
        with consumer(servers, "reader") as reader:
            reader.subscribe(["dlq.t"])
            (letter,) = take(reader, 1)
    assert dict(letter.headers())["__dlq.errors.message"] == b"Offset rejected by client"


@story
async def test_misuse_is_one_line(conf: dict[str, str], topic: str):
    queue = ShareConsumer(conf, [topic], start="earliest")
    for call in (queue.poll, lambda: queue.accept([]), lambda: anext(queue)):
        with pytest.raises(ClientError, match="is not open: use 'async with'"):
            await call()
    async with queue:
        with pytest.raises(ClientError, match="was opened before"):
            await queue.open()

        async def elsewhere() -> str:
            with pytest.raises(ClientError) as error:
                await queue.poll()
            return str(error.value)

        assert "another event loop" in await asyncio.to_thread(asyncio.run, elsewhere())
        waiting = asyncio.create_task(queue.poll(timeout=PATIENCE_S))
        held = await waiting
        iterating = asyncio.create_task(_count(queue))
        await asyncio.sleep(0.1)
        await queue.close()
        await queue.close()
        assert await iterating <= 6 - len(held)
    for call in (queue.poll, lambda: queue.accept(held), queue.open):
        with pytest.raises(ClientError, match=r"is closed|was opened before"):
            await call()
    assert [record async for record in queue] == []
    with pytest.raises(ClientError, match="topic 'absent' does not exist"):
        async with ShareConsumer(conf, ["absent"]):
            pass


async def _count(queue: ShareConsumer) -> int:
    return len([record async for record in queue])


@story
async def test_a_close_under_way_tells_what_was_not_accepted(conf: dict[str, str], topic: str):
    queue = ShareConsumer(conf, [topic], start="earliest")
    await queue.open()
    records = await take_all(queue, 6)
    (node,) = queue._ranges._nodes.values()
    await node._lock.acquire()  # as if the broker did not answer
    accepting = asyncio.create_task(queue.accept(records))
    await asyncio.sleep(0)
    closing = asyncio.create_task(queue.close())
    with pytest.raises(OutcomesFailed, match=r"6 of 6 .* the consumer was closed"):
        await accepting
    node._lock.release()
    await closing


@story
async def test_a_consumer_that_is_closed_while_it_opens_is_no_member(
    conf: dict[str, str], topic: str
):
    for turns in range(0, 60, 3):
        queue = ShareConsumer(conf, [topic], start="earliest")
        opening = asyncio.create_task(queue.open())
        for _ in range(turns):
            await asyncio.sleep(0.001)
        await queue.close()
        await asyncio.gather(opening, return_exceptions=True)
        heartbeats = queue._ranges._membership._heartbeats
        assert heartbeats is None or heartbeats.done(), turns


# --- without asyncio ---


def test_a_callback_cannot_wait_for_its_own_thread(conf: dict[str, str], topic: str) -> None:
    told: list[str] = []

    def value(data: bytes) -> bytes:
        with pytest.raises(ClientError) as error:
            queue.poll()
        told.append(str(error.value))
        return data

    with headrace.blocking.ShareConsumer(conf, [topic], start="earliest", value=value) as queue:
        assert next(queue).value == BOXES[0]
    assert "waits for the thread that it is called in" in told[0]


def test_the_blocking_twin_in_threads(
    conf: dict[str, str], topic_name: str, bootstrap_servers: str
) -> None:
    create_topic(bootstrap_servers, topic_name, partitions=2)
    values = [b"%d" % number for number in range(100)]
    produce(bootstrap_servers, topic_name, values)
    processed: list[bytes] = []

    def work(queue: headrace.blocking.ShareConsumer) -> None:
        for record in queue:
            queue.accept(record)
            processed.append(record.value)

    with headrace.blocking.ShareConsumer(conf, [topic_name], start="earliest") as queue:
        threads = [threading.Thread(target=work, args=(queue,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(processed) == len(values), PATIENCE_S, "all records")
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert sorted(processed) == sorted(values)
    queue.close()
    assert list(queue) == []
    with pytest.raises(ClientError, match="is closed"):
        queue.poll()


def test_the_blocking_twin_after_an_interrupt(
    conf: dict[str, str], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with headrace.blocking.ShareConsumer(conf, [topic], start="earliest") as queue:
        for _ in range(3):
            records: list[Record] = []
            with monkeypatch.context() as patch:
                patch.setattr("concurrent.futures.Future.result", _interrupted)
                with pytest.raises(KeyboardInterrupt):
                    queue.poll(4, timeout=PATIENCE_S)
        for timeout in 3 * (timedelta(seconds=PATIENCE_S), inf):
            records += queue.poll(1, timeout)
        assert [record.delivery_count for record in records] == [1] * 6
        queue.reject(records[:1], reason="x")
        queue.release(records[1])
        assert next(queue).offset == 1
        with pytest.raises(OutcomesFailed):
            queue.accept(records[:3])
        queue.renew(records[3:])
        assert queue.held == 4
        assert queue.assignment == {(topic, 0)}
        child = os.fork()
        if not child:
            try:
                queue.poll()
            except ClientError as error:
                os._exit(0 if "create one after the fork" in str(error) else 2)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        queue.accept(records[3:])


def _interrupted(*_: object) -> Any:
    raise KeyboardInterrupt
