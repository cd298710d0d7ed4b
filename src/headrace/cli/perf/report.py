"""Results of performance tests: throughput, latencies, and a progress bar."""

from __future__ import annotations

import sys
from collections import Counter
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

MIB = 1 << 20
_STEPS_PER_MS = 10
_CENTILES = (0.5, 0.95, 0.99, 0.999)


class Latencies:
    """Number, size and latencies of acknowledged records, from a point in time on.

    Latencies have a resolution of 0.1 ms.

    :ivar started_s: the start, on the clock of the caller
    """

    def __init__(self, started_s: float) -> None:
        self.started_s = started_s
        self.count = 0
        self.size_bytes = 0
        self._steps: Counter[int] = Counter()

    def add(self, latency_s: float, size_bytes: int) -> None:
        """Count an acknowledged record."""
        self.count += 1
        self.size_bytes += size_bytes
        self._steps[int(latency_s * 1000 * _STEPS_PER_MS)] += 1

    @property
    def average_ms(self) -> float:
        """The mean latency in ms; 0 without records."""
        return sum(step * n for step, n in self._steps.items()) / _STEPS_PER_MS / max(self.count, 1)

    @property
    def max_ms(self) -> float:
        """The longest latency in ms; 0 without records."""
        return max(self._steps, default=0) / _STEPS_PER_MS

    def centiles_ms(self) -> list[float]:
        """Return the 50th, 95th, 99th and 99.9th percentile of the latency, in ms."""
        found, seen = [], 0
        steps = iter(sorted(self._steps.items()))
        step = 0
        for centile in _CENTILES:
            while seen <= centile * self.count and (following := next(steps, None)):
                step, n = following
                seen += n
            found.append(step / _STEPS_PER_MS)
        return found

    def rate(self, now_s: float) -> tuple[float, float]:
        """Return records and MiB per second since the start."""
        elapsed_s = max(now_s - self.started_s, 1e-3)
        return self.count / elapsed_s, self.size_bytes / elapsed_s / MIB

    def window(self, now_s: float) -> str:
        """Format an interval as Kafka's tool does."""
        records, mib = self.rate(now_s)
        return (
            f"{self.count} records sent, {records:.1f} records/sec ({mib:.2f} MB/sec), "
            f"{self.average_ms:.1f} ms avg latency, {self.max_ms:.1f} ms max latency."
        )

    def total(self, now_s: float, kind: str = "records") -> str:
        """Format the whole test as Kafka's tool does.

        :param kind: the noun for the records counted
        """
        records, mib = self.rate(now_s)
        p50, p95, p99, p999 = map(int, self.centiles_ms())
        return (
            f"{self.count} {kind} sent, {records:f} records/sec ({mib:.2f} MB/sec), "
            f"{self.average_ms:.2f} ms avg latency, {self.max_ms:.2f} ms max latency, "
            f"{p50} ms 50th, {p95} ms 95th, {p99} ms 99th, {p999} ms 99.9th."
        )

    def as_json(self, now_s: float) -> dict[str, float]:
        """Return the results of :meth:`total` for JSON."""
        records, mib = self.rate(now_s)
        p50, p95, p99, p999 = self.centiles_ms()
        return {
            "records": self.count,
            "seconds": round(now_s - self.started_s, 6),
            "recordsPerSec": round(records, 3),
            "mbPerSec": round(mib, 3),
            "avgLatencyMs": round(self.average_ms, 3),
            "maxLatencyMs": self.max_ms,
            "p50LatencyMs": p50,
            "p95LatencyMs": p95,
            "p99LatencyMs": p99,
            "p999LatencyMs": p999,
        }


class Bar:
    """A progress bar on stderr, shown only on a terminal.

    :ivar shown: whether stderr is a terminal
    """

    def __init__(self, what: str, total: int) -> None:
        self.shown = sys.stderr.isatty()
        self._progress: Progress | None = None
        if self.shown:
            columns = (
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeElapsedColumn(),
            )
            self._progress = Progress(
                TextColumn(what), *columns, transient=True, console=Console(stderr=True)
            )
            self._task = self._progress.add_task(what, total=total, rate="")

    def __enter__(self) -> Bar:
        if self._progress is not None:
            self._progress.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._progress.__exit__(kind, error, trace)

    def update(self, done: int, rate: str) -> None:
        """Show ``done`` of the total, and a rate."""
        if self._progress is not None:
            self._progress.update(self._task, completed=done, rate=rate)
