"""Heartbeat (12), versions 0-4: a member of a classic group is alive, and learns when to join
again.
"""

from __future__ import annotations

from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse

from headrace.broker.broker import Broker
from headrace.protocol.messages import NO_THROTTLE

from . import RequestContext


def handle(broker: Broker, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    code = broker.groups.heartbeat(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        broker.now_ms(),
    )
    return HeartbeatResponse(throttle_time=NO_THROTTLE, error_code=code)
