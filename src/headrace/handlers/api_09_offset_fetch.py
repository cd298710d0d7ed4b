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
* Version 10 replaces topic names by ids (KIP-848). Unknown ids are last in the
  response, unless it is long.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
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
from headrace.broker.limits import SLICED_ABOVE
from headrace.errors import ErrorCode
from headrace.groups.offsets.committed import TopicOffsets
from headrace.groups.records import CommittedOffset
from headrace.outcome import make
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.large_responses import LazyArray, Sliced, lazy_map
from headrace.protocol.messages import NO_THROTTLE
from headrace.security.acls import ResourceType

from .context import RequestContext
from .topic_names import allows_topic

_FIRST_WITH_TOPIC_IDS = 10


def handle(
    broker: Broker, request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse | Sliced:
    """Return the committed offsets of each group of a request."""
    count = 0
    for group in request.groups:
        count += _partition_count(broker, group)
        if count > SLICED_ABOVE:
            break
    answers = (
        _group(broker, group, context, stable=request.require_stable) for group in request.groups
    )
    if count <= SLICED_ABOVE:
        return OffsetFetchResponse(throttle_time=NO_THROTTLE, groups=tuple(answers))
    groups = tuple(answers) if len(request.groups) == 1 else LazyArray(len(request.groups), answers)
    return Sliced(OffsetFetchResponse(throttle_time=NO_THROTTLE, groups=groups))


def _partition_count(broker: Broker, group: OffsetFetchRequestGroup) -> int:
    """Return about how many partitions the answer for a group has, at least 1."""
    if group.topics is None:
        committed = broker.groups.offsets.committed.of_group(group.group_id)
        return 1 + sum(map(len, committed.values()))
    return 1 + sum(len(topic.partition_indexes) for topic in group.topics)


class _Partition(NamedTuple):
    """A partition of the response. Cheaper than kio's class: a group may have ten thousand."""

    partition_index: int
    committed_offset: int = -1
    committed_leader_epoch: int = -1
    metadata: str = ""
    error_code: ErrorCode = ErrorCode.NONE


def _group(
    broker: Broker, group: OffsetFetchRequestGroup, context: RequestContext, *, stable: bool
) -> OffsetFetchResponseGroup:
    access = context.access
    if not access.allows(Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=(), error_code=code)
    refused = broker.groups.offsets.check_fetch(group.group_id, group.member_id, group.member_epoch)
    if refused:
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=(), error_code=refused)
    group_id = group.group_id
    committed = broker.groups.offsets.committed.of_group(group_id)
    rows: Callable[[Any], tuple[UUID, Iterable[_Partition]]]
    wanted: Sequence[Any]
    if group.topics is None:
        named = ((broker.catalog.topics.get(name), found) for name, found in committed.items())
        wanted = [
            (topic.topic_id, found)
            for topic, found in named
            if topic is not None
            and access.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        ]
        rows = _whole_topic
    else:
        wanted = group.topics
        if context.api_version >= _FIRST_WITH_TOPIC_IDS and len(wanted) <= SLICED_ABOVE:
            known = broker.catalog.topics_by_id
            wanted = sorted(wanted, key=lambda one: one.topic_id not in known)
        rows = partial(_topic, broker, committed)
    pending = broker.groups.offsets.committed.pending.of_group(group_id) if stable else ()

    def answer(one: Any) -> OffsetFetchResponseTopics:
        topic_id, partitions = rows(one)
        if not allows_topic(broker, Operation.DESCRIBE, topic_id, context):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            refused = [_Partition(found.partition_index, error_code=code) for found in partitions]
            return OffsetFetchResponseTopics(topic_id=topic_id, partitions=tuple(refused))
        if pending:
            partitions = _stable_only(broker, topic_id, partitions, pending)
        return OffsetFetchResponseTopics(topic_id=topic_id, partitions=partitions)

    topics = (
        tuple(map(answer, wanted))
        if len(wanted) <= SLICED_ABOVE
        else lazy_map(answer, LazyArray(len(wanted), wanted))
    )
    return OffsetFetchResponseGroup(group_id=group_id, topics=topics)


def _stable_only(
    broker: Broker,
    topic_id: UUID,
    partitions: Iterable[_Partition],
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


def _whole_topic(topic: tuple[UUID, TopicOffsets]) -> tuple[UUID, Iterable[_Partition]]:
    topic_id, offsets = topic
    if len(offsets) <= SLICED_ABOVE:
        return topic_id, tuple(map(_committed, offsets.items()))
    found = list(offsets.items())  # as they are now, also if the answer is sent in slices
    return topic_id, LazyArray(len(found), map(_committed, found))


def _committed(found: tuple[int, CommittedOffset]) -> _Partition:
    index, one = found
    row = (index, one.offset, one.leader_epoch, one.metadata, ErrorCode.NONE)
    return make(_Partition, row)


def _topic(
    broker: Broker, committed: Mapping[str, TopicOffsets], asked: OffsetFetchRequestTopics
) -> tuple[UUID, tuple[_Partition, ...]]:
    topic = broker.catalog.topics_by_id.get(asked.topic_id)
    if topic is None:
        unknown = [
            _Partition(index, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
            for index in asked.partition_indexes
        ]
        return asked.topic_id, tuple(unknown)
    offsets, known_ids = committed.get(topic.name, {}), (None, topic.topic_id)
    partitions = []
    for index in asked.partition_indexes:
        offset = offsets.get(index)
        if offset is None or offset.topic_id not in known_ids:  # of an earlier topic with this name
            partitions.append(_Partition(index))
        else:
            partitions.append(_committed((index, offset)))
    return asked.topic_id, tuple(partitions)
