"""Capabilities that came to pyspark after 4.0, and stand-ins where the installed one lacks them.

* Admission control and ``Trigger.AvailableNow`` for Python sources: from 4.2 on. Older versions ask
  for the latest offset without telling where the micro-batch starts, and
  :class:`SelfPacedReader` remembers it.
* Sinks of streams that get Arrow batches: from 4.1 on. Older versions pass rows, and
  :func:`arrow_batches` makes batches of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import __version__ as PYSPARK_VERSION
from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
)

from headrace.log_lines import get_logger
from headrace.spark.source_progress import with_progress, without_progress

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
    from pyspark.sql.types import StructType


try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    HAS_ADMISSION_CONTROL = True
except ModuleNotFoundError:
    from dataclasses import dataclass

    HAS_ADMISSION_CONTROL = False

    class ReadLimit:  # type: ignore[no-redef]
        """A limit on a micro-batch."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """No limit."""

    @dataclass
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """A limit on the number of rows."""

        max_rows: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Nothing: Spark does not look for it."""


ArrowStreamWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)
"""The base class of streaming sinks. Their ``write`` begins with :func:`arrow_batches`."""

__all__ = ["ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]

_ROWS_PER_BATCH = 10_000

_log = get_logger("headrace.spark")


def stream_reader(reader: Any) -> DataSourceStreamReader:
    """Return a reader for pyspark 4.2 in the form that the installed pyspark calls."""
    return reader if HAS_ADMISSION_CONTROL else SelfPacedReader(reader)


class SelfPacedReader(DataSourceStreamReader):
    """A reader for pyspark 4.0 and 4.1, around one that needs the start of each micro-batch.

    The start is what was planned last. These versions ask the reader of a new query for the latest
    offset before the initial one, and tell the reader of a restarted query its position by an empty
    range. They show nothing of a source but its offsets, so these have its progress, too.
    """

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._limit = getattr(reader, "getDefaultReadLimit", ReadAllAvailable)()
        self._initial: dict[str, Any] | None = None
        self._position: dict[str, Any] | None = None
        self._questions = 0

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset of a new query, always the same."""
        if self._initial is None:
            self._initial = self._reader.initialOffset()
        return self._initial

    def latestOffset(self) -> dict[str, Any]:
        """Return the end of the next micro-batch after what was planned last."""
        self._questions += 1
        position = self.initialOffset() if self._position is None else self._position
        start = without_progress(position)
        end = self._reader.latestOffset(start, self._limit)
        if end == start:
            return position
        report = getattr(self._reader, "reportLatestOffset", None)
        return with_progress(end, report() if report is not None else None)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch; the next one starts at its end."""
        self._position = end
        return self._reader.partitions(without_progress(start), without_progress(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task. Runs in an executor."""
        return self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit a micro-batch that is done."""
        self._reader.commit(without_progress(end))

    def stop(self) -> None:
        """Stop the reader."""
        if self._questions == 1:
            _log.warning(
                "pyspark %s ran one micro-batch: it ends Trigger.AvailableNow of a Python source "
                "after the first. Use headrace.spark.drain, or pyspark 4.2 or later",
                PYSPARK_VERSION,
            )
        self._reader.stop()


def arrow_batches(iterator: Iterator[Any], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Return what the ``write`` of a streaming sink is given as Arrow batches.

    :param iterator: Arrow batches, or rows before pyspark 4.1
    """
    if ArrowStreamWriter is not DataSourceStreamWriter:
        return iterator
    return batches_of_rows(iterator, schema)


def batches_of_rows(rows: Iterator[Any], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield rows of a schema as Arrow batches."""
    from pyspark.sql.pandas.types import to_arrow_schema

    arrow_schema = to_arrow_schema(schema)
    times = [field.name for field in schema if field.dataType.typeName() == "timestamp"]
    while part := [row.asDict(recursive=True) for row in islice(rows, _ROWS_PER_BATCH)]:
        for row in part:
            for name in times:
                if row[name] is not None:
                    row[name] = row[name].astimezone()  # it is local time of the Python worker
        yield pa.RecordBatch.from_pylist(part, arrow_schema)


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
