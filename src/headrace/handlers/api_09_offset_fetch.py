"""OffsetFetch (9), versions 1-10: the committed offsets of one or several groups (KIP-88, KIP-447, KIP-709).

Null topics ask for all that a group has, an empty list for nothing. A group, topic or partition without offsets is no
error: the offset is -1. A member of a consumer group that says who it is must be in it, at its epoch (9, KIP-848).

Versions before 8 ask for one group, those before 10 name their topics. With ``require_stable`` a partition for which an
open transaction has an offset is refused with UNSTABLE_OFFSET_COMMIT.
"""

from __future__ import annotations

from collections.abc import Mapping

from kio.schema.offset_fetch.v10.request import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kio.schema.offset_fetch.v10.response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode
from headrace.groups.offsets import TopicOffsets
from headrace.groups.records import CommittedOffset
from headrace.wire.messages import NO_THROTTLE

from . import RequestContext


def handle(broker: Broker, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        throttle_time=NO_THROTTLE,
        groups=tuple(_group(broker, group, stable=request.require_stable) for group in request.groups),
    )


def _group(broker: Broker, group: OffsetFetchRequestGroup, *, stable: bool) -> OffsetFetchResponseGroup:
    refused = broker.groups.check_fetch(group.group_id, group.member_id, group.member_epoch)
    if refused:
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=(), error_code=refused)
    committed = broker.groups.committed(group.group_id)
    if group.topics is None:
        topics = tuple(_whole_topic(broker, name, offsets) for name, offsets in committed.items())
        topics = tuple(topic for topic in topics if topic is not None)
    else:
        topics = tuple(_topic(broker, asked, committed) for asked in group.topics)
    if stable:
        topics = tuple(_stable_only(broker, group.group_id, topic) for topic in topics)
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


def _stable_only(broker: Broker, group_id: str, topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopics:
    """The topic, but for offsets that an open transaction may yet change."""
    known = broker.catalog.topics_by_id.get(topic.topic_id)
    if known is None:
        return topic
    pending = broker.groups.offsets.pending
    partitions = tuple(
        _partition(one.partition_index, None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        if (group_id, known.name, one.partition_index) in pending
        else one
        for one in topic.partitions
    )
    return OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=partitions)


def _whole_topic(broker: Broker, name: str, offsets: TopicOffsets) -> OffsetFetchResponseTopics | None:
    """All offsets in a topic; None when it is gone."""
    topic = broker.catalog.topics.get(name)
    if topic is None:
        return None
    partitions = tuple(_partition(partition, offset) for partition, offset in offsets.items())
    return OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=partitions)


def _topic(
    broker: Broker, asked: OffsetFetchRequestTopics, committed: Mapping[str, TopicOffsets]
) -> OffsetFetchResponseTopics:
    topic = broker.catalog.topics_by_id.get(asked.topic_id)
    if topic is None:
        unknown = tuple(_partition(index, None, ErrorCode.UNKNOWN_TOPIC_ID) for index in asked.partition_indexes)
        return OffsetFetchResponseTopics(topic_id=asked.topic_id, partitions=unknown)
    offsets = committed.get(topic.name, {})
    partitions = []
    for index in asked.partition_indexes:
        offset = offsets.get(index)
        if offset is not None and offset.topic_id not in (None, topic.topic_id):
            offset = None  # of an earlier topic of that name
        partitions.append(_partition(index, offset))
    return OffsetFetchResponseTopics(topic_id=asked.topic_id, partitions=tuple(partitions))


def _partition(
    index: int, offset: CommittedOffset | None, error_code: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=-1 if offset is None else offset.offset,
        committed_leader_epoch=-1 if offset is None else offset.leader_epoch,
        metadata="" if offset is None else offset.metadata,
        error_code=error_code,
    )
