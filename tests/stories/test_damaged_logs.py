"""Batches whose headers were damaged on disk while the broker runs: all else is served."""

from __future__ import annotations

import struct

import pytest

from headrace.protocol.errors import ErrorCode
from headrace.protocol.record_batch import TRANSACTIONAL_BIT, build
from headrace.share.acknowledgement import ACCEPT
from headrace.transactions.producer import NO_PRODUCER, Producer
from tests.stories.share_stage import Stage, on_stage

FETCH = 1
LENGTH, LAST_OFFSET_DELTA, BASE_OFFSET = (8, ">i"), (23, ">i"), (0, ">q")
LARGE = b"v" * 60_000  # so that only the headers are read
QUEUE = "dlq.t"
COPYING = {
    "errors_deadletterqueue_topic_name": QUEUE,
    "errors_deadletterqueue_copy_record_enable": "true",
}


def damage(s: Stage, number: int, field: tuple[int, str], value: int, partition: int = 0) -> None:
    """Overwrite a field of the header of a batch, counted from 0."""
    position, layout = field
    with open(s.log(partition).segments[-1].path(".log"), "r+b") as file:
        data = file.read()
        start = 0
        for _ in range(number):
            start += struct.unpack_from(">i", data, start + 8)[0] + 12
        file.seek(start + position)
        file.write(struct.pack(layout, value))


@pytest.mark.parametrize("record", [b"v", LARGE], ids=["small", "large"])
@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        (LENGTH, 0, ErrorCode.KAFKA_STORAGE_ERROR),
        (LENGTH, -1, ErrorCode.KAFKA_STORAGE_ERROR),
        (LENGTH, 1 << 30, ErrorCode.KAFKA_STORAGE_ERROR),
        (BASE_OFFSET, 1 << 40, ErrorCode.CORRUPT_MESSAGE),
    ],
    ids=["no length", "negative length", "too long", "beyond the end"],
)
@on_stage(partitions=2)
async def test_a_share_fetch_returns_what_is_undamaged(s, field, value, error, record):
    s.produce(3, partition=0)
    s.produce(3, 3, 3, partition=1, value=record)
    damage(s, 1, field, value, partition=1)
    m = s.member()
    assert sorted(await m.fetch(partitions=(0, 1))) == [(0, 2, 1), (0, 2, 1)]
    await m.share_acknowledge((0, 2, ACCEPT), more={1: ((0, 2, ACCEPT),)})
    s.produce(3, partition=0)
    response = await m.share_fetch()
    results = {one.partition_index: one for one in response.responses[0].partitions}
    assert [run.first_offset for run in results[0].acquired_records] == [3]
    assert (results[0].error_code, results[1].error_code) == (0, error)
    assert not results[1].acquired_records
    assert not s.loaded(1).partition.locks.spans


@pytest.mark.parametrize("delta", [-1, -5, 1, 1 << 30])
@on_stage()
async def test_offsets_that_a_batch_cannot_have_are_the_error_of_its_partition(s, delta):
    s.produce(1)
    damage(s, 0, LAST_OFFSET_DELTA, delta)
    response = await s.member().share_fetch()
    (partition,) = response.responses[0].partitions
    assert partition.error_code == ErrorCode.CORRUPT_MESSAGE


@on_stage()
async def test_a_share_fetch_that_waits_for_bytes_does_not_wait_for_damaged_ones(s):
    s.produce(3)
    damage(s, 0, LENGTH, 0)
    response = await s.member().share_fetch(min_bytes=1000, wait_ms=60_000)
    (partition,) = response.responses[0].partitions
    assert partition.error_code == ErrorCode.CORRUPT_MESSAGE


@on_stage(partitions=2)
async def test_a_read_committed_fetch_returns_other_partitions(s):
    transactions = s.broker.coordinators.transactions
    producer = transactions.init_producer_id("a", 60_000, NO_PRODUCER)
    assert isinstance(producer, Producer)
    transactions.add_partitions("a", producer, [("t", 1)])
    data = build(
        [(None, b"a")],
        timestamp_ms=s.broker.clock.wall_ms(),
        attributes=TRANSACTIONAL_BIT,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
    )
    s.broker.topic_logs.append(s.log(1), data)
    transactions.end("a", producer, commit=False, client_version=0)
    s.produce(3, partition=1)
    s.produce(3, partition=0)
    damage(s, 2, LENGTH, 0, partition=1)
    partitions = [
        {"partition": number, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        for number in range(2)
    ]
    response = await s.ask(
        FETCH,
        topics=[{"topic_id": s.topic_id, "partitions": partitions}],
        max_bytes=1 << 20,
        isolation_level=1,
    )
    results = response.responses[0].partitions
    assert [one.error_code for one in results] == [0, 0]
    assert all(one.records for one in results)
    assert [one.producer_id for one in results[1].aborted_transactions] == [producer.producer_id]


@pytest.mark.parametrize(
    ("field", "value"),
    [(LENGTH, 0), (LAST_OFFSET_DELTA, -1)],
    ids=["no length", "offsets in no order"],
)
@on_stage(
    partitions=2, share_delivery_count_limit="2", share_record_lock_duration_ms="1000", **COPYING
)
async def test_a_dead_letter_of_a_damaged_batch_has_no_copy(s, field, value):
    s.clock.stop()
    s.broker.catalog.create_topic(QUEUE, 1, {"errors.deadletterqueue.group.enable": "true"})
    for partition in range(2):
        s.produce(1, partition=partition)
    await s.member().fetch(partitions=(0, 1))
    s.pass_ms(1000)
    await s.member("n").fetch(partitions=(0, 1))
    damage(s, 0, field, value)
    s.pass_ms(1000)
    assert s.broker.topic_logs.log(s.broker.catalog.topics[QUEUE], 0).end_offset == 2
    for partition in range(2):
        assert s.loaded(partition).partition.start_offset == 1
