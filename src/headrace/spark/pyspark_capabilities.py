"""Capabilities that came to pyspark after 4.0, and stand-ins where the installed one lacks them.

* Admission control and ``Trigger.AvailableNow`` for Python sources: from 4.2 on. Older versions ask
  for the latest offset without telling where the micro-batch starts, and
  :class:`SelfPacedReader` remembers it.
* Sinks that get Arrow batches: from 4.1 on. Older versions pass rows, and
  :class:`RowStreamWriter` and :class:`RowBatchWriter` make batches of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import __version__ as PYSPARK_VERSION
from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

from headrace.log_lines import get_logger
from headrace.spark.spark_offsets import with_progress, without_progress

if TYPE_CHECKING:
    from pyspark.sql.datasource import WriterCommitMessage
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


HAS_ARROW_STREAM_WRITERS = hasattr(datasource, "DataSourceStreamArrowWriter")
ArrowStreamWriter: Any = (
    datasource.DataSourceStreamArrowWriter if HAS_ARROW_STREAM_WRITERS else DataSourceStreamWriter
)
"""The base class of streaming sinks whose ``write`` takes Arrow batches."""
HAS_ARROW_BATCH_WRITERS = hasattr(datasource, "DataSourceArrowWriter")
ArrowBatchWriter: Any = (
    datasource.DataSourceArrowWriter if HAS_ARROW_BATCH_WRITERS else DataSourceWriter
)
"""The base class of batch sinks whose ``write`` takes Arrow batches."""

__all__ = ["ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]

_ROWS_PER_BATCH = 10_000

_log = get_logger("headrace.spark")


def stream_reader(reader: Any, limit: ReadLimit) -> DataSourceStreamReader:
    """Return a reader for pyspark 4.2 in the form that the installed pyspark calls.

    :param limit: the reader's own limit on a micro-batch, which pyspark before 4.2 does not pass
    """
    return reader if HAS_ADMISSION_CONTROL else SelfPacedReader(reader, limit)


def stream_writer(writer: Any, schema: StructType) -> DataSourceStreamWriter:
    """Return a sink for Arrow batches in the form that the installed pyspark calls.

    :param schema: of the rows that are written
    """
    return writer if HAS_ARROW_STREAM_WRITERS else RowStreamWriter(writer, schema)


def batch_writer(writer: Any, schema: StructType) -> DataSourceWriter:
    """Return a batch sink for Arrow batches in the form that the installed pyspark calls.

    :param schema: of the rows that are written
    """
    return writer if HAS_ARROW_BATCH_WRITERS else RowBatchWriter(writer, schema)


class SelfPacedReader(DataSourceStreamReader):
    """A reader for pyspark 4.0 and 4.1, around one that needs the start of each micro-batch.

    The start is what was planned last. These versions ask the reader of a new query for the latest
    offset before the initial one, and tell the reader of a restarted query its position by an empty
    range. They show nothing of a source but its offsets, so these have its progress, too.
    """

    def __init__(self, reader: Any, limit: ReadLimit) -> None:
        self._reader = reader
        self._limit = limit
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


class _RowWriter:
    """The methods of a sink for pyspark 4.0, around one whose ``write`` takes Arrow batches."""

    def __init__(self, writer: Any, schema: StructType) -> None:
        self._writer = writer
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of one task. Runs in an executor."""
        return self._writer.write(_arrow_batches(iterator, self._schema))

    def commit(self, messages: list[WriterCommitMessage | None], *batch_id: int) -> None:
        """Commit the rows of all tasks."""
        self._writer.commit(messages, *batch_id)

    def abort(self, messages: list[WriterCommitMessage | None], *batch_id: int) -> None:
        """Abort the batch or micro-batch."""
        self._writer.abort(messages, *batch_id)


class RowStreamWriter(_RowWriter, DataSourceStreamWriter):
    """A sink of streams for pyspark 4.0."""


class RowBatchWriter(_RowWriter, DataSourceWriter):
    """A sink of batches for pyspark 4.0."""


def _arrow_batches(rows: Iterator[Any], schema: StructType) -> Iterator[pa.RecordBatch]:
    from pyspark.sql.pandas.types import to_arrow_schema

    arrow_schema = to_arrow_schema(schema)
    moments = [field.name for field in schema.fields if field.dataType.typeName() == "timestamp"]
    while part := [row.asDict(recursive=True) for row in islice(rows, _ROWS_PER_BATCH)]:
        for name in moments:
            for row in part:
                row[name] = _with_zone(row[name])
        yield pa.RecordBatch.from_pylist(part, arrow_schema)


def _with_zone(moment: datetime | None) -> datetime | None:
    """Return the moment of a row, which Spark gives in the local time of the Python worker."""
    return moment.astimezone() if moment is not None and moment.tzinfo is None else moment


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
