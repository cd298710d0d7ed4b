"""Counters of groups and their offsets, for the metrics page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class GroupMeters:
    """Numbers of events since the broker started.

    :ivar offset_expirations: offsets that expired
    :ivar offset_deletions: offsets that OffsetDelete deleted
    :ivar completed_rebalances: generations of classic groups to which partitions were assigned
    :ivar consumer_rebalances: epochs of consumer groups that a heartbeat or JoinGroup began; as in
        Kafka, epochs that a leaving member began do not count
    :ivar streams_rebalances: epochs of streams groups begun by a heartbeat, likewise
    """

    offset_expirations: int = 0
    offset_deletions: int = 0
    completed_rebalances: int = 0
    consumer_rebalances: int = 0
    streams_rebalances: int = 0

    def expired(self, count: int) -> None:
        """Count offsets that expired."""
        self.offset_expirations += count

    def deleted(self, count: int) -> None:
        """Count offsets that OffsetDelete deleted."""
        self.offset_deletions += count

    def began_consumer_epoch(self) -> None:
        """Count an epoch of a consumer group."""
        self.consumer_rebalances += 1

    def began_streams_epoch(self) -> None:
        """Count an epoch of a streams group."""
        self.streams_rebalances += 1
