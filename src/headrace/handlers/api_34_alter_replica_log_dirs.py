"""AlterReplicaLogDirs (34), versions 1-2: move partitions to other data directories (KIP-113).

There is one data directory, so a partition can only be moved where it is.

Version notes:

* Version 2 is flexible (KIP-482).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from kio.schema.alter_replica_log_dirs.v2.request import AlterReplicaLogDirsRequest
from kio.schema.alter_replica_log_dirs.v2.response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode
from headrace.protocol.messages import NO_THROTTLE

from .context import RequestContext
from .slicing import sliced

_MAX_DIRECTORY_NAME = 255
_FUTURE_SUFFIX_CHARS = len(f".{'0' * 32}-future")
"""Kafka's own: the suffix of the directory in which it would build the moved partition."""


def handle(broker: Broker, request: AlterReplicaLogDirsRequest, context: RequestContext) -> Any:
    """Answer each partition of a request. A partition that is named twice has one result."""
    results: defaultdict[str, dict[int, ErrorCode]] = defaultdict(dict)
    for directory in request.dirs:
        for topic in directory.topics:
            for partition in topic.partitions:
                code = _check(broker, directory.path, topic.name, partition)
                results[topic.name][partition] = code
    response = AlterReplicaLogDirsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=tuple(
                    AlterReplicaLogDirPartitionResult(partition_index=partition, error_code=code)
                    for partition, code in partitions.items()
                ),
            )
            for name, partitions in results.items()
        ),
    )
    return sliced(response, sum(map(len, results.values())))


def _check(broker: Broker, path: str, name: str, partition: int) -> ErrorCode:
    if len(f"{name}-{partition}") + _FUTURE_SUFFIX_CHARS > _MAX_DIRECTORY_NAME:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if path != str(broker.data_dir.absolute()):
        return ErrorCode.LOG_DIR_NOT_FOUND
    log = broker.partition_by_name(name, partition)
    return log if isinstance(log, ErrorCode) else ErrorCode.NONE
