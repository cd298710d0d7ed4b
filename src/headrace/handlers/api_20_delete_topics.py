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
from typing import NamedTuple
from uuid import UUID

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.net.api import Api
from headrace.net.audit import Change
from headrace.net.call import Call
from headrace.net.rules import CLUSTER, DELETE, DESCRIBE, TOPIC, inside
from headrace.protocol.api import DeleteTopicsRequest, DeleteTopicsResponse
from headrace.protocol.time_slices import chunks
from headrace.topics.catalog import MAX_TOPICS_PER_TRANSACTION, CatalogError, Topic

Result = DeleteTopicsResponse.DeletableTopicResult


class Target(NamedTuple):
    """What names a topic to delete: its name or its id."""

    name: str | None
    topic_id: UUID | None


def changes(request: DeleteTopicsRequest, response: DeleteTopicsResponse) -> Iterator[Change]:
    """Yield the topics that were deleted, for the log."""
    for result in response.responses:
        if not result.error_code:
            yield Change(DELETE, "TOPIC", result.name or str(result.topic_id))


def refuse(request: DeleteTopicsRequest, code: ErrorCode) -> DeleteTopicsResponse:
    """Return the response to a request that fails as a whole."""
    refusal = Refusal(code)
    return DeleteTopicsResponse(
        responses=[_refused(*target, refusal) for target in _targets(request)]
    )


API = Api(
    20,
    inside(DELETE, CLUSTER, "DELETE on each topic is needed"),
    inside(DELETE, TOPIC, "refused"),
    inside(DESCRIBE, TOPIC, "the name of a topic that was named by its id is hidden"),
    refuse=refuse,
    changes=changes,
)

_DISABLED = "Topic deletion is disabled."
_FIRST_WITH_DISABLED = 3
_FIRST_WITH_QUOTA = 5
"""Earlier versions are throttled, but not refused."""
_THROTTLED = Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
_NOT_ALLOWED = Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
_UNKNOWN_NAME = Refusal(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
)
_UNKNOWN_ID = Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
_DELETED = Refusal(ErrorCode.NONE)


