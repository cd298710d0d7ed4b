"""The limits of the coordinators that are not Kafka configs."""

from __future__ import annotations

COPY_READ_BYTES = 1024 * 1024
"""Bytes of a log that are read at a time to copy records to a dead-letter queue."""

DEAD_LETTER_COMPLAINT_MS = 60_000
"""The least time between two log lines about one group's unusable dead-letter queue."""

RETRY_MS = 1000
"""The time before a timeout that failed is tried again."""
