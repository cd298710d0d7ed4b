"""Metrics as text for Prometheus, exposition format 0.0.4, written in slices.

Written by hand, see ``docs/decisions/0006-metrics-by-hand.md``.
"""

from __future__ import annotations

import asyncio

from headrace.broker.limits import SCRAPE_SLICE_SAMPLES

from .registry import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def labels(**values: object) -> str:
    """``{name="value",…}``."""
    return (
        "{"
        + ",".join(f'{name}="{str(value).translate(_ESCAPED)}"' for name, value in values.items())
        + "}"
    )


class Page:
    """A page in the making."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._slice = 0
        self._name = ""

    def family(self, name: str, kind: str, meaning: str) -> None:
        """Begin a metric of a kind: ``counter``, ``gauge`` or ``histogram``."""
        self._name = name
        self._lines.append(f"# HELP {name} {meaning}\n# TYPE {name} {kind}\n")

    def sample(self, value: float, label: str = "") -> None:
        """Add a value of the metric that was begun, with labels as :func:`labels` makes them."""
        self._lines.append(f"{self._name}{label} {value}\n")

    def one(self, name: str, kind: str, meaning: str, value: float) -> None:
        """A metric with one value."""
        self.family(name, kind, meaning)
        self.sample(value)

    def histogram(self, observed: Histogram, label: str = "") -> None:
        """Add a histogram of the metric that was begun."""
        name, inner = self._name, label[1:-1] + "," if label else ""
        below = 0
        for bound, count in zip((*observed.bounds, "+Inf"), observed.counts, strict=True):
            below += count
            self._lines.append(f'{name}_bucket{{{inner}le="{bound}"}} {below}\n')
        self._lines.append(f"{name}_sum{label} {observed.total:.6f}\n{name}_count{label} {below}\n")

    async def breathe(self) -> None:
        """Let others work when this has been at it for a slice."""
        if len(self._lines) - self._slice >= SCRAPE_SLICE_SAMPLES:
            await self.pause()

    async def pause(self) -> None:
        """Let others work."""
        self._slice = len(self._lines)
        await asyncio.sleep(0)

    def text(self) -> bytes:
        """The page."""
        return "".join(self._lines).encode()
