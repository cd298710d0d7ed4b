"""PySpark data sources over Kafka's groups.

* ``kafka-share`` drains topics as a queue, through a share group.
* ``kafka-ordered`` reads several topics as one, in the order of their records' timestamps.
* ``kafka-lag`` is the progress of all groups as a table.
* ``kafka-group-history`` is a table of the events in all groups.
* ``kafka-produce`` is a sink that writes rows as records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .data_source import register_format
from .errors import SourceError
from .history.source import GroupHistorySource, history
from .lag.source import LagDataSource
from .listener import PrometheusListener, export_metrics
from .ordered.source import OrderedDataSource
from .produce.sink import ProduceDataSource
from .pyspark_capabilities import drain
from .share.outcomes import Acknowledged, acknowledge
from .share.process import each_batch, process
from .share.source import ShareDataSource
from .source_progress import source_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "Acknowledged",
    "GroupHistorySource",
    "LagDataSource",
    "OrderedDataSource",
    "ProduceDataSource",
    "PrometheusListener",
    "ShareDataSource",
    "SourceError",
    "acknowledge",
    "drain",
    "each_batch",
    "export_metrics",
    "history",
    "process",
    "register",
    "source_progress",
]


_FORMATS = (
    ShareDataSource,
    OrderedDataSource,
    LagDataSource,
    GroupHistorySource,
    ProduceDataSource,
)


def register(spark: SparkSession) -> None:
    """Register all sources and sinks as formats of a Spark session, for the calling thread too.

    Spark registers the formats itself if the Python workers of its driver find the packages
    ``pyspark_headrace*``. It looks for a sink in the session that is active in the calling thread;
    in a thread other than the one that made the session there is none. So call this once in each
    thread that writes, for example as the initializer of a pool.
    """
    java_session = getattr(spark, "_jsparkSession", None)
    if java_session is not None:  # a request of Spark Connect names its session
        java: Any = spark.sparkContext._jvm
        java.org.apache.spark.sql.classic.SparkSession.setActiveSession(java_session)
    for source in _FORMATS:
        register_format(spark, source)
