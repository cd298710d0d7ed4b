"""DeleteTopics (20), versions 1-6: delete topics with their records, offsets and share state.

Internal topics are not deleted.

Version notes:

* Version 3 adds TOPIC_DELETION_DISABLED; earlier versions return INVALID_REQUEST.
* Version 4 is flexible (KIP-482).
* Version 5 adds error messages.
* Version 6 adds deletion by topic id (KIP-516).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from uuid import UUID

from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse

from headrace.broker.broker import Broker
from headrace.broker.catalog import CatalogError, Topic
from headrace.errors import ErrorCode, Refusal
from headrace.protocol.messages import NO_THROTTLE

from .context import RequestContext

_DISABLED = Refusal(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
_UNKNOWN_NAME = Refusal(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
)
_UNKNOWN_ID = Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")


async def handle(
    broker: Broker, request: DeleteTopicsRequest, context: RequestContext
) -> DeleteTopicsResponse:
    """Delete topics, each on its own."""
    if broker.config.get_bool("delete.topic.enable"):
        results = tuple(_delete_all(broker, request.topics))
        await broker.durable()  # Deleting a topic also deletes its offsets and share state.
    else:
        # Versions 1 and 2 do not know TOPIC_DELETION_DISABLED.
        code = ErrorCode.INVALID_REQUEST if context.api_version < 3 else _DISABLED.code
        results = tuple(
            _refused(asked.name, asked.topic_id, Refusal(code, _DISABLED.message))
            for asked in request.topics
        )
    return DeleteTopicsResponse(throttle_time=NO_THROTTLE, responses=results)


def _delete_all(
    broker: Broker, topics: tuple[DeleteTopicState, ...]
) -> Iterator[DeletableTopicResult]:
    names = Counter(asked.name for asked in topics if asked.name is not None)
    ids = Counter(asked.topic_id for asked in topics if asked.topic_id is not None)
    for asked in dict.fromkeys(topics):  # duplicate entries get one response
        message = _malformed(asked, names, ids)
        if message is not None:
            yield _refused(asked.name, asked.topic_id, Refusal(ErrorCode.INVALID_REQUEST, message))
            continue
        found = _found(broker, asked)
        if isinstance(found, Refusal):
            yield _refused(asked.name, asked.topic_id, found)
        elif found.name not in names or found.topic_id not in ids:
            yield _delete(broker, found)
        elif asked.name is not None:  # also requested by id: refused, with one response
            message = "The provided topic name maps to an ID that was already supplied."
            yield _refused(found.name, found.topic_id, Refusal(ErrorCode.INVALID_REQUEST, message))


def _malformed(asked: DeleteTopicState, names: Counter[str], ids: Counter[UUID]) -> str | None:
    if asked.name is not None and asked.topic_id is not None:
        return "You may not specify both topic name and topic id."
    if asked.name is None and asked.topic_id is None:
        return "Neither topic name nor id were specified."
    if names[asked.name] > 1:
        return "Duplicate topic name."
    return "Duplicate topic id." if ids[asked.topic_id] > 1 else None


def _found(broker: Broker, asked: DeleteTopicState) -> Topic | Refusal:
    """Return the topic to delete, or its error."""
    if asked.name is None:
        topic = broker.catalog.topics_by_id.get(asked.topic_id)
    else:
        topic = broker.catalog.topics.get(asked.name)
    if topic is None:
        return _UNKNOWN_ID if asked.name is None else _UNKNOWN_NAME
    if topic.internal:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"{topic.name} holds the state of groups and cannot be deleted.",
        )
    return topic


def _delete(broker: Broker, topic: Topic) -> DeletableTopicResult:
    refusal = Refusal(ErrorCode.NONE)
    try:
        broker.delete_topic(topic)
    except CatalogError as error:
        refusal = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    return DeletableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=refusal.code,
        error_message=refusal.message,
    )


def _refused(name: str | None, topic_id: UUID | None, refusal: Refusal) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=refusal.code, error_message=refusal.message
    )
