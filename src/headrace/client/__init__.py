"""A share-group client of our own, on asyncio: membership, sessions, acquire, acknowledge, renew (KIP-932).

It speaks to headrace and to Apache Kafka 4.1 or later alike.
"""

from __future__ import annotations

from .cluster import Cluster, PartitionLag, TopicMetadata
from .connection import Connection
from .errors import ApiMissing, AuthenticationFailed, ClientError, ConnectionFailed, RequestRefused
from .share_consumer import ShareConsumer
from .share_types import Acknowledgement, AcknowledgeType, Acquired, AcquiredRange, AcquireMode

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
    "PartitionLag",
    "RequestRefused",
    "ShareConsumer",
    "TopicMetadata",
]
