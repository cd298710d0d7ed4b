"""Outcomes of records as rows: the function ``acknowledge`` and the sink of ``kafka-share``.

The column ``receipt`` of a row is the address of the reader that holds its record
(:mod:`headrace.spark.driver_server`). Rows become runs of offsets in Spark's tasks; the driver
sends the runs to the readers. ``docs/decisions/0018-receipts.md`` has the reasons.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from headrace.client import Acknowledgement, AcknowledgeType
from headrace.client.share.spans import Span, normalize, subtract
from headrace.client.share.types import parts
from headrace.log_lines import get_logger, printable
from headrace.protocol.partitions import TopicPartition
from headrace.spark.driver_server import Address, exchange
from headrace.spark.errors import SourceError
from headrace.spark.pyspark_capabilities import ArrowStreamWriter, arrow_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_log = get_logger(__name__)

OUTCOMES = {
    "accept": AcknowledgeType.ACCEPT,
    "release": AcknowledgeType.RELEASE,
    "reject": AcknowledgeType.REJECT,
}
"""Outcomes of a record by their names in options and in the column ``outcome``."""

OUTCOME_COUNTS = {
    AcknowledgeType.ACCEPT: "accepted",
    AcknowledgeType.RELEASE: "released",
    AcknowledgeType.REJECT: "rejected",
}
"""The names of the numbers of records with an outcome, as in :class:`Acknowledged`."""

RECEIPT_COLUMN = "receipt"
_POSITION_COLUMNS = ("topic", "partition", "offset")
NEEDED_COLUMNS = (*_POSITION_COLUMNS, RECEIPT_COLUMN)
_DETAILS: Mapping[str, Any] = {"outcome": "accept", "reason": "", "delay": 0.0}
"""Columns of outcomes that may be missing, and their values then. A null outcome is none."""
_RUN_COLUMNS = (
    "receipt string, topic string, partition bigint, first bigint, last bigint, outcome string, "
    "reason string, delay double"
)
MAX_REASON_CHARS = 1000
_MAX_DELAY_S = 86_400.0

# An offset with several outcomes gets the first of these.
_PRECEDENCE = (AcknowledgeType.REJECT, AcknowledgeType.RELEASE, AcknowledgeType.ACCEPT)

_ATTEMPTS = 2
"""Number of attempts to ask a reader that closes the connection without an answer. A reader that
has ended refuses the second connection."""

ByReceipt = dict[str, list[Acknowledgement]]
"""The text of an address → outcomes of records that the reader at this address holds."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Numbers of records that outcomes were applied to. Records no longer held are not counted."""

    accepted: int
    released: int
    rejected: int


def acknowledge(batch_df: DataFrame) -> Acknowledged:
    """Acknowledge records of a micro-batch now. Call it in ``foreachBatch``, after the work.

    Records that are not in ``batch_df``, and rows whose outcome is null, follow ``defaultOutcome``
    when the micro-batch ends.

    :param batch_df: the source's columns ``topic``, ``partition``, ``offset`` and ``receipt``, and
        ``outcome`` (``accept``, ``release`` or ``reject``); without a column ``outcome``, all rows
        are accepted. A column ``reason`` has texts for the dead letters of rejected records,
        ``delay`` seconds until released ones are delivered again; both are headrace's broker's
    :returns: numbers of records; records that their query no longer holds are not counted, and the
        broker delivers them again
    :raises SourceError: a column is missing, an outcome is unknown, a delay is none, a row has no
        receipt, or a query cannot be reached
    """
    _check_columns(batch_df.columns)
    columns = [name for name in (*NEEDED_COLUMNS, *_DETAILS) if name in batch_df.columns]
    runs = batch_df.select(*columns).mapInArrow(_run_batches, _RUN_COLUMNS).collect()
    return deliver(checked(runs))


