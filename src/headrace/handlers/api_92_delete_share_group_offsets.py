"""DeleteShareGroupOffsets (92), version 0: delete start offsets of a share group (KIP-932)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kio.schema.delete_share_group_offsets.v0.request import DeleteShareGroupOffsetsRequest
from kio.schema.delete_share_group_offsets.v0.response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

from headrace.broker.broker import Broker
from headrace.coordinators import share_state_recovery
from headrace.errors import ErrorCode, Refusal
from headrace.groups.share.group import ShareGroup
from headrace.protocol.messages import NO_THROTTLE
from headrace.share.share_state import NOT_HOSTED

from .context import RequestContext

_NOTHING_TO_DELETE = Refusal(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no offset information to delete."
)


def handle(broker: Broker, request: DeleteShareGroupOffsetsRequest, context: RequestContext) -> Any:
    """Delete the share state of a group in each topic of a request."""
    group = broker.groups.share.empty_group(request.group_id, create=False)
    if isinstance(group, Refusal):
        return DeleteShareGroupOffsetsResponse(
            throttle_time=NO_THROTTLE,
            error_code=group.code,
            error_message=group.message,
            responses=(),
        )
    names = dict.fromkeys(topic.topic_name for topic in request.topics)
    found = {name: _found(broker, group, name) for name in names}
    topic_ids = {topic_id for topic_id in found.values() if isinstance(topic_id, UUID)}
    if topic_ids:
        share_state_recovery.delete(broker.coordinators, group, topic_ids)
    return broker.when_durable(
        DeleteShareGroupOffsetsResponse(
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.NONE,
            responses=tuple(_topic(name, result) for name, result in found.items()),
        )
    )


def _found(broker: Broker, group: ShareGroup, name: str) -> UUID | Refusal:
    topic = broker.catalog.topics.get(name)
    if topic is None:
        return NOT_HOSTED
    return topic.topic_id if topic.topic_id in group.topic_ids() else _NOTHING_TO_DELETE


def _topic(name: str, result: UUID | Refusal) -> DeleteShareGroupOffsetsResponseTopic:
    refusal = result if isinstance(result, Refusal) else Refusal(ErrorCode.NONE)
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=None if isinstance(result, Refusal) else result,
        error_code=refusal.code,
        error_message=refusal.message,
    )
