"""Entry point for Spark, which registers the ``DefaultSource`` of packages named ``pyspark_*``."""

from __future__ import annotations

from headrace.spark.history.source import GroupHistorySource as DefaultSource

__all__ = ["DefaultSource"]
