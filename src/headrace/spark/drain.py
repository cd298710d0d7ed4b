"""Queries that end when they have read what there is, with every version of pyspark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .pyspark_capabilities import HAS_ADMISSION_CONTROL

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery


def drain(writer: DataStreamWriter) -> StreamingQuery:
    """Run a query until it has processed what its sources hold; return it when it has ended.

    With pyspark 4.2 or later this is ``Trigger.AvailableNow``. Python sources of pyspark 4.0 and
    4.1 do not have it: there the query runs until a trigger finds nothing new, so that records
    which arrive meanwhile are processed too.

    :param writer: the query, without a trigger
    :raises StreamingQueryException: the query failed
    """
    if HAS_ADMISSION_CONTROL:
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return query
    query = writer.start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return query
