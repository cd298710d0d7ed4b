"""Records that have arrived and are not handed out yet. Pure: no I/O, no clock."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from headrace.client.records import Record, UnreadableBatch, decode_lists
from headrace.protocol.partitions import TopicIdPartition

from .spans import Span, contains, normalize, subtract
from .types import AcquiredRange

SizedRecord = tuple[Record, int]
"""A record, and the size of its key and value in bytes."""


class Arrived:
    """The acquired records of one partition in one answer. They are decoded when they are taken.

    :param data: record batches
    :param ranges: of this partition; there are some
    :ivar partition: topic id and number
    :ivar left: the offsets that are neither taken nor lost; after the last record those without a
        record, such as transaction markers
    """

    def __init__(self, data: bytes, ranges: Sequence[AcquiredRange]) -> None:
        topic_id = ranges[0].topic_id
        assert topic_id is not None
        self.partition: TopicIdPartition = topic_id, ranges[0].partition
        self.left = normalize((run.first_offset, run.last_offset) for run in ranges)
        self._data = data
        self._ranges = ranges
        self._lists = decode_lists(data, ranges)
        self._records: list[Record] = []
        self._taken = 0
        self._has_lost = False

    def take(self, max_records: int, max_bytes: int) -> list[SizedRecord]:
        """Return the next records and the sizes of their keys and values; none after the last.

        :param max_bytes: limit of the sizes, but the first record may be larger
        :raises UnreadableBatch: some records cannot be read; :meth:`lose` them. The next call
            returns records after them
        """
        while True:
            if self._taken == len(self._records):
                try:
                    self._records, self._taken = next(self._lists, []), 0
                except UnreadableBatch as error:
                    self._records, self._taken = [], 0
                    self._lists = decode_lists(self._data, self._after(error.last_offset))
                    raise
                if not self._records:
                    return []
            records = self._records[self._taken : self._taken + max_records]
            sizes = [len(record[3] or b"") + len(record[4] or b"") for record in records]
            if sum(sizes) > max_bytes:
                fitting = bisect_right(list(accumulate(sizes)), max_bytes)
                records = records[: max(fitting, 1)]
            self._taken += len(records)
            taken = list(zip(records, sizes, strict=False))
            if self._has_lost:
                taken = [sized for sized in taken if self._is_left(sized[0].offset)]
            if taken:
                self.left = subtract(self.left, runs([record.offset for record, _ in taken]))
                return taken

    def lose(self, spans: Sequence[Span]) -> None:
        """Leave out records that :meth:`take` has not returned."""
        self.left = subtract(self.left, normalize(spans))
        self._has_lost = True

    def _after(self, offset: int) -> list[AcquiredRange]:
        return [
            replace(run, first_offset=max(run.first_offset, offset + 1))
            for run in self._ranges
            if run.last_offset > offset
        ]

    def _is_left(self, offset: int) -> bool:
        return contains(self.left, offset)


def runs(offsets: Sequence[int]) -> list[Span]:
    """Return ascending offsets as runs."""
    if offsets and offsets[-1] - offsets[0] == len(offsets) - 1:
        return [(offsets[0], offsets[-1])]
    return normalize((offset, offset) for offset in offsets)
