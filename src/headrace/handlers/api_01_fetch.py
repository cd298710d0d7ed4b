"""Fetch (1), versions 4-18: read batches, waiting up to ``max_wait`` for ``min_bytes`` (KIP-74, 98, 227, 516).

Batches go out as they lie on disk. Incremental fetch sessions are declined: a session id of 0 in the answer tells the
client to name its partitions each time, which every client does.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any
from uuid import UUID

from kio.schema.fetch.v18.request import FetchPartition, FetchRequest
from kio.schema.fetch.v18.response import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)

from headrace.broker.broker import Broker
from headrace.broker.limits import MAX_FETCH_WAIT_MS
from headrace.errors import ErrorCode, Refusal
from headrace.log.batch import offset_ranges
from headrace.log.partition_log import PartitionLog
from headrace.wire.messages import NO_THROTTLE

from . import RequestContext

_READ_COMMITTED = 1


def handle(broker: Broker, request: FetchRequest, context: RequestContext) -> Any:
    if request.session_id != 0 or request.session_epoch > 0:
        return _response((), ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    response, enough = _read(broker, request)
    if enough or not request.topics or request.max_wait <= NO_THROTTLE:
        return response
    return _poll(broker, request)


def _poll(broker: Broker, request: FetchRequest) -> Awaitable[FetchResponse]:
    """Wait for more. The first waiter is set up before anything else can run, so that no append goes unnoticed."""
    deadline_ms = broker.monotonic_ms() + min(request.max_wait.total_seconds() * 1000, MAX_FETCH_WAIT_MS)
    keys = [("log", topic.topic_id, partition.partition) for topic in request.topics for partition in topic.partitions]

    def waiter() -> Awaitable[bool]:
        return broker.waits.wait(keys, deadline_ms - broker.monotonic_ms())

    async def poll(notified: Awaitable[bool]) -> FetchResponse:
        while True:
            more = await notified
            response, enough = _read(broker, request)
            if enough or not more:
                return response
            notified = waiter()

    return poll(waiter())


def _read(broker: Broker, request: FetchRequest) -> tuple[FetchResponse, bool]:
    """The response as of now, and whether it should go out at once: it has enough bytes, or a refusal."""
    limit_bytes = min(request.max_bytes, broker.fetch_max_bytes)
    total_bytes, refused, topics = 0, False, []
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            data = _read_partition(broker, topic.topic_id, asked, request, limit_bytes - total_bytes, total_bytes == 0)
            total_bytes += len(data.records or b"")
            refused = refused or data.error_code != ErrorCode.NONE
            partitions.append(data)
        topics.append(FetchableTopicResponse(topic_id=topic.topic_id, partitions=tuple(partitions)))
    return _response(tuple(topics)), refused or total_bytes >= request.min_bytes


def _read_partition(
    broker: Broker, topic_id: UUID, asked: FetchPartition, request: FetchRequest, left_bytes: int, first: bool
) -> PartitionData:
    """:param first: nothing is in the response yet: one batch may be larger than the limits, so that all can be read"""
    log = broker.partition(topic_id, asked.partition)
    if isinstance(log, ErrorCode):
        return _refused(asked.partition, log)
    if asked.current_leader_epoch > 0:
        return _refused(asked.partition, ErrorCode.UNKNOWN_LEADER_EPOCH)
    committed = request.isolation_level == _READ_COMMITTED
    records: bytes | Refusal = b""
    if first or left_bytes > 0 or asked.fetch_offset > log.end_offset or asked.fetch_offset < log.log_start_offset:
        records = log.read(
            asked.fetch_offset,
            max(min(asked.partition_max_bytes, left_bytes), 0),
            minimum_one=first,
            up_to=log.last_stable_offset if committed else None,
        )
    if isinstance(records, Refusal):
        return _refused(asked.partition, records.code)
    return PartitionData(
        partition_index=asked.partition,
        error_code=ErrorCode.NONE,
        high_watermark=log.end_offset,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=_aborted(log, asked.fetch_offset, records) if committed else None,
        records=records,
    )


def _aborted(log: PartitionLog, fetch_offset: int, records: bytes) -> tuple[AbortedTransaction, ...]:
    """What a reader of committed records has to pass over in ``records``."""
    if not records or not log.aborted:
        return ()
    end_offset = offset_ranges(records)[0][-1][1] + 1
    return tuple(
        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in log.aborted.overlapping(fetch_offset, end_offset)
    )


def _refused(index: int, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=None,
        records=b"",
    )


def _response(topics: tuple[FetchableTopicResponse, ...], code: ErrorCode = ErrorCode.NONE) -> FetchResponse:
    return FetchResponse(throttle_time=NO_THROTTLE, error_code=code, responses=topics)
