"""AlterReplicaLogDirs (34), versions 1-2: move partitions to other data directories (KIP-113).

There is one data directory, so a partition can only be moved where it is.

Version notes:

* Version 2 is flexible (KIP-482).
"""

from __future__ import annotations

from collections import defaultdict

from headrace.errors import ErrorCode
from headrace.net.api import Api
from headrace.net.call import Call
from headrace.net.rules import ALTER, on_cluster
from headrace.protocol.api import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse

TopicResult = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
PartitionResult = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult


class Results:
    """The results by topic. A partition that is named twice has one."""

    def __init__(self) -> None:
        self._topics: defaultdict[str, dict[int, PartitionResult]] = defaultdict(dict)

    def add(self, topic: str, partition: int, code: ErrorCode) -> None:
        """Add the result of a partition."""
        self._topics[topic][partition] = PartitionResult(partition, code)

    def response(self) -> AlterReplicaLogDirsResponse:
        """Return the response with these results."""
        topics = self._topics.items()
        return AlterReplicaLogDirsResponse(
            results=[TopicResult(name, partitions.values()) for name, partitions in topics]
        )


def refuse(request: AlterReplicaLogDirsRequest, code: ErrorCode) -> AlterReplicaLogDirsResponse:
    """Refuse each partition of a request."""
    results = Results()
    for directory in request.dirs:
        for topic in directory.topics:
            for partition in topic.partitions:
                results.add(topic.name, partition, code)
    return results.response()


API = Api(34, on_cluster(ALTER), refuse=refuse)

_MAX_DIRECTORY_NAME = 255
_FUTURE_SUFFIX_CHARS = len(f".{'0' * 32}-future")
"""Kafka's own: the suffix of the directory in which it would build the moved partition."""


async def handle(call: Call, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """Answer each partition of a request."""
    broker = call.broker
    data_dir = str(broker.data_dir.absolute())

    def check(path: str, topic: str, partition: int) -> ErrorCode:
        if len(f"{topic}-{partition}") + _FUTURE_SUFFIX_CHARS > _MAX_DIRECTORY_NAME:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if path != data_dir:
            return ErrorCode.LOG_DIR_NOT_FOUND
        log = broker.partition_by_name(topic, partition)
        return log if isinstance(log, ErrorCode) else ErrorCode.NONE

    results = Results()
    for directory in request.dirs:
        for topic in directory.topics:
            for partition in topic.partitions:
                results.add(topic.name, partition, check(directory.path, topic.name, partition))
                await call.pause()
    return results.response()
