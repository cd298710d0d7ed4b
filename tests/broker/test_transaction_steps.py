"""The steps of a transaction: each waits until the one before is on disk."""

from __future__ import annotations

import asyncio
import errno
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.coordinators import transactions as transactions_module
from headrace.coordinators.hashing import internal_partition
from headrace.log.partition_log import PartitionLog
from headrace.protocol.errors import ErrorCode, Refusal, StorageError
from headrace.protocol.internal_topics import TRANSACTION_STATE
from headrace.protocol.record_batch import TRANSACTIONAL_BIT, build
from headrace.transactions.producer import NO_PRODUCER, Producer
from tests.handler_client import ask
from tests.support import HANG_S, nothing_is_written, story


async def flushed(broker: Broker) -> None:
    if (flush := broker.topic_logs.pending_flush()) is not None:
        await flush


async def begun(path: Path, partitions: int = 1) -> tuple[Broker, Producer]:
    """Start a broker that forces each write to disk, with a topic `t`; return it and the producer
    of the transactional id `id`.
    """
    broker = Broker(Config({"log.flush.interval.messages": "1"}), path)
    broker.start()
    broker.catalog.create_topic("t", partitions)
    producer = broker.coordinators.transactions.init_producer_id("id", 60_000, NO_PRODUCER)
    assert isinstance(producer, Producer)
    await flushed(broker)
    return broker, producer


@story
async def test_a_marker_follows_the_durable_decision_and_the_completion_the_durable_marker(
    tmp_path: Path,
) -> None:
    broker, producer = await begun(tmp_path)
    transactions = broker.coordinators.transactions
    log = broker.topic_logs.log(broker.catalog.topics["t"], 0)
    assert log is not None
    transactions.add_partitions("id", producer, [("t", 0)])
    await flushed(broker)
    ended = transactions.end("id", producer, commit=True, client_version=0)
    assert isinstance(ended, Producer)
    assert log.end_offset == 0, "a marker whose decision a power cut may forget"
    while not log.end_offset:
        await flushed(broker)
        await asyncio.sleep(0)
    assert log.unflushed_records
    assert "id" in transactions.coordinator.prepared, "a completion without a durable marker"
    while transactions.coordinator.prepared:
        await asyncio.sleep(0)
    assert not log.unflushed_records
    broker.close()


@story
async def test_no_marker_is_written_after_the_broker_has_closed(tmp_path: Path) -> None:
    """Another process may use the data directory then."""
    broker, producer = await begun(tmp_path)
    broker.coordinators.transactions.add_partitions("id", producer, [("t", 0)])
    await flushed(broker)
    broker.coordinators.transactions.end("id", producer, commit=True, client_version=0)
    await asyncio.sleep(0)  # the decision is being forced to disk
    broker.close()
    await nothing_is_written(tmp_path)


@story
async def test_records_follow_the_durable_place_of_their_partition_in_the_transaction(
    tmp_path: Path,
) -> None:
    """Otherwise a power cut may keep the records and forget the partition, and no marker would ever
    end the transaction there.
    """
    broker, producer = await begun(tmp_path, partitions=2)
    topic = broker.catalog.topics["t"]
    count = broker.catalog.topics[TRANSACTION_STATE].partitions
    state = broker.topic_logs.partition(TRANSACTION_STATE, internal_partition("id", count))
    assert isinstance(state, PartitionLog)
    flushed = state.end_offset
    written = [broker.topic_logs.log(topic, partition) for partition in range(2)]
    served = asyncio.create_task(_produce(broker, topic.topic_id, producer))
    await asyncio.sleep(0)
    assert state.end_offset > flushed
    assert not any(log is not None and log.end_offset for log in written)
    response = await served
    codes = [one.error_code for one in response.responses[0].partition_responses]
    assert codes == [ErrorCode.NONE] * 2
    assert all(log is not None and log.end_offset == 1 for log in written)
    assert not state.unflushed_records
    transaction = broker.coordinators.transactions.coordinator.transactions["id"]
    assert transaction.partitions == {("t", 0), ("t", 1)}
    broker.close()


async def _produce(broker: Broker, topic_id: UUID, producer: Producer) -> Any:
    records = build(
        [(None, b"value")],
        timestamp_ms=int(time.time() * 1000),
        attributes=TRANSACTIONAL_BIT,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
    )
    data = [{"index": index, "records": memoryview(records)} for index in range(2)]
    topics = [{"topic_id": topic_id, "partition_data": data}]
    return await ask(broker, 0, transactional_id="id", acks=-1, topic_data=topics)


