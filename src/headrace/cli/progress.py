"""Showing that something is under way, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

_WORTH_SHOWING = 2


def in_steps(items: Sequence[T], step: int, what: str) -> Iterator[Sequence[T]]:
    """``items`` in pieces of ``step``, with a progress bar on stderr if that is a terminal and they
    are many.
    """
    pieces: Iterable[Sequence[T]] = [
        items[start : start + step] for start in range(0, len(items), step)
    ]
    if len(items) > _WORTH_SHOWING * step and sys.stderr.isatty():
        from rich.console import Console  # takes long to import, and most commands never need it
        from rich.progress import track

        pieces = track(pieces, what, console=Console(stderr=True), transient=True)
    yield from pieces
