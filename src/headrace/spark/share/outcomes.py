"""Outcomes as rows: the function ``acknowledge`` and the sink of ``kafka-share``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from headrace.spark.errors import SourceError
from headrace.spark.pyspark_capabilities import ArrowStreamWriter

from .options import ShareOptions
from .outcome_server import deliver
from .outcome_spans import POSITION_COLUMNS, OutcomeSpan, checked, spans
from .receipt import RECEIPT_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_SPAN_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("outcome", pa.string()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        (RECEIPT_COLUMN, pa.string()),
    ]
)
_SPAN_COLUMNS = (
    "topic string, partition int, outcome string, first bigint, last bigint, receipt string"
)
_OPTIONAL_COLUMNS = ("outcome", RECEIPT_COLUMN)


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Numbers of records that outcomes were applied to. Records no longer held are not counted."""

    accepted: int
    released: int
    rejected: int


def acknowledge(
    batch_df: DataFrame, *, group_id: str | None = None, bootstrap_servers: str | None = None
) -> Acknowledged:
    """Acknowledge records of a micro-batch now. Call it in ``foreachBatch``, after the work.

    Records that are not in ``batch_df``, and rows whose outcome is null, follow ``outcome.default``
    when the micro-batch ends.

    :param batch_df: columns ``topic``, ``partition``, ``offset`` and ``outcome`` (``accept``,
        ``release`` or ``reject``); without a column ``outcome``, all rows are accepted. With the
        option ``includeReceipt`` of the source also its column ``receipt``
    :param group_id: needed only when queries of several share groups read the same topic in this
        application
    :param bootstrap_servers: needed only when they are on several clusters
    :returns: numbers of records; records that this application no longer holds are not counted, and
        the broker delivers them again
    :raises SourceError: a column is missing, an outcome is unknown, or there are outcomes without a
        receipt and no such query runs
    """
    _check_columns(batch_df.columns)
    given = batch_df.columns
    columns = [*POSITION_COLUMNS, *(name for name in _OPTIONAL_COLUMNS if name in given)]
    rows = batch_df.select(*columns).mapInArrow(_span_batches, _SPAN_COLUMNS).collect()
    outcomes = checked(OutcomeSpan(*row) for row in rows)
    if not outcomes:
        # An empty micro-batch needs no reader, and must not depend on one that is ending.
        return Acknowledged(0, 0, 0)
    applied = deliver(outcomes, group_id, bootstrap_servers)
    return Acknowledged(applied["accept"], applied["release"], applied["reject"])


class OutcomeWriter(ArrowStreamWriter):
    """The sink. Its rows are outcomes; they take effect when the micro-batch has been written."""

    def __init__(self, options: ShareOptions, schema: StructType) -> None:
        _check_columns(schema.fieldNames())
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Collect the outcomes of one task. Runs in an executor."""
        return OutcomeMessage(checked(span for batch in iterator for span in spans(batch)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Send the outcomes of all tasks to the reader that holds the records."""
        outcomes = [
            span
            for message in messages
            if isinstance(message, OutcomeMessage)
            for span in message.outcomes
        ]
        if outcomes:
            deliver(outcomes, self._options.group_id, self._options.kafka.bootstrap_servers)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Acknowledge nothing: the query ends, and the broker delivers the records again."""


@dataclass
class OutcomeMessage(WriterCommitMessage):
    """The outcomes of one task of the sink."""

    outcomes: list[OutcomeSpan]


def _span_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        found = list(spans(batch))
        if found:
            columns = [
                pa.array(column, field.type)
                for column, field in zip(zip(*found, strict=True), _SPAN_SCHEMA, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=_SPAN_SCHEMA)


def _check_columns(names: Iterable[str]) -> None:
    missing = [name for name in POSITION_COLUMNS if name not in set(names)]
    if missing:
        raise SourceError(
            "outcomes need the columns topic, partition, offset and outcome: "
            f"{', '.join(missing)} missing"
        )
