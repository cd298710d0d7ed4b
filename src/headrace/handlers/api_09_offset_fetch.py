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
  response, unless it is long. Earlier versions have offset -1 and no error for an unknown name.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import cast

from headrace.groups.records import CommittedOffset
from headrace.net.api import DESCRIBE, GROUP, TOPIC, Api, Inside
from headrace.net.call import SLICED_ABOVE, Call
from headrace.protocol.api import OffsetFetchRequest, OffsetFetchResponse
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition

API = Api(
    9,
    Inside(DESCRIBE, GROUP, "refused for the group"),
    Inside(
        DESCRIBE,
        TOPIC,
        "TOPIC_AUTHORIZATION_FAILED for its partitions; left out of the answer if it is not named",
    ),
)

RequestGroup = OffsetFetchRequest.OffsetFetchRequestGroup
RequestTopic = OffsetFetchRequest.OffsetFetchRequestTopics
Group = OffsetFetchResponse.OffsetFetchResponseGroup
ResponseTopic = OffsetFetchResponse.OffsetFetchResponseTopics
Partition = OffsetFetchResponse.OffsetFetchResponsePartitions

_FIRST_WITH_GROUP_ERROR = 2
_FIRST_WITH_GROUPS = 8
_FIRST_WITH_TOPIC_IDS = 10


async def handle(call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Return the committed offsets of each group of a request."""
    if call.version < _FIRST_WITH_GROUPS:
        return await _only_group(call, request)
    groups = []
    for group in request.groups:
        groups.append(await _group(call, group, is_stable=request.require_stable))
        await call.pause()
    return OffsetFetchResponse(groups=groups)


async def _only_group(call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Return the response of a version for one group."""
    topics = None
    if request.topics is not None:
        topics = [
            RequestTopic(topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    requested = RequestGroup(request.group_id, topics=topics)
    group = await _group(call, requested, is_stable=request.require_stable)
    code = ErrorCode(group.error_code)
    if code and call.version < _FIRST_WITH_GROUP_ERROR:
        group.topics = [_refused(topic, code) for topic in topics or ()]
    # The classes of these versions have the same fields under other names.
    old_topics = cast(Collection[OffsetFetchResponse.OffsetFetchResponseTopic], group.topics)
    return OffsetFetchResponse(topics=old_topics, error_code=code)


async def _group(call: Call, group: RequestGroup, *, is_stable: bool) -> Group:
    """Return the committed offsets of a group, or its error.

    :param is_stable: refuse partitions that have an offset in an open transaction
    """
    offsets, group_id = call.groups.offsets, group.group_id
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if call.may(DESCRIBE, GROUP, group_id):
        code = offsets.check_fetch(group_id, group.member_id, group.member_epoch)
    if code:
        return Group(group_id, error_code=code)
    unstable = set(offsets.committed.pending.of_group(group_id) if is_stable else ())
    topics: list[ResponseTopic] = []
    if group.topics is None:
        for name, committed in list(offsets.committed.of_group(group_id).items()):
            topic = call.catalog.topics.get(name)
            if topic is not None and call.may(DESCRIBE, TOPIC, name):
                describe = partial(_partition, unstable, name)
                partitions = call.lazily(describe, list(committed.items()))
                topics.append(ResponseTopic(name, topic.topic_id, partitions))
            await call.pause()
        return Group(group_id, topics)
    requested = group.topics
    if call.version >= _FIRST_WITH_TOPIC_IDS and len(requested) <= SLICED_ABOVE:
        existing = call.catalog.topics_by_id
        requested = sorted(requested, key=lambda topic: topic.topic_id not in existing)
    return Group(group_id, await call.each(partial(_topic, call, group_id, unstable), requested))


def _topic(
    call: Call, group_id: str, unstable: Collection[TopicPartition], requested: RequestTopic
) -> ResponseTopic:
    """Return the committed offsets of the partitions of a topic that a request names."""
    has_ids = call.version >= _FIRST_WITH_TOPIC_IDS
    if not call.may_use_topic(DESCRIBE, requested.topic_id if has_ids else requested.name):
        return _refused(requested, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = call.catalog.find(requested.topic_id, requested.name)
    if topic is None:
        return _refused(requested, ErrorCode.UNKNOWN_TOPIC_ID if has_ids else ErrorCode.NONE)
    offsets = call.groups.offsets.committed.of_group(group_id).get(topic.name, {})
    topic_ids = (None, topic.topic_id)
    partitions = []
    for index in requested.partition_indexes:
        offset = offsets.get(index)
        if offset is not None and offset.topic_id not in topic_ids:
            offset = None  # of an earlier topic of this name
        partitions.append(_partition(unstable, topic.name, (index, offset)))
    return ResponseTopic(requested.name, requested.topic_id, partitions)


def _partition(
    unstable: Collection[TopicPartition], name: str, offset: tuple[int, CommittedOffset | None]
) -> Partition:
    """Return the committed offset of a partition.

    :param offset: the partition with its offset, None if it has none
    :param unstable: the partitions that have an offset in an open transaction
    """
    index, committed = offset
    if (name, index) in unstable:
        return Partition(index, -1, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    if committed is None:
        return Partition(index, -1)
    return Partition(index, committed.offset, committed.leader_epoch, committed.metadata)


def _refused(topic: RequestTopic, code: ErrorCode) -> ResponseTopic:
    """Return a topic without offsets, with an error code in each partition."""
    return ResponseTopic(
        topic.name,
        topic.topic_id,
        [Partition(index, -1, error_code=code) for index in topic.partition_indexes],
    )