class OutcomeWriter(ArrowStreamWriter):
    """The sink. Its rows are outcomes; they take effect when the micro-batch has been written."""

    def __init__(self, schema: StructType) -> None:
        _check_columns(schema.fieldNames())
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Collect the outcomes of one task. Runs in an executor."""
        batches = arrow_batches(iterator, self._schema)
        return OutcomeMessage(checked(run for batch in batches for run in outcome_runs(batch)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Send the outcomes of all tasks to the readers that hold the records."""
        outcomes: ByReceipt = {}
        for message in messages:
            if isinstance(message, OutcomeMessage):
                for receipt, runs in message.outcomes.items():
                    outcomes.setdefault(receipt, []).extend(runs)
        deliver(outcomes)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Acknowledge nothing: the query ends, and the broker delivers the records again."""


@dataclass
class OutcomeMessage(WriterCommitMessage):
    """The outcomes of one task of the sink."""

    outcomes: ByReceipt


def _check_columns(names: Iterable[str]) -> None:
    missing = [name for name in NEEDED_COLUMNS if name not in set(names)]
    if missing:
        raise SourceError(
            "outcomes need the columns topic, partition, offset and receipt of kafka-share, and "
            f"outcome: {', '.join(missing)} missing"
        )


# -- rows as runs of offsets


def _run_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        columns = [pa.array(column) for column in zip(*outcome_runs(batch), strict=True)]
        if columns:
            yield pa.RecordBatch.from_arrays(columns, names=_RUN_COLUMNS.split()[::2])


def outcome_runs(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Yield the outcomes of an Arrow batch, without rows that have none, as rows of
    :data:`_RUN_COLUMNS`. The last offset is inclusive; the receipt is empty for rows without one.

    :param batch: columns ``topic``, ``partition``, ``offset``, ``receipt`` and, perhaps,
        ``outcome``, ``reason`` and ``delay``
    """
    columns = {name: batch.column(name) for name in _POSITION_COLUMNS}
    columns[RECEIPT_COLUMN] = batch.column(RECEIPT_COLUMN).cast(pa.string()).fill_null("")
    for name, default in _DETAILS.items():
        column = pa.repeat(default, batch.num_rows)
        if name in batch.schema.names:
            column = batch.column(name).cast(column.type)
        columns[name] = column if name == "outcome" else column.fill_null(default)
    rows = pa.table(columns)
    keys = [RECEIPT_COLUMN, "topic", "partition", *_DETAILS]
    for group in rows.drop_null().group_by(keys).aggregate([("offset", "list")]).to_pylist():
        offsets = np.unique(np.asarray(group.pop("offset_list"), dtype=np.int64))
        breaks = np.flatnonzero(np.diff(offsets) != 1)
        first_offsets = offsets[np.r_[0, breaks + 1]].tolist()
        last_offsets = offsets[np.r_[breaks, len(offsets) - 1]].tolist()
        receipt, topic, partition, *details = (group[name] for name in keys)
        for first, last in zip(first_offsets, last_offsets, strict=True):
            yield receipt, topic, partition, first, last, *details


def checked(runs: Iterable[Sequence[Any]]) -> ByReceipt:
    """Return rows of :func:`outcome_runs` as outcomes.

    :raises SourceError: an outcome is not one of :data:`OUTCOMES`, has no receipt, or a delay that
        is none
    """
    outcomes: ByReceipt = {}
    for receipt, topic, partition, first, last, outcome, reason, delay_s in runs:
        if outcome not in OUTCOMES:
            raise SourceError(
                f"outcome '{outcome}' of {topic}-{partition} offset {first}: "
                f"use {', '.join(OUTCOMES)}, or null for the default"
            )
        if not receipt:
            raise SourceError(
                f"the outcome of {topic}-{partition} offset {first} has no receipt: keep the "
                f"column {RECEIPT_COLUMN} of its row, or let the outcome be null"
            )
        if not 0 <= delay_s <= _MAX_DELAY_S:
            raise SourceError(
                f"delay {delay_s} of {topic}-{partition} offset {first}: use seconds, from 0 to "
                f"{_MAX_DELAY_S:.0f}"
            )
        run = Acknowledgement(
            topic,
            partition,
            first,
            last,
            OUTCOMES[outcome],
            reason=printable(reason, MAX_REASON_CHARS) if outcome == "reject" else "",
            delay_ms=math.ceil(delay_s * 1000) if outcome == "release" else 0,
        )
        outcomes.setdefault(receipt, []).append(run)
    return outcomes


