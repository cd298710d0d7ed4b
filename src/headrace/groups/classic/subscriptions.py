"""Which topics the members of a classic consumer group are subscribed to, as far as the coordinator
can know (KIP-496).

A member's metadata for a protocol is its own business; that of the consumer protocol (Kafka's
ConsumerProtocol) begins in every version like version 0: the version, an int16, then the names of
the topics, then bytes of the user. What follows is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from struct import error as StructError

CONSUMER_PROTOCOL_TYPE = "consumer"

_I16, _I32 = Struct(">h"), Struct(">i")


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """The topics that members name in their consumer protocol metadata; None when one of them
    cannot be read.
    """
    try:
        return frozenset(topic for one in metadata for topic in _topics(one))
    except (StructError, ValueError):
        return None


def _topics(metadata: bytes) -> Iterator[str]:
    (count,) = _I32.unpack_from(metadata, _I16.size)
    at = _I16.size + _I32.size
    if count < 0:
        raise ValueError("no list of topics")
    for _ in range(count):
        (length,) = _I16.unpack_from(metadata, at)
        at += _I16.size
        if not 0 <= length <= len(metadata) - at:
            raise ValueError("no topic name")
        yield metadata[at : at + length].decode()
        at += length
    (length,) = _I32.unpack_from(metadata, at)
    if length > len(metadata) - at - _I32.size:
        raise ValueError("the user's bytes end too early")
