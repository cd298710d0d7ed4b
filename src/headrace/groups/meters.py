"""Counters of groups and their offsets, for the metrics page."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.metric_family import metric


@dataclass(slots=True)
class GroupMeters:
    """Numbers of events since the broker started. As in Kafka, epochs that a leaving member began
    do not count.
    """

    offset_expirations: int = metric(
        "kafka_server_group_coordinator_metrics_offset_expiration_total", "Offsets that expired."
    )
    offset_deletions: int = metric(
        "kafka_server_group_coordinator_metrics_offset_deletion_total",
        "Offsets deleted by OffsetDelete.",
    )
    completed_rebalances: int = metric(
        "kafka_server_group_coordinator_metrics_group_completed_rebalance_total",
        "Generations of classic groups that got their assignment.",
    )
    consumer_rebalances: int = metric(
        "kafka_server_group_coordinator_metrics_consumer_group_rebalance_total",
        "New epochs of consumer groups, without those for leaving members.",
    )
    streams_rebalances: int = metric(
        "kafka_server_group_coordinator_metrics_streams_group_rebalance_total",
        "New epochs of streams groups, without those for leaving members.",
    )

    def expired(self, count: int) -> None:
        """Count offsets that expired."""
        self.offset_expirations += count

    def deleted(self, count: int) -> None:
        """Count offsets that OffsetDelete deleted."""
        self.offset_deletions += count

    def began_epoch(self, kind: str) -> None:
        """Count an epoch of a group; those of share groups are counted with their records."""
        if kind == "consumer":
            self.consumer_rebalances += 1
        elif kind == "streams":
            self.streams_rebalances += 1
