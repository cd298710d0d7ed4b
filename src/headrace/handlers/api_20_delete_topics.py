"""DeleteTopics (20), versions 1-6: delete topics with their records, offsets and share state.

Internal topics are not deleted.

Version notes:

* Version 3 adds TOPIC_DELETION_DISABLED; earlier versions return INVALID_REQUEST.
* Version 4 is flexible (KIP-482).
* Version 5 adds error messages, and THROTTLING_QUOTA_EXCEEDED (KIP-599).
* Version 6 adds deletion by topic id (KIP-516).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from uuid import UUID

from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse

from headrace.broker.broker import Broker
from headrace.broker.catalog import CatalogError, Topic
from headrace.broker.limits import MAX_TOPICS_PER_TRANSACTION
from headrace.errors import ErrorCode, Refusal
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.large_responses import Sliced
from headrace.protocol.messages import NO_THROTTLE
from headrace.security.access import AnyAccess
from headrace.security.acls import ResourceType

from .context import RequestContext
from .slicing import chunks, run_sliced_to_end, sliced

_DISABLED = Refusal(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
_UNKNOWN_NAME = Refusal(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
)
_THROTTLED = Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
_FIRST_WITH_QUOTA = 5
"""Earlier versions are throttled, but not refused."""
_NOT_ALLOWED = Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
_UNKNOWN_ID = Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")


async def handle(
    broker: Broker, request: DeleteTopicsRequest, context: RequestContext
) -> DeleteTopicsResponse | Sliced:
    """Delete topics, each on its own."""
    results: Sequence[DeletableTopicResult]
    if broker.config.get_bool("delete.topic.enable"):
        groups = broker.coordinators.loaded_groups
        count = len(request.topics)
        if groups is not None:  # each group may have offsets in the topics
            count += groups.offsets.committed.group_count
        work = run_sliced_to_end(broker, _delete_all(broker, request.topics, context), count)
        results = work if isinstance(work, list) else await work
        await broker.durable()  # Deleting a topic also deletes its offsets and share state.
    else:
        # Versions 1 and 2 do not know TOPIC_DELETION_DISABLED.
        code = ErrorCode.INVALID_REQUEST if context.api_version < 3 else _DISABLED.code
        results = [
            _refused(asked.name, asked.topic_id, Refusal(code, _DISABLED.message))
            for asked in request.topics
        ]
    response = DeleteTopicsResponse(throttle_time=NO_THROTTLE, responses=tuple(results))
    return sliced(response, len(results))


def _delete_all(
    broker: Broker, topics: tuple[DeleteTopicState, ...], context: RequestContext
) -> Generator[None, None, list[DeletableTopicResult]]:
    found: list[tuple[DeleteTopicState, Topic | DeletableTopicResult]] = []
    for asked, topic in _find_all(broker, topics, context.access):
        if isinstance(topic, Topic) and not _is_admitted(topic, context):
            found.append((asked, _refused(topic.name, topic.topic_id, _THROTTLED)))
        else:
            found.append((asked, topic))
        yield
    existing = [topic for _, topic in found if isinstance(topic, Topic)]
    refusals: dict[UUID, Refusal] = {}
    for some in chunks(existing, MAX_TOPICS_PER_TRANSACTION):
        refusals |= yield from _delete(broker, some)
    return [
        _result(asked, topic, refusals[topic.topic_id]) if isinstance(topic, Topic) else topic
        for asked, topic in found
    ]


def _is_admitted(topic: Topic, context: RequestContext) -> bool:
    """Return whether the quota of controller mutations lets the client delete a topic now."""
    return context.charge is None or context.charge.admit_mutations(
        topic.partitions, strict=context.api_version >= _FIRST_WITH_QUOTA
    )


def _find_all(
    broker: Broker, topics: tuple[DeleteTopicState, ...], access: AnyAccess
) -> Iterator[tuple[DeleteTopicState, Topic | DeletableTopicResult]]:
    """Yield each topic to delete, or the result of one that is refused."""
    names = Counter(asked.name for asked in topics if asked.name is not None)
    ids = Counter(asked.topic_id for asked in topics if asked.topic_id is not None)
    checks_each = access.is_limited and not access.allows_cluster(
        Operation.DELETE, is_audited=False
    )
    for asked in dict.fromkeys(topics):  # duplicate entries get one response
        message = _malformed(asked, names, ids)
        if message is not None:
            refusal = Refusal(ErrorCode.INVALID_REQUEST, message)
            yield asked, _refused(asked.name, asked.topic_id, refusal)
            continue
        if checks_each:
            refused = _check_deletion(broker, asked, access)
            if refused is not None:
                yield asked, refused
                continue
        found = _found(broker, asked)
        if isinstance(found, Refusal):
            yield asked, _refused(asked.name, asked.topic_id, found)
        elif found.name not in names or found.topic_id not in ids:
            yield asked, found
        elif asked.name is not None:  # also requested by id: refused, with one response
            message = "The provided topic name maps to an ID that was already supplied."
            refusal = Refusal(ErrorCode.INVALID_REQUEST, message)
            yield asked, _refused(found.name, found.topic_id, refusal)


def _malformed(asked: DeleteTopicState, names: Counter[str], ids: Counter[UUID]) -> str | None:
    if asked.name is not None and asked.topic_id is not None:
        return "You may not specify both topic name and topic id."
    if asked.name is None and asked.topic_id is None:
        return "Neither topic name nor id were specified."
    if names[asked.name] > 1:
        return "Duplicate topic name."
    return "Duplicate topic id." if ids[asked.topic_id] > 1 else None


def _check_deletion(
    broker: Broker, asked: DeleteTopicState, access: AnyAccess
) -> DeletableTopicResult | None:
    """Return the result for a topic that the client may not delete; None if it may, or if there is
    no such topic.

    A client that gives a name needs the permissions to describe and to delete the topic. A client
    that gives an id needs the permission to delete it; the refusal has the name of the topic only
    if the client may describe it.
    """
    if asked.name is None:
        topic = broker.catalog.topics_by_id.get(asked.topic_id)
        if topic is None or access.allows(Operation.DELETE, ResourceType.TOPIC, topic.name):
            return None
        is_visible = access.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        return _refused(topic.name if is_visible else None, asked.topic_id, _NOT_ALLOWED)
    if access.allows(Operation.DESCRIBE, ResourceType.TOPIC, asked.name):
        topic = broker.catalog.topics.get(asked.name)
        if topic is None or access.allows(Operation.DELETE, ResourceType.TOPIC, asked.name):
            return None
    return _refused(asked.name, None, _NOT_ALLOWED)


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


def _delete(broker: Broker, topics: Sequence[Topic]) -> Generator[None, None, dict[UUID, Refusal]]:
    """Delete topics in one transaction; return the result of each. Another request may have deleted
    some of them since they were found.
    """
    present = broker.catalog.topics_by_id
    existing = [present[topic.topic_id] for topic in topics if topic.topic_id in present]
    refusal = Refusal(ErrorCode.NONE)
    if existing:
        try:
            yield from broker.topic_deletions.delete(existing)
        except CatalogError as error:
            refusal = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    return dict.fromkeys((topic.topic_id for topic in topics), _UNKNOWN_NAME) | {
        topic.topic_id: refusal for topic in existing
    }


def _result(asked: DeleteTopicState, topic: Topic, refusal: Refusal) -> DeletableTopicResult:
    if refusal is _UNKNOWN_NAME:
        unknown = _UNKNOWN_ID if asked.name is None else _UNKNOWN_NAME
        return _refused(asked.name, asked.topic_id, unknown)
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
