"""Heartbeat (12), versions 0-4: extend the session of a classic group's member, and tell it when
to rejoin.

Version notes:

* Version 3 adds the group instance id (KIP-345).
* Version 4 is flexible (KIP-482).
"""

from __future__ import annotations

from headrace.groups.classic.member import MemberIdentity
from headrace.net.api import READ_GROUP, Api
from headrace.net.call import Call
from headrace.protocol.api import HeartbeatRequest, HeartbeatResponse

API = Api(12, READ_GROUP, is_quick=True, of_coordinator=True)


async def handle(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    """Extend a member's session; return REBALANCE_IN_PROGRESS if it must rejoin."""
    member = MemberIdentity(request.member_id, request.group_instance_id)
    outcome = call.groups.heartbeat(
        request.group_id, member, request.generation_id, call.clock.now_ms()
    )
    code = call.group_runtime.write_now(request.group_id, outcome)
    return HeartbeatResponse(error_code=code)
