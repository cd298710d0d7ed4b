"""DescribeLogDirs (35), versions 1-5: describe the data directory and partition sizes (KIP-113).

Version notes:

* Version 2 is flexible (KIP-482).
* Version 3 adds an error for the whole response.
* Version 4 adds the total and the usable bytes of the disk (KIP-827).
* Version 5 adds whether the directory is cordoned (KIP-1066); it never is.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from kio.schema.describe_log_dirs.v5.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v5.response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

from headrace.broker.broker import Broker
from headrace.broker.catalog import Topic
from headrace.errors import ErrorCode
from headrace.protocol.messages import NO_THROTTLE

from .context import RequestContext


def handle(
    broker: Broker, request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    """Describe the data directory and the partitions of a request in it."""
    topics = broker.catalog.topics
    if request.topics is None:
        described = [
            _described(broker, topic, range(topic.partitions)) for topic in topics.values()
        ]
    else:
        described = [
            _described(broker, topics[asked.topic], asked.partitions)
            for asked in request.topics
            if asked.topic in topics
        ]
    room = os.statvfs(broker.data_dir)
    result = DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=str(broker.data_dir.absolute()),
        topics=tuple(described),
        total_bytes=room.f_blocks * room.f_frsize,
        usable_bytes=room.f_bavail * room.f_frsize,
    )
    return DescribeLogDirsResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.NONE, results=(result,)
    )


def _described(broker: Broker, topic: Topic, partitions: Iterable[int]) -> DescribeLogDirsTopic:
    written = set(broker.logs.existing_partitions(topic.name, topic.partitions))

    def size_bytes(partition: int) -> int:
        partition_log = broker.log(topic, partition) if partition in written else None
        return 0 if partition_log is None else partition_log.size_bytes()

    return DescribeLogDirsTopic(
        name=topic.name,
        partitions=tuple(
            DescribeLogDirsPartition(
                partition_index=partition,
                partition_size=size_bytes(partition),
                offset_lag=0,
                is_future_key=False,
            )
            for partition in partitions
            if 0 <= partition < topic.partitions
        ),
    )
