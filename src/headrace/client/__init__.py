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

from headrace.imports import without_hypothesis

with without_hypothesis():
    from .cluster import Cluster, TopicMetadata
    from .connection import Connection
    from .errors import (
        ApiMissing,
        AuthenticationFailed,
        ClientError,
        ConnectionFailed,
        RequestRefused,
    )
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

if TYPE_CHECKING:
    from .ordered.consumer import OrderedConsumer
    from .ordered.lag_consumer import LagConsumer
    from .ordered.topics import InvalidTopics

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

_OVER_LIBRDKAFKA = {
    "InvalidTopics": ".ordered.topics",
    "LagConsumer": ".ordered.lag_consumer",
    "OrderedConsumer": ".ordered.consumer",
}


def __getattr__(name: str) -> Any:
    # Load librdkafka, a large library, only when it is used.
    if name in _OVER_LIBRDKAFKA:
        return getattr(import_module(_OVER_LIBRDKAFKA[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
