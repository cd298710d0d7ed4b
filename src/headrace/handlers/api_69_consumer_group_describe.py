"""ConsumerGroupDescribe (69), versions 0-1: describe consumer groups and their members (KIP-848).

Refused if ``group.coordinator.rebalance.protocols`` does not have ``consumer``.

Version notes:

* Version 1 adds the member type: consumer or classic (KIP-1099).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from uuid import UUID

from headrace.groups.consumer.assignors import configured_assignors
from headrace.groups.consumer.group import ConsumerGroup, preferred_assignor
from headrace.groups.consumer.state import ConsumerState
from headrace.groups.records import ConsumerAssignment, ConsumerMember, by_key, each
from headrace.net.api import CONSUMER, DESCRIBE, GROUP, TOPIC, Api, Each, Inside
from headrace.net.call import Call
from headrace.protocol.api import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse

from .group_descriptions import Describer, describe_groups, existing

DescribedGroup = ConsumerGroupDescribeResponse.DescribedGroup
Member = ConsumerGroupDescribeResponse.Member
Assignment = ConsumerGroupDescribeResponse.Assignment
TopicPartitions = ConsumerGroupDescribeResponse.TopicPartitions

API = Api(
    69,
    Each(DESCRIBE, GROUP),
    Inside(DESCRIBE, TOPIC, "TOPIC_AUTHORIZATION_FAILED for a group whose members use the topic"),
    protocol=CONSUMER,
)

_CLASSIC, _CONSUMER = 0, 1


async def handle(
    call: Call, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describe the consumer groups of a request."""
    groups, topics = call.groups.consumer, call.catalog.topics_by_id

    def topics_of(group: ConsumerGroup) -> Iterator[str]:
        state = group.state
        for member_id in state.members:
            owned = _owned(state.current.get(member_id, state.no_current))
            for topic_id in (*owned, *state.target.get(member_id, ())):
                if topic_id in topics:
                    yield topics[topic_id].name

    def describe(group: ConsumerGroup) -> DescribedGroup:
        state, assignors = group.state, configured_assignors(call.config)
        return DescribedGroup(
            group_state=state.state_name,
            group_epoch=state.epoch,
            assignment_epoch=state.target_epoch.epoch,
            assignor_name=preferred_assignor(state.members.values(), assignors),
            members=call.lazily(partial(describe_member, state), list(state.members.items())),
        )

    def describe_member(state: ConsumerState, item: tuple[str, ConsumerMember]) -> Member:
        member_id, member = item
        current = state.current.get(member_id, state.no_current)
        target = state.target.get(member_id, {})
        return Member(
            member_id=member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=current.member_epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=member.subscribed_topic_names,
            subscribed_topic_regex=member.subscribed_topic_regex,
            assignment=_assignment(existing(topics, _owned(current))),
            target_assignment=_assignment(existing(topics, target)),
            member_type=_CONSUMER if member.classic_member_metadata is None else _CLASSIC,
        )

    describer = Describer(DescribedGroup, groups.group, describe, topics_of)
    return ConsumerGroupDescribeResponse(groups=await describe_groups(call, request, describer))


def _owned(current: ConsumerAssignment) -> dict[UUID, tuple[int, ...]]:
    """Return the partitions that a member owns: assigned, or pending revocation."""
    return by_key((*each(current.assigned), *each(current.pending_revocation)))


def _assignment(partitions: Iterator[tuple[UUID, str, Collection[int]]]) -> Assignment:
    return Assignment([TopicPartitions(*topic) for topic in partitions])
