"""DeleteRecords (21), versions 0-2: move the log start offset of partitions forward (KIP-107).

The records of compacted topics cannot be deleted (POLICY_VIOLATION), nor those of internal topics
(INVALID_TOPIC_EXCEPTION).

Version notes:

* Version 2 is flexible (KIP-482).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.log.partition_log import PartitionLog
from headrace.net.api import Api
from headrace.net.audit import Change
from headrace.net.call import Call
from headrace.net.rules import DELETE, TOPIC, each
from headrace.protocol.api import DeleteRecordsRequest, DeleteRecordsResponse
from headrace.protocol.time_slices import chunks

DELETIONS_AT_ONCE = 20
"""The partitions whose log start offsets are forced to disk by one piece of work of DeleteRecords.
Other requests are served between them, and other DeleteRecords take turns.
"""

Topic = DeleteRecordsResponse.DeleteRecordsTopicResult
Partition = DeleteRecordsResponse.DeleteRecordsPartitionResult


def changes(request: DeleteRecordsRequest, response: DeleteRecordsResponse) -> Iterator[Change]:
    """Yield the partitions of which records were deleted, for the log."""
    for topic in response.topics:
        for partition in topic.partitions:
            if not partition.error_code:
                index, end = partition.partition_index, partition.low_watermark
                detail = f"records of partition {index} before {end}"
                yield Change(DELETE, "TOPIC", topic.name, detail)


API = Api(21, each(DELETE, TOPIC, "topics", "name"), changes=changes)


async def handle(call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Delete the records before an offset in each partition of a request, a few at a time."""
    broker = call.broker
    allowed, refused = call.allowed(request.topics)
    topics = []
    for topic in allowed:
        partitions: list[Partition] = []
        for some in chunks(topic.partitions, DELETIONS_AT_ONCE):
            partitions += await _delete(broker, topic.name, some)
            await call.pause()
        topics.append(Topic(name=topic.name, partitions=partitions))
        await call.pause()
    for topic, code in refused:
        partitions = [_refused(partition.partition_index, code) for partition in topic.partitions]
        topics.append(Topic(name=topic.name, partitions=partitions))
    return DeleteRecordsResponse(topics=topics)


async def _delete(
    broker: Broker, name: str, targets: Sequence[DeleteRecordsRequest.DeleteRecordsPartition]
) -> list[Partition]:
    logs = [_log_of(broker, name, target.partition_index) for target in targets]
    start_offsets = iter(
        await broker.topic_logs.delete_records(
            [
                (log, target.offset)
                for log, target in zip(logs, targets, strict=True)
                if isinstance(log, PartitionLog)
            ]
        )
    )
    partitions = []
    for log, target in zip(logs, targets, strict=True):
        index = target.partition_index
        start_offset = next(start_offsets) if isinstance(log, PartitionLog) else Refusal(log)
        partitions.append(
            _refused(index, start_offset.code)
            if isinstance(start_offset, Refusal)
            else Partition(partition_index=index, low_watermark=start_offset)
        )
    return partitions


def _log_of(broker: Broker, name: str, partition: int) -> PartitionLog | ErrorCode:
    """Return the log of a partition whose records may be deleted, or the error."""
    topic = broker.catalog.topics.get(name)
    log = broker.partition_by_name(name, partition)
    if isinstance(log, ErrorCode):
        return log
    if topic is not None and topic.internal:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if "delete" not in log.config.cleanup_policy:
        return ErrorCode.POLICY_VIOLATION
    return log


def _refused(index: int, code: ErrorCode) -> Partition:
    return Partition(partition_index=index, low_watermark=-1, error_code=code)
