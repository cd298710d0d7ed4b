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

from headrace.log.partition_log import LEADER_EPOCH
from headrace.log_lines import LimitedLog
from headrace.net.api import DESCRIBE, TOPIC, Api, Each
from headrace.net.call import Call
from headrace.protocol.api import ListOffsetsRequest, ListOffsetsResponse
from headrace.protocol.errors import ErrorCode

Topic = ListOffsetsResponse.ListOffsetsTopicResponse
Partition = ListOffsetsResponse.ListOffsetsPartitionResponse

API = Api(2, Each(DESCRIBE, TOPIC, "name"))

limited = LimitedLog("headrace.broker")

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(
    -1, -7, -1
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


async def handle(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Look up an offset for each partition of a request; one that is repeated is refused."""
    allowed, refused = await call.allowed_items(request.topics, Topic)
    topics: dict[str, dict[int, Partition]] = {}
    for topic in allowed:
        partitions = topics.setdefault(topic.name, {})
        for query in topic.partitions:
            index = query.partition_index
            if index in partitions:  # named twice
                partitions[index] = Partition(index, ErrorCode.INVALID_REQUEST)
            else:
                partitions[index] = await _look_up(call, topic.name, query, request.isolation_level)
            await call.pause()
        await call.pause()
    results = [Topic(name, list(partitions.values())) for name, partitions in topics.items()]
    return ListOffsetsResponse(topics=results + refused)


async def _look_up(
    call: Call, name: str, query: ListOffsetsRequest.ListOffsetsPartition, isolation_level: int
) -> Partition:
    index, timestamp = query.partition_index, query.timestamp
    if timestamp < 0 and call.version < _FIRST_VERSION.get(timestamp, call.version + 1):
        return Partition(index, ErrorCode.UNSUPPORTED_VERSION)
    log = call.topic_logs.partition(name, index)
    if isinstance(log, ErrorCode):
        return Partition(index, log)
    if query.current_leader_epoch > LEADER_EPOCH:
        return Partition(index, ErrorCode.UNKNOWN_LEADER_EPOCH)
    record = None
    try:
        if timestamp >= 0:
            record = await call.timestamp_searches.offset_for_timestamp(log, timestamp)
        elif timestamp == MAX_TIMESTAMP:
            record = await call.timestamp_searches.max_timestamp(log)
    except OSError as error:
        limited.error(log.path, "cannot search %s: %s", log.path, error)
        return Partition(index, ErrorCode.KAFKA_STORAGE_ERROR)
    end_offset = log.last_stable_offset if isolation_level == _READ_COMMITTED else log.end_offset
    partition = Partition(index)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        partition.offset, partition.leader_epoch = log.log_start_offset, LEADER_EPOCH
    elif timestamp == LATEST:
        partition.offset, partition.leader_epoch = end_offset, LEADER_EPOCH
    elif record is not None and record[0] < end_offset:  # those of open transactions are hidden
        partition.offset, partition.timestamp = record
        partition.leader_epoch = LEADER_EPOCH
    return partition
