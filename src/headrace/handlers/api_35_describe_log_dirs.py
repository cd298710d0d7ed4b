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
from functools import partial

from headrace.net.api import DESCRIBE, Api, on_cluster
from headrace.net.call import Call
from headrace.protocol.api import DescribeLogDirsRequest, DescribeLogDirsResponse
from headrace.protocol.errors import ErrorCode
from headrace.topics.catalog import Topic

LogDir = DescribeLogDirsResponse.DescribeLogDirsResult
TopicDescription = DescribeLogDirsResponse.DescribeLogDirsTopic
PartitionDescription = DescribeLogDirsResponse.DescribeLogDirsPartition

API = Api(35, on_cluster(DESCRIBE), has_one_error=True)

_UNKNOWN_SIZE = -1


async def handle(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Describe the data directory and the partitions of a request in it."""
    log_dir = call.log_dir
    try:
        room = os.statvfs(log_dir)
    except OSError:
        return DescribeLogDirsResponse(results=[LogDir(ErrorCode.KAFKA_STORAGE_ERROR, log_dir)])
    topics = [
        TopicDescription(topic.name, await call.each(partial(_describe, call, topic), indexes))
        for topic, indexes in _partitions_to_describe(call, request)
    ]
    described = LogDir(
        log_dir=log_dir,
        topics=topics,
        total_bytes=room.f_blocks * room.f_frsize,
        usable_bytes=room.f_bavail * room.f_frsize,
    )
    return DescribeLogDirsResponse(results=[described])


def _partitions_to_describe(
    call: Call, request: DescribeLogDirsRequest
) -> list[tuple[Topic, Sequence[int]]]:
    """Return the partitions of a request that exist, by topic."""
    topics = call.catalog.topics
    if request.topics is None:
        return [(topic, range(topic.partitions)) for topic in topics.values()]
    named: dict[str, dict[int, None]] = {}
    for item in request.topics:  # a partition that is named twice is described once
        named.setdefault(item.topic, {}).update(dict.fromkeys(item.partitions))
    existing = [
        (topics[name], [index for index in indexes if 0 <= index < topics[name].partitions])
        for name, indexes in named.items()
        if name in topics
    ]
    return [(topic, indexes) for topic, indexes in existing if indexes]


def _describe(call: Call, topic: Topic, index: int) -> PartitionDescription:
    """Describe a partition: its size is 0 without records or after the topic was deleted, -1 if it
    is not known.
    """
    partition = PartitionDescription(index)
    if call.topic_logs.exists(topic.name, index):
        log = call.topic_logs.partition(topic.topic_id, index)
        if not isinstance(log, ErrorCode):
            partition.partition_size = log.size_bytes()
        elif log is ErrorCode.KAFKA_STORAGE_ERROR:
            partition.partition_size = _UNKNOWN_SIZE
    return partition
