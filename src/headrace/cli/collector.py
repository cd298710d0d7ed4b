"""The cycle collector of a broker's process.

The objects of partitions, groups and offsets live long and form no cycles, but each full collection
looks at all of them: two million take about 0.3 s, in which the event loop stands still.
"""

from __future__ import annotations

import gc
from time import monotonic
from typing import Any

GC_ALLOCATIONS = 20_000
"""Allocations between two runs of the cycle collector. A broker creates few cycles, and Python's
default of 700 takes 5 % of the time of offset commits.
"""

LONG_COLLECTION_S = 0.05
"""What survives a full collection that takes longer is exempt from the following ones."""

EXEMPT_FOR_S = 3600.0
"""A full collection looks at exempt objects, too, if none has done so for this time. So it finds
the cycles among them.
"""

_FULL = 2


class Collector:
    """Keeps the full collections of this process short."""

    def __init__(self) -> None:
        self._began_s = 0.0
        self._whole_s = monotonic()
        """The time of the last collection of all objects."""

    def start(self) -> None:
        """Set the collector up."""
        gc.set_threshold(GC_ALLOCATIONS)
        gc.callbacks.append(self._collects)

    def stop(self) -> None:
        """Look after collections no more."""
        gc.callbacks.remove(self._collects)

    def _collects(self, phase: str, info: dict[str, Any]) -> None:
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
