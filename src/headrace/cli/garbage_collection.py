"""Settings of the garbage collector in a broker's process.

The objects of partitions, groups and offsets live long and form no cycles, but each full collection
visits all of them. Two million objects take about 0.3 s, in which the event loop is blocked.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

GC_ALLOCATIONS = 20_000
"""Allocations between two collections. A broker creates few cycles, and Python's default of 700
takes 5 % of the time of offset commits.
"""

LONG_COLLECTION_S = 0.05
"""The objects that survive a longer full collection are exempt from later ones."""

EXEMPT_FOR_S = 3600.0
"""The interval of full collections that include exempt objects, to find cycles among these."""

_FULL = 2


class ShortCollections:
    """Settings and a callback that keep the full collections of this process short."""

    def __init__(self) -> None:
        self._began_s = 0.0
        self._whole_s = monotonic()
        """The time of the last collection of all objects."""

    def start(self) -> None:
        """Change the settings, and add the callback."""
        gc.set_threshold(GC_ALLOCATIONS)
        gc.callbacks.append(self._on_collection)

    def stop(self) -> None:
        """Remove the callback."""
        gc.callbacks.remove(self._on_collection)

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Collect nothing while the block runs, and exempt the objects that it has created, as
        those that survive a long collection. The first collections after the start of a broker with
        many committed offsets would visit all of them.
        """
        gc.disable()
        try:
            yield
        finally:
            gc.freeze()
            gc.enable()

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] != _FULL:
            return
        now_s = monotonic()
        if phase == "start":
            self._began_s = now_s
            if now_s - self._whole_s >= EXEMPT_FOR_S:
                self._whole_s = now_s
                gc.unfreeze()
        elif now_s - self._began_s >= LONG_COLLECTION_S:
            gc.freeze()
