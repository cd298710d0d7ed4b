"""The one grammar of positions in partitions: an end, an offset, or a point of time."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from typing import NamedTuple

from headrace.times import time_ms

_MAX_OFFSET = (1 << 63) - 1


class Position(NamedTuple):
    """A position in partitions; without offset and time the end.

    :param offset: if negative, from the end backwards
    :param time_ms: since the epoch: the first record from then on
    """

    offset: int | None = None
    time_ms: int | None = None


EARLIEST, LATEST = Position(0), Position()


def position(text: str) -> Position:
    """Parse a position: ``earliest``, ``latest``, an offset, ``-5`` or a time.

    :raises ArgumentTypeError: it is none
    """
    if text in ("earliest", "latest"):
        return EARLIEST if text == "earliest" else LATEST
    if not re.fullmatch("-?[0-9]{1,20}", text):
        try:
            return Position(time_ms=max(0, time_ms(text)))
        except ArgumentTypeError as error:
            raise ArgumentTypeError(f"{error}; nor earliest, latest or an offset") from None
    if abs(int(text)) > _MAX_OFFSET:
        raise ArgumentTypeError(f"{text!r} is not an offset")
    return Position(int(text))
