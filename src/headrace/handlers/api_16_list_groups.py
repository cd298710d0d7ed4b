"""ListGroups (16), versions 0-5: list groups of all types.

Version notes:

* Version 3 is flexible (KIP-482).
* Version 4 adds the state, and a filter by states (KIP-518).
* Version 5 adds the type, and a filter by types (KIP-848).
"""

from __future__ import annotations

from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode
from headrace.protocol.messages import NO_THROTTLE

from .context import RequestContext


def handle(
    broker: Broker, request: ListGroupsRequest, context: RequestContext
) -> ListGroupsResponse:
    """List the groups that match the filters."""
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
