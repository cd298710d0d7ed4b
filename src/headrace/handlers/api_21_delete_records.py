"""DeleteRecords (21), versions 0-2: move the log start offset of partitions forward (KIP-107).

The records of compacted topics cannot be deleted (POLICY_VIOLATION), nor those of internal topics
(INVALID_TOPIC_EXCEPTION).

Version notes:

* Version 2 is flexible (KIP-482).
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator

from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsRequest
from kio.schema.delete_records.v2.response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.protocol.large_responses import Sliced
from headrace.protocol.messages import NO_THROTTLE

from .context import RequestContext
from .slicing import run_sliced, sliced

_FSYNC_WEIGHT = 20
"""One deletion takes about as long as describing so many resources: it waits for the disk."""


def handle(
    broker: Broker, request: DeleteRecordsRequest, context: RequestContext
) -> DeleteRecordsResponse | Sliced | Awaitable[DeleteRecordsResponse | Sliced]:
    """Delete the records before an offset in each partition of a request."""
    count = sum(len(topic.partitions) for topic in request.topics)
    return run_sliced(broker, _delete_all(broker, request, count), count * _FSYNC_WEIGHT)


def _delete_all(
    broker: Broker, request: DeleteRecordsRequest, count: int
) -> Generator[None, None, DeleteRecordsResponse | Sliced]:
    topics: list[DeleteRecordsTopicResult] = []
    for topic in request.topics:
        partitions: list[DeleteRecordsPartitionResult] = []
        for asked in topic.partitions:
            partitions.append(_delete(broker, topic.name, asked))
            yield
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=tuple(partitions)))
    response = DeleteRecordsResponse(throttle_time=NO_THROTTLE, topics=tuple(topics))
    return sliced(response, count)


def _delete(
    broker: Broker, name: str, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    topic = broker.catalog.topics.get(name)
    log = broker.partition_by_name(name, asked.partition_index)
    if isinstance(log, ErrorCode):
        return _result(asked, -1, log)
    if topic is not None and topic.internal:
        return _result(asked, -1, ErrorCode.INVALID_TOPIC_EXCEPTION)
    if "delete" not in log.config.cleanup_policy:
        return _result(asked, -1, ErrorCode.POLICY_VIOLATION)
    start_offset = log.delete_records(asked.offset)
    if isinstance(start_offset, Refusal):
        return _result(asked, -1, start_offset.code)
    broker.long_polls.notify(("log", log.topic_id, log.partition))
    return _result(asked, start_offset, ErrorCode.NONE)


def _result(
    asked: DeleteRecordsPartition, low_watermark: int, code: ErrorCode
) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=low_watermark, error_code=code
    )
