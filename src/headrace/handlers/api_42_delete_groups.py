"""DeleteGroups (42), versions 0-2: delete empty groups with their offsets or share state (KIP-229).

Version notes:

* Version 2 is flexible (KIP-482).
"""

from __future__ import annotations

from typing import Any

from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeletableGroupResult, DeleteGroupsResponse

from headrace.broker.broker import Broker
from headrace.coordinators import share_state_recovery
from headrace.errors import ErrorCode
from headrace.groups.share.group import ShareGroup
from headrace.protocol.messages import NO_THROTTLE

from .context import RequestContext


def handle(broker: Broker, request: DeleteGroupsRequest, context: RequestContext) -> Any:
    """Delete groups, each on its own."""
    results = tuple(
        DeletableGroupResult(group_id=group_id, error_code=_delete(broker, group_id))
        for group_id in dict.fromkeys(request.groups_names)
    )
    return broker.when_durable(DeleteGroupsResponse(throttle_time=NO_THROTTLE, results=results))


def _delete(broker: Broker, group_id: str) -> ErrorCode:
    group = broker.groups.groups.get(group_id)
    if isinstance(group, ShareGroup) and group.is_empty:
        share_state_recovery.delete(broker.coordinators, group, group.topic_ids())
    return broker.group_runtime.write_now(group_id, broker.groups.delete(group_id))
