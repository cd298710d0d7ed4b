"""What a topic's configuration says to its logs."""

from __future__ import annotations

from dataclasses import dataclass

FOREVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Kafka's topic configs that concern the log, in its units and with its defaults; -1 means
    without limit.
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
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = FOREVER
    message_timestamp_after_max_ms: int = 3600000
    cleanup_policy: str = "delete"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = FOREVER
    delete_retention_ms: int = 86400000
    file_delete_delay_ms: int = 60000
    """Kept for its name only: files go at once, as no read outlives the call that makes it."""
    producer_id_expiration_ms: int = 86400000
    internal: bool = False
    """The log holds the state of coordinators: damage in its midst is an error, not something to
    cut off.
    """

    @property
    def is_compacted(self) -> bool:
        """Whether only the latest record of each key is kept."""
        return "compact" in self.cleanup_policy

    @property
    def is_flushed(self) -> bool:
        """Whether flush.messages or flush.ms ask for more than the page cache."""
        return self.flush_messages != FOREVER or self.flush_ms != FOREVER

    @property
    def longest_segment_ms(self) -> int:
        """segment.ms, or max.compaction.lag.ms if that is less, as only closed segments are
        compacted.
        """
        return (
            min(self.segment_ms, self.max_compaction_lag_ms)
            if self.is_compacted
            else self.segment_ms
        )
