"""SyncGroup (14), versions 0-5: return the assignments of a classic group's generation.

The leader's request has all assignments. Other members wait for it.

Version notes:

* Version 3 adds the group instance id (KIP-345).
* Version 4 is flexible (KIP-482).
* Version 5 adds the protocol type and name, which must be the group's (KIP-559).
"""

from __future__ import annotations

from functools import partial

from headrace.groups.classic.member import SyncRequest
from headrace.net.api import GROUP, READ, Api, Inside
from headrace.net.call import Call
from headrace.protocol.api import SyncGroupRequest, SyncGroupResponse
from headrace.protocol.errors import ErrorCode

API = Api(14, Inside(READ, GROUP, "refused as a whole"), of_coordinator=True)

_FIRST_WITH_PROTOCOL = 5


async def handle(call: Call, request: SyncGroupRequest) -> SyncGroupResponse:
    """Return a member's assignment once the leader has sent it."""
    if call.version >= _FIRST_WITH_PROTOCOL and None in (
        request.protocol_type,
        request.protocol_name,
    ):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not call.may(READ, GROUP, request.group_id):
        return SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    sync = SyncRequest(
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation_id=request.generation_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments=tuple(
            (assignment.member_id, bytes(assignment.assignment))
            for assignment in request.assignments
        ),
    )
    decide = partial(call.groups.sync, request.group_id, sync)
    reply = await call.group_runtime.write_parkable(request.group_id, decide)
    return SyncGroupResponse(
        error_code=reply.code,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
    )
