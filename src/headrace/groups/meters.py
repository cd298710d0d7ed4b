"""Counters of groups and their offsets, for the metrics page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class GroupMeters:
    """The number of events since the start.

    :ivar offset_expirations: offsets that expired
    :ivar offset_deletions: offsets that OffsetDelete deleted
    :ivar completed_rebalances: generations of classic groups to which partitions were assigned
    :ivar consumer_rebalances: epochs of consumer groups that began with a heartbeat or JoinGroup
        of a member; as in Kafka not those that began because a member left
    """

    offset_expirations: int = 0
    offset_deletions: int = 0
    completed_rebalances: int = 0
    consumer_rebalances: int = 0

    def expired(self, count: int) -> None:
        """Count offsets that expired."""
        self.offset_expirations += count

    def deleted(self, count: int) -> None:
        """Count offsets that OffsetDelete deleted."""
        self.offset_deletions += count

    def began_consumer_epoch(self) -> None:
        """Count an epoch of a consumer group."""
        self.consumer_rebalances += 1
