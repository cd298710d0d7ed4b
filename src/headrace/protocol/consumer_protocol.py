"""Kafka's ConsumerProtocol, versions 0-3: subscriptions and assignments of classic consumers.

JoinGroup has a member's subscription, SyncGroup its assignment. In a classic group only the leader
reads and writes them. The coordinator reads subscriptions to find the subscribed topics (KIP-496),
and both in groups with members of both protocols (KIP-848). Clients read assignments to show them.
Both begin with ``int16 version``, which is the same for a member's subscription and assignment.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from .primitives import INT16
from .schema import Message
from .stored import ConsumerProtocolAssignment, ConsumerProtocolSubscription

PROTOCOL_TYPE = "consumer"
"""The protocol type of classic groups whose members use this protocol."""

HIGHEST_VERSION = 3

M = TypeVar("M", bound=Message)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Read a subscription. Fields of later versions are ignored.

    :raises ValueError: the bytes are not a subscription
    """
    return _read(ConsumerProtocolSubscription, data, "subscription")


def subscription_version(data: bytes) -> int:
    """Return the version of a subscription, which its assignment has too; 0 if it cannot be read.

    Nothing after the version is read: a member may have protocols that nobody has checked.
    """
    if len(data) < INT16.size:
        return 0
    (version,) = INT16.unpack_from(data)
    return max(0, min(version, HIGHEST_VERSION))


def read_subscribed_topics(data: bytes) -> Sequence[str]:
    """Read the topics of a subscription; every version begins like version 0.

    :raises ValueError: the bytes are not a subscription
    """
    return _read(ConsumerProtocolSubscription, data, "subscription", version=0).topics


def read_assignment(data: bytes) -> dict[str, tuple[int, ...]]:
    """Read the partitions of an assignment by topic name; empty data has none.

    :raises ValueError: the bytes are not an assignment
    """
    return by_topic(_assignment(data).assigned_partitions)


def read_assignment_user_data(data: bytes) -> bytes | memoryview:
    """Read what a member's assignor gets from the leader's assignor; empty if there is nothing.

    :raises ValueError: the bytes are not an assignment
    """
    return _assignment(data).user_data or b""


def write_assignment(version: int, partitions: Mapping[str, Sequence[int]]) -> bytes:
    """Return an assignment of partitions by topic name as bytes."""
    entries = [
        ConsumerProtocolAssignment.TopicPartition(topic, numbers)
        for topic, numbers in partitions.items()
    ]
    return INT16.pack(version) + ConsumerProtocolAssignment(entries).encoded(version)


def by_topic(
    entries: Iterable[
        ConsumerProtocolSubscription.TopicPartition | ConsumerProtocolAssignment.TopicPartition
    ],
) -> dict[str, tuple[int, ...]]:
    """Return partitions by topic name; a topic may have several entries."""
    partitions: dict[str, tuple[int, ...]] = {}
    for entry in entries:
        partitions[entry.topic] = (*partitions.get(entry.topic, ()), *entry.partitions)
    return partitions


def _assignment(data: bytes) -> ConsumerProtocolAssignment:
    if not data:
        return ConsumerProtocolAssignment()
    return _read(ConsumerProtocolAssignment, data, "assignment")


def _read(message_type: type[M], data: bytes, what: str, *, version: int | None = None) -> M:
    """Read a message behind its version.

    :param version: read it as this version, whatever its own is
    """
    try:
        (own_version,) = INT16.unpack_from(data)
        if version is None:
            version = min(own_version, HIGHEST_VERSION)
            if version < 0:
                raise ValueError(f"version {version}")
        return message_type.read(version, data, INT16.size)
    except (struct.error, IndexError, ValueError) as error:
        raise ValueError(f"not the {what} of a consumer: {error}") from error
