"""State of fetching one topic partition: ranges that are left, and the sizes to ask for."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.protocol.partitions import TopicPartition

from .batches import Batches

_SMALLEST_PIECE_BYTES = 64 * 1024
_LARGEST_PIECE_BYTES = 4 * 1024 * 1024
_READ_THROUGH_RECORDS = 500
"""Gaps of up to this many records between two ranges are fetched and dropped: cheaper than a
request of their own for each range."""
_GUESSED_RECORD_BYTES = 1100
"""Assumed size of a record until the first answer shows the real one."""
_SPARE = 1.25
"""Factor over the expected size of a range, so that one answer mostly holds all of it."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Fetched record batches of one topic partition.

    :param start: the offset that was asked for; the first batch may begin before it
    :param aborted: ``(producer id, first offset)`` of the aborted transactions among the batches,
        with read_committed
    """

    key: TopicPartition
    start: int
    batches: Batches
    aborted: Sequence[tuple[int, int]]


class PartitionFetch:
    """Progress of fetching the ranges of one topic partition.

    :param ranges: ascending, disjoint ``(start, end)`` pairs, at least one
    :ivar offset: the next offset to fetch
    :ivar leader: node id; None while unknown
    :ivar is_asked: True while a request for the partition is in flight
    :ivar no_data_since_s: loop time since which requests have brought nothing
    :ivar absent_since_s: loop time since which brokers have said that the partition, or the offset,
        does not exist
    """

    def __init__(self, key: TopicPartition, ranges: Sequence[tuple[int, int]]) -> None:
        self.key = key
        self.offset = ranges[0][0]
        self.leader: int | None = None
        self.is_asked = False
        self.no_data_since_s: float | None = None
        self.absent_since_s: float | None = None
        self._ranges = deque(ranges)
        self._record_bytes: float = _GUESSED_RECORD_BYTES

    @property
    def name(self) -> str:
        """Topic and partition, as in ``flights-0``."""
        return f"{self.key[0]}-{self.key[1]}"

    @property
    def is_done(self) -> bool:
        """True when nothing is left to fetch."""
        return not self._ranges

    @property
    def end(self) -> int:
        """The end of the last range, exclusive."""
        return self._ranges[-1][1]

    def advance_to(self, offset: int) -> None:
        """Drop what lies before ``offset``."""
        while self._ranges and self._ranges[0][1] <= offset:
            self._ranges.popleft()
        if self._ranges:
            self.offset = max(offset, self._ranges[0][0])

    def advance_over(self, batches: Batches) -> None:
        """Continue after batches that have been fetched."""
        self.no_data_since_s = self.absent_since_s = None
        offsets = batches.next_offset - int(batches.heads[0]["base_offset"])
        self._record_bytes = len(batches.data) / max(1, offsets)
        self.advance_to(batches.next_offset)

    def request_bytes(self, share_bytes: int) -> int:
        """Return the number of bytes to ask for.

        :param share_bytes: this partition's share of the buffer
        """
        most = min(max(share_bytes, _SMALLEST_PIECE_BYTES), _LARGEST_PIECE_BYTES)
        end = self.offset
        needed = 0.0
        for range_start, range_end in self._ranges:
            if needed >= most or range_start > end + _READ_THROUGH_RECORDS:
                break
            end = range_end
            needed = (end - self.offset) * self._record_bytes * _SPARE
        return int(min(max(needed, _SMALLEST_PIECE_BYTES), most))
