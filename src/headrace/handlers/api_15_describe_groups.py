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

from functools import partial

from headrace.groups.classic.member import Member
from headrace.groups.classic.states import State
from headrace.net.api import DESCRIBE, GROUP, Api, Each
from headrace.net.call import Call
from headrace.protocol.api import DescribeGroupsRequest, DescribeGroupsResponse
from headrace.protocol.authorized_operations import NOT_ASKED
from headrace.protocol.errors import Refusal

DescribedGroup = DescribeGroupsResponse.DescribedGroup
DescribedMember = DescribeGroupsResponse.DescribedGroupMember

API = Api(15, Each(DESCRIBE, GROUP))

_FIRST_WITH_ERROR = 6


async def handle(call: Call, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Describe the classic groups of a request."""
    allowed, refused = await call.allowed_items(request.groups, DescribedGroup)
    describe = partial(_describe, call, request.include_authorized_operations)
    groups = await call.each(describe, allowed)
    return DescribeGroupsResponse(groups=groups + refused)


def _describe(call: Call, with_operations: bool, group_id: str) -> DescribedGroup:
    operations = call.access.operations(GROUP, group_id) if with_operations else NOT_ASKED
    group = call.groups.classic.group(group_id)
    if isinstance(group, Refusal):
        dead = DescribedGroup(group_id=group_id, group_state="Dead")
        if call.version >= _FIRST_WITH_ERROR:
            dead.refused(group)
        else:
            dead.authorized_operations = operations
        return dead
    is_stable, protocol = group.members.state is State.STABLE, group.members.protocol

    def describe(member: Member) -> DescribedMember:
        return DescribedMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(protocol) if is_stable else b"",
            member_assignment=member.assignment,
        )

    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type,
        protocol_data=(protocol or "") if is_stable else "",
        members=call.lazily(describe, tuple(group.members.all())),
        authorized_operations=operations,
    )
