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

from collections.abc import Awaitable, Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from kio.schema.list_offsets.v11.request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kio.schema.list_offsets.v11.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode
from headrace.log.partition_log import PartitionLog
from headrace.log_lines import LimitedLog, get_logger
from headrace.protocol.messages import NO_THROTTLE

from .context import RequestContext

limited = LimitedLog(get_logger("headrace.broker"))

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
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    """Look up an offset for each partition of a request. Searches by timestamp let other requests
    go on meanwhile.
    """
    request, repeated = _each_once(request)
    look_ups = [
        [
            _refused(asked, ErrorCode.INVALID_REQUEST)
            if (topic.name, asked.partition_index) in repeated
            else _look_up(broker, topic.name, asked, request, context)
            for asked in topic.partitions
        ]
        for topic in request.topics
    ]
    if any(isinstance(one, _Search) for topic in look_ups for one in topic):
        return _searched(broker, request, look_ups)
    return _response(request, look_ups)


def _each_once(
    request: ListOffsetsRequest,
) -> tuple[ListOffsetsRequest, Collection[tuple[str, int]]]:
    """Return the request with each partition once, and the partitions that it repeats, which are
    refused.
    """
    topics: dict[str, dict[int, ListOffsetsPartition]] = {}
    repeated = set()
    for topic in request.topics:
        partitions = topics.setdefault(topic.name, {})
        for asked in topic.partitions:
            if partitions.setdefault(asked.partition_index, asked) is not asked:
                repeated.add((topic.name, asked.partition_index))
    if not repeated and len(topics) == len(request.topics):
        return request, ()
    once = tuple(
        ListOffsetsTopic(name=name, partitions=tuple(partitions.values()))
        for name, partitions in topics.items()
    )
    return replace(request, topics=once), repeated


class _Search(NamedTuple):
    """A search by timestamp that is to be made for a partition."""

    log: PartitionLog
    asked: ListOffsetsPartition


async def _searched(
    broker: Broker,
    request: ListOffsetsRequest,
    look_ups: Sequence[Sequence[ListOffsetsPartitionResponse | _Search]],
) -> ListOffsetsResponse:
    read_committed = request.isolation_level == _READ_COMMITTED
    found = [
        [
            await _search(broker, one, read_committed) if isinstance(one, _Search) else one
            for one in topic
        ]
        for topic in look_ups
    ]
    return _response(request, found)


def _response(
    request: ListOffsetsRequest, found: Sequence[Sequence[ListOffsetsPartitionResponse]]
) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            ListOffsetsTopicResponse(name=topic.name, partitions=tuple(partitions))
            for topic, partitions in zip(request.topics, found, strict=True)
        ),
    )


def _look_up(
    broker: Broker,
    name: str,
    asked: ListOffsetsPartition,
    request: ListOffsetsRequest,
    context: RequestContext,
) -> ListOffsetsPartitionResponse | _Search:
    """Return the answer for a partition, or the search that it takes."""
    version, timestamp = context.api_version, asked.timestamp
    if timestamp < 0 and version < _FIRST_VERSION.get(timestamp, version + 1):
        return _refused(asked, ErrorCode.UNSUPPORTED_VERSION)
    log = broker.partition_by_name(name, asked.partition_index)
    if isinstance(log, ErrorCode):
        return _refused(asked, log)
    if asked.current_leader_epoch > 0:
        return _refused(asked, ErrorCode.UNKNOWN_LEADER_EPOCH)
    if timestamp >= 0 or timestamp == MAX_TIMESTAMP:
        return _Search(log, asked)
    if timestamp == LATEST:
        return _found(asked, _end_offset(log, request.isolation_level == _READ_COMMITTED), -1)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return _found(asked, log.log_start_offset, -1)
    return _nothing(asked)


async def _search(
    broker: Broker, wanted: _Search, read_committed: bool
) -> ListOffsetsPartitionResponse:
    log, asked = wanted
    searches = broker.timestamp_searches
    try:
        if asked.timestamp == MAX_TIMESTAMP:
            found = await searches.max_timestamp(log)
        else:
            found = await searches.offset_for_timestamp(log, asked.timestamp)
    except OSError as error:
        limited.error(log.path, "cannot search %s: %s", log.path, error)
        return _refused(asked, ErrorCode.KAFKA_STORAGE_ERROR)
    if found is None or found[0] >= _end_offset(log, read_committed):
        return _nothing(asked)
    return _found(asked, *found)


def _end_offset(log: PartitionLog, read_committed: bool) -> int:
    return log.last_stable_offset if read_committed else log.end_offset


def _found(
    asked: ListOffsetsPartition, offset: int, timestamp: int
) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=ErrorCode.NONE,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=0,
    )


def _nothing(asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=ErrorCode.NONE
    )


def _refused(asked: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
