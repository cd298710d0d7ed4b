"""What the handlers of the share-state requests (83-87) share: one decision for each
share-partition that is named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

from headrace.broker.broker import Broker
from headrace.share.records import SharePartitionKey

R = TypeVar("R")

_NO_TOPIC = UUID(int=0)


def each_share_partition(
    broker: Broker, request: Any, serve: Callable[[SharePartitionKey, Any, int | None], R]
) -> list[tuple[UUID | None, tuple[R, ...]]]:
    """Serve the share-partitions of a request in its order, and gather the results by topic.

    A request without a group id, and a topic without partitions, are answered with nothing, as
    Apache Kafka does. What is named twice is served twice and answered once, with the last result.

    :param serve: given the share-partition, what is asked of it, and how many partitions its topic
        has (None: unknown)
    """
    results: dict[UUID | None, dict[int, R]] = {}
    for topic in request.topics if request.group_id else ():
        known = broker.catalog.topics_by_id.get(topic.topic_id)
        partitions = None if known is None else known.partitions
        for asked in topic.partitions:
            key = SharePartitionKey(request.group_id, topic.topic_id or _NO_TOPIC, asked.partition)
            results.setdefault(topic.topic_id, {})[asked.partition] = serve(key, asked, partitions)
    return [(topic_id, tuple(of_topic.values())) for topic_id, of_topic in results.items()]
