"""Queries of `kafka-ordered` without a JVM: the readers, called as Spark calls them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql.datasource import InputPartition

from headrace.spark.ordered.options import OrderedOptions
from headrace.spark.ordered.source import JsonOffsets, OrderedReader, OrderedStreamReader
from tests.spark.ordered_topics import Place, Topics


def batch(topics: Topics, **options: Any) -> list[Place]:
    """Return the rows of a batch, task after task."""
    return Batch(topics, **options).rows()


class Batch:
    """A batch, which Spark plans once, however often it is evaluated."""

    def __init__(self, topics: Topics, **options: Any) -> None:
        parsed = OrderedOptions.parse(topics.options(**options), streaming=False)
        self._reader = OrderedReader(parsed)
        self._planned = self._reader.partitions()

    def rows(self) -> list[Place]:
        """Return the rows of an evaluation, task after task."""
        return _rows(self._reader, self._planned)


class Query:
    """A streaming query.

    :param offset: the offset in its checkpoint; None for a new query
    """

    def __init__(self, topics: Topics, offset: JsonOffsets | None = None, **options: Any) -> None:
        given = topics.options(kafka__metadata__max__age__ms=0, **options)
        self.reader = OrderedStreamReader(OrderedOptions.parse(given, streaming=True))
        self.offset = _through_json(self.reader.initialOffset()) if offset is None else offset

    def step(self, meanwhile: Callable[[], None] | None = None) -> list[Place]:
        """Run one micro-batch and return its rows, task after task.

        :param meanwhile: called after the micro-batch has been planned
        """
        end = _through_json(
            self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit())
        )
        planned = self.reader.partitions(self.offset, end)
        if meanwhile is not None:
            meanwhile()
        rows = _rows(self.reader, planned)
        self.offset = end
        return rows

    def replay(self, end: JsonOffsets) -> list[Place]:
        """Run the last micro-batch again, as a restart does."""
        return _rows(self.reader, self.reader.partitions(self.offset, end))

    def until_idle(self) -> list[Place]:
        """Run micro-batches until there is no new one; return their rows by task."""
        rows: list[Place] = []
        while True:
            before = self.offset
            rows += self.step()
            if self.offset == before:
                return sorted(rows, key=lambda place: place[1])

    def report(self) -> dict[str, Any]:
        """Return what the query's progress shows."""
        return self.reader.reportLatestOffset() or {}


def _rows(
    reader: OrderedReader | OrderedStreamReader, planned: Iterable[InputPartition]
) -> list[Place]:
    return [
        place
        for partition in planned
        for found in reader.read(partition)
        for place in zip(
            *(found.column(name).to_pylist() for name in ("topic", "partition", "offset")),
            strict=True,
        )
    ]


def _through_json(offsets: JsonOffsets) -> JsonOffsets:
    return dict(json.loads(json.dumps(offsets)))
