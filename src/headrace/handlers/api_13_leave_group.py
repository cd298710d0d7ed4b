"""LeaveGroup (13), versions 0-5: remove members from a group.

Version notes:

* Version 3 adds several members per request, and removal by instance id alone (KIP-345). Earlier
  versions name one member and return its error at the top level.
* Version 4 is flexible (KIP-482).
* Version 5 adds the reason (KIP-800), which has no effect here.
"""

from __future__ import annotations

from kio.schema.leave_group.v5.request import LeaveGroupRequest
from kio.schema.leave_group.v5.response import LeaveGroupResponse, MemberResponse

from headrace.broker.broker import Broker
from headrace.coordinators.runtime import Deferred
from headrace.errors import ErrorCode
from headrace.groups.classic.member import LeaveReply, MemberIdentity
from headrace.groups.records import GroupRecord
from headrace.outcome import Outcome
from headrace.protocol.messages import NO_THROTTLE

from .context import RequestContext


def handle(
    broker: Broker, request: LeaveGroupRequest, context: RequestContext
) -> Deferred[LeaveGroupResponse]:
    """Remove members from a group. Its other members rebalance at once."""
    leavers = [
        MemberIdentity(member.member_id, member.group_instance_id) for member in request.members
    ]

    def leave(now_ms: int, wall_ms: int) -> Outcome[GroupRecord, LeaveReply]:
        return broker.groups.leave(request.group_id, leavers, now_ms, wall_ms)

    def response(reply: LeaveReply) -> LeaveGroupResponse:
        if isinstance(reply, ErrorCode):
            return LeaveGroupResponse(throttle_time=NO_THROTTLE, error_code=reply, members=())
        members = tuple(
            MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=code)
            for (member_id, instance_id), code in zip(leavers, reply, strict=True)
        )
        return LeaveGroupResponse(
            throttle_time=NO_THROTTLE, error_code=ErrorCode.NONE, members=members
        )

    return broker.group_runtime.write(request.group_id, leave, response)
