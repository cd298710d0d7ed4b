"""LeaveGroup (13), versions 0-5: remove members from a group.

Version notes:

* Version 3 adds several members per request, and removal by instance id alone (KIP-345). Earlier
  versions name one member and return its error at the top level.
* Version 4 is flexible (KIP-482).
* Version 5 adds the reason (KIP-800), which has no effect here.
"""

from __future__ import annotations

from functools import partial

from headrace.groups.classic.member import MemberIdentity
from headrace.net.api import READ_GROUP, Api
from headrace.net.call import Call
from headrace.protocol.api import LeaveGroupRequest, LeaveGroupResponse
from headrace.protocol.errors import ErrorCode

API = Api(13, READ_GROUP, of_coordinator=True, has_one_error=True)

_FIRST_WITH_MEMBERS = 3


async def handle(call: Call, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Remove members from a group. Its other members rebalance at once."""
    has_members = call.version >= _FIRST_WITH_MEMBERS
    leavers = [MemberIdentity(request.member_id)]
    if has_members:
        leavers = [
            MemberIdentity(member.member_id, member.group_instance_id) for member in request.members
        ]
    decide = partial(call.groups.leave, request.group_id, leavers)
    reply = await call.group_runtime.write(request.group_id, decide)
    if isinstance(reply, ErrorCode):
        return LeaveGroupResponse(error_code=reply)
    if not has_members:
        return LeaveGroupResponse(error_code=reply[0])
    return LeaveGroupResponse(
        members=[
            LeaveGroupResponse.MemberResponse(member_id, instance_id, code)
            for (member_id, instance_id), code in zip(leavers, reply, strict=True)
        ]
    )
