"""Entry point for Spark, which registers the ``DefaultSource`` of packages named ``pyspark_*``."""

from __future__ import annotations

from headrace.spark.produce.sink import ProduceDataSource as DefaultSource

__all__ = ["DefaultSource"]
