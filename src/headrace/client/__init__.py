"""Clients of headrace and of Apache Kafka.

:class:`ShareConsumer` takes records from topics as from a queue, on asyncio, for Apache Kafka 4.1
or later (KIP-932). :class:`RangeConsumer` is the layer of offset ranges below it, and
:mod:`headrace.blocking` has the same without asyncio. Two clients extend confluent-kafka:
:class:`OrderedConsumer` reads several topics in the order of their timestamps, and
:class:`LagConsumer` adds ``current_lag`` (KIP-695).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cluster import Cluster, TopicMetadata
    from .connection import Connection
    from .errors import (
        ApiMissing,
        AuthenticationFailed,
        ClientError,
        ConnectionFailed,
        RequestRefused,
    )
    from .ordered.consumer import OrderedConsumer
    from .ordered.lag_consumer import LagConsumer
    from .ordered.topics import InvalidTopics
    from .records import Record, UnreadableBatch, decode
    from .share.consumer import OutcomesFailed, ShareConsumer, Undecodable
    from .share.range_consumer import RangeConsumer
    from .share.types import (
        Acknowledgement,
        AcknowledgeType,
        Acquired,
        AcquiredRange,
        AcquireMode,
    )

__all__ = [
    "AcknowledgeType",
    "Acknowledgement",
    "AcquireMode",
    "Acquired",
    "AcquiredRange",
    "ApiMissing",
    "AuthenticationFailed",
    "ClientError",
    "Cluster",
    "Connection",
    "ConnectionFailed",
    "InvalidTopics",
    "LagConsumer",
    "OrderedConsumer",
    "OutcomesFailed",
    "RangeConsumer",
    "Record",
    "RequestRefused",
    "ShareConsumer",
    "TopicMetadata",
    "Undecodable",
    "UnreadableBatch",
    "decode",
]

_HOMES = {
    **dict.fromkeys(("Cluster", "TopicMetadata"), "cluster"),
    "Connection": "connection",
    **dict.fromkeys(("ApiMissing", "AuthenticationFailed", "ClientError"), "errors"),
    **dict.fromkeys(("ConnectionFailed", "RequestRefused"), "errors"),
    "OrderedConsumer": "ordered.consumer",
    "LagConsumer": "ordered.lag_consumer",
    "InvalidTopics": "ordered.topics",
    **dict.fromkeys(("Record", "UnreadableBatch", "decode"), "records"),
    **dict.fromkeys(("OutcomesFailed", "ShareConsumer", "Undecodable"), "share.consumer"),
    "RangeConsumer": "share.range_consumer",
    **dict.fromkeys(("Acknowledgement", "AcknowledgeType", "Acquired"), "share.types"),
    **dict.fromkeys(("AcquiredRange", "AcquireMode"), "share.types"),
}


def __getattr__(name: str) -> Any:
    # Most callers need few of them, and some need librdkafka, a large library.
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
