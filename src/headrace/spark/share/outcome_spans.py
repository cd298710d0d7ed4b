"""Outcomes of records, as runs of offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.client import Acknowledgement, AcknowledgeType
from headrace.client.share.spans import Span, normalize, subtract
from headrace.protocol.partitions import TopicPartition
from headrace.spark.errors import SourceError

from .receipt import RECEIPT_COLUMN

OUTCOMES = {
    "accept": AcknowledgeType.ACCEPT,
    "release": AcknowledgeType.RELEASE,
    "reject": AcknowledgeType.REJECT,
}
"""Outcomes of a record by their names in options and in the column ``outcome``."""

POSITION_COLUMNS = ("topic", "partition", "offset")

# An offset with several outcomes gets the first of these.
_PRECEDENCE = ("reject", "release", "accept")


class OutcomeSpan(NamedTuple):
    """The same outcome for a run of offsets.

    :param outcome: a key of :data:`OUTCOMES`, once it has been checked
    :param last_offset: inclusive
    :param receipt: text of the :class:`~.receipt.Receipt` of these records; None without one
    """

    topic: str
    partition: int
    outcome: str
    first_offset: int
    last_offset: int
    receipt: str | None = None


def spans(batch: pa.RecordBatch) -> Iterator[OutcomeSpan]:
    """Yield the outcomes of an Arrow batch as runs of offsets, without rows that have no outcome.

    :param batch: columns ``topic``, ``partition``, ``offset``, ``outcome`` and ``receipt``; without
        a column ``outcome``, all rows are accepted
    """
    if "outcome" in batch.schema.names:
        outcome = batch.column("outcome")
    else:
        outcome = pa.repeat("accept", batch.num_rows)
    positions = pa.table({name: batch.column(name) for name in POSITION_COLUMNS})
    rows = positions.append_column("outcome", outcome)
    keys = ["topic", "partition", "outcome"]
    if RECEIPT_COLUMN in batch.schema.names:
        keys.append(RECEIPT_COLUMN)
        # Not null, because rows without a receipt are kept.
        rows = rows.append_column(RECEIPT_COLUMN, batch.column(RECEIPT_COLUMN).fill_null(""))
    groups = rows.drop_null().group_by(keys).aggregate([("offset", "list")])
    for group in groups.to_pylist():
        offsets = np.unique(np.asarray(group["offset_list"], dtype=np.int64))
        breaks = np.flatnonzero(np.diff(offsets) != 1)
        first_offsets = offsets[np.r_[0, breaks + 1]].tolist()
        last_offsets = offsets[np.r_[breaks, len(offsets) - 1]].tolist()
        for first, last in zip(first_offsets, last_offsets, strict=True):
            yield OutcomeSpan(
                group["topic"],
                group["partition"],
                group["outcome"],
                first,
                last,
                group.get(RECEIPT_COLUMN) or None,
            )


def checked(outcomes: Iterable[OutcomeSpan]) -> list[OutcomeSpan]:
    """Return the outcomes as a list.

    :raises SourceError: an outcome is not one of :data:`OUTCOMES`
    """
    known = list(outcomes)
    for span in known:
        if span.outcome not in OUTCOMES:
            place = f"{span.topic}-{span.partition} offset {span.first_offset}"
            raise SourceError(
                f"outcome '{span.outcome}' of {place}: "
                f"use {', '.join(OUTCOMES)}, or null for the default"
            )
    return known


def acknowledgements(outcomes: Sequence[OutcomeSpan]) -> list[Acknowledgement]:
    """Return the acknowledgements for outcomes; an offset with several outcomes gets one.

    Reject comes before release, and release before accept.
    """
    by_partition: dict[TopicPartition, dict[str, list[Span]]] = {}
    for topic, partition, outcome, first, last, _ in outcomes:
        by_outcome = by_partition.setdefault((topic, partition), {})
        by_outcome.setdefault(outcome, []).append((first, last))
    found: list[Acknowledgement] = []
    for (topic, partition), by_outcome in by_partition.items():
        decided: list[Span] = []
        for outcome in _PRECEDENCE:
            undecided = subtract(normalize(by_outcome.get(outcome, [])), decided)
            decided = normalize([*decided, *undecided])
            found += (
                Acknowledgement(topic, partition, first, last, OUTCOMES[outcome])
                for first, last in undecided
            )
    return found
