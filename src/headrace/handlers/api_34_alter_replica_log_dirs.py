"""AlterReplicaLogDirs (34), versions 1-2: move partitions to other data directories (KIP-113).

There is one data directory, so a partition can only be moved where it is.

Version notes:

* Version 2 is flexible (KIP-482).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from headrace.net.api import ALTER, Api, on_cluster
from headrace.net.call import Call
from headrace.protocol.api import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from headrace.protocol.errors import ErrorCode

TopicResult = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
PartitionResult = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult


Codes = defaultdict[str, dict[int, ErrorCode]]
"""By topic and partition: a partition that is named twice has one result."""


def refuse(request: AlterReplicaLogDirsRequest, code: ErrorCode) -> AlterReplicaLogDirsResponse:
    """Refuse each partition of a request."""
    codes: Codes = defaultdict(dict)
    for _, topic, partition in _partitions(request):
        codes[topic][partition] = code
    return _response(codes)


API = Api(34, on_cluster(ALTER), refuse=refuse)

_MAX_DIRECTORY_NAME = 255
_FUTURE_SUFFIX_CHARS = len(f".{'0' * 32}-future")
"""Kafka's own: the suffix of the directory in which it would build the moved partition."""


async def handle(call: Call, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """Answer each partition of a request."""
    codes: Codes = defaultdict(dict)
    for path, topic, partition in _partitions(request):
        codes[topic][partition] = _check(call, path, topic, partition)
        await call.pause()
    return _response(codes)


def _check(call: Call, path: str, topic: str, partition: int) -> ErrorCode:
    if len(f"{topic}-{partition}") + _FUTURE_SUFFIX_CHARS > _MAX_DIRECTORY_NAME:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if path != call.log_dir:
        return ErrorCode.LOG_DIR_NOT_FOUND
    log = call.topic_logs.partition(topic, partition)
    return log if isinstance(log, ErrorCode) else ErrorCode.NONE


def _partitions(request: AlterReplicaLogDirsRequest) -> Iterator[tuple[str, str, int]]:
    """Yield the path, the topic and the number of each partition of a request."""
    for directory in request.dirs:
        for topic in directory.topics:
            for partition in topic.partitions:
                yield directory.path, topic.name, partition


def _response(codes: Codes) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            TopicResult(topic, [PartitionResult(*result) for result in partitions.items()])
            for topic, partitions in codes.items()
        ]
    )
