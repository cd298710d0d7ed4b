"""Clients of headrace and of Apache Kafka.

:class:`ShareConsumer` takes records from topics as from a queue, on asyncio, for Apache Kafka 4.1
or later (KIP-932). :class:`RangeConsumer` is the layer of offset ranges below it, and
:mod:`headrace.blocking` has the same without asyncio. Two clients extend confluent-kafka:
:class:`OrderedConsumer` reads several topics in the order of their timestamps, and
:class:`LagConsumer` adds ``current_lag`` (KIP-695).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.imports import on_use

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
    from .ordered.consumer import InvalidTopics, OrderedConsumer
    from .ordered.lag_consumer import LagConsumer
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

# Most callers need few of them, and some need librdkafka, a large library.
__getattr__ = on_use(
    __name__,
    """
    cluster Cluster TopicMetadata
    connection Connection
    errors ApiMissing AuthenticationFailed ClientError ConnectionFailed RequestRefused
    ordered.consumer InvalidTopics OrderedConsumer
    ordered.lag_consumer LagConsumer
    records Record UnreadableBatch decode
    share.consumer OutcomesFailed ShareConsumer Undecodable
    share.range_consumer RangeConsumer
    share.types AcknowledgeType Acknowledgement AcquireMode Acquired AcquiredRange
""",
)
