"""Every bound of the coordinators that is not a Kafka config, by name."""

from __future__ import annotations

COPY_READ_BYTES = 1024 * 1024
"""Bytes of a log that are read at a time to copy records to a dead-letter queue."""

DEAD_LETTER_COMPLAINT_MS = 60_000
"""The shortest time between two reports of one group's unusable dead-letter queue."""

RETRY_MS = 1000
"""How long to wait before trying again what failed when its deadline came."""
