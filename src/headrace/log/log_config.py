"""The configuration of a topic as its logs use it."""

from __future__ import annotations

from dataclasses import dataclass

FOREVER = 2**63 - 1
ANY_RECORD_BYTES = 2**31 - 9
"""The largest value of ``max.decompressed.message.bytes``, which limits nothing."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Kafka's topic configs that concern the log, with Kafka's units. -1 stands for no limit."""

    segment_bytes: int
    segment_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    retention_ms: int
    retention_bytes: int
    flush_messages: int
    flush_ms: int
    max_message_bytes: int
    max_decompressed_message_bytes: int
    message_timestamp_type: str
    message_timestamp_before_max_ms: int
    message_timestamp_after_max_ms: int
    cleanup_policy: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    delete_retention_ms: int
    producer_id_expiration_ms: int
    internal: bool = False
    """True if the log holds the state of coordinators: damage before its tail is an error, and is
    not cut off.
    """

    @property
    def is_compacted(self) -> bool:
        """True if ``cleanup.policy`` has ``compact``."""
        return "compact" in self.cleanup_policy

    @property
    def is_flushed(self) -> bool:
        """True if flush.messages or flush.ms are set: the page cache alone is not enough."""
        return self.flush_messages != FOREVER or self.flush_ms != FOREVER

    @property
    def longest_segment_ms(self) -> int:
        """segment.ms; or max.compaction.lag.ms if that is shorter, because the last segment is not
        compacted.
        """
        return (
            min(self.segment_ms, self.max_compaction_lag_ms)
            if self.is_compacted
            else self.segment_ms
        )
