"""ListOffsets (2), versions 1-11: the offset of a time, of the start, of the end (KIP-79, KIP-734,
KIP-405).

The special timestamps: -1 the end (the last stable offset for read_committed), -2 the start, -3 the
record with the largest timestamp, -4 the start on local disk, which here is the start, -5 and -6
about tiered storage, which there is not.
"""

from __future__ import annotations

from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest
from kio.schema.list_offsets.v11.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode
from headrace.log.partition_log import PartitionLog
from headrace.protocol.messages import NO_THROTTLE

from . import RequestContext

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = (
    -1,
    -2,
    -3,
    -4,
    -5,
    -6,
)
_FIRST_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_READ_COMMITTED = 1


def handle(
    broker: Broker, request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    _partition(broker, topic.name, asked, request, context.api_version)
                    for asked in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def _partition(
    broker: Broker,
    name: str,
    asked: ListOffsetsPartition,
    request: ListOffsetsRequest,
    version: int,
) -> ListOffsetsPartitionResponse:
    if asked.timestamp < 0 and version < _FIRST_VERSION.get(asked.timestamp, version + 1):
        return _refused(asked, ErrorCode.UNSUPPORTED_VERSION)
    log = broker.partition_by_name(name, asked.partition_index)
    if isinstance(log, ErrorCode):
        return _refused(asked, log)
    if asked.current_leader_epoch > 0:
        return _refused(asked, ErrorCode.UNKNOWN_LEADER_EPOCH)
    found = _find(log, asked.timestamp, request.isolation_level == _READ_COMMITTED)
    if found is None:
        return ListOffsetsPartitionResponse(
            partition_index=asked.partition_index, error_code=ErrorCode.NONE
        )
    offset, timestamp = found
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=ErrorCode.NONE,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=0,
    )


def _find(log: PartitionLog, timestamp: int, read_committed: bool) -> tuple[int, int] | None:
    """(offset, timestamp of its record or -1), or None when there is no such record."""
    end_offset = log.last_stable_offset if read_committed else log.end_offset
    if timestamp == LATEST:
        return end_offset, -1
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.log_start_offset, -1
    if timestamp == MAX_TIMESTAMP:
        latest = log.max_timestamp()
        return None if latest is None or latest[0] >= end_offset else latest
    if timestamp < 0:
        return None
    at = log.offset_for_timestamp(timestamp)
    return None if at is None or at[0] >= end_offset else (at[0], at[1])


def _refused(asked: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
