"""DescribeTopicPartitions (75), version 0: describe topics page by page (KIP-966).

Topics are sorted by name. If more follow, the response has a cursor: the topic and partition where
the next page begins.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice

from kio.schema.describe_topic_partitions.v0.request import Cursor as RequestCursor
from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest
from kio.schema.describe_topic_partitions.v0.response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

from headrace.broker.broker import Broker
from headrace.broker.catalog import Topic
from headrace.broker.config.topic_rules import check_topic_name
from headrace.errors import ErrorCode
from headrace.protocol.authorized_operations import TOPIC_OPERATIONS, Operation
from headrace.protocol.messages import NO_THROTTLE
from headrace.security.access import AnyAccess
from headrace.security.acls import ResourceType

from .api_03_metadata import LEADER_EPOCH
from .context import RequestContext


def handle(
    broker: Broker, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """Describe a page of topics."""
    cursor = request.cursor
    asked_names = {asked.name for asked in request.topics}
    names = sorted(asked_names) if asked_names else broker.catalog.sorted_names()
    if cursor is not None and (
        cursor.partition_index < 0 or (asked_names and cursor.topic_name not in asked_names)
    ):
        refused = tuple(
            replace(
                _refused(name, ErrorCode.INVALID_REQUEST),
                topic_authorized_operations=TOPIC_OPERATIONS,
            )
            for name in names
        )
        return _response(refused, None)
    hidden: list[DescribeTopicPartitionsResponseTopic] = []
    if context.access.is_limited:
        first_name = "" if cursor is None else cursor.topic_name
        names = names[bisect_left(names, first_name) :]
        visible = [name for name in names if _may_see(name, context.access)]
        if asked_names:
            hidden = [_hidden(name) for name in names if not _may_see(name, context.access)]
        names = visible
    topics, next_cursor = _page(broker, request, names)
    authorized = [
        replace(
            one,
            topic_authorized_operations=context.access.operations(ResourceType.TOPIC, one.name),
        )
        for one in topics
    ]
    return _response((*authorized, *hidden), next_cursor)


def _may_see(name: str, access: AnyAccess) -> bool:
    return access.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)


def _hidden(name: str) -> DescribeTopicPartitionsResponseTopic:
    """Refuse a topic, and do not tell whether it exists."""
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, topic_id=None, partitions=()
    )


def _page(
    broker: Broker, request: DescribeTopicPartitionsRequest, names: Sequence[str]
) -> tuple[list[DescribeTopicPartitionsResponseTopic], Cursor | None]:
    """Return the topics of a page, without authorized operations, and the begin of the next one.

    :param names: the topics to describe on this page and the next ones, in order
    """
    cursor = request.cursor
    largest = broker.config.get_int("max.request.partition.size.limit")
    room = max(1, min(request.response_partition_limit, largest))
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    begin = 0 if cursor is None else bisect_left(names, cursor.topic_name)
    for name in islice(names, begin, None):
        first = _first_partition(name, cursor)
        if first is None:
            continue
        if room == 0:
            return topics, Cursor(topic_name=name, partition_index=first)
        topic = broker.catalog.topics.get(name)
        if topic is None:
            valid = check_topic_name(name) is None
            code = (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if valid else ErrorCode.INVALID_TOPIC_EXCEPTION
            )
            topics.append(_refused(name, code))
            continue
        end = min(topic.partitions, first + room)
        topics.append(_described(broker.node_id, topic, first, end))
        room -= max(end - first, 0)
        if end < topic.partitions:
            return topics, Cursor(topic_name=name, partition_index=end)
    return topics, None


def _first_partition(name: str, cursor: RequestCursor | None) -> int | None:
    """Return the first partition of a topic on this page; None if the topic is on earlier pages."""
    if cursor is None or name > cursor.topic_name:
        return 0
    return int(cursor.partition_index) if name == cursor.topic_name else None


def _response(
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...], next_cursor: Cursor | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        throttle_time=NO_THROTTLE, topics=topics, next_cursor=next_cursor
    )


def _refused(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=None,
        partitions=(),
    )


def _described(
    node_id: int, topic: Topic, first: int, end: int
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=tuple(_partition(node_id, index) for index in range(first, end)),
    )


@lru_cache(maxsize=4096)
def _partition(node_id: int, index: int) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE,
        partition_index=index,
        leader_id=node_id,
        leader_epoch=LEADER_EPOCH,
        replica_nodes=(node_id,),
        isr_nodes=(node_id,),
        eligible_leader_replicas=(),
        last_known_elr=(),
    )
