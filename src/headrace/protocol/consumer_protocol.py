"""The metadata that classic consumers give with JoinGroup, and the assignments that they get with
SyncGroup.

To a classic group they are opaque: the members' leader reads and writes them. The coordinator has
to understand them where classic members and members of the consumer protocol are in one group
(KIP-848).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.protocol.serial import Reader, array, i16, i32, string

PROTOCOL_TYPE = "consumer"
HIGHEST_VERSION = 3
_NO_USER_DATA = i32(-1)


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a classic consumer says when it joins.

    :param version: of the encoding, which its assignment shall have too
    :param owned: what it still holds, by topic name: of consumers that rebalance cooperatively
    """

    version: int
    topics: tuple[str, ...]
    owned: Mapping[str, tuple[int, ...]]
    rack_id: str | None = None


def read_subscription(data: bytes) -> Subscription:
    """A consumer's metadata. What a later version has more is left alone.

    :raises ValueError: when it is none
    """
    reader = Reader(data)
    try:
        version = reader.i16()
        if version < 0:
            raise ValueError(f"version {version}")
        topics = reader.array(Reader.string)
        _skip_nullable(reader)
        owned = dict(reader.array(_topic)) if version >= 1 else {}
        if version >= 2:
            reader.i32()  # the generation in which it got them
        rack_id = reader.nullable_string() if version >= 3 else None
    except (struct.error, IndexError, ValueError) as error:
        raise ValueError(f"not the subscription of a consumer: {error}") from error
    return Subscription(min(version, HIGHEST_VERSION), topics, owned, rack_id)


def read_assignment(data: bytes) -> dict[str, tuple[int, ...]]:
    """A consumer's partitions by topic name; none for no data.

    :raises ValueError: when it is no assignment
    """
    if not data:
        return {}
    reader = Reader(data)
    try:
        reader.i16()
        return dict(reader.array(_topic))
    except (struct.error, IndexError, ValueError) as error:
        raise ValueError(f"not the assignment of a consumer: {error}") from error


def write_assignment(version: int, partitions: Mapping[str, Sequence[int]]) -> bytes:
    """An assignment of partitions by topic name."""
    topics = array(
        string(topic) + array(map(i32, numbers)) for topic, numbers in partitions.items()
    )
    return i16(version) + topics + _NO_USER_DATA


def _topic(reader: Reader) -> tuple[str, tuple[int, ...]]:
    return reader.string(), reader.array(Reader.i32)


def _skip_nullable(reader: Reader) -> None:
    length = reader.i32()
    for _ in range(length):
        reader.i8()
