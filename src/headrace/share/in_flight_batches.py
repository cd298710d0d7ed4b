"""In-flight batches: records of a share-partition that were acquired together.

They are used by bad-record isolation, and to choose between error messages.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable


class InFlightBatches:
    """The offsets up to ``end_offset`` (exclusive), divided into contiguous batches."""

    __slots__ = ("_firsts", "end_offset")

    def __init__(self, end_offset: int) -> None:
        self.end_offset = end_offset
        # First offset of each batch; it ends where the next begins. The first may begin below the
        # start offset.
        self._firsts: list[int] = []

    def __len__(self) -> int:
        return len(self._firsts)

    def add(self, firsts: Iterable[int], end_offset: int) -> None:
        """Add batches that begin at ``firsts``, the last of them up to the new ``end_offset``."""
        self._firsts += firsts
        self.end_offset = end_offset

    def bounds(self, offset: int) -> tuple[int, int]:
        """Return the first and last offset of the batch that contains ``offset``."""
        i = bisect_right(self._firsts, offset)
        return self._firsts[i - 1], (
            self._firsts[i] if i < len(self._firsts) else self.end_offset
        ) - 1

    def drop_below(self, offset: int) -> None:
        """Remove batches that end before ``offset``."""
        if offset >= self.end_offset:
            self._firsts.clear()
            self.end_offset = offset
        else:
            del self._firsts[: bisect_right(self._firsts, offset) - 1]
