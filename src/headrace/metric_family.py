"""The text format of Prometheus, version 0.0.4 (docs/decisions/0006-metrics-by-hand.md), and the
declaration of metrics as fields of a dataclass.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import field, fields
from functools import partial
from typing import Any, NamedTuple

from .histogram import DURATION_BOUNDS_MS, Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def labels(**values: object) -> str:
    """Return labels as text: ``{name="value",…}``."""
    return (
        "{"
        + ",".join(f'{name}="{str(value).translate(_ESCAPED)}"' for name, value in values.items())
        + "}"
    )


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


def metric(name: str, meaning: str, *label_names: str, start: float | None = 0) -> Any:
    """Declare a field as a counter or gauge: a number, or a Counter by the value of its label.

    :param start: the first value of a number; None for no sample
    """
    family = Family(name, label_names, meaning)
    if label_names:
        return field(default_factory=Counter, metadata={"family": family})
    return field(default=start, metadata={"family": family})


def histogram(name: str, meaning: str, bounds: Sequence[float] = DURATION_BOUNDS_MS) -> Any:
    """Declare a field as a histogram."""
    family = Family(name, (), meaning, "histogram")
    return field(default_factory=partial(Histogram, bounds), metadata={"family": family})


def declared(kind: Any) -> list[tuple[str, Family]]:
    """Return the names of the fields of a dataclass that are metrics, and their families."""
    return [(column.name, column.metadata["family"]) for column in fields(kind) if column.metadata]