def one_for_each_offset(outcomes: Iterable[Acknowledgement]) -> list[Acknowledgement]:
    """Return outcomes of which an offset has one only.

    Reject comes before release, and release before accept.
    """
    alike: dict[tuple[Any, ...], list[Acknowledgement]] = {}
    for outcome in sorted(outcomes, key=lambda outcome: _PRECEDENCE.index(outcome.type)):
        key = outcome.type, outcome.topic, outcome.partition, outcome.reason, outcome.delay_ms
        alike.setdefault(key, []).append(outcome)
    decided: dict[TopicPartition, list[Span]] = {}
    disjoint: list[Acknowledgement] = []
    for _, of_type in groupby(alike.values(), lambda same: same[0].type):
        before = {partition: normalize(spans) for partition, spans in decided.items()}
        for same in of_type:
            partition = same[0].topic, same[0].partition
            undecided = subtract(
                normalize(outcome.span for outcome in same), before.get(partition, ())
            )
            decided.setdefault(partition, []).extend(undecided)
            disjoint += parts(same[0], undecided)
    return disjoint


# -- delivery to the readers


def requested(body: Iterable[Sequence[Any]]) -> list[Acknowledgement]:
    """Return the outcomes of a request to a reader's server."""
    return [
        Acknowledgement(
            topic, partition, first, last, AcknowledgeType(kind), None, reason, delay_ms
        )
        for topic, partition, first, last, kind, reason, delay_ms in body
    ]


def deliver(outcomes: Mapping[str, Sequence[Acknowledgement]]) -> Acknowledged:
    """Send outcomes to the readers that hold the records, until the broker has applied them.

    :raises SourceError: a reader cannot be reached, or could not acknowledge
    """
    counts = Counter(accepted=0, released=0, rejected=0)
    for receipt, of_reader in outcomes.items():
        counts.update(_deliver(receipt, of_reader))
    return Acknowledged(**counts)


def _deliver(receipt: str, outcomes: Sequence[Acknowledgement]) -> dict[str, int]:
    """Return the numbers of records that a reader answers, by outcome; none if it has ended.

    Rows may outlive their reader, in a query's state: they must not stop the query whenever it
    starts again. A reader that ends while it is asked may have applied the outcomes. They are not
    counted then.
    """
    try:
        address = Address.parse(receipt)
    except ValueError:
        raise SourceError(
            f"column {RECEIPT_COLUMN} has '{receipt}', which is no receipt of kafka-share: do not "
            "change this column"
        ) from None
    body = [(o.topic, o.partition, *o.span, int(o.type), o.reason, o.delay_ms) for o in outcomes]
    for _ in range(_ATTEMPTS):
        try:
            answered = exchange(address, body)
        except (ConnectionRefusedError, FileNotFoundError):
            _log.warning(
                "outcomes of %s-%d from offset %d on are not applied: the query that gave their "
                "receipts has ended, and the broker delivers the records again",
                outcomes[0].topic,
                outcomes[0].partition,
                outcomes[0].first_offset,
            )
            return {}
        except ConnectionError:
            continue
        except OSError as error:
            raise SourceError(
                f"the query that holds these records cannot be reached at {address.place}: {error}"
            ) from None
        if answered:
            break
    else:
        raise SourceError(
            f"the process at {address.place} closes connections without an answer: it is not the "
            "query that holds these records: start the query again"
        )
    answer = json.loads(answered)
    if "error" in answer:
        raise SourceError(
            f"the query that holds these records could not acknowledge: {answer['error']}"
        )
    counts: dict[str, int] = answer["counts"]
    return counts
