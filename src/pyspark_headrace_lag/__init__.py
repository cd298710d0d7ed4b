"""Found by Spark, which looks for packages named ``pyspark_*`` and registers their
``DefaultSource``.
"""

from __future__ import annotations

from headrace.spark.lag.source import LagDataSource as DefaultSource

__all__ = ["DefaultSource"]
