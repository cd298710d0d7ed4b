"""The headers of dead letters (KIP-1191). All values are text: see
``docs/behaviour/dead-letter-queue.md``.
"""

from __future__ import annotations

TOPIC = "__dlq.errors.topic"
PARTITION = "__dlq.errors.partition"
OFFSET = "__dlq.errors.offset"
GROUP = "__dlq.errors.group"
DELIVERY_COUNT = "__dlq.errors.delivery.count"
MESSAGE = "__dlq.errors.message"

HEADERS = (TOPIC, PARTITION, OFFSET, GROUP, DELIVERY_COUNT, MESSAGE)
"""The headers that a broker adds, in its order. If a record has one twice, the last one counts."""

REDRIVE_COUNT = "headrace.redrive.count"
"""The header of a record that was redriven to its source: how often that was done."""

REDRIVE_GROUP = "headrace-redrive-"
"""What the group that keeps the progress of redrives begins with; the name of the queue follows."""

EXCEPTION = "headrace.exception.type"
TRACEBACK = "headrace.exception.traceback"
ATTEMPT = "headrace.attempt"
WORKER = "headrace.worker"

WORKER_HEADERS = (ATTEMPT, WORKER, EXCEPTION, TRACEBACK)
"""The headers that a worker adds to the letters that it writes."""
