"""PySpark data sources over Kafka's groups: ``kafka-share`` drains topics as a queue, through a share group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .acknowledge import Acknowledged, acknowledge
from .option_parsing import SourceError
from .share_source import ShareDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Acknowledged", "ShareDataSource", "SourceError", "acknowledge", "register"]


def register(spark: SparkSession) -> None:
    """Make ``format("kafka-share")`` known to ``spark``.

    Needed only where Spark does not find it by itself: it looks for packages named ``pyspark_*`` where its driver's
    Python workers run.
    """
    spark.dataSource.register(ShareDataSource)
