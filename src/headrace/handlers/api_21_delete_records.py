"""DeleteRecords (21), versions 0-2: move the log start offset of partitions forward (KIP-107).

The records of compacted topics cannot be deleted (POLICY_VIOLATION), nor those of internal topics
(INVALID_TOPIC_EXCEPTION).

Version notes:

* Version 2 is flexible (KIP-482).
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.coordinators.waiting import run_to_end
from headrace.log.partition_log import PartitionLog
from headrace.net.api import DELETE, TOPIC, Api, Each
from headrace.net.call import Call
from headrace.protocol.api import DeleteRecordsRequest, DeleteRecordsResponse
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.time_slices import chunks

DELETIONS_AT_ONCE = 20
"""The partitions whose log start offsets are forced to disk by one piece of work of DeleteRecords.
Other requests are served between them, and other DeleteRecords take turns.
"""

Topic = DeleteRecordsResponse.DeleteRecordsTopicResult
Partition = DeleteRecordsResponse.DeleteRecordsPartitionResult


API = Api(21, Each(DELETE, TOPIC, "name"), is_audited=True)

_UNKNOWN_OFFSET = -1


async def handle(call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Delete the records before an offset in each partition of a request, a few at a time."""
    allowed, refused = await call.allowed_items(request.topics, Topic)
    topics = []
    for topic in allowed:
        results: list[Partition] = []
        for partitions in chunks(topic.partitions, DELETIONS_AT_ONCE):
            results += await _delete(call, topic.name, partitions)
            await call.pause()
        topics.append(Topic(topic.name, results))
        await call.pause()
    return DeleteRecordsResponse(topics=topics + refused)


async def _delete(
    call: Call, name: str, partitions: Sequence[DeleteRecordsRequest.DeleteRecordsPartition]
) -> list[Partition]:
    results, deletions = [], []
    for partition in partitions:
        log = _log_of(call, name, partition.partition_index)
        result = Partition(partition.partition_index, _UNKNOWN_OFFSET)
        results.append(result)
        if isinstance(log, ErrorCode):
            result.error_code = log
        else:
            deletions.append((result, log, partition.offset))
    start_offsets = await run_to_end(
        call.topic_logs.delete_records([(log, offset) for _, log, offset in deletions])
    )
    for (result, _, _), start_offset in zip(deletions, start_offsets, strict=True):
        if isinstance(start_offset, Refusal):
            result.error_code = start_offset.code
        else:
            result.low_watermark = start_offset
            detail = f"records of partition {result.partition_index} before {start_offset}"
            call.changed(DELETE, TOPIC, name, detail)
    return results


def _log_of(call: Call, name: str, partition: int) -> PartitionLog | ErrorCode:
    """Return the log of a partition whose records may be deleted, or the error."""
    log = call.topic_logs.partition(name, partition)
    if isinstance(log, ErrorCode):
        return log
    if log.config.internal:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if "delete" not in log.config.cleanup_policy:
        return ErrorCode.POLICY_VIOLATION
    return log
