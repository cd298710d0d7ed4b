"""The names of topics that a request names by id, or that a client may see."""

from __future__ import annotations

from uuid import UUID

from headrace.broker.broker import Broker
from headrace.protocol.authorized_operations import Operation
from headrace.security.acls import ResourceType

from .context import RequestContext


def topic_name(broker: Broker, topic_id: UUID | None, context: RequestContext) -> str | None:
    """Return the name of a topic; None for an unknown id.

    A topic that the client has named has its name even if it does not exist. That is known if there
    is an authorizer.
    """
    if topic_id is None:
        return None
    topic = broker.catalog.topics_by_id.get(topic_id)
    if topic is not None:
        return topic.name
    ids = context.legacy.get("topic_ids")
    return None if ids is None else ids.known_name(topic_id)


def allows_topic(
    broker: Broker, operation: Operation, topic_id: UUID | None, context: RequestContext
) -> bool:
    """Return whether a client may do an operation on a topic; True for an unknown id."""
    if not context.access.is_limited:
        return True
    name = topic_name(broker, topic_id, context)
    return name is None or context.access.allows(operation, ResourceType.TOPIC, name)
