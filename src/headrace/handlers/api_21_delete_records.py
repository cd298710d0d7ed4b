"""DeleteRecords (21), versions 0-2: move the log start offset of partitions forward (KIP-107).

The records of compacted topics cannot be deleted (POLICY_VIOLATION), nor those of internal topics
(INVALID_TOPIC_EXCEPTION).

Version notes:

* Version 2 is flexible (KIP-482).
"""

from __future__ import annotations

from collections.abc import Sequence

from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsRequest
from kio.schema.delete_records.v2.response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

from headrace.broker.broker import Broker
from headrace.broker.limits import DELETIONS_AT_ONCE
from headrace.errors import ErrorCode, Refusal
from headrace.log.partition_log import PartitionLog
from headrace.protocol.large_responses import Sliced
from headrace.protocol.messages import NO_THROTTLE

from .context import RequestContext
from .slicing import chunks, sliced


async def handle(
    broker: Broker, request: DeleteRecordsRequest, context: RequestContext
) -> DeleteRecordsResponse | Sliced:
    """Delete the records before an offset in each partition of a request, a few at a time."""
    slices = broker.slices
    await slices.next()
    topics: list[DeleteRecordsTopicResult] = []
    for topic in request.topics:
        partitions: list[DeleteRecordsPartitionResult] = []
        for some in chunks(topic.partitions, DELETIONS_AT_ONCE):
            partitions += await _delete(broker, topic.name, some)
            if slices.is_over:
                await slices.next()
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=tuple(partitions)))
    response = DeleteRecordsResponse(throttle_time=NO_THROTTLE, topics=tuple(topics))
    return sliced(response, sum(len(topic.partitions) for topic in request.topics))


async def _delete(
    broker: Broker, name: str, asked: Sequence[DeleteRecordsPartition]
) -> list[DeleteRecordsPartitionResult]:
    found = [_log_of(broker, name, one.partition_index) for one in asked]
    logs = [
        (log, one.offset)
        for log, one in zip(found, asked, strict=True)
        if isinstance(log, PartitionLog)
    ]
    deleted = iter(await broker.topic_logs.delete_records(logs))
    results = []
    for one, log in zip(asked, found, strict=True):
        start_offset = next(deleted) if isinstance(log, PartitionLog) else Refusal(log)
        if isinstance(start_offset, Refusal):
            results.append(_result(one, -1, start_offset.code))
        else:
            results.append(_result(one, start_offset, ErrorCode.NONE))
    return results


def _log_of(broker: Broker, name: str, partition: int) -> PartitionLog | ErrorCode:
    """Return the log of a partition whose records may be deleted, or the error."""
    topic = broker.catalog.topics.get(name)
    log = broker.partition_by_name(name, partition)
    if isinstance(log, ErrorCode):
        return log
    if topic is not None and topic.internal:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if "delete" not in log.config.cleanup_policy:
        return ErrorCode.POLICY_VIOLATION
    return log


def _result(
    asked: DeleteRecordsPartition, low_watermark: int, code: ErrorCode
) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=low_watermark, error_code=code
    )
