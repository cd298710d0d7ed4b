"""ListGroups (16), versions 0-5: all groups, or those in some states (4, KIP-518) or of some types
(5, KIP-848).
"""

from __future__ import annotations

from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode
from headrace.protocol.messages import NO_THROTTLE

from . import RequestContext


def handle(
    broker: Broker, request: ListGroupsRequest, context: RequestContext
) -> ListGroupsResponse:
    return ListGroupsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.NONE,
        groups=tuple(
            ListedGroup(
                group_id=group_id,
                protocol_type=protocol_type,
                group_state=state,
                group_type=type_name,
            )
            for group_id, protocol_type, state, type_name in broker.groups.list(
                request.states_filter, request.types_filter
            )
        ),
    )
