"""Which topics a subscription means, asked of the cluster."""

from __future__ import annotations

from headrace.client import Cluster, TopicMetadata

from .option_parsing import SourceError, Subscription


async def subscribed_topics(cluster: Cluster, subscription: Subscription) -> dict[str, TopicMetadata]:
    """The topics that a subscription means now, by name. A pattern never means Kafka's internal topics.

    :raises ClientError: a topic does not exist
    :raises SourceError: no topic matches the pattern
    """
    if subscription.pattern is None:
        return await cluster.topics(subscription.topics)
    found = {
        topic.name: topic
        for topic in (await cluster.metadata(None)).values()
        if isinstance(topic, TopicMetadata) and not topic.is_internal
    }
    names = subscription.matching(found)
    if not names:
        raise SourceError(f"no topic matches the pattern '{subscription.pattern}': create one first, or correct it")
    return {name: found[name] for name in names}
