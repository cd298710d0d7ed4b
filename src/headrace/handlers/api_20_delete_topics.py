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
from collections.abc import Generator, Sequence
from typing import NamedTuple
from uuid import UUID

from headrace.net.api import CLUSTER, DELETE, DESCRIBE, TOPIC, TOPIC_DENIED, Api, Inside
from headrace.net.call import Call
from headrace.protocol.api import DeleteTopicsRequest, DeleteTopicsResponse
from headrace.protocol.errors import ErrorCode, Refusal, invalid_request
from headrace.protocol.time_slices import chunks
from headrace.topics.catalog import MAX_TOPICS_PER_TRANSACTION, CatalogError, Topic

Result = DeleteTopicsResponse.DeletableTopicResult


class Target(NamedTuple):
    """What names a topic to delete: its name or its id."""

    name: str | None
    topic_id: UUID | None


def refuse(
    request: DeleteTopicsRequest, code: ErrorCode, message: str | None = None
) -> DeleteTopicsResponse:
    """Return the response to a request that fails as a whole."""
    return DeleteTopicsResponse(
        responses=[Result(*target, code, message) for target in _targets(request)]
    )


API = Api(
    20,
    Inside(DELETE, CLUSTER, "DELETE on each topic is needed"),
    Inside(DELETE, TOPIC, "refused"),
    Inside(DESCRIBE, TOPIC, "the name of a topic that was named by its id is hidden"),
    refuse=refuse,
    is_audited=True,
)

_FIRST_WITH_DISABLED = 3
_FIRST_WITH_QUOTA = 5
_UNKNOWN_NAME = Refusal(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
)
_UNKNOWN_ID = Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")


async def handle(call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete topics, each on its own."""
    if not call.config.get_bool("delete.topic.enable"):
        code = ErrorCode.TOPIC_DELETION_DISABLED
        if call.version < _FIRST_WITH_DISABLED:
            code = ErrorCode.INVALID_REQUEST
        return refuse(request, code, "Topic deletion is disabled.")
    targets = _targets(request)
    names = Counter(target.name for target in targets)
    ids = Counter(target.topic_id for target in targets)
    results: dict[Target, Topic | Result] = {}
    for target in dict.fromkeys(targets):  # duplicate entries get one response
        topic = _malformed(target, names, ids) or _find(call, target)
        if isinstance(topic, Result):
            results[target] = topic
        elif topic.name in names and topic.topic_id in ids:  # refused, with one response
            if target.name is not None:
                message = "The provided topic name maps to an ID that was already supplied."
                results[target] = _result(topic, invalid_request(message))
        else:
            refusal = call.charge_mutations(topic.partitions, _FIRST_WITH_QUOTA)
            results[target] = topic if refusal is None else _result(topic, refusal)
        await call.pause()
    topics = [topic for topic in results.values() if isinstance(topic, Topic)]
    deleted = await call.to_end(_delete_all(call, topics))
    await call.durable()  # Deleting a topic also deletes its offsets and share state.
    return DeleteTopicsResponse(
        responses=[
            topic if isinstance(topic, Result) else deleted.get(topic.topic_id) or _unknown(target)
            for target, topic in results.items()
        ]
    )


def _targets(request: DeleteTopicsRequest) -> list[Target]:
    """Return what a request names: versions before 6 have names only."""
    return [
        *(Target(topic.name, topic.topic_id) for topic in request.topics or ()),
        *(Target(name, None) for name in request.topic_names or ()),
    ]


def _malformed(
    target: Target, names: Counter[str | None], ids: Counter[UUID | None]
) -> Result | None:
    """Return the result of an entry that names a topic in the wrong way."""
    name, topic_id = target
    message = None
    if name is not None and topic_id is not None:
        message = "You may not specify both topic name and topic id."
    elif name is not None and names[name] > 1:
        message = "Duplicate topic name."
    elif topic_id is not None and ids[topic_id] > 1:
        message = "Duplicate topic id."
    elif name is None and topic_id is None:
        message = "Neither topic name nor id were specified."
    return None if message is None else Result(*target, ErrorCode.INVALID_REQUEST, message)


def _find(call: Call, target: Target) -> Topic | Result:
    """Return the topic to delete, or the result of one that cannot be deleted.

    A client that gives a name needs the permissions to describe and to delete the topic. A client
    that gives an id needs the permission to delete it; the refusal has the name of the topic only
    if the client may describe it.
    """
    topic = call.catalog.find(target.topic_id, target.name)
    if not call.access.allows_cluster(DELETE, is_audited=False):
        if target.name is None:
            if topic is not None and not call.may(DELETE, TOPIC, topic.name):
                is_visible = call.may(DESCRIBE, TOPIC, topic.name)
                return Result(topic.name if is_visible else None, topic.topic_id).refused(
                    TOPIC_DENIED
                )
        elif not call.may(DESCRIBE, TOPIC, target.name) or not (
            topic is None or call.may(DELETE, TOPIC, target.name)
        ):
            return Result(target.name).refused(TOPIC_DENIED)
    if topic is None:
        return _unknown(target)
    if topic.internal:
        message = f"{topic.name} holds the state of groups and cannot be deleted."
        return Result(*target, ErrorCode.INVALID_REQUEST, message)
    return topic


def _unknown(target: Target) -> Result:
    return Result(*target).refused(_UNKNOWN_ID if target.name is None else _UNKNOWN_NAME)


def _result(topic: Topic, outcome: Refusal | None) -> Result:
    return Result(topic.name, topic.topic_id).refused(outcome)


def _delete_all(call: Call, topics: Sequence[Topic]) -> Generator[None, None, dict[UUID, Result]]:
    """Delete topics, many in one transaction; return the result of each. Those that another request
    has deleted since they were found have none.
    """
    results: dict[UUID, Result] = {}
    by_id = call.catalog.topics_by_id
    for part in chunks(topics, MAX_TOPICS_PER_TRANSACTION):
        existing = [by_id[topic.topic_id] for topic in part if topic.topic_id in by_id]
        refusal = None
        try:
            if existing:
                yield from call.topic_deletions.delete(existing)
                for topic in existing:
                    call.changed(DELETE, TOPIC, topic.name)
        except CatalogError as error:
            refusal = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        results |= {topic.topic_id: _result(topic, refusal) for topic in existing}
    return results
