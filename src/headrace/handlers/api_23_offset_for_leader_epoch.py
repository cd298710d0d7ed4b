"""OffsetForLeaderEpoch (23), versions 2-4: return the end offset of a leader epoch (KIP-101).

On a single node the leader epoch is always 0, so epoch 0 ends at the end of the log.

Version notes:

* Version 2 adds the client's leader epoch (KIP-320).
* Version 3 adds the replica id (KIP-392), which has no effect here.
* Version 4 is flexible (KIP-482).
"""

from __future__ import annotations

from functools import partial

from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kio.schema.offset_for_leader_epoch.v4.response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode
from headrace.protocol.large_responses import Sliced
from headrace.protocol.messages import NO_THROTTLE

from .context import RequestContext
from .slicing import lazily, sliced


def handle(
    broker: Broker, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse | Sliced:
    """Return the end offset of an epoch for each partition of a request."""
    topics = lazily(partial(_topic, broker), request.topics)
    response = OffsetForLeaderEpochResponse(throttle_time=NO_THROTTLE, topics=topics)
    return sliced(response, sum(1 + len(topic.partitions) for topic in request.topics))


def _topic(broker: Broker, asked: OffsetForLeaderTopic) -> OffsetForLeaderTopicResult:
    ends = lazily(partial(_end, broker, asked.topic), asked.partitions)
    return OffsetForLeaderTopicResult(topic=asked.topic, partitions=ends)


def _end(broker: Broker, name: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    log = broker.partition_by_name(name, asked.partition)
    if isinstance(log, ErrorCode):
        return EpochEndOffset(error_code=log, partition=asked.partition)
    if asked.current_leader_epoch > 0:
        return EpochEndOffset(error_code=ErrorCode.UNKNOWN_LEADER_EPOCH, partition=asked.partition)
    epoch, end_offset = log.end_offset_for_epoch(asked.leader_epoch)
    return EpochEndOffset(
        error_code=ErrorCode.NONE,
        partition=asked.partition,
        leader_epoch=epoch,
        end_offset=end_offset,
    )
