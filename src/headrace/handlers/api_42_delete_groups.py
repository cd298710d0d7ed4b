"""DeleteGroups (42), versions 0-3: delete empty groups with their offsets or share state (KIP-229).

Version notes:

* Version 2 is flexible (KIP-482).
* Version 3 adds an error message, which is null: Apache Kafka gives one only for failures of
  plugins.
"""

from __future__ import annotations

from headrace.coordinators import share_state_recovery
from headrace.groups.share.group import ShareGroup
from headrace.log_lines import LimitedLog
from headrace.net.api import DELETE, GROUP, Api, Each
from headrace.net.call import Call
from headrace.protocol.api import DeleteGroupsRequest, DeleteGroupsResponse
from headrace.protocol.errors import ErrorCode, StorageError

Result = DeleteGroupsResponse.DeletableGroupResult

log = LimitedLog("headrace.coordinators")


API = Api(42, Each(DELETE, GROUP), of_coordinator=True, is_audited=True)


async def handle(call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Delete groups, each on its own."""
    allowed, refused = await call.allowed_items(request.groups_names, Result)
    results = []
    for group_id in dict.fromkeys(allowed):
        try:
            code = _delete(call, group_id)
            if not code:
                call.changed(DELETE, GROUP, group_id)
        except StorageError as error:
            log.error(group_id, "cannot delete the group %s: %s", group_id, error)
            code = ErrorCode.NOT_COORDINATOR
        results.append(Result(group_id, code))
        await call.pause()
    await call.durable()
    return DeleteGroupsResponse(results=results + refused)


def _delete(call: Call, group_id: str) -> ErrorCode:
    groups = call.groups
    group = groups.groups.get(group_id)
    if isinstance(group, ShareGroup) and group.is_empty:
        share_state_recovery.delete(call.coordinators, group, group.topic_ids())
    code = call.group_runtime.write_now(group_id, groups.delete(group_id))
    if not code:
        call.share.group_deleted(group_id)
    return code
