"""Records that have arrived and are not handed out yet. Pure: no I/O, no clock."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import itemgetter

from headrace.client.records import Record, UnreadableBatch, decode_lists

from .spans import Span, contains, normalize, subtract
from .types import AcquiredRange

# Faster than attrgetter().
offset_of = itemgetter(Record._fields.index("offset"))
size_of = itemgetter(Record._fields.index("size_bytes"))


class Arrived:
    """The acquired records of one partition in one answer. They are decoded when they are taken.

    :param data: record batches
    :param ranges: of this partition; there are some
    :ivar partition: topic id and number
    :ivar left: the offsets that are neither taken nor lost; after the last record those without a
        record, such as transaction markers
    """

    def __init__(self, data: bytes, ranges: Sequence[AcquiredRange]) -> None:
        self.partition = ranges[0].key
        self.left = normalize(run.span for run in ranges)
        self._lists = decode_lists(data, ranges)
        self._records: list[Record] = []
        self._has_lost = False

    def take(self, max_records: int, max_bytes: int) -> list[Record]:
        """Return the next records; none after the last.

        :param max_bytes: limit of their sizes, but the first record may be larger
        :raises UnreadableBatch: some records cannot be read; :meth:`lose` them. The next call
            returns records after them
        """
        while True:
            if not self._records:
                decoded = next(self._lists, [])
                if isinstance(decoded, UnreadableBatch):
                    raise decoded
                if not decoded:
                    return []
                self._records = decoded
            records = self._records[:max_records]
            if sum(map(size_of, records)) > max_bytes:
                fitting = bisect_right(list(accumulate(map(size_of, records))), max_bytes)
                del records[max(fitting, 1) :]
            del self._records[: len(records)]
            if self._has_lost:
                records = [record for record in records if contains(self.left, record.offset)]
            if records:
                self.left = subtract(self.left, runs(list(map(offset_of, records))))
                return records

    def lose(self, spans: Sequence[Span]) -> None:
        """Leave out records that :meth:`take` has not returned."""
        self.left = subtract(self.left, normalize(spans))
        self._has_lost = True


def runs(offsets: list[int]) -> list[Span]:
    """Return offsets as runs."""
    # Mostly they ascend without gaps.
    if offsets and offsets == list(range(offsets[0], offsets[0] + len(offsets))):
        return [(offsets[0], offsets[-1])]
    return normalize(zip(offsets, offsets, strict=True))
