"""Administration of groups from Python: confluent-kafka's admin client and the calls it lacks."""

from __future__ import annotations

from .client import AdminClient
from .results import (
    ConsumerGroupDescription,
    GroupListing,
    ListGroupsResult,
    ListShareGroupsResult,
    MemberDescription,
    ShareGroupDescription,
    ShareGroupListing,
    ShareMemberDescription,
    SharePartitionOffsetInfo,
    StreamsGroupDescription,
    StreamsMemberDescription,
    StreamsSubtopologyDescription,
    StreamsTasks,
)

__all__ = [
    "AdminClient",
    "ConsumerGroupDescription",
    "GroupListing",
    "ListGroupsResult",
    "ListShareGroupsResult",
    "MemberDescription",
    "ShareGroupDescription",
    "ShareGroupListing",
    "ShareMemberDescription",
    "SharePartitionOffsetInfo",
    "StreamsGroupDescription",
    "StreamsMemberDescription",
    "StreamsSubtopologyDescription",
    "StreamsTasks",
]
