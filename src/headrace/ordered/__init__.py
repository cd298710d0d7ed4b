"""Tasks that read several inputs in timestamp order: the rule for waiting, and the merge (KIP-695).

Pure: no clock, no network. :class:`headrace.client.OrderedConsumer` uses it on topics,
``kafka-ordered`` on Spark.
"""

from __future__ import annotations

from .current_lag import CurrentLag
from .ordered_task import OrderedTask, TaskMetrics
from .readiness import IDLING_DISABLED, Decision, Readiness, Reason

__all__ = [
    "IDLING_DISABLED",
    "CurrentLag",
    "Decision",
    "OrderedTask",
    "Readiness",
    "Reason",
    "TaskMetrics",
]
