"""DeleteGroups (42), versions 0-3: delete empty groups with their offsets or share state (KIP-229).

Version notes:

* Version 2 is flexible (KIP-482).
* Version 3 adds an error message, which is null: Apache Kafka gives one only for failures of
  plugins.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from headrace.broker.broker import Broker
from headrace.coordinators import share_state_recovery
from headrace.errors import ErrorCode, StorageError
from headrace.groups.share.group import ShareGroup
from headrace.log_lines import LimitedLog, get_logger
from headrace.protocol.messages import NO_THROTTLE
from headrace.protocol.newer_messages import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

from .context import RequestContext
from .slicing import run_sliced_durably

log = LimitedLog(get_logger("headrace.coordinators"))


def handle(broker: Broker, request: DeleteGroupsRequest, context: RequestContext) -> Any:
    """Delete groups, each on its own."""
    names = tuple(dict.fromkeys(request.groups_names))
    return run_sliced_durably(broker, _delete_all(broker, names), len(names))


def _delete_all(
    broker: Broker, names: Sequence[str]
) -> Generator[None, None, DeleteGroupsResponse]:
    results = []
    for name in names:
        try:
            code = _delete(broker, name)
        except StorageError as error:
            log.error(name, "cannot delete the group %s: %s", name, error)
            code = ErrorCode.NOT_COORDINATOR
        results.append(DeletableGroupResult(group_id=name, error_code=code))
        yield
    return DeleteGroupsResponse(throttle_time=NO_THROTTLE, results=tuple(results))


def _delete(broker: Broker, group_id: str) -> ErrorCode:
    group = broker.groups.groups.get(group_id)
    if isinstance(group, ShareGroup) and group.is_empty:
        share_state_recovery.delete(broker.coordinators, group, group.topic_ids())
        code = broker.group_runtime.write_now(group_id, broker.groups.delete(group_id))
        broker.share.group_deleted(group_id)
        return code
    return broker.group_runtime.write_now(group_id, broker.groups.delete(group_id))
