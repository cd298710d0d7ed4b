"""Requests on share state (83-87): one decision for each share-partition."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar
from uuid import UUID

from headrace.broker.broker import Broker
from headrace.share.records import SharePartitionKey

from .slicing import run_sliced_durably

R = TypeVar("R")

_NO_TOPIC = UUID(int=0)


def serve_each(
    broker: Broker,
    request: Any,
    serve: Callable[[SharePartitionKey, Any, int | None], R],
    response: Any,
    topic_result: Any,
) -> Any:
    """Serve the share-partitions of a request in order, and return the response when everything
    that was written is durable.

    As in Apache Kafka, the response to a request without a group id is empty, topics without
    partitions are left out, and a duplicate share-partition is served twice but has one result, the
    last.

    :param serve: given the share-partition, its part of the request, and the number of partitions
        of its topic (None if there is no such topic); returns kio's ``PartitionResult``
    :param response: kio's class of the response
    :param topic_result: kio's class of the results of a topic
    """
    count = sum(len(topic.partitions) for topic in request.topics)
    steps = _serve_all(broker, request, serve, response, topic_result)
    return run_sliced_durably(broker, steps, count)


def _serve_all(
    broker: Broker,
    request: Any,
    serve: Callable[[SharePartitionKey, Any, int | None], R],
    response: Any,
    topic_result: Any,
) -> Generator[None, None, Any]:
    results: dict[UUID | None, dict[int, R]] = {}
    for topic in request.topics if request.group_id else ():
        known = broker.catalog.topics_by_id.get(topic.topic_id)
        partitions = None if known is None else known.partitions
        for asked in topic.partitions:
            key = SharePartitionKey(request.group_id, topic.topic_id or _NO_TOPIC, asked.partition)
            results.setdefault(topic.topic_id, {})[asked.partition] = serve(key, asked, partitions)
            yield
    return response(
        results=tuple(
            topic_result(topic_id=topic_id, partitions=tuple(of_topic.values()))
            for topic_id, of_topic in results.items()
        )
    )
