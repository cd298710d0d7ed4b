"""Administration from Python: confluent-kafka's admin client, and what it lacks for share groups."""

from __future__ import annotations

from .client import AdminClient
from .results import (
    ListShareGroupsResult,
    ShareGroupDescription,
    ShareGroupListing,
    ShareMemberDescription,
    SharePartitionOffsetInfo,
)

__all__ = [
    "AdminClient",
    "ListShareGroupsResult",
    "ShareGroupDescription",
    "ShareGroupListing",
    "ShareMemberDescription",
    "SharePartitionOffsetInfo",
]
