"""OffsetForLeaderEpoch (23), versions 2-4: return the end offset of a leader epoch (KIP-101).

On a single node the leader epoch is always 0, so epoch 0 ends at the end of the log.

Version notes:

* Version 2 adds the client's leader epoch (KIP-320).
* Version 3 adds the replica id (KIP-392), which has no effect here.
* Version 4 is flexible (KIP-482).
"""

from __future__ import annotations

from functools import partial

from headrace.log.partition_log import LEADER_EPOCH
from headrace.net.api import CLUSTER_ACTION, DESCRIBE, TOPIC, Api, Each
from headrace.net.call import Call
from headrace.protocol.api import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from headrace.protocol.errors import ErrorCode

Topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
Partition = OffsetForLeaderEpochResponse.EpochEndOffset

API = Api(23, Each(DESCRIBE, TOPIC, "topic", unless=CLUSTER_ACTION))


async def handle(call: Call, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    """Return the end offset of an epoch for each partition of a request."""
    allowed, refused = await call.allowed(request.topics)
    topics = []
    for topic in allowed:
        end_of = partial(_end_of, call, topic.topic)
        topics.append(Topic(topic.topic, await call.each(end_of, topic.partitions)))
        await call.pause()
    for topic, code in refused:
        partitions = [Partition(code, query.partition) for query in topic.partitions]
        topics.append(Topic(topic.topic, partitions))
    return OffsetForLeaderEpochResponse(topics=topics)


def _end_of(
    call: Call, name: str, query: OffsetForLeaderEpochRequest.OffsetForLeaderPartition
) -> Partition:
    log = call.topic_logs.partition(name, query.partition)
    if isinstance(log, ErrorCode):
        return Partition(log, query.partition)
    if query.current_leader_epoch > LEADER_EPOCH:
        return Partition(ErrorCode.UNKNOWN_LEADER_EPOCH, query.partition)
    epoch, end_offset = log.end_offset_for_epoch(query.leader_epoch)
    return Partition(ErrorCode.NONE, query.partition, epoch, end_offset)
