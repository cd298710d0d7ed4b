"""ConsumerGroupDescribe (69), versions 0-1: consumer groups with their members, what each has and
shall have (KIP-848).

Version 1 says which members are of the classic protocol.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_describe.v1.response import (
    Assignment,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.transition import preferred_assignor
from headrace.groups.records import ConsumerAssignment
from headrace.protocol.messages import NO_THROTTLE

from . import RequestContext

_CLASSIC, _CONSUMER = 0, 1


def handle(
    broker: Broker, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        throttle_time=NO_THROTTLE,
        groups=tuple(_describe(broker, group_id) for group_id in request.group_ids),
    )


def _describe(broker: Broker, group_id: str) -> DescribedGroup:
    group = (
        broker.groups.consumer.group(group_id) if group_id else Refusal(ErrorCode.INVALID_GROUP_ID)
    )
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
    state, settings = group.state, broker.groups.consumer.settings(group_id)
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=state.state_name,
        group_epoch=state.epoch,
        assignment_epoch=state.target_epoch.epoch,
        assignor_name=preferred_assignor(state.members.values(), settings.assignors),
        members=tuple(_member(broker, group, member_id) for member_id in state.members),
    )


def _member(broker: Broker, group: ConsumerGroup, member_id: str) -> Member:
    member = group.state.members[member_id]
    current = group.state.current.get(member_id, ConsumerAssignment())
    return Member(
        member_id=member_id,
        instance_id=member.group_instance_id,
        rack_id=member.rack_id,
        member_epoch=current.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.subscribed_topic_names,
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(broker, _held(current)),
        target_assignment=_assignment(broker, group.state.target.get(member_id, {})),
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )


def _held(current: ConsumerAssignment) -> dict[UUID, list[int]]:
    """What a member may be reading: what it is to give up is its own until it has."""
    held = {topic_id: list(numbers) for topic_id, numbers in current.assigned.items()}
    for topic_id, numbers in current.pending_revocation.items():
        held.setdefault(topic_id, []).extend(numbers)
    return held


def _assignment(broker: Broker, partitions: Mapping[UUID, Collection[int]]) -> Assignment:
    topics = broker.catalog.topics_by_id
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(
                topic_id=topic_id, topic_name=topics[topic_id].name, partitions=tuple(numbers)
            )
            for topic_id, numbers in partitions.items()
            if topic_id in topics
        )
    )
