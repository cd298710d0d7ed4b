"""The text format of Prometheus, version 0.0.4 (docs/decisions/0006-metrics-by-hand.md), and the
declaration of metrics as fields of a dataclass.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import field, fields
from functools import partial
from typing import Any, NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

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

_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def labels(**values: object) -> str:
    """Return labels as text: ``{name="value",…}``."""
    pairs = (f'{name}="{str(value).translate(_ESCAPED)}"' for name, value in values.items())
    return f"{{{','.join(pairs)}}}"


class Family(NamedTuple):
    """A metric.

    :param labels: names of its labels
    :param kind: ``histogram``; empty for a counter, whose name ends with ``_total``, or a gauge
    """

    name: str
    labels: tuple[str, ...]
    meaning: str
    kind: str = ""

    @property
    def head(self) -> str:
        """The lines before its samples."""
        kind = self.kind or ("counter" if self.name.endswith("_total") else "gauge")
        return f"# HELP {self.name} {self.meaning}\n# TYPE {self.name} {kind}\n"

    def label(self, *values: object) -> str:
        """Return the labels of a sample, as text.

        :param values: of :attr:`labels`, in their order
        """
        return labels(**dict(zip(self.labels, values, strict=True))) if values else ""

    def line(self, label: str, value: float) -> str:
        """Return a sample.

        :param label: what :meth:`label` returned
        """
        return f"{self.name}{label} {'+Inf' if value == math.inf else value}\n"


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


def metric(name: str, meaning: str, *label_names: str, start: float | None = 0) -> Any:
    """Declare a field as a counter or gauge: a number, or a Counter by the value of its label.

    :param start: the first value of a number; None for no sample
    """
    metadata = {"family": Family(name, label_names, meaning)}
    if label_names:
        return field(default_factory=Counter, metadata=metadata)
    return field(default=start, metadata=metadata)


def histogram(name: str, meaning: str, bounds: Sequence[float] = DURATION_BOUNDS_MS) -> Any:
    """Declare a field as a histogram."""
    metadata = {"family": Family(name, (), meaning, "histogram")}
    return field(default_factory=partial(Histogram, bounds), metadata=metadata)


def declared(kind: Any) -> list[tuple[str, Family]]:
    """Return the names of the fields of a dataclass that are metrics, and their families."""
    return [(column.name, column.metadata["family"]) for column in fields(kind) if column.metadata]
