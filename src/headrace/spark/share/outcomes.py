"""Outcomes as rows: ``topic, partition, offset, outcome`` with accept / release / reject."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from headrace.spark.option_parsing import SourceError

from .options import OUTCOMES, ShareOptions
from .report_server import OutcomeSpan, deliver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_POSITION = ("topic", "partition", "offset")
_SPANS = "topic string, partition int, outcome string, first bigint, last bigint"


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """How many records each outcome was applied to. Records that are not held any more are not
    counted.
    """

    accepted: int
    released: int
    rejected: int


def acknowledge(
    batch_df: DataFrame, *, group_id: str | None = None, bootstrap_servers: str | None = None
) -> Acknowledged:
    """Tell the broker now what became of a micro-batch's records: call it in ``foreachBatch``,
    after the work is done.

    What it leaves out, and rows whose outcome is null, follow ``outcome.default`` when the batch
    ends.

    :param batch_df: columns ``topic, partition, offset`` and ``outcome`` (accept / release /
        reject); without a column ``outcome`` all its rows are accepted
    :param group_id: needed only when queries of several share groups work on the same topic in this
        application
    :returns: what was applied; what this application does not hold any more, the broker delivers
        again
    :raises SourceError: a column is missing, an outcome is none of the three, or no such query runs
    """
    _check_columns(batch_df.columns)
    has_outcome = "outcome" in batch_df.columns
    columns = [*_POSITION, *(["outcome"] if has_outcome else [])]
    rows = batch_df.select(*columns).mapInArrow(_span_batches, _SPANS).collect()
    return _acknowledged(deliver(checked(map(tuple, rows)), group_id, bootstrap_servers))


def spans(batch: pa.RecordBatch) -> Iterator[OutcomeSpan]:
    """The rows of one Arrow batch as runs of offsets; rows without an outcome are left out."""
    table = pa.table({name: batch.column(name) for name in _POSITION})
    outcome = (
        batch.column("outcome")
        if "outcome" in batch.schema.names
        else pa.repeat("accept", batch.num_rows)
    )
    table = table.append_column("outcome", outcome).drop_null()
    for group in (
        table.group_by(["topic", "partition", "outcome"])
        .aggregate([("offset", "list")])
        .to_pylist()
    ):
        offsets = np.unique(np.asarray(group["offset_list"], dtype=np.int64))
        breaks = np.flatnonzero(np.diff(offsets) != 1)
        firsts, lasts = offsets[np.r_[0, breaks + 1]], offsets[np.r_[breaks, len(offsets) - 1]]
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
            yield group["topic"], group["partition"], group["outcome"], first, last


def checked(found: Iterable[OutcomeSpan]) -> list[OutcomeSpan]:
    """The same, with every outcome one of the three.

    :raises SourceError: it is not
    """
    outcomes = list(found)
    for topic, partition, outcome, first, _ in outcomes:
        if outcome not in OUTCOMES:
            where = f"outcome '{outcome}' of {topic}-{partition} offset {first}"
            raise SourceError(f"{where}: say {', '.join(OUTCOMES)}, or null for the default")
    return outcomes


class OutcomeWriter(DataSourceStreamArrowWriter):
    """The sink: its rows are outcomes, applied when the micro-batch has been written whole."""

    def __init__(self, options: ShareOptions, schema: StructType) -> None:
        _check_columns(schema.fieldNames())
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One task's rows, as runs of offsets."""
        return OutcomeMessage(checked(span for batch in iterator for span in spans(batch)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks have written: tell the reader that holds the records."""
        found = [
            span
            for message in messages
            if isinstance(message, OutcomeMessage)
            for span in message.outcomes
        ]
        if found:
            deliver(found, self._options.group_id, self._options.kafka.bootstrap_servers)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """The batch failed: say nothing. The query ends, and the broker delivers the records
        again."""


@dataclass
class OutcomeMessage(WriterCommitMessage):
    """What one task of the sink reports."""

    outcomes: list[OutcomeSpan]


def _span_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        found = list(spans(batch))
        if found:
            names = ("topic", "partition", "outcome", "first", "last")
            kinds = (pa.string(), pa.int32(), pa.string(), pa.int64(), pa.int64())
            columns: list[Any] = [
                pa.array(column, type=kind)
                for column, kind in zip(zip(*found, strict=True), kinds, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, names=names)


def _check_columns(names: Iterable[str]) -> None:
    missing = [name for name in _POSITION if name not in set(names)]
    if missing:
        raise SourceError(
            f"outcomes need the columns topic, partition, offset and outcome: "
            f"{', '.join(missing)} missing"
        )


def _acknowledged(applied: dict[str, int]) -> Acknowledged:
    return Acknowledged(
        applied.get("accept", 0), applied.get("release", 0), applied.get("reject", 0)
    )
