"""A metric of a page that prometheus_client writes: the Spark listener's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from prometheus_client.core import Metric


class Family(NamedTuple):
    """A metric.

    :param name: ends with ``_total`` for a counter; others are gauges
    :param labels: names of its labels
    """

    name: str
    labels: tuple[str, ...]
    meaning: str

    def empty(self) -> Metric:
        """Return the metric without samples."""
        bare = self.name.removesuffix("_total")
        return Metric(bare, self.meaning, "gauge" if bare == self.name else "counter")

    def add(self, metric: Metric, labels: Iterable[str], value: float) -> None:
        """Add a sample to the metric that :meth:`empty` returned.

        :param labels: values of the labels, in their order
        """
        metric.add_sample(self.name, dict(zip(self.labels, labels, strict=True)), value)
