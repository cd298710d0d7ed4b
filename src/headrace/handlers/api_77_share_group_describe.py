"""ShareGroupDescribe (77), version 1: describe share groups and their members (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from kio.schema.share_group_describe.v1 import response as schema
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode
from headrace.groups.records import CurrentAssignment, ShareMember
from headrace.groups.share.group import ShareGroup

from .context import RequestContext
from .group_descriptions import (
    HiddenTopics,
    assignment,
    describe_each,
    group_operations,
    topic_names,
)
from .slicing import lazily

_ASSIGNOR = "simple"


def handle(broker: Broker, request: ShareGroupDescribeRequest, context: RequestContext) -> Any:
    """Describe the share groups of a request."""
    find = broker.groups.share.group
    describe = partial(_describe, broker, partial(group_operations, request, context))
    response = schema.ShareGroupDescribeResponse
    hidden = HiddenTopics(context, partial(_topics, broker))
    return describe_each(schema.DescribedGroup, response, request.group_ids, find, describe, hidden)


def _topics(broker: Broker, group: ShareGroup) -> Iterable[str]:
    """Return the names of the topics in the assignments of a group's members."""
    return topic_names(broker, (group.current[one].assigned for one in group.members))


def _describe(
    broker: Broker, operations: Callable[[str], int], group_id: str, group: ShareGroup
) -> schema.DescribedGroup:
    return schema.DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch.epoch,
        assignor_name=_ASSIGNOR,
        authorized_operations=operations(group_id),
        members=lazily(
            partial(_member, broker),
            [
                (member_id, member, group.current[member_id])
                for member_id, member in group.members.items()
            ],
        ),
    )


def _member(broker: Broker, known: tuple[str, ShareMember, CurrentAssignment]) -> schema.Member:
    member_id, member, current = known
    return schema.Member(
        member_id=member_id,
        rack_id=member.rack_id,
        member_epoch=current.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.subscribed_topic_names,
        assignment=assignment(schema, broker, current.assigned),
    )
