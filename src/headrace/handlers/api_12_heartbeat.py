"""Heartbeat (12), versions 0-4: extend the session of a classic group's member, and tell it when
to rejoin.

Version notes:

* Version 3 adds the group instance id (KIP-345).
* Version 4 is flexible (KIP-482).
"""

from __future__ import annotations

from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse

from headrace.broker.broker import Broker
from headrace.protocol.messages import NO_THROTTLE

from .context import RequestContext


def handle(broker: Broker, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    """Extend a member's session; return REBALANCE_IN_PROGRESS if it must rejoin."""
    outcome = broker.groups.heartbeat(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        broker.clock.now_ms(),
    )
    code = broker.group_runtime.write_now(request.group_id, outcome)
    return HeartbeatResponse(throttle_time=NO_THROTTLE, error_code=code)
