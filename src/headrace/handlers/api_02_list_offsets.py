"""ListOffsets (2), versions 1-11: look up offsets by timestamp.

A timestamp of at least 0 asks for the first record that is not older. Negative ones are:

* -1, latest: the end of the log, for read_committed the last stable offset
* -2, earliest: the start of the log
* -3, max timestamp: the record with the largest timestamp (KIP-734)
* -4, earliest local: the start of the log, since there is no tiered storage (KIP-405)
* -5, latest tiered, and -6, earliest pending upload: no offset (KIP-1005, KIP-1023)

Version notes:

* Version 2 adds the isolation level (KIP-98).
* Version 4 adds leader epochs (KIP-320).
* Version 6 is flexible (KIP-482).
* Versions 7, 8, 9 and 11 add the timestamps -3, -4, -5 and -6. Earlier versions return
  UNSUPPORTED_VERSION for them.
* Version 10 adds a timeout for tiered storage (KIP-1075); it has no effect here.
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

from .context import RequestContext

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
    """Look up an offset for each partition of a request."""
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
    """Return an offset and its record's timestamp (-1 for the log start and end), or None."""
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
    first = log.offset_for_timestamp(timestamp)
    return None if first is None or first[0] >= end_offset else (first[0], first[1])


def _refused(asked: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
