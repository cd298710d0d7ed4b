"""DeleteShareGroupOffsets (92), version 0: delete start offsets of a share group (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from headrace.coordinators import share_state_recovery
from headrace.net.api import DELETE, GROUP, READ, TOPIC, Api, Each, on
from headrace.net.call import Call
from headrace.protocol.api import DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.share.share_state import NOT_HOSTED

Topic = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic


API = Api(
    92,
    on(DELETE, GROUP, "group_id"),
    Each(READ, TOPIC, "topic_name"),
    of_coordinator=True,
    has_one_error=True,
    has_message=True,
    is_audited=True,
)

_NOTHING_TO_DELETE = Refusal(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no offset information to delete."
)


async def handle(
    call: Call, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """Delete the share state of a group in each topic of a request."""
    allowed, refused = await call.allowed_items(request.topics, Topic)
    group = call.groups.share.empty_group(request.group_id, create=False)
    if isinstance(group, Refusal):
        return DeleteShareGroupOffsetsResponse().refused(group)
    stateful = group.topic_ids()
    deleted: set[UUID] = set()
    topics = []
    for name in dict.fromkeys(topic.topic_name for topic in allowed):
        topic = call.catalog.topics.get(name)
        if topic is None:
            topics.append(Topic(name).refused(NOT_HOSTED))
        elif topic.topic_id not in stateful:
            topics.append(Topic(name).refused(_NOTHING_TO_DELETE))
        else:
            deleted.add(topic.topic_id)
            call.changed(DELETE, GROUP, group.group_id, f"offsets of {name}")
            topics.append(Topic(name, topic.topic_id))
    if deleted:
        share_state_recovery.delete(call.coordinators, group, deleted)
    await call.durable()
    return DeleteShareGroupOffsetsResponse(responses=topics + refused)
