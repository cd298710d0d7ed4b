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


def varints(data: Any, places: Numbers) -> tuple[Numbers, Numbers]:
    """Return zigzag varints at ``places`` and the places behind them.

    :param data: a ``uint8`` array
    :raises ValueError: a varint is longer than ten bytes
    :raises IndexError: a varint runs past the end of ``data``
    """
    values = data.take(places).astype(np.int64)
    after = places + 1
    unfinished = np.flatnonzero(values > 0x7F)
    values[unfinished] &= 0x7F
    shift = 7
    while len(unfinished):
        if shift > _MOST_VARINT_BITS:
            raise ValueError("a varint is longer than ten bytes")
        following = data.take(after[unfinished]).astype(np.int64)
        after[unfinished] += 1
        values[unfinished] |= (following & 0x7F) << shift
        unfinished = unfinished[following > 0x7F]
        shift += 7
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
