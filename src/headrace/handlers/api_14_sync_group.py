"""SyncGroup (14), versions 0-5: return the assignments of a classic group's generation.

The leader's request has all assignments. Other members wait for it.

Version notes:

* Version 3 adds the group instance id (KIP-345).
* Version 4 is flexible (KIP-482).
* Version 5 adds the protocol type and name, which must be the group's (KIP-559).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kio.schema.sync_group.v5.request import SyncGroupRequest
from kio.schema.sync_group.v5.response import SyncGroupResponse

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode
from headrace.groups.classic.member import SyncReply, SyncRequest
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.messages import NO_THROTTLE
from headrace.security.acls import ResourceType

from .context import RequestContext

_FIRST_WITH_PROTOCOL = 5


def handle(broker: Broker, request: SyncGroupRequest, context: RequestContext) -> Any:
    """Return a member's assignment once the leader has sent it."""
    if context.api_version >= _FIRST_WITH_PROTOCOL and None in (
        request.protocol_type,
        request.protocol_name,
    ):
        return _response(SyncReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    if not context.access.allows(Operation.READ, ResourceType.GROUP, request.group_id):
        return _response(SyncReply(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    sync = SyncRequest(
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation_id=request.generation_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments=tuple(
            (assignment.member_id, assignment.assignment) for assignment in request.assignments
        ),
    )
    decide = partial(broker.groups.sync, request.group_id, sync)
    return broker.group_runtime.write_parkable(request.group_id, decide, _response)


def _response(reply: SyncReply) -> SyncGroupResponse:
    return SyncGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=reply.code,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
    )
