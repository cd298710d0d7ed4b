"""The text format of Prometheus, version 0.0.4 (docs/decisions/0006-metrics-by-hand.md)."""

from __future__ import annotations

import math
from typing import NamedTuple

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

    :param name: ends with ``_total`` for a counter; others are gauges
    :param labels: names of its labels
    """

    name: str
    labels: tuple[str, ...]
    meaning: str

    @property
    def head(self) -> str:
        """The lines before its samples."""
        kind = "counter" if self.name.endswith("_total") else "gauge"
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
