"""Histograms of durations and sizes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

DURATION_BOUNDS_MS = (
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    25.0,
    50.0,
    100.0,
    250.0,
    500.0,
    1000.0,
    2500.0,
    10_000.0,
)
"""The bounds of histograms of durations in milliseconds."""


class Histogram:
    """Counts of observed values by their size.

    :param bounds: the largest value of each bucket, ascending; one more bucket takes larger values
    :ivar counts: the number of values in each bucket, not cumulative
    :ivar total: the sum of all values
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value
