"""PySpark data sources over Kafka's groups.

``kafka-share`` drains topics as a queue, through a share group; ``kafka-ordered`` reads several
topics as one, in the order of their records' timestamps; ``kafka-lag`` tells how far groups are,
and ``kafka-group-history`` what happened in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .history.group_history import history
from .history.source import GroupHistorySource
from .lag.source import LagDataSource
from .option_parsing import SourceError
from .ordered.source import OrderedDataSource
from .share.outcomes import Acknowledged, acknowledge
from .share.source import ShareDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "Acknowledged",
    "GroupHistorySource",
    "LagDataSource",
    "OrderedDataSource",
    "ShareDataSource",
    "SourceError",
    "acknowledge",
    "history",
    "register",
]


def register(spark: SparkSession) -> None:
    """Make ``kafka-share``, ``kafka-ordered``, ``kafka-lag`` and ``kafka-group-history`` known to
    ``spark`` as formats.

    Needed only where Spark does not find it by itself: it looks for packages named ``pyspark_*``
    where its driver's Python workers run.
    """
    for source in (ShareDataSource, OrderedDataSource, LagDataSource, GroupHistorySource):
        spark.dataSource.register(source)
