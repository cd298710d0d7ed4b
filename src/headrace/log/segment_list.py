"""The segments of a log, oldest first: search by offset."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from headrace.log.segment import Segment

POSITIONS_KEPT = 64
"""The number of readers of a log whose next position is remembered, to save an index search."""


_BASE_OFFSET = attrgetter("base_offset")


def index_of(segments: Sequence[Segment], offset: int) -> int:
    """Return the index of the segment that has an offset; 0 if it is before all of them."""
    return max(0, bisect_right(segments, offset, key=_BASE_OFFSET) - 1)


class SegmentList(list[Segment]):
    """The segments of a log, ordered by their base offsets. Only the last one, the active segment,
    is appended to. Only the methods below change the list: they forget the positions of readers.
    """

    __slots__ = ("_positions",)

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        super().__init__(segments)
        self._positions: dict[int, tuple[Segment, int]] = {}

    @property
    def active(self) -> Segment | None:
        """The segment that is appended to, None if there is none."""
        return self[-1] if self else None

    def add(self, segment: Segment) -> None:
        """Add a new active segment."""
        self.append(segment)
        self._positions.clear()

    def retire_oldest(self) -> Callable[[], None]:
        """Remove the oldest segment. Return a function that deletes its files, see
        :meth:`~headrace.log.segment.Segment.retire`.

        :raises OSError: when the files cannot be renamed
        """
        self._positions.clear()
        # A thread that forces the segment to disk takes a missing file of the list for a loss.
        segment = self.pop(0)
        try:
            return segment.retire()
        except OSError:
            self.insert(0, segment)
            raise

    def find_run(self, segments: list[Segment]) -> int | None:
        """Return the index of the first of these segments if they are still adjacent in the list;
        else None.
        """
        number = index_of(self, segments[0].base_offset) if segments else 0
        return number if self[number : number + len(segments)] == segments else None

    def replace(self, number: int, count: int, segments: Sequence[Segment]) -> None:
        """Replace ``count`` segments, from index ``number`` on, by others for the same offsets."""
        self._positions.clear()
        self[number : number + count] = segments

    def find(self, offset: int) -> tuple[Segment, int]:
        """Return the segment with ``offset``, which must be in the log, and the position of the
        batch that has it.
        """
        remembered = self._positions.get(offset)
        if remembered is not None:
            return remembered
        number = index_of(self, offset)
        segment = self[number]
        position = segment.locate(offset)
        while position >= segment.size_bytes and number + 1 < len(self):
            number += 1  # compaction has removed the end of a segment, or all of it
            segment, position = self[number], 0
        return segment, position

    def remember(self, segment: Segment, position: int, log_end_offset: int) -> int:
        """Remember where the batch after those just read begins: their reader asks for it next.

        :return: the offset after those just read, or a later one in a gap
        """
        if position < segment.size_bytes:
            following = int.from_bytes(segment.read(position, 8), "big")
        elif segment is self[-1]:
            following = log_end_offset
        else:
            return self[index_of(self, segment.base_offset) + 1].base_offset
        if len(self._positions) >= POSITIONS_KEPT:
            del self._positions[next(iter(self._positions))]
        self._positions[following] = (segment, position)
        return following
