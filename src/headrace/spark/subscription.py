"""Which topics a subscription means, asked of the cluster."""

from __future__ import annotations

from collections.abc import Collection

from headrace.client import Cluster, TopicMetadata
from headrace.client.errors import UnknownTopic

from .option_parsing import SourceError, Subscription


async def subscribed_topics(
    cluster: Cluster, subscription: Subscription
) -> dict[str, TopicMetadata]:
    """The topics that a subscription means now, by name. A pattern never means Kafka's internal
    topics.

    :raises ClientError: a topic does not exist
    :raises SourceError: no topic matches the pattern
    """
    found = await existing_topics(cluster, subscription)
    check_complete(found, subscription)
    return found


async def existing_topics(cluster: Cluster, subscription: Subscription) -> dict[str, TopicMetadata]:
    """The same without those that do not exist, and maybe none."""
    if subscription.pattern is None:
        return await cluster.existing_topics(subscription.topics)
    found = {
        topic.name: topic
        for topic in (await cluster.metadata(None)).values()
        if isinstance(topic, TopicMetadata) and not topic.is_internal
    }
    return {name: found[name] for name in subscription.matching(found)}


def check_complete(found: Collection[str], subscription: Subscription) -> None:
    """See that all topics of a subscription are among those found.

    :raises UnknownTopic: a named one is not
    :raises SourceError: no topic matches the pattern
    """
    missing = next((name for name in subscription.topics if name not in found), None)
    if missing is not None:
        raise UnknownTopic(missing)
    if not found:
        raise SourceError(
            f"no topic matches the pattern '{subscription.pattern}': create one first, or "
            f"correct it"
        )
