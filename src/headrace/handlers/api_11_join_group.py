"""JoinGroup (11), versions 0-9: take part in the next generation of a classic group.

The answer waits until all members have joined or their time is over. A new member of version 4 and
later is first given an id to come back with (KIP-394); static members have an instance id (5,
KIP-345); version 9 tells a returned static leader not to assign (KIP-814).
"""

from __future__ import annotations

import uuid
from typing import Any

from kio.schema.join_group.v9.request import JoinGroupRequest
from kio.schema.join_group.v9.response import JoinGroupResponse, JoinGroupResponseMember

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode
from headrace.groups.classic.member import JoinReply, JoinRequest
from headrace.protocol.messages import NO_THROTTLE
from headrace.protocol.primitives import MAX_STRING_BYTES

from . import RequestContext
from .group_requests import decide_parked, milliseconds

_FIRST_WITH_KNOWN_MEMBER_ID = 4
_FIRST_WITH_SKIP_ASSIGNMENT = 9


def handle(broker: Broker, request: JoinGroupRequest, context: RequestContext) -> Any:
    """Join a group, or have its next generation begin.

    The id of a new member begins with its client id or instance id. One that becomes too long for a
    string is answered with UNKNOWN_SERVER_ERROR, as in Kafka.
    """
    client_id = context.client_id or ""
    new_member_id = f"{request.group_instance_id or client_id}-{uuid.uuid4()}"
    if not request.member_id and len(new_member_id.encode()) > MAX_STRING_BYTES:
        return _response(JoinReply(ErrorCode.UNKNOWN_SERVER_ERROR, ""))
    join = JoinRequest(
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=client_id,
        client_host=context.client_host,
        session_timeout_ms=milliseconds(request.session_timeout),
        rebalance_timeout_ms=milliseconds(request.rebalance_timeout),
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        new_member_id=new_member_id,
        known_member_id_required=context.api_version >= _FIRST_WITH_KNOWN_MEMBER_ID,
        skips_assignment=context.api_version >= _FIRST_WITH_SKIP_ASSIGNMENT,
    )
    return decide_parked(broker, request.group_id, broker.groups.join, join, _response)


def _response(reply: JoinReply) -> JoinGroupResponse:
    return JoinGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=reply.code,
        generation_id=reply.generation_id,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=tuple(
            JoinGroupResponseMember(
                member_id=member_id, group_instance_id=instance_id, metadata=metadata
            )
            for member_id, instance_id, metadata in reply.members
        ),
    )
