"""ShareGroupDescribe (77), version 1: describe share groups and their members (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.groups.records import CurrentAssignment, ShareMember
from headrace.groups.share.group import ShareGroup
from headrace.net.api import DESCRIBE, GROUP, TOPIC, Api, Each, Inside
from headrace.net.call import Call
from headrace.protocol.api import ShareGroupDescribeRequest, ShareGroupDescribeResponse

from .group_descriptions import describe_groups, existing

DescribedGroup = ShareGroupDescribeResponse.DescribedGroup
Member = ShareGroupDescribeResponse.Member
Assignment = ShareGroupDescribeResponse.Assignment
TopicPartitions = ShareGroupDescribeResponse.TopicPartitions

API = Api(
    77,
    Each(DESCRIBE, GROUP, "group_ids"),
    Inside(DESCRIBE, TOPIC, "TOPIC_AUTHORIZATION_FAILED for a group whose members use the topic"),
)

_ASSIGNOR = "simple"


async def handle(call: Call, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    """Describe the share groups of a request."""
    topics = call.catalog.topics_by_id

    def topics_of(group: ShareGroup) -> Iterator[str]:
        for member_id in group.state.members:
            assigned = group.state.current[member_id].assigned
            yield from (name for _, name, _ in existing(topics, assigned))

    def member(item: tuple[str, ShareMember, CurrentAssignment]) -> Member:
        member_id, member, current = item
        return Member(
            member_id=member_id,
            rack_id=member.rack_id,
            member_epoch=current.member_epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=member.subscribed_topic_names,
            assignment=Assignment(
                [TopicPartitions(*topic) for topic in existing(topics, current.assigned)]
            ),
        )

    def describe(group: ShareGroup) -> DescribedGroup:
        members = [
            (member_id, member, group.state.current[member_id])
            for member_id, member in group.state.members.items()
        ]
        return DescribedGroup(
            group_id=group.group_id,
            group_state=group.state_name,
            group_epoch=group.state.epoch,
            assignment_epoch=group.state.target_epoch.epoch,
            assignor_name=_ASSIGNOR,
            members=call.lazily(member, members),
        )

    find = call.group_runtime.coordinator.share.group
    return ShareGroupDescribeResponse(
        groups=await describe_groups(call, request, DescribedGroup, find, describe, topics_of)
    )
