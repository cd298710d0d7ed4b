"""DeleteGroups (42), versions 0-2: forget empty groups, with their offsets or, for share groups, their share state."""

from __future__ import annotations

from typing import Any

from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeletableGroupResult, DeleteGroupsResponse

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode
from headrace.groups.share_group import ShareGroup
from headrace.share.records import SharePartitionKey
from headrace.wire.messages import NO_THROTTLE

from . import RequestContext


def handle(broker: Broker, request: DeleteGroupsRequest, context: RequestContext) -> Any:
    results = tuple(
        DeletableGroupResult(group_id=group_id, error_code=_delete(broker, group_id))
        for group_id in request.groups_names
    )
    return broker.when_durable(DeleteGroupsResponse(throttle_time=NO_THROTTLE, results=results))


def _delete(broker: Broker, group_id: str) -> ErrorCode:
    outcome = broker.groups.delete(group_id)
    group = broker.groups.groups.get(group_id)
    if not outcome.reply and isinstance(group, ShareGroup):
        _delete_share_state(broker, group)
    return broker.submit(broker.groups, group_id, outcome)


def _delete_share_state(broker: Broker, group: ShareGroup) -> None:
    """The share state goes before the group does, so that a failure in between leaves nothing without an owner."""
    tombstones = []
    for topic_id, partition in group.share_partitions():
        topic = broker.catalog.topics_by_id.get(topic_id)
        key = SharePartitionKey(group.group_id, topic_id, partition)
        outcome = broker.share_state.delete(key, None if topic is None else topic.partitions)
        tombstones.append((str(key), outcome.records))
    broker.submit_all(broker.share_state, tombstones)
    broker.share.drop_group(group.group_id)
