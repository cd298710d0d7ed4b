"""The configuration of a topic as its logs use it."""

from __future__ import annotations

from dataclasses import dataclass

FOREVER = 2**63 - 1
ANY_RECORD_BYTES = 2**31 - 9
"""The largest value of ``max.decompressed.message.bytes``, which limits nothing."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Kafka's topic configs that concern the log, with Kafka's units and defaults. -1 stands for no
    limit.
    """

    segment_bytes: int = 1073741824
    segment_ms: int = 604800000
    segment_index_bytes: int = 10485760
    index_interval_bytes: int = 4096
    retention_ms: int = 604800000
    retention_bytes: int = -1
    flush_messages: int = FOREVER
    flush_ms: int = FOREVER
    max_message_bytes: int = 1048588
    max_decompressed_message_bytes: int = ANY_RECORD_BYTES
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = FOREVER
    message_timestamp_after_max_ms: int = 3600000
    cleanup_policy: str = "delete"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = FOREVER
    delete_retention_ms: int = 86400000
    producer_id_expiration_ms: int = 86400000
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