async def handle(call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete topics, each on its own."""
    broker = call.broker
    if not broker.config.get_bool("delete.topic.enable"):
        code = ErrorCode.TOPIC_DELETION_DISABLED
        if call.version < _FIRST_WITH_DISABLED:
            code = ErrorCode.INVALID_REQUEST
        refusal = Refusal(code, _DISABLED)
        return DeleteTopicsResponse(
            responses=[_refused(*target, refusal) for target in _targets(request)]
        )
    results: dict[Target, Topic | Result] = {}
    for target, topic in _find_all(call, _targets(request)):
        if isinstance(topic, Topic) and not _is_admitted(call, topic):
            results[target] = _refused(topic.name, topic.topic_id, _THROTTLED)
        else:
            results[target] = topic
        await call.pause()
    topics = [topic for topic in results.values() if isinstance(topic, Topic)]
    outcomes = await broker.slices.run_to_end(_delete_all(broker, topics))
    await call.durable()  # Deleting a topic also deletes its offsets and share state.
    return DeleteTopicsResponse(
        responses=[
            _result(target, topic, outcomes[topic.topic_id]) if isinstance(topic, Topic) else topic
            for target, topic in results.items()
        ]
    )


def _targets(request: DeleteTopicsRequest) -> list[Target]:
    """Return what a request names: versions before 6 have names only."""
    return [
        *(Target(topic.name, topic.topic_id) for topic in request.topics or ()),
        *(Target(name, None) for name in request.topic_names or ()),
    ]


def _is_admitted(call: Call, topic: Topic) -> bool:
    """Return whether the quota of controller mutations lets the client delete a topic now."""
    charge, is_strict = call.client.charge, call.version >= _FIRST_WITH_QUOTA
    return charge is None or charge.admit_mutations(topic.partitions, strict=is_strict)


def _find_all(call: Call, targets: list[Target]) -> Iterator[tuple[Target, Topic | Result]]:
    """Yield each topic to delete, or the result of one that is refused."""
    names = Counter(target.name for target in targets if target.name is not None)
    ids = Counter(target.topic_id for target in targets if target.topic_id is not None)
    access = call.access
    checks_each = access.is_limited and not access.allows_cluster(DELETE, is_audited=False)
    for target in dict.fromkeys(targets):  # duplicate entries get one response
        message = _malformed(target, names, ids)
        if message is not None:
            yield target, _refused(*target, Refusal(ErrorCode.INVALID_REQUEST, message))
            continue
        not_allowed = _check_deletion(call, target) if checks_each else None
        if not_allowed is not None:
            yield target, not_allowed
            continue
        topic = _find(call.broker, target)
        if isinstance(topic, Refusal):
            yield target, _refused(*target, topic)
        elif topic.name not in names or topic.topic_id not in ids:
            yield target, topic
        elif target.name is not None:  # also requested by id: refused, with one response
            message = "The provided topic name maps to an ID that was already supplied."
            refusal = Refusal(ErrorCode.INVALID_REQUEST, message)
            yield target, _refused(topic.name, topic.topic_id, refusal)


def _malformed(target: Target, names: Counter[str], ids: Counter[UUID]) -> str | None:
    if target.name is not None and target.topic_id is not None:
        return "You may not specify both topic name and topic id."
    if target.name is not None:
        return "Duplicate topic name." if names[target.name] > 1 else None
    if target.topic_id is not None:
        return "Duplicate topic id." if ids[target.topic_id] > 1 else None
    return "Neither topic name nor id were specified."


def _check_deletion(call: Call, target: Target) -> Result | None:
    """Return the result for a topic that the client may not delete; None if it may, or if there is
    no such topic.

    A client that gives a name needs the permissions to describe and to delete the topic. A client
    that gives an id needs the permission to delete it; the refusal has the name of the topic only
    if the client may describe it.
    """
    catalog = call.broker.catalog
    if target.topic_id is not None:
        topic = catalog.topics_by_id.get(target.topic_id)
        if topic is None or call.may(DELETE, TOPIC, topic.name):
            return None
        is_visible = call.may(DESCRIBE, TOPIC, topic.name)
        return _refused(topic.name if is_visible else None, target.topic_id, _NOT_ALLOWED)
    name = target.name or ""
    is_visible = call.may(DESCRIBE, TOPIC, name)
    if is_visible and (name not in catalog.topics or call.may(DELETE, TOPIC, name)):
        return None
    return _refused(name, None, _NOT_ALLOWED)


def _find(broker: Broker, target: Target) -> Topic | Refusal:
    """Return the topic to delete, or its error."""
    if target.topic_id is not None:
        topic = broker.catalog.topics_by_id.get(target.topic_id)
    else:
        topic = broker.catalog.topics.get(target.name or "")
    if topic is None:
        return _unknown(target)
    if topic.internal:
        message = f"{topic.name} holds the state of groups and cannot be deleted."
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    return topic


def _unknown(target: Target) -> Refusal:
    return _UNKNOWN_ID if target.name is None else _UNKNOWN_NAME


def _delete_all(
    broker: Broker, topics: Sequence[Topic]
) -> Generator[None, None, dict[UUID, Refusal]]:
    """Delete topics, many in one transaction; return the result of each. Another request may have
    deleted some of them since they were found.
    """
    outcomes: dict[UUID, Refusal] = {}
    for some in chunks(topics, MAX_TOPICS_PER_TRANSACTION):
        present = broker.catalog.topics_by_id
        existing = [present[topic.topic_id] for topic in some if topic.topic_id in present]
        outcome = _DELETED
        if existing:
            try:
                yield from broker.topic_deletions.delete(existing)
            except CatalogError as error:
                outcome = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        outcomes |= dict.fromkeys((topic.topic_id for topic in some), _UNKNOWN_NAME)
        outcomes |= dict.fromkeys((topic.topic_id for topic in existing), outcome)
    return outcomes


def _result(target: Target, topic: Topic, outcome: Refusal) -> Result:
    if outcome is _UNKNOWN_NAME:
        return _refused(*target, _unknown(target))
    return _refused(topic.name, topic.topic_id, outcome)


def _refused(name: str | None, topic_id: UUID | None, refusal: Refusal) -> Result:
    return Result(
        name=name, topic_id=topic_id, error_code=refusal.code, error_message=refusal.message
    )
