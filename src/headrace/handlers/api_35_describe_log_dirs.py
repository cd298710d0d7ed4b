"""DescribeLogDirs (35), versions 1-5: describe the data directory and partition sizes (KIP-113).

The size of a log that is offline, or cannot be read, is -1.

Version notes:

* Version 2 is flexible (KIP-482).
* Version 3 adds an error for the whole response.
* Version 4 adds the total and the usable bytes of the disk (KIP-827).
* Version 5 adds whether the directory is cordoned (KIP-1066); it never is.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from kio.schema.describe_log_dirs.v5.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v5.response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

from headrace.broker.broker import Broker
from headrace.broker.catalog import Topic
from headrace.broker.limits import SLICED_ABOVE
from headrace.errors import ErrorCode
from headrace.protocol.large_responses import LazyArray, Sliced, lazy_map
from headrace.protocol.messages import NO_THROTTLE

from .context import RequestContext
from .slicing import sliced

_UNKNOWN_SIZE = -1


def handle(
    broker: Broker, request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse | Sliced:
    """Describe the data directory and the partitions of a request in it."""
    topics = broker.catalog.topics
    wanted: list[tuple[Topic, Sequence[int]]]
    if request.topics is None:
        wanted = [(topic, range(topic.partitions)) for topic in topics.values()]
    else:  # a partition that is named twice is described once
        asked: dict[str, dict[int, None]] = {}
        for one in request.topics:
            asked.setdefault(one.topic, {}).update(dict.fromkeys(one.partitions))
        wanted = [
            (topics[name], known)
            for name, partitions in asked.items()
            if name in topics
            and (known := [one for one in partitions if 0 <= one < topics[name].partitions])
        ]
    count = sum(len(partitions) for _, partitions in wanted)
    described = lazy_map(lambda one: _described(broker, *one), LazyArray(len(wanted), wanted))
    log_dir = str(broker.data_dir.absolute())
    try:
        room = os.statvfs(log_dir)
    except OSError:
        result = DescribeLogDirsResult(
            error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=log_dir, topics=()
        )
    else:
        result = DescribeLogDirsResult(
            error_code=ErrorCode.NONE,
            log_dir=log_dir,
            topics=tuple(described) if count <= SLICED_ABOVE else described,
            total_bytes=room.f_blocks * room.f_frsize,
            usable_bytes=room.f_bavail * room.f_frsize,
        )
    response = DescribeLogDirsResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.NONE, results=(result,)
    )
    return sliced(response, count)


def _described(broker: Broker, topic: Topic, partitions: Sequence[int]) -> DescribeLogDirsTopic:
    described = (
        DescribeLogDirsPartition(
            partition_index=partition,
            partition_size=_size_bytes(broker, topic, partition),
            offset_lag=0,
            is_future_key=False,
        )
        for partition in partitions
    )
    return DescribeLogDirsTopic(
        name=topic.name,
        partitions=tuple(described)
        if len(partitions) <= SLICED_ABOVE
        else LazyArray(len(partitions), described),
    )


def _size_bytes(broker: Broker, topic: Topic, partition: int) -> int:
    """Return the size of a partition's log: 0 without records or after the topic was deleted, -1 if
    it is not known.
    """
    if not broker.logs.exists(topic.name, partition):
        return 0
    log = broker.partition(topic.topic_id, partition)
    if log is ErrorCode.KAFKA_STORAGE_ERROR:
        return _UNKNOWN_SIZE
    return 0 if isinstance(log, ErrorCode) else log.size_bytes()
