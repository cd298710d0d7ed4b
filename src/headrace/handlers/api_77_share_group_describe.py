"""ShareGroupDescribe (77), version 1: share groups with their members and what each of them has
(KIP-932).
"""

from __future__ import annotations

from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.schema.share_group_describe.v1.response import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeResponse,
    TopicPartitions,
)

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.groups.share.group import ShareGroup
from headrace.protocol.messages import NO_THROTTLE

from . import RequestContext

_ASSIGNOR = "simple"


def handle(
    broker: Broker, request: ShareGroupDescribeRequest, context: RequestContext
) -> ShareGroupDescribeResponse:
    return ShareGroupDescribeResponse(
        throttle_time=NO_THROTTLE,
        groups=tuple(_describe(broker, group_id) for group_id in request.group_ids),
    )


def _describe(broker: Broker, group_id: str) -> DescribedGroup:
    group = broker.groups.share_group(group_id) if group_id else Refusal(ErrorCode.INVALID_GROUP_ID)
    if isinstance(group, Refusal):
        return DescribedGroup(
            error_code=group.code,
            error_message=group.message,
            group_id=group_id,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=(),
        )
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch.epoch,
        assignor_name=_ASSIGNOR,
        members=tuple(_member(broker, group, member_id) for member_id in group.members),
    )


def _member(broker: Broker, group: ShareGroup, member_id: str) -> Member:
    member, current = group.members[member_id], group.current[member_id]
    topics = broker.catalog.topics_by_id
    return Member(
        member_id=member_id,
        rack_id=member.rack_id,
        member_epoch=current.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.subscribed_topic_names,
        assignment=Assignment(
            topic_partitions=tuple(
                TopicPartitions(
                    topic_id=topic_id, topic_name=topics[topic_id].name, partitions=partitions
                )
                for topic_id, partitions in current.assigned.items()
                if topic_id in topics
            )
        ),
    )
