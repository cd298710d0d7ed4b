"""Progress bars, on terminals only."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

_WORTH_SHOWING = 2


@contextmanager
def _bar(
    what: str, total: int | None, *columns: str, is_worth: bool = True
) -> Iterator[Callable[..., None]]:
    """Yield rich's function that updates a bar, which is shown if stderr is a terminal.

    :param what: the label of the bar
    :param columns: names of rich's columns behind it
    """
    if not is_worth or not sys.stderr.isatty():
        yield lambda **_: None
        return
    from rich import progress  # slow to import, and rarely needed
    from rich.console import Console

    shown = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        *(getattr(progress, name)() for name in columns),
    )
    with progress.Progress(*shown, console=Console(stderr=True), transient=True) as bars:
        yield partial(bars.update, bars.add_task(what, total=total))


async def in_steps(
    items: Sequence[K], step: int, what: str, ask: Callable[[Sequence[K]], Awaitable[Mapping[K, V]]]
) -> dict[K, V]:
    """Return the answers about all items, which are asked for in slices of ``step``.

    Show a bar if there are more than a few slices.
    """
    answers: dict[K, V] = {}
    is_worth = len(items) > _WORTH_SHOWING * step
    with _bar(what, len(items), "MofNCompleteColumn", is_worth=is_worth) as update:
        for start in range(0, len(items), step):
            answers |= await ask(items[start : start + step])
            update(advance=step)
    return answers


@contextmanager
def byte_progress(what: str, total_bytes: int) -> Iterator[Callable[[int], object]]:
    """Yield a function that takes numbers of bytes, and show their sum."""
    with _bar(what, total_bytes, "DownloadColumn", "TransferSpeedColumn") as update:
        yield lambda size_bytes: update(advance=size_bytes)


@contextmanager
def count_progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that takes what is done and the total, and show them."""
    with _bar(what, None, "MofNCompleteColumn") as update:
        yield lambda done, total: update(completed=done, total=total)
