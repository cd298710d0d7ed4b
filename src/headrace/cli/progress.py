"""Progress bars, on terminals only."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

_WORTH_SHOWING = 2


async def in_steps(
    items: Sequence[K], step: int, what: str, ask: Callable[[Sequence[K]], Awaitable[Mapping[K, V]]]
) -> dict[K, V]:
    """Return the answers about all items, which are asked for in slices of ``step``.

    Show a progress bar if there are more than a few slices and stderr is a terminal.

    :param what: the label of the bar
    """
    pieces: Iterable[Sequence[K]] = [
        items[start : start + step] for start in range(0, len(items), step)
    ]
    if len(items) > _WORTH_SHOWING * step and sys.stderr.isatty():
        from rich.console import Console  # slow to import, and rarely needed
        from rich.progress import track

        pieces = track(pieces, what, console=Console(stderr=True), transient=True)
    answers: dict[K, V] = {}
    for piece in pieces:
        answers |= await ask(piece)
    return answers


@contextmanager
def byte_progress(what: str, total_bytes: int) -> Iterator[Callable[[int], object]]:
    """Yield a function that takes numbers of bytes; show their sum if stderr is a terminal.

    :param what: the label of the bar
    """
    if not sys.stderr.isatty():
        yield lambda size_bytes: None
        return
    from rich.console import Console  # slow to import
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total_bytes)
        yield lambda size_bytes: progress.advance(task, size_bytes)


@contextmanager
def count_progress(what: str, unit: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function that takes what is done and the total; None if stderr is no terminal.

    :param what: the label of the bar
    :param unit: what is counted
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # slow to import
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)

        def update(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        yield update
