"""DescribeGroups (15), versions 0-6: describe classic groups and their members.

Subscriptions are shown while the group is stable, assignments also while members rejoin.

Version notes:

* Version 3 adds authorized operations (KIP-430).
* Version 4 adds the group instance id (KIP-345).
* Version 5 is flexible (KIP-482).
* Version 6 adds GROUP_ID_NOT_FOUND for groups that do not exist or have another type (KIP-1043).
  Earlier versions describe them as "Dead" without an error.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.describe_groups.v6.response import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.classic.member import Member
from headrace.groups.classic.states import State
from headrace.protocol.authorized_operations import NOT_ASKED
from headrace.protocol.large_responses import Sliced
from headrace.protocol.messages import NO_THROTTLE

from .context import RequestContext
from .group_descriptions import group_operations
from .slicing import lazily, sliced

_FIRST_WITH_ERROR = 6


def handle(
    broker: Broker, request: DescribeGroupsRequest, context: RequestContext
) -> DescribeGroupsResponse | Sliced:
    """Describe the classic groups of a request."""
    describe = partial(_describe, broker, partial(group_operations, request, context), context)
    groups = lazily(describe, request.groups)
    response = DescribeGroupsResponse(throttle_time=NO_THROTTLE, groups=groups)
    if isinstance(groups, tuple):
        return sliced(response, sum(len(group.members) for group in groups))
    return Sliced(response)


def _describe(
    broker: Broker, operations: Callable[[str], int], context: RequestContext, group_id: str
) -> DescribedGroup:
    group = broker.groups.classic_group(group_id)
    if isinstance(group, Refusal):
        says_so = context.api_version >= _FIRST_WITH_ERROR
        return DescribedGroup(
            error_code=group.code if says_so else ErrorCode.NONE,
            error_message=group.message if says_so else None,
            group_id=group_id,
            group_state="Dead",
            protocol_type="",
            protocol_data="",
            members=(),
            authorized_operations=NOT_ASKED if says_so else operations(group_id),
        )
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type,
        protocol_data=(group.protocol or "") if group.state is State.STABLE else "",
        members=_members(group),
        authorized_operations=operations(group_id),
    )


def _members(group: ClassicGroup) -> Any:
    stable, protocol = group.state is State.STABLE, group.protocol

    def describe(member: Member) -> DescribedGroupMember:
        return DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(protocol) if stable else b"",
            member_assignment=member.assignment,
        )

    return lazily(describe, tuple(group.members.all()))
