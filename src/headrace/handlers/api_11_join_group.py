"""JoinGroup (11), versions 0-9: join a classic group or its next generation.

The response is sent when all members have joined or the rebalance timeout has passed.

Version notes:

* Version 1 adds the rebalance timeout (KIP-62); in version 0 it is the session timeout.
* Version 4 adds MEMBER_ID_REQUIRED with a member id, for new members to rejoin with (KIP-394).
* Version 5 adds the group instance id of static members (KIP-345).
* Version 6 is flexible (KIP-482).
* Version 7 adds the protocol type to the response (KIP-559).
* Version 8 adds the reason (KIP-800), which has no effect here.
* Version 9 adds ``skip_assignment``, for a static leader that rejoined (KIP-814).
"""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any

from kio.schema.join_group.v9.request import JoinGroupRequest
from kio.schema.join_group.v9.response import JoinGroupResponse, JoinGroupResponseMember

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode
from headrace.groups.classic.member import JoinReply, JoinRequest
from headrace.protocol.messages import NO_THROTTLE
from headrace.protocol.primitives import MAX_STRING_BYTES

from .context import RequestContext
from .durations import to_ms

_FIRST_WITH_KNOWN_MEMBER_ID = 4
_FIRST_WITH_SKIP_ASSIGNMENT = 9


def handle(broker: Broker, request: JoinGroupRequest, context: RequestContext) -> Any:
    """Join a group, or its next generation.

    The id of a new member begins with its client id or instance id. If the id is longer than the
    longest string, return UNKNOWN_SERVER_ERROR, as Apache Kafka does.
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
        session_timeout_ms=to_ms(request.session_timeout),
        rebalance_timeout_ms=to_ms(request.rebalance_timeout),
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        new_member_id=new_member_id,
        known_member_id_required=context.api_version >= _FIRST_WITH_KNOWN_MEMBER_ID,
        skips_assignment=context.api_version >= _FIRST_WITH_SKIP_ASSIGNMENT,
    )
    decide = partial(broker.groups.join, request.group_id, join)
    return broker.group_runtime.write_parkable(request.group_id, decide, _response)


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
