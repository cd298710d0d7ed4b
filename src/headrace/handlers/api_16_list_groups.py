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
from headrace.broker.limits import SLICED_ABOVE
from headrace.errors import ErrorCode
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.large_responses import LazyArray, Sliced
from headrace.protocol.messages import NO_THROTTLE
from headrace.security.acls import ResourceType

from .context import RequestContext
from .slicing import sliced


def handle(
    broker: Broker, request: ListGroupsRequest, context: RequestContext
) -> ListGroupsResponse | Sliced:
    """List the groups that match the filters."""
    listed = broker.groups.list(request.states_filter, request.types_filter)
    access = context.access
    if access.is_limited and not access.allows_cluster(Operation.DESCRIBE, is_audited=False):
        listed = [
            one
            for one in listed
            if access.allows(Operation.DESCRIBE, ResourceType.GROUP, one[0], is_audited=False)
        ]
    count = len(listed)
    groups = (
        ListedGroup(
            group_id=group_id,
            protocol_type=protocol_type,
            group_state=state,
            group_type=type_name,
        )
        for group_id, protocol_type, state, type_name in listed
    )
    response = ListGroupsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.NONE,
        groups=tuple(groups) if count <= SLICED_ABOVE else LazyArray(count, groups),
    )
    return sliced(response, count)
