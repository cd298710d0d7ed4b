"""Kafka's ConsumerProtocol, versions 0-3: subscriptions and assignments of classic consumers.

JoinGroup has a member's subscription, SyncGroup its assignment. In a classic group only the leader
reads and writes them. The coordinator reads subscriptions to find the subscribed topics (KIP-496),
and both in groups with members of both protocols (KIP-848). Clients read assignments to show them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .primitives import Reader, array, blob, i16, i32, string

PROTOCOL_TYPE = "consumer"
"""The protocol type of classic groups whose members use this protocol."""

HIGHEST_VERSION = 3
_NO_USER_DATA = i32(-1)
_NO_GENERATION = i32(-1)


@dataclass(frozen=True, slots=True)
class Subscription:
    """A classic consumer's subscription.

    :param version: version of its encoding; its assignment has the same
    :param owned: owned partitions by topic name, of cooperative consumers; version 1 and later
    :param rack_id: version 3 and later
    :param user_data: bytes from its assignor to the leader's assignor
    """

    version: int
    topics: tuple[str, ...]
    owned: Mapping[str, Sequence[int]] = field(default_factory=dict)
    rack_id: str | None = None
    user_data: bytes | None = None


def read_subscription(data: bytes) -> Subscription:
    """Read a subscription. Fields of later versions are ignored.

    :raises ValueError: the bytes are not a subscription
    """
    reader = Reader(data)
    try:
        version = reader.i16()
        if version < 0:
            raise ValueError(f"version {version}")
        topics, user_data = _subscribed(reader)
        owned = _topics(reader) if version >= 1 else {}
        if version >= 2:
            reader.i32()  # the generation of the owned partitions
        rack_id = reader.nullable_string() if version >= 3 else None
    except (struct.error, IndexError, ValueError) as error:
        raise ValueError(f"not the subscription of a consumer: {error}") from error
    return Subscription(min(version, HIGHEST_VERSION), topics, owned, rack_id, user_data)


def subscription_version(data: bytes) -> int:
    """Return the version of a subscription, which its assignment has too; 0 if it cannot be read.

    Nothing after the version is read: a member may have protocols that nobody has checked.
    """
    try:
        return max(0, min(Reader(data).i16(), HIGHEST_VERSION))
    except (struct.error, IndexError):
        return 0


def read_subscribed_topics(data: bytes) -> tuple[str, ...]:
    """Read the topics of a subscription; every version begins like version 0.

    :raises ValueError: the bytes are not a subscription
    """
    reader = Reader(data)
    try:
        reader.i16()
        topics, _ = _subscribed(reader)
    except (struct.error, IndexError, ValueError) as error:
        raise ValueError(f"not the subscription of a consumer: {error}") from error
    return topics


def write_subscription(subscription: Subscription) -> bytes:
    """Return a subscription as bytes."""
    version = subscription.version
    user_data = subscription.user_data
    data = i16(version) + array(map(string, subscription.topics))
    data += _NO_USER_DATA if user_data is None else blob(user_data)
    if version >= 1:
        data += _topics_array(subscription.owned)
    if version >= 2:
        data += _NO_GENERATION
    if version >= 3:
        data += string(subscription.rack_id)
    return data


def read_assignment(data: bytes) -> dict[str, tuple[int, ...]]:
    """Read the partitions of an assignment by topic name; empty data has none.

    :raises ValueError: the bytes are not an assignment
    """
    if not data:
        return {}
    reader = Reader(data)
    try:
        reader.i16()
        return _topics(reader)
    except (struct.error, IndexError, ValueError) as error:
        raise ValueError(f"not the assignment of a consumer: {error}") from error


def read_assignment_user_data(data: bytes) -> bytes:
    """Read what a member's assignor gets from the leader's assignor; empty if there is nothing.

    :raises ValueError: the bytes are not an assignment
    """
    if not data:
        return b""
    reader = Reader(data)
    try:
        reader.i16()
        _topics(reader)
        return reader.nullable_blob() or b""
    except (struct.error, IndexError, ValueError) as error:
        raise ValueError(f"not the assignment of a consumer: {error}") from error


def write_assignment(version: int, partitions: Mapping[str, Sequence[int]]) -> bytes:
    """Return an assignment of partitions by topic name as bytes."""
    return i16(version) + _topics_array(partitions) + _NO_USER_DATA


def _subscribed(reader: Reader) -> tuple[tuple[str, ...], bytes | None]:
    """Read topics and user data, which every version has."""
    return reader.array(_name, nullable=False), reader.nullable_blob()


def _name(reader: Reader) -> str:
    name = reader.nullable_string()
    if name is None:
        raise ValueError("a topic without a name")
    return name


def _topics(reader: Reader) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for topic, partitions in reader.array(_topic):
        found[topic] = found.get(topic, ()) + partitions
    return found


def _topic(reader: Reader) -> tuple[str, tuple[int, ...]]:
    return reader.string(), reader.array(Reader.i32)


def _topics_array(partitions: Mapping[str, Sequence[int]]) -> bytes:
    return array(string(topic) + array(map(i32, ids)) for topic, ids in partitions.items())
