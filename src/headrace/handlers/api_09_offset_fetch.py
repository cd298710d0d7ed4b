"""OffsetFetch (9), versions 1-10: return the committed offsets of groups.

Null topics request all offsets of a group (KIP-88), an empty array none. A partition without a
committed offset has the offset -1 and no error. With ``require_stable`` a partition with an offset
in an open transaction is refused with UNSTABLE_OFFSET_COMMIT (KIP-447).

Version notes:

* Version 2 adds null topics (KIP-88) and an error for the group.
* Version 5 adds leader epochs (KIP-320).
* Version 6 is flexible (KIP-482).
* Version 7 adds ``require_stable`` (KIP-447).
* Version 8 adds requests for several groups (KIP-709).
* Version 9 adds the member id and epoch, which are checked for consumer groups (KIP-848).
* Version 10 replaces topic names by ids (KIP-848).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple
from uuid import UUID

from kio.schema.offset_fetch.v10.request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kio.schema.offset_fetch.v10.response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopics,
)

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode
from headrace.groups.offsets.committed import TopicOffsets
from headrace.protocol.messages import NO_THROTTLE

from .context import RequestContext


def handle(
    broker: Broker, request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse:
    """Return the committed offsets of each group of a request."""
    return OffsetFetchResponse(
        throttle_time=NO_THROTTLE,
        groups=tuple(
            _group(broker, group, stable=request.require_stable) for group in request.groups
        ),
    )


class _Partition(NamedTuple):
    """A partition of the response. Cheaper than kio's class: a group may have ten thousand."""

    partition_index: int
    committed_offset: int = -1
    committed_leader_epoch: int = -1
    metadata: str = ""
    error_code: ErrorCode = ErrorCode.NONE


def _group(
    broker: Broker, group: OffsetFetchRequestGroup, *, stable: bool
) -> OffsetFetchResponseGroup:
    refused = broker.groups.offsets.check_fetch(group.group_id, group.member_id, group.member_epoch)
    if refused:
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=(), error_code=refused)
    group_id = group.group_id
    committed = broker.groups.offsets.committed.of_group(group_id)
    answered: list[tuple[UUID, tuple[_Partition, ...]]] = []
    if group.topics is None:
        for name, offsets in committed.items():
            topic = broker.catalog.topics.get(name)
            if topic is not None:
                answered.append((topic.topic_id, _whole_topic(offsets)))
    else:
        answered = [(asked.topic_id, _topic(broker, asked, committed)) for asked in group.topics]
    pending = broker.groups.offsets.committed.pending.of_group(group_id) if stable else ()
    if pending:
        answered = [
            (topic_id, _stable_only(broker, topic_id, rows, pending)) for topic_id, rows in answered
        ]
    topics = tuple(
        OffsetFetchResponseTopics(topic_id=topic_id, partitions=rows) for topic_id, rows in answered
    )
    return OffsetFetchResponseGroup(group_id=group_id, topics=topics)


def _stable_only(
    broker: Broker,
    topic_id: UUID,
    partitions: tuple[_Partition, ...],
    pending: Collection[tuple[str, int]],
) -> tuple[_Partition, ...]:
    """Replace the offsets of partitions pending in a transaction by UNSTABLE_OFFSET_COMMIT."""
    topic = broker.catalog.topics_by_id.get(topic_id)
    unstable = {
        partition for name, partition in pending if topic is not None and name == topic.name
    }
    return tuple(
        _Partition(one.partition_index, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT)
        if one.partition_index in unstable
        else one
        for one in partitions
    )


def _whole_topic(offsets: TopicOffsets) -> tuple[_Partition, ...]:
    return tuple(
        [
            _Partition(index, one.offset, one.leader_epoch, one.metadata)
            for index, one in offsets.items()
        ]
    )


def _topic(
    broker: Broker, asked: OffsetFetchRequestTopics, committed: Mapping[str, TopicOffsets]
) -> tuple[_Partition, ...]:
    topic = broker.catalog.topics_by_id.get(asked.topic_id)
    if topic is None:
        return tuple(
            _Partition(index, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
            for index in asked.partition_indexes
        )
    offsets, known_ids = committed.get(topic.name, {}), (None, topic.topic_id)
    partitions = []
    for index in asked.partition_indexes:
        offset = offsets.get(index)
        if offset is None or offset.topic_id not in known_ids:  # of an earlier topic with this name
            partitions.append(_Partition(index))
        else:
            partitions.append(
                _Partition(index, offset.offset, offset.leader_epoch, offset.metadata)
            )
    return tuple(partitions)
