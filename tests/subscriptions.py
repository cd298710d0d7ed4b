"""Subscriptions of classic consumers, as clients write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.protocol.primitives import i16
from headrace.protocol.stored import ConsumerProtocolSubscription


def subscription(
    version: int,
    topics: Sequence[str],
    owned: Mapping[str, Sequence[int]] | None = None,
    rack_id: str | None = None,
    user_data: bytes | None = None,
) -> bytes:
    """Return a subscription as bytes. Version 1 adds ``owned``, 3 ``rack_id``; other versions have
    the fields of the nearest one.
    """
    entries = [
        ConsumerProtocolSubscription.TopicPartition(topic, partitions)
        for topic, partitions in (owned or {}).items()
    ]
    message = ConsumerProtocolSubscription(topics, user_data, entries, -1, rack_id)
    return i16(version) + message.encoded(min(max(version, 0), 3))
