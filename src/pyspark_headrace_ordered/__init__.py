"""Found by Spark, which looks for packages named ``pyspark_*`` and registers their
``DefaultSource``.
"""

from __future__ import annotations

from headrace.spark.ordered.source import OrderedDataSource as DefaultSource

__all__ = ["DefaultSource"]
