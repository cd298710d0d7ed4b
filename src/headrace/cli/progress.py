"""Progress bars, on terminals only."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

_WORTH_SHOWING = 2


def in_steps(items: Sequence[T], step: int, what: str) -> Iterator[Sequence[T]]:
    """Yield ``items`` in slices of ``step``.

    Show a progress bar if there are more than a few slices and stderr is a terminal.

    :param what: the label of the bar
    """
    pieces: Iterable[Sequence[T]] = [
        items[start : start + step] for start in range(0, len(items), step)
    ]
    if len(items) > _WORTH_SHOWING * step and sys.stderr.isatty():
        from rich.console import Console  # slow to import, and rarely needed
        from rich.progress import track

        pieces = track(pieces, what, console=Console(stderr=True), transient=True)
    yield from pieces
