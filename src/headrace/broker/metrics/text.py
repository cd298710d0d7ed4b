"""A page of metrics, made in slices (docs/decisions/0006-metrics-by-hand.md)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from headrace.metric_family import Family, Histogram, declared

SCRAPE_SLICE_SAMPLES = 1000
"""The lines of metrics after which other requests are served."""


class MetricsPage:
    """A page of metrics, written in slices between which the event loop runs other work."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._slice_start = 0
        self._name = ""

    def family(self, name: str, meaning: str, kind: str = "") -> None:
        """Begin a metric; the parameters are those of a :class:`.Family`."""
        self._name = name
        self._lines.append(Family(name, (), meaning, kind).head)

    def sample(self, value: float, label: str = "") -> None:
        """Add a sample to the metric begun last.

        :param label: labels made by :func:`.metric_family.labels`
        """
        self._lines.append(f"{self._name}{label} {value}\n")

    def single(self, name: str, meaning: str, value: float, label: str = "") -> None:
        """Add a counter or gauge with a single sample."""
        self.family(name, meaning)
        self.sample(value, label)

    def histogram(self, observed: Histogram, label: str = "") -> None:
        """Add a histogram to the metric begun last."""
        name, inner = self._name, label[1:-1] + "," if label else ""
        below = 0
        for bound, count in zip((*observed.bounds, "+Inf"), observed.counts, strict=True):
            below += count
            self._lines.append(f'{name}_bucket{{{inner}le="{bound}"}} {below}\n')
        self._lines.append(f"{name}_sum{label} {observed.total:.6f}\n{name}_count{label} {below}\n")

    async def row(self, counters: object) -> None:
        """Write the metrics that the class of an object declares, without labels."""
        await self.rows(type(counters), [("", counters)])

    async def rows(self, kind: type, rows: Sequence[tuple[str, object]]) -> None:
        """Write the metrics that a class declares, each with a sample of every row with a value.

        :param rows: labels made by :func:`.metric_family.labels`, and an object of the class
        """
        for attribute, family in declared(kind):
            self.family(family.name, family.meaning, family.kind)
            for label, row in rows:
                value = getattr(row, attribute)
                if isinstance(value, Histogram):
                    self.histogram(value, label)
                elif isinstance(value, Counter):
                    for key, count in sorted(value.items()):
                        self.sample(count, family.label(key))
                elif value is not None:
                    self.sample(round(value, 3), label)
                await self.end_slice_if_full()

    async def end_slice_if_full(self) -> None:
        """Yield to the event loop after every ``SCRAPE_SLICE_SAMPLES`` lines."""
        if len(self._lines) - self._slice_start >= SCRAPE_SLICE_SAMPLES:
            await self.yield_to_loop()

    async def yield_to_loop(self) -> None:
        """End the slice: let the event loop run other work."""
        self._slice_start = len(self._lines)
        await asyncio.sleep(0)

    def text(self) -> bytes:
        """Return the whole page."""
        return "".join(self._lines).encode()
