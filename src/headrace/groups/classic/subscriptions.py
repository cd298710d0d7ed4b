"""The topics to which the members of a classic consumer group are subscribed (KIP-496)."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.protocol.consumer_protocol import read_subscribed_topics


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics in the members' subscriptions; None if one cannot be parsed."""
    try:
        return frozenset(topic for one in metadata for topic in read_subscribed_topics(one))
    except ValueError:
        return None
