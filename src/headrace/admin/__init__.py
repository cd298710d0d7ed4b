"""Administration from Python: confluent-kafka's admin client and the calls that it lacks."""

from __future__ import annotations

from .client import AdminClient
from .results import ListGroupsResult, SharePartitionOffsetInfo

__all__ = ["AdminClient", "ListGroupsResult", "SharePartitionOffsetInfo"]
