"""Read a large request in slices: its arrays of messages and strings item by item.

kio reads a message in one piece. So each array is cut out of the frame, and its items are read one
by one. kio reads the rest with empty arrays, which are replaced by the items.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from typing import Any

from kio.serial import entity_reader
from kio.serial.readers import read_compact_string, read_legacy_string

from .primitives import compact_length, i32
from .skimmer import array_count, null_array, parts

_EMPTY = {True: compact_length(0), False: i32(0)}
"""The bytes of an empty array in flexible and other versions."""
WHOLE_ITEM_BYTES = 4096
"""An item whose arrays end within this number of bytes is read in one piece."""


def _item_reader(item_type: Any, is_flexible: bool) -> Any:
    if item_type is not None:
        return entity_reader(item_type)
    return read_compact_string if is_flexible else read_legacy_string


def read_sliced(
    message_type: Any,
    frame: memoryview,
    offset: int,
    *,
    allow_nulls: bool = False,
    is_item: bool = False,
) -> Generator[None, None, tuple[Any, int]]:
    """Return a generator that reads a message, yields after each item of its arrays, and returns
    the message and the offset after it.

    :param allow_nulls: accept null for every array
    :param is_item: something follows the message; otherwise it is the last in the frame
    :raises Exception: as :data:`~headrace.protocol.skimmer.Skim`, or as kio
    """
    end = len(frame)
    start = offset
    is_flexible = message_type.__flexible__
    rest: list[bytes | memoryview] = []
    arrays: dict[str, Any] = {}
    for part in parts(message_type, allow_nulls=allow_nulls):
        if part.array is None:
            offset = part.skim(frame, offset, end)
            continue
        count, first = array_count(message_type, frame, offset, end)
        if count < 0:
            if not part.is_nullable:
                null_array(part.array)
            offset = first
            continue
        rest += (frame[start:offset], _EMPTY[is_flexible])
        offset = first
        items: list[Any] = []
        read = _item_reader(part.item_type, is_flexible)
        for _ in range(count):
            try:
                after = part.skim(frame, offset, min(end, offset + WHOLE_ITEM_BYTES))
            except ValueError:  # it is larger, or invalid
                if part.item_type is None:
                    raise
                item, offset = yield from read_sliced(
                    part.item_type, frame, offset, allow_nulls=allow_nulls, is_item=True
                )
            else:
                item, _ = read(frame, offset)
                offset = after
            items.append(item)
            yield
        arrays[part.array] = tuple(items)
        start = offset
    # kio ignores the size of tagged fields that it knows, so they may be longer than that.
    rest.append(frame[start : offset if is_item else end])
    message, _ = entity_reader(message_type)(b"".join(rest), 0)
    return (dataclasses.replace(message, **arrays) if arrays else message), offset
