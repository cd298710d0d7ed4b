"""The headers of the records of workers. All values are text, and numbers are decimal: see
``docs/how-to/worker.md``.
"""

from __future__ import annotations

TASK = "headrace-task"
"""The name of the task that takes the record."""
ENVELOPE = "headrace-envelope"
"""The version of the form of its value."""
DUE_MS = "headrace-due"
"""The record is not to be processed before this time, in ms since the epoch."""
EXPIRES_MS = "headrace-expires"
"""The record is not to be processed after this time."""
ATTEMPTS = "headrace-attempts"
"""The attempts before the record was written again."""
ORIGIN = "headrace-origin"
"""The place of a record that was written again: ``TOPIC/PARTITION/OFFSET``, where it was first."""

OF_ATTEMPTS = (ATTEMPTS, DUE_MS, ORIGIN)
"""The headers with which a worker writes a record again; a record without them begins anew."""
