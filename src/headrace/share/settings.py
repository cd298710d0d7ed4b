"""What a share group may set for its share-partitions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """The group's limits. They are handed to each command, so a changed config holds from the next one on.

    :param delivery_count_limit: so many deliveries, then a record given back is archived
    :param max_record_locks: no new records are acquired while so many lie between start and end offset
    """

    delivery_count_limit: int = 5
    lock_duration_ms: int = 30_000
    max_record_locks: int = 2000
