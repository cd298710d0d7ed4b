"""Fields of many byte strings at once: numpy for numbers, Arrow for text and bytes.

All strings lie in one run of bytes. A *place* is a position in that run; the functions work on
arrays of places.
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
"""More than the longest varint: reading one near the end of the last string stays inside."""


def _unsigned_varints(data: Any, places: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Return Kafka's unsigned varints at ``places``, the places behind them, and the indexes of
    varints longer than ten bytes.

    :raises IndexError: a varint runs past the end of ``data``
    """
    values = data.take(places).astype(np.int64)
    after = places + 1
    unfinished = np.flatnonzero(values > 0x7F)
    if len(unfinished):
        values[unfinished] &= 0x7F
        shift = 7
        while len(unfinished) and shift <= _MOST_VARINT_BITS:
            following = data.take(after[unfinished]).astype(np.int64)
            after[unfinished] += 1
            values[unfinished] |= (following & 0x7F) << shift
            unfinished = unfinished[following > 0x7F]
            shift += 7
    return values, after, unfinished


def varints(data: Any, places: Numbers) -> tuple[Numbers, Numbers]:
    """Return zigzag varints at ``places`` and the places behind them.

    :param data: a ``uint8`` array
    :raises ValueError: a varint is longer than ten bytes
    :raises IndexError: a varint runs past the end of ``data``
    """
    values, after, too_long = _unsigned_varints(data, places)
    if len(too_long):
        raise ValueError("a varint is longer than ten bytes")
    # The shift must not extend the sign: bit 63 belongs to the number.
    return ((values >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(values & 1), after


def gather(body: Bytes, bounds: Numbers, *lengths: Numbers) -> list[Column]:
    """Copy pieces of ``body`` into binary Arrow columns, one for each of ``lengths``.

    :param bounds: a row per string: start and end of each of its pieces, ascending throughout
    :param lengths: the length of each piece, negative for null; only the sign matters
    """
    count, width = bounds.shape
    if not count:
        return [pa.array([], pa.binary()) for _ in lengths]
    flat = np.ascontiguousarray(bounds, np.int32).reshape(-1)
    # The bytes between the pieces become elements too, so that one array covers all of the body and
    # `take` copies the wanted elements.
    whole = pa.Array.from_buffers(
        pa.binary(), len(flat) - 1, [None, pa.py_buffer(flat), pa.py_buffer(body)]
    )
    columns = []
    for piece, length in enumerate(lengths):
        is_null = length < 0
        if is_null.all():
            columns.append(pa.nulls(count, pa.binary()))
            continue
        indexes = np.arange(2 * piece, len(flat), width, dtype=np.int32)
        mask = is_null if is_null.any() else None
        columns.append(whole.take(pa.array(indexes, mask=mask)))
    return columns


def text(column: Column) -> Column:
    """Return a binary column as strings. Bytes that are not UTF-8 become U+FFFD, as in Java."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        values = column.to_pylist()
        return pa.array(
            [None if value is None else value.decode(errors="replace") for value in values],
            pa.string(),
        )


class Fields:
    """A reader of the same fields from many strings, one field after the other.

    A string that ends too early, or has an invalid field, is marked in :attr:`whole`. Values that
    are read from it afterwards have no meaning.

    :param column: a ``pa.BinaryArray`` without nulls among ``rows``
    :param rows: indexes of the strings to read
    :ivar whole: a boolean for each string
    """

    def __init__(self, column: Column, rows: Numbers) -> None:
        _, offsets, values = column.buffers()
        bounds = np.frombuffer(offsets, np.int32, len(column) + 1, 4 * column.offset)
        bounds = bounds.astype(np.int64)
        used = b"" if values is None else memoryview(values)[: int(bounds[-1])]
        self._bytes = bytes(used) + bytes(_PADDING_BYTES)
        self._data = np.frombuffer(self._bytes, np.uint8)
        self._ends = bounds[1:][rows]
        self._places: Numbers = bounds[:-1][rows]
        self.whole: Any = np.ones(len(self._places), bool)

    def only(self, chosen: Any) -> Fields:
        """Return a reader of some of the strings that continues where this one is.

        :param chosen: a boolean for each string
        """
        some = object.__new__(Fields)
        some._bytes = self._bytes
        some._data = self._data
        some._ends = self._ends[chosen]
        some._places = self._places[chosen]
        some.whole = self.whole[chosen]
        return some

    def skip(self, size: int | Numbers) -> Numbers:
        """Skip ``size`` bytes and return the places where they begin."""
        places = self._places
        after = places + size
        self.whole &= (after <= self._ends) & (after >= places)
        self._places = np.where(self.whole, after, 0)
        return np.where(self.whole, places, 0)

    def number(self, size: int) -> Numbers:
        """Read a signed big-endian integer of 1, 2, 4 or 8 bytes."""
        places = self.skip(size)
        windows = np.lib.stride_tricks.sliding_window_view(self._data, size)
        return windows[places].view(f">i{size}")[:, 0].astype(np.int64)

    def unsigned(self) -> Numbers:
        """Read an unsigned varint."""
        places = np.where(self.whole, self._places, 0)
        values, after, too_long = _unsigned_varints(self._data, places)
        self.whole[too_long] = False
        self.skip(after - self._places)
        return values

    def string(self, *, compact: bool = False) -> tuple[Numbers, Numbers]:
        """Read a nullable string; return its place and its length.

        The length is negative where the string is null or cannot be read.
        """
        length = self.unsigned() - 1 if compact else self.number(2)
        start = self.skip(np.maximum(length, 0))
        return start, np.where(self.whole, length, -1)

    def ended(self) -> Any:
        """Return a boolean for each string: everything was read, and nothing is left."""
        return self.whole & (self._places == self._ends)

    def gather(self, *pieces: tuple[Numbers, Numbers]) -> list[Column]:
        """Return binary columns of strings that :meth:`string` found; null for negative lengths.

        :param pieces: in the order in which they were read
        """
        bounds: Numbers = np.empty((len(self._places), 2 * len(pieces)), np.int64)
        for index, (start, length) in enumerate(pieces):
            bounds[:, 2 * index] = np.where(length < 0, 0, start)
            bounds[:, 2 * index + 1] = np.where(length < 0, 0, start + length)
        # A null piece takes the place of the piece before it, so that all bounds ascend.
        ascending = np.maximum.accumulate(bounds.reshape(-1)).reshape(bounds.shape)
        return gather(self._bytes, ascending, *(length for _, length in pieces))
