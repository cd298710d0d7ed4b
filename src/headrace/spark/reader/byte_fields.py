"""Fields of many byte strings at once: numpy for numbers, Arrow for text and bytes.

A *place* is a position in one large run of bytes that holds all of the strings; each function takes
an array of them.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

Bytes: TypeAlias = bytes | memoryview
Numbers: TypeAlias = Any
"""A numpy array of 64-bit integers."""
Column: TypeAlias = Any
"""A ``pa.Array``."""

_MOST_VARINT_BITS = 63
_PADDING_BYTES = 16


class BadField(ValueError):
    """A field cannot be what its bytes say."""


def unsigned_varints(data: Any, places: Numbers) -> tuple[Numbers, Numbers]:
    """Kafka's unsigned varints at ``places`` of a ``uint8`` array, and the places behind them.

    :raises BadField: one is longer than ten bytes
    :raises IndexError: one runs past the end of ``data``
    """
    value = data.take(places).astype(np.int64)
    after = places + 1
    longer = np.flatnonzero(value > 0x7F)
    if len(longer):
        value[longer] &= 0x7F
        shift = 7
        while len(longer):
            if shift > _MOST_VARINT_BITS:
                raise BadField("a varint is longer than ten bytes")
            more = data.take(after[longer]).astype(np.int64)
            after[longer] += 1
            value[longer] |= (more & 0x7F) << shift
            longer = longer[more > 0x7F]
            shift += 7
    return value, after


def varints(data: Any, places: Numbers) -> tuple[Numbers, Numbers]:
    """Zigzag varints, as :func:`unsigned_varints`."""
    value, after = unsigned_varints(data, places)
    # The shift must not draw in the sign: bit 63 belongs to the number.
    return ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1), after


def gather(body: Bytes, bounds: Numbers, *lengths: Numbers) -> list[Column]:
    """Arrow's binary columns for pieces of ``body``: each piece copied once, null where its length
    is negative.

    :param bounds: a row per string: start and end of each of its pieces, ascending throughout
    :param lengths: of each piece; only the sign matters
    """
    count, width = bounds.shape
    if not count:
        return [pa.array([], pa.binary()) for _ in lengths]
    flat = np.ascontiguousarray(bounds, np.int32).reshape(-1)
    # What lies between the pieces is a piece too, so that all of the body is one array, of which to
    # take some.
    whole = pa.Array.from_buffers(
        pa.binary(), len(flat) - 1, [None, pa.py_buffer(flat), pa.py_buffer(body)]
    )
    columns = []
    for piece, length in enumerate(lengths):
        indexes, missing = np.arange(2 * piece, len(flat), width, dtype=np.int32), length < 0
        if missing.all():
            columns.append(pa.nulls(count, pa.binary()))
        else:
            columns.append(whole.take(pa.array(indexes, mask=missing if missing.any() else None)))
    return columns


def text(column: Column) -> Column:
    """Binary as strings; what is not UTF-8 as Java's clients read it."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        found = column.to_pylist()
        return pa.array(
            [None if one is None else one.decode(errors="replace") for one in found], pa.string()
        )


class Fields:
    """Reads the same fields from many strings, one field after another.

    A string that ends too early is marked in :attr:`whole`, and what is read of it from then on
    means nothing.

    :param column: a ``pa.BinaryArray`` without nulls among ``rows``
    :param rows: which of its strings to read
    :ivar whole: a boolean for each of them
    """

    def __init__(self, column: Column, rows: Numbers) -> None:
        _, offsets, values = column.buffers()
        bounds = np.frombuffer(offsets, np.int32, len(column) + 1, 4 * column.offset).astype(
            np.int64
        )
        used = b"" if values is None else memoryview(values)[: int(bounds[-1])]
        self._bytes = bytes(used) + bytes(_PADDING_BYTES)
        self._data = np.frombuffer(self._bytes, np.uint8)
        self._ends = bounds[1:][rows]
        self.at: Numbers = bounds[:-1][rows]
        self.whole: Any = np.ones(len(self.at), bool)

    def only(self, chosen: Any) -> Fields:
        """The same for some of the strings.

        :param chosen: a boolean for each
        """
        some = object.__new__(Fields)
        some._bytes, some._data = self._bytes, self._data
        some._ends, some.at, some.whole = self._ends[chosen], self.at[chosen], self.whole[chosen]
        return some

    def skip(self, size: int | Numbers) -> Numbers:
        """Pass over bytes; where they begin."""
        places = self.at
        after = places + size
        self.whole &= (after <= self._ends) & (after >= places)
        self.at = np.where(self.whole, after, 0)
        return np.where(self.whole, places, 0)

    def number(self, size: int) -> Numbers:
        """A signed big-endian integer of 1, 2, 4 or 8 bytes."""
        places = self.skip(size)
        windows = np.lib.stride_tricks.sliding_window_view(self._data, size)
        return windows[places].view(f">i{size}")[:, 0].astype(np.int64)

    def unsigned(self) -> Numbers:
        """An unsigned varint."""
        value, after = unsigned_varints(self._data, np.where(self.whole, self.at, 0))
        self.skip(after - self.at)
        return value

    def string(self, *, compact: bool = False) -> tuple[Numbers, Numbers]:
        """A nullable string: where it begins, and its length, negative for null or where there is
        none.
        """
        length = self.unsigned() - 1 if compact else self.number(2)
        start = self.skip(np.maximum(length, 0))
        return start, np.where(self.whole, length, -1)

    def ended(self) -> Any:
        """Whether each string was long enough and has nothing more."""
        return self.whole & (self.at == self._ends)

    def gather(self, *pieces: tuple[Numbers, Numbers]) -> list[Column]:
        """Binary columns of what :meth:`string` found, in the order in which it was found; null
        where it says so.
        """
        bounds: Numbers = np.empty((len(self.at), 2 * len(pieces)), np.int64)
        for index, (start, length) in enumerate(pieces):
            bounds[:, 2 * index] = np.where(length < 0, 0, start)
            bounds[:, 2 * index + 1] = np.where(length < 0, 0, start + length)
        ascending = np.maximum.accumulate(bounds.reshape(-1)).reshape(
            bounds.shape
        )  # what is null lies nowhere
        return gather(self._bytes, ascending, *(length for _, length in pieces))
