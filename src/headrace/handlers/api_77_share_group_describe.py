"""ShareGroupDescribe (77), version 1: describe share groups and their members (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from headrace.groups.records import ShareMember
from headrace.groups.share.group import ShareGroup, ShareState
from headrace.net.api import DESCRIBE, GROUP, TOPIC, Api, Each, Inside
from headrace.net.call import Call
from headrace.protocol.api import ShareGroupDescribeRequest, ShareGroupDescribeResponse

from .group_descriptions import Describer, describe_groups, existing

DescribedGroup = ShareGroupDescribeResponse.DescribedGroup
Member = ShareGroupDescribeResponse.Member
Assignment = ShareGroupDescribeResponse.Assignment
TopicPartitions = ShareGroupDescribeResponse.TopicPartitions

API = Api(
    77,
    Each(DESCRIBE, GROUP),
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

    def describe_member(state: ShareState, item: tuple[str, ShareMember]) -> Member:
        member_id, member = item
        current = state.current.get(member_id, state.no_current)
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
        state = group.state
        return DescribedGroup(
            group_state=state.state_name,
            group_epoch=state.epoch,
            assignment_epoch=state.target_epoch.epoch,
            assignor_name=_ASSIGNOR,
            members=call.lazily(partial(describe_member, state), list(state.members.items())),
        )

    describer = Describer(DescribedGroup, call.groups.share.group, describe, topics_of)
    return ShareGroupDescribeResponse(groups=await describe_groups(call, request, describer))
