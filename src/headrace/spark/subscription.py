"""Topics that a query subscribes to, by name or by pattern, and their lookup in the cluster."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from headrace.client import Cluster, TopicMetadata
from headrace.client.errors import UnknownTopic
from headrace.patterns import matches

from .errors import SourceError


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics of a query: either names (``subscribe``) or a pattern (``subscribePattern``).

    :param topics: names in the order in which the user gave them; empty with a pattern
    :param pattern: a regular expression (RE2's) that must match whole names
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None


async def subscribed_topics(
    cluster: Cluster, subscription: Subscription
) -> dict[str, TopicMetadata]:
    """Return the subscribed topics by name. A pattern never matches Kafka's internal topics.

    :raises UnknownTopic: a named topic does not exist
    :raises ClientError: the cluster does not answer
    :raises SourceError: no topic matches the pattern
    """
    topics_found = await existing_topics(cluster, subscription)
    check_complete(topics_found, subscription)
    return topics_found


async def existing_topics(cluster: Cluster, subscription: Subscription) -> dict[str, TopicMetadata]:
    """Return the subscribed topics that exist, by name; possibly none.

    :raises ClientError: the cluster does not answer
    """
    pattern = subscription.pattern
    if pattern is None:
        return await cluster.existing_topics(subscription.topics)
    return {
        name: topic
        for name, topic in (await cluster.all_topics()).items()
        if not topic.is_internal and matches(pattern, name)
    }


def check_complete(topics_found: Collection[str], subscription: Subscription) -> None:
    """Check that the topics found are all that the subscription names.

    :raises UnknownTopic: a named topic is missing
    :raises SourceError: no topic matches the pattern
    """
    missing = next((name for name in subscription.topics if name not in topics_found), None)
    if missing is not None:
        raise UnknownTopic(missing)
    if not topics_found:
        raise SourceError(
            f"no topic matches the pattern '{subscription.pattern}': "
            "create one first, or correct the pattern"
        )
