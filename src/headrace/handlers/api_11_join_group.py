"""JoinGroup (11), versions 0-9: join a classic group or its next generation.

The response is sent when all members have joined or the rebalance timeout has passed.

Version notes:

* Version 1 adds the rebalance timeout (KIP-62); in version 0 it is the session timeout.
* Version 4 adds MEMBER_ID_REQUIRED with a member id, for new members to rejoin with (KIP-394).
* Version 5 adds the group instance id of static members (KIP-345).
* Version 6 is flexible (KIP-482).
* Version 7 adds the protocol type to the response, and a null protocol (KIP-559).
* Version 8 adds the reason (KIP-800), which has no effect here.
* Version 9 adds ``skip_assignment``, for a static leader that rejoined (KIP-814).
"""

from __future__ import annotations

import uuid
from functools import partial

from headrace.groups.classic.member import JoinReply, JoinRequest
from headrace.net.api import GROUP, READ, Api, Inside
from headrace.net.call import Call
from headrace.protocol.api import JoinGroupRequest, JoinGroupResponse
from headrace.protocol.errors import ErrorCode
from headrace.protocol.primitives import MAX_STRING_BYTES

API = Api(11, Inside(READ, GROUP, "refused as a whole"), of_coordinator=True)

_FIRST_WITH_REBALANCE_TIMEOUT = 1
_FIRST_WITH_KNOWN_MEMBER_ID = 4
_FIRST_WITH_NULL_PROTOCOL = 7
_FIRST_WITH_SKIP_ASSIGNMENT = 9


async def handle(call: Call, request: JoinGroupRequest) -> JoinGroupResponse:
    """Join a group, or its next generation.

    The id of a new member begins with its client id or instance id. If the id is longer than the
    longest string, return UNKNOWN_SERVER_ERROR, as Apache Kafka does.
    """
    group_id = request.group_id
    if not call.may(READ, GROUP, group_id):
        refusal = JoinReply(ErrorCode.GROUP_AUTHORIZATION_FAILED, request.member_id)
        return _response(call, refusal)
    client_id = call.client_id or ""
    new_member_id = f"{request.group_instance_id or client_id}-{uuid.uuid4()}"
    if not request.member_id and len(new_member_id.encode()) > MAX_STRING_BYTES:
        return _response(call, JoinReply(ErrorCode.UNKNOWN_SERVER_ERROR, ""))
    rebalance_timeout_ms = request.rebalance_timeout_ms
    if call.version < _FIRST_WITH_REBALANCE_TIMEOUT:
        rebalance_timeout_ms = request.session_timeout_ms
    join = JoinRequest(
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=client_id,
        client_host=call.client.address,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple(
            (protocol.name, bytes(protocol.metadata)) for protocol in request.protocols
        ),
        new_member_id=new_member_id,
        known_member_id_required=call.version >= _FIRST_WITH_KNOWN_MEMBER_ID,
        skips_assignment=call.version >= _FIRST_WITH_SKIP_ASSIGNMENT,
    )
    decide = partial(call.groups.join, group_id, join)
    return _response(call, await call.group_runtime.write_parkable(group_id, decide))


def _response(call: Call, reply: JoinReply) -> JoinGroupResponse:
    protocol = reply.protocol
    if protocol is None and call.version < _FIRST_WITH_NULL_PROTOCOL:
        protocol = ""
    return JoinGroupResponse(
        error_code=reply.code,
        generation_id=reply.generation_id,
        protocol_type=reply.protocol_type,
        protocol_name=protocol,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[JoinGroupResponse.JoinGroupResponseMember(*member) for member in reply.members],
    )
