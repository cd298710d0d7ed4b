"""The progress of redrives in one partition of a queue, as a committed offset. Pure.

The committed offset is that of the first letter that is not done. The metadata of the commit has
the runs of letters after it that are done: a filtered redrive leaves letters for a later one.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from operator import itemgetter

from headrace.client.share.spans import Span, normalize
from headrace.protocol.primitives import read_varint, varint

MAX_METADATA_CHARS = 4000
"""The largest metadata that is committed; ``offset.metadata.max.bytes`` is 4096 by default."""

_VERSION = "redrive1:"


class InvalidMetadata(ValueError):
    """The metadata of a commit was not written by this module."""


class QueuePosition:
    """The letters of a partition that are done.

    :ivar start: the offset of the first letter that is not done
    """

    def __init__(self, start: int, done: Iterable[Span] = ()) -> None:
        self.start = start
        self._done: list[Span] = []
        self.add(done)

    @property
    def done(self) -> list[Span]:
        """The runs of offsets after :attr:`start` that are done, ascending and disjoint."""
        return list(self._done)

    def is_done(self, offset: int) -> bool:
        """Return whether the letter at an offset is done."""
        index = bisect_right(self._done, offset, key=itemgetter(0)) - 1
        return offset < self.start or (index >= 0 and offset <= self._done[index][1])

    def add(self, spans: Iterable[Span]) -> None:
        """Add runs of offsets that are done."""
        behind = [(first, last) for first, last in spans if last >= self.start]
        self._done = normalize([*self._done, *behind])
        if self._done and self._done[0][0] <= self.start:
            self.start = self._done.pop(0)[1] + 1

    def with_done(self, spans: Iterable[Span]) -> QueuePosition:
        """Return a copy with more runs of offsets that are done."""
        changed = QueuePosition(self.start, self._done)
        changed.add(spans)
        return changed

    def metadata(self) -> str:
        """Return the metadata of the commit; empty without runs."""
        if not self._done:
            return ""
        ends = [self.start, *(end for first, last in self._done for end in (first, last))]
        numbers = b"".join(varint(after - before) for before, after in pairwise(ends))
        return _VERSION + base64.urlsafe_b64encode(zlib.compress(numbers, 9)).decode()

    @classmethod
    def read(cls, offset: int, metadata: str) -> QueuePosition:
        """Return the position in a commit.

        :raises InvalidMetadata: :meth:`metadata` did not return the metadata
        """
        if not metadata:
            return cls(offset)
        if not metadata.startswith(_VERSION) or len(metadata) > MAX_METADATA_CHARS:
            raise InvalidMetadata(metadata[:100])
        numbers = []
        try:
            packed = base64.urlsafe_b64decode(metadata.removeprefix(_VERSION))
            opener = zlib.decompressobj()
            data = opener.decompress(packed, 1 << 20)
            position = 0
            while position < len(data):
                number, position = read_varint(data, position)
                numbers.append(number)
        except (binascii.Error, zlib.error, IndexError, ValueError) as error:
            raise InvalidMetadata(metadata[:100]) from error
        if not numbers or len(numbers) % 2 or any(number < 0 for number in numbers):
            raise InvalidMetadata(metadata[:100])
        spans, end = [], offset
        for skipped, length in zip(numbers[::2], numbers[1::2], strict=True):
            spans.append((end + skipped, end + skipped + length))
            end += skipped + length
        return cls(offset, spans)
