"""The topics that the members of a classic consumer group are subscribed to, as far as the
coordinator can know them (KIP-496).
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.protocol.consumer_protocol import read_subscribed_topics


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics that members name in their subscriptions; None when one cannot be read."""
    try:
        return frozenset(topic for one in metadata for topic in read_subscribed_topics(one))
    except ValueError:
        return None
