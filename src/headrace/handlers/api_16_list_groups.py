"""ListGroups (16), versions 0-5: list groups of all types.

Version notes:

* Version 3 is flexible (KIP-482).
* Version 4 adds the state, and a filter by states (KIP-518).
* Version 5 adds the type, and a filter by types (KIP-848).
"""

from __future__ import annotations

from headrace.net.api import CLUSTER, DESCRIBE, GROUP, Api, Inside
from headrace.net.call import Call
from headrace.protocol.api import ListGroupsRequest, ListGroupsResponse

API = Api(
    16,
    Inside(DESCRIBE, CLUSTER, "DESCRIBE on each group is needed"),
    Inside(DESCRIBE, GROUP, "left out of the answer"),
)


async def handle(call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    """List the groups that match the filters."""
    groups = call.groups.list(request.states_filter, request.types_filter)
    if not call.access.allows_cluster(DESCRIBE, is_audited=False):
        groups = [
            group for group in groups if call.may(DESCRIBE, GROUP, group[0], is_audited=False)
        ]
    return ListGroupsResponse(
        groups=call.lazily(lambda group: ListGroupsResponse.ListedGroup(*group), groups)
    )