@story
async def test_offsets_follow_the_durable_place_of_their_group_in_the_transaction(
    tmp_path: Path,
) -> None:
    broker, producer = await begun(tmp_path)
    place = broker.coordinators.transactions.offsets_partition("group")
    offsets = broker.topic_logs.partition(*place)
    assert isinstance(offsets, PartitionLog)
    served = asyncio.create_task(_commit(broker, broker.catalog.topics["t"].topic_id, producer))
    await asyncio.sleep(0)
    assert broker.coordinators.transactions.coordinator.transactions["id"].partitions == {place}
    assert not offsets.end_offset, "an offset without a transaction"
    response = await served
    assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert offsets.end_offset
    assert not offsets.unflushed_records
    broker.close()


async def _commit(broker: Broker, topic_id: UUID, producer: Producer) -> Any:
    partition = {"partition_index": 0, "committed_offset": 7}
    return await ask(
        broker,
        28,
        transactional_id="id",
        group_id="group",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=[{"topic_id": topic_id, "partitions": [partition]}],
    )


@story
async def test_a_partition_whose_place_in_the_transaction_could_not_be_flushed_is_not_written_to(
    tmp_path: Path,
) -> None:
    """The coordinator knows the place, and a restart may forget it."""
    broker, producer = await begun(tmp_path, partitions=2)
    topic = broker.catalog.topics["t"]
    count = broker.catalog.topics[TRANSACTION_STATE].partitions
    state = broker.topic_logs.partition(TRANSACTION_STATE, internal_partition("id", count))
    assert isinstance(state, PartitionLog)
    served = asyncio.create_task(_produce(broker, topic.topic_id, producer))
    await asyncio.sleep(0)
    state.take_offline(OSError(errno.EIO, "Input/output error"))
    with pytest.raises(StorageError):
        await served
    for _ in range(2):
        with pytest.raises(StorageError):
            await _produce(broker, topic.topic_id, producer)
        with pytest.raises(StorageError):
            broker.coordinators.transactions.add_partitions("id", producer, [("t", 0)])
    log = broker.topic_logs.log(topic, 0)
    assert log is None or not log.end_offset
    broker.close()


@pytest.mark.parametrize("stops", [False, True], ids=["to its end", "continued by the next start"])
def test_many_markers_are_written_over_several_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stops: bool
) -> None:
    count = 9
    monkeypatch.setattr(transactions_module, "MARKERS_AT_ONCE", 2)

    def marked(broker: Broker) -> int:
        topic = broker.catalog.topics["t"]
        logs = [broker.topic_logs.log(topic, partition) for partition in range(count)]
        return sum(log.end_offset for log in logs if log is not None)

    async def completed(broker: Broker) -> None:
        while broker.coordinators.transactions.coordinator.prepared:
            await asyncio.sleep(0.01)

    async def begin() -> None:
        broker = Broker(Config(), tmp_path)
        broker.start()
        broker.catalog.create_topic("t", count)
        transactions = broker.coordinators.transactions
        producer = transactions.init_producer_id("id", 60_000, NO_PRODUCER)
        assert isinstance(producer, Producer)
        transactions.add_partitions("id", producer, [("t", number) for number in range(count)])
        transactions.end("id", producer, commit=True, client_version=0)
        assert marked(broker) == 2
        again = transactions.init_producer_id("id", 60_000, NO_PRODUCER)
        assert isinstance(again, Refusal) and again.code == ErrorCode.CONCURRENT_TRANSACTIONS
        if not stops:
            await completed(broker)
            assert marked(broker) == count
        broker.close()
        await asyncio.sleep(0.05)
        assert stops or marked(broker) == count

    async def restart() -> None:
        broker = Broker(Config(), tmp_path)
        broker.start()
        await completed(broker)
        assert marked(broker) >= count
        assert isinstance(
            broker.coordinators.transactions.init_producer_id("id", 60_000, NO_PRODUCER), Producer
        )
        broker.close()

    asyncio.run(asyncio.wait_for(begin(), HANG_S))
    asyncio.run(asyncio.wait_for(restart(), HANG_S))


@story
async def test_an_unexpected_error_delays_the_markers_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions_module, "RETRY_MS", 1)
    broker, producer = await begun(tmp_path)
    transactions = broker.coordinators.transactions
    errors = [RuntimeError("unexpected")]
    append_marker = PartitionLog.append_marker

    def fail_once(log: PartitionLog, *marker: Any) -> Any:
        if errors:
            raise errors.pop()
        return append_marker(log, *marker)

    monkeypatch.setattr(PartitionLog, "append_marker", fail_once)
    transactions.add_partitions("id", producer, [("t", 0)])
    await flushed(broker)
    transactions.end("id", producer, commit=True, client_version=0)
    while transactions.coordinator.prepared:
        assert transactions._completing or transactions.next_deadline_ms() is not None
        await asyncio.sleep(0)
    log = broker.topic_logs.log(broker.catalog.topics["t"], 0)
    assert log is not None
    assert log.end_offset == 1
    broker.close()
