"""DescribeTopicPartitions (75), version 0: describe topics page by page (KIP-966).

Topics are sorted by name. If more follow, the response has a cursor: the topic and partition where
the next page begins.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from headrace.log.partition_log import LEADER_EPOCH
from headrace.net.api import DESCRIBE, TOPIC, Api, Inside
from headrace.net.call import Call
from headrace.protocol.api import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from headrace.protocol.authorized_operations import TOPIC_OPERATIONS
from headrace.protocol.errors import ErrorCode
from headrace.topics.topic_rules import check_topic_name

Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
Partition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
Cursor = DescribeTopicPartitionsResponse.Cursor

API = Api(75, Inside(DESCRIBE, TOPIC, "refused if it is named, else left out of the answer"))


async def handle(
    call: Call, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Describe a page of topics."""
    cursor = request.cursor
    named = {topic.name for topic in request.topics}
    names = sorted(named) if named else call.catalog.sorted_names()
    if cursor is not None and (
        cursor.partition_index < 0 or (named and cursor.topic_name not in named)
    ):
        code = ErrorCode.INVALID_REQUEST
        refused = [
            Topic(code, name, topic_authorized_operations=TOPIC_OPERATIONS) for name in names
        ]
        return DescribeTopicPartitionsResponse(topics=refused)
    hidden: list[Topic] = []
    if cursor is not None:
        names = names[bisect_left(names, cursor.topic_name) :]
    if call.access.is_limited:
        visible = []
        for name in names:
            if call.may(DESCRIBE, TOPIC, name):
                visible.append(name)
            elif named:  # it is not told whether it exists
                hidden.append(Topic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name))
            await call.pause()
        names = visible
    topics, next_cursor = await _page(call, request, names)
    for topic in topics:
        topic.topic_authorized_operations = call.access.operations(TOPIC, topic.name or "")
        await call.pause()
    return DescribeTopicPartitionsResponse(topics=topics + hidden, next_cursor=next_cursor)


async def _page(
    call: Call, request: DescribeTopicPartitionsRequest, names: Sequence[str]
) -> tuple[list[Topic], Cursor | None]:
    """Return the topics of a page, without authorized operations, and the begin of the next one.

    :param names: the topics to describe on this page and the next ones, in order
    """
    cursor = request.cursor
    largest = call.config.get_int("max.request.partition.size.limit")
    room = max(1, min(request.response_partition_limit, largest))
    topics: list[Topic] = []
    for name in names:
        await call.pause()
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        if room == 0:
            return topics, Cursor(name, first)
        topic = call.catalog.topics.get(name)
        if topic is None:
            invalid = check_topic_name(name)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if invalid is None else invalid.code
            topics.append(Topic(code, name))
            continue
        end = min(topic.partitions, first + room)
        partitions = [
            Partition(
                partition_index=index,
                leader_id=call.node_id,
                leader_epoch=LEADER_EPOCH,
                replica_nodes=(call.node_id,),
                isr_nodes=(call.node_id,),
                eligible_leader_replicas=(),
                last_known_elr=(),
            )
            for index in range(first, end)
        ]
        topics.append(
            Topic(
                name=name,
                topic_id=topic.topic_id,
                is_internal=topic.internal,
                partitions=partitions,
            )
        )
        room -= max(end - first, 0)
        if end < topic.partitions:
            return topics, Cursor(name, end)
    return topics, None
