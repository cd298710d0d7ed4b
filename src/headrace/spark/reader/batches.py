"""Record batches in fetched bytes: positions, headers, and the choice of those to decode."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from headrace.client.fetch import Unread
from headrace.protocol.record_batch import (
    CONTROL_BIT,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CorruptBatch,
    header_at,
)

Bytes: TypeAlias = bytes | memoryview
Numbers: TypeAlias = Any
"""A numpy array of 64-bit integers."""

# Python's codes of the types are numpy's, too.
_FIELDS = list(zip(BatchHeader._fields, HEADER.format[1:], strict=True))
_HEAD = np.dtype(_FIELDS).newbyteorder(">")
_LENGTH = struct.Struct(">i")
_LENGTH_PLACE = 8
_MAGIC = 2


@dataclass(frozen=True, slots=True)
class Batches:
    """Whole record batches of one partition, one behind the other in ``data``.

    :param positions: the position of each batch in ``data``
    :param heads: their headers, a structured numpy array with the fields of
        :class:`~headrace.protocol.record_batch.BatchHeader`
    """

    data: Bytes
    positions: Sequence[int]
    heads: Any

    def __len__(self) -> int:
        return len(self.positions)

    @classmethod
    def find(cls, data: Bytes) -> Batches:
        """Find the whole batches in ``data``. A batch that a fetch cut off at its end is left out.

        :raises CorruptBatch: the bytes are no record batches of magic 2
        """
        positions = _positions(data)
        if not positions:
            return cls(data, positions, np.empty(0, _HEAD))
        windows = np.lib.stride_tricks.sliding_window_view(
            np.frombuffer(data, np.uint8), HEADER_BYTES
        )
        heads = windows[positions].view(_HEAD)[:, 0]
        if (heads["magic"] != _MAGIC).any():
            others = sorted(set(heads["magic"].tolist()) - {_MAGIC})
            raise CorruptBatch(f"batches of magic {others}: only 2 is supported")
        return cls(data, positions, heads)

    @property
    def next_offset(self) -> int:
        """The offset after the last batch. There must be a batch."""
        return int(self.heads[-1]["base_offset"]) + int(self.heads[-1]["last_offset_delta"]) + 1

    def batch(self, index: int) -> memoryview:
        """Return the bytes of one batch."""
        start = self.positions[index]
        size_bytes = int(self.heads[index]["batch_length"]) + LENGTH_OVERHEAD
        return memoryview(self.data)[start : start + size_bytes]

    def with_data(self, aborted: Sequence[tuple[int, int]] = ()) -> Any:
        """Choose the batches with data for consumers, without markers and aborted transactions.

        :param aborted: ``(producer id, first offset)`` of the aborted transactions that overlap
            these batches, as a read_committed fetch returns them; empty for read_uncommitted
        :returns: a boolean for each batch
        """
        attributes = self.heads["attributes"]
        is_visible = (attributes & CONTROL_BIT) == 0
        if aborted:
            unread = Unread(aborted)
            for index in np.flatnonzero(attributes & TRANSACTIONAL_BIT).tolist():
                is_visible[index] = not unread.has(header_at(self.batch(index)))
        return is_visible


def _positions(data: Bytes) -> list[int]:
    positions = []
    position = 0
    last_position = len(data) - HEADER_BYTES
    length_at = _LENGTH.unpack_from
    while position <= last_position:
        length = length_at(data, position + _LENGTH_PLACE)[0]
        if length < HEADER_BYTES - LENGTH_OVERHEAD:
            raise CorruptBatch(f"batch length {length} at position {position}")
        following = position + length + LENGTH_OVERHEAD
        if following > len(data):
            break
        positions.append(position)
        position = following
    return positions


@dataclass(frozen=True, slots=True)
class WantedOffsets:
    """Ascending, disjoint ranges of offsets: ``starts`` inclusive, ``ends`` exclusive."""

    starts: Numbers
    ends: Numbers

    @classmethod
    def of(cls, ranges: Sequence[tuple[int, int]]) -> WantedOffsets:
        """Build from ``(start, end)`` pairs."""
        bounds = np.array(ranges, np.int64).reshape(-1, 2)
        return cls(np.ascontiguousarray(bounds[:, 0]), np.ascontiguousarray(bounds[:, 1]))

    def not_before(self, offset: int) -> WantedOffsets:
        """Return the ranges without the offsets before ``offset``."""
        return WantedOffsets(np.maximum(self.starts, offset), self.ends)

    def overlap(self, first: Numbers, last: Numbers) -> Any:
        """Test spans of offsets, ``first`` to ``last`` inclusive, for wanted offsets.

        :returns: a boolean for each span. False is certain; True is certain for single offsets,
            and may be wrong for longer spans.
        """
        index = np.searchsorted(self.ends, first, side="right")
        start = self.starts[np.minimum(index, len(self.starts) - 1)]
        return (index < len(self.starts)) & (start <= last)
