"""Requests on share state (83-87): one decision for each share-partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

from headrace.errors import ErrorCode, Refusal
from headrace.net.api import Refuse
from headrace.net.call import Call
from headrace.net.refusals import refuse_all
from headrace.net.rules import MESSAGES
from headrace.protocol.schema import schema_of
from headrace.share.records import NO_TOPIC, SharePartitionKey

P = TypeVar("P")
R = TypeVar("R")

DONE = Refusal(ErrorCode.NONE)


async def serve_each(
    call: Call,
    request: Any,
    serve: Callable[[SharePartitionKey, P, int | None], R],
) -> list[tuple[UUID, list[R]]]:
    """Serve the share-partitions of a request in order; return the results by topic when everything
    that was written is durable.

    As in Apache Kafka, the response to a request without a group id is empty, topics without
    partitions are left out, and a duplicate share-partition is served twice but has one result, the
    last.

    :param serve: given the share-partition, its part of the request, and the number of partitions
        of its topic (None if there is no such topic); returns its result
    """
    results: dict[UUID, dict[int, R]] = {}
    for topic in request.topics if request.group_id else ():
        topic_id = topic.topic_id or NO_TOPIC
        existing = call.broker.catalog.topics_by_id.get(topic_id)
        count = None if existing is None else existing.partitions
        for partition in topic.partitions:
            key = SharePartitionKey(request.group_id, topic_id, partition.partition)
            results.setdefault(topic_id, {})[key.partition] = serve(key, partition, count)
            await call.pause()
    await call.durable()
    return [(topic_id, list(of_topic.values())) for topic_id, of_topic in results.items()]


def refusing(api_key: int) -> Refuse:
    """Return a function that refuses each share-partition of a request, with a message."""

    def refuse(request: Any, code: ErrorCode) -> Any:
        response = refuse_all(request, schema_of("response", api_key), code)
        for topic in response.results:
            for partition in topic.partitions:
                partition.error_message = MESSAGES.get(code)
        return response

    return refuse
