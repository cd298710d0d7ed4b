"""A listener of streaming queries that exports their progress to Prometheus. See docs/spark.md."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from math import isfinite
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming import StreamingQueryListener

from .source_progress import lag_by_topic, source_names, source_progress

try:
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector

    from headrace.metric_family import Family
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error}: install headrace[exporter]", name=error.name) from None

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_ENDED_QUERIES = 100
"""Queries that have ended and keep their counters; the oldest are forgotten first."""

_QUERY = ("query",)
_SOURCE = ("query", "source")
_TOPIC = ("query", "source", "topic")


RUNNING = Family("headrace_spark_query_running", _QUERY, "1 while the query runs, else 0")
FAILURES = Family(
    "headrace_spark_query_failures_total", _QUERY, "runs that have ended with an error"
)
BATCHES = Family("headrace_spark_micro_batches_total", _QUERY, "micro-batches with records")
BATCH_SECONDS = Family(
    "headrace_spark_micro_batch_seconds", _QUERY, "duration of the last micro-batch"
)
BATCH_SECONDS_TOTAL = Family(
    "headrace_spark_micro_batch_seconds_total", _QUERY, "duration of all micro-batches with records"
)
PHASE_SECONDS = Family(
    "headrace_spark_micro_batch_phase_seconds",
    ("query", "phase"),
    "duration of a phase of the last micro-batch, by Spark's names in durationMs",
)
LAST_PROGRESS = Family(
    "headrace_spark_last_progress_timestamp_seconds",
    _QUERY,
    "start of the trigger that the query has reported last",
)
INPUT = Family("headrace_spark_input_records_total", _SOURCE, "records read")
INPUT_RATE = Family(
    "headrace_spark_input_rate", _SOURCE, "records per second that arrive, by Spark"
)
PROCESSING_RATE = Family(
    "headrace_spark_processing_rate", _SOURCE, "records per second processed, by Spark"
)
LAG = Family("headrace_spark_lag", _TOPIC, "records that the source still has to read")
OUTCOMES = Family(
    "headrace_spark_outcomes_total",
    ("query", "source", "outcome"),
    "records of kafka-share by what became of them: acquired, redelivered, accepted, released, "
    "rejected",
)
WAITING = Family("headrace_spark_waiting_tasks", _SOURCE, "tasks of kafka-ordered that wait")
LATE = Family(
    "headrace_spark_late_records_total",
    _SOURCE,
    "records of kafka-ordered that were read after later ones",
)
ENFORCED = Family(
    "headrace_spark_enforced_processing_total",
    _SOURCE,
    "records of kafka-ordered that were read although an earlier one was possible",
)

_OUTCOMES = ("acquired", "redelivered", "accepted", "released", "rejected")

Sample = tuple[Family, tuple[str, ...], float]


@dataclass(slots=True)
class _QueryState:
    """The last progress of a query, and sums over the life of the listener."""

    name: str
    is_running: bool = True
    failures: int = 0
    batches: int = 0
    seconds: float = 0.0
    records: Counter[str] = field(default_factory=Counter)
    last: list[Sample] = field(default_factory=list)


class PrometheusListener(StreamingQueryListener, Collector):
    """The progress of all streaming queries of a session, as metrics.

    Add it to a session and register it, or let :func:`export_metrics` do both. A query is labelled
    by its name, or by its id if it has none.
    """

    def __init__(self) -> None:
        self.server_port: int | None = None
        """The port of the page; None if :func:`export_metrics` has not served one."""
        self._lock = threading.Lock()
        self._queries: OrderedDict[str, _QueryState] = OrderedDict()

    def onQueryStarted(self, event: Any) -> None:
        """Note that a query runs."""
        with self._lock:
            self._state(event.id, event.name).is_running = True

    def onQueryProgress(self, event: Any) -> None:
        """Note the progress of a query."""
        progress = event.progress
        with self._lock:
            self._note(self._state(progress.id, progress.name), progress)

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing: an idle query keeps its last progress."""

    def onQueryTerminated(self, event: Any) -> None:
        """Note that a query has ended, and whether it has failed."""
        with self._lock:
            state = self._queries.get(str(event.id))
            if state is None:
                return
            state.is_running = False
            state.last = []
            if event.exception is not None:
                state.failures += 1
            ended = [key for key, one in self._queries.items() if not one.is_running]
            for key in ended[: max(0, len(ended) - MAX_ENDED_QUERIES)]:
                del self._queries[key]

    def collect(self) -> Iterable[Metric]:
        """Return the metrics, for prometheus_client."""
        with self._lock:
            samples = [sample for state in self._queries.values() for sample in _samples(state)]
        families: dict[str, Metric] = {}
        for family, labels, value in samples:
            metric = families.get(family.name)
            if metric is None:
                metric = families[family.name] = family.empty()
            family.add(metric, labels, value)
        return families.values()

    def _state(self, query_id: Any, name: str | None) -> _QueryState:
        key = str(query_id)
        state = self._queries.get(key)
        if state is None:
            state = self._queries[key] = _QueryState(name or key)
        self._queries.move_to_end(key)
        return state

    def _note(self, state: _QueryState, progress: Any) -> None:
        seconds = progress.batchDuration / 1000
        # An idle query repeats its last micro-batch, with no records.
        if progress.numInputRows > 0:
            state.batches += 1
            state.seconds += seconds
        state.last = list(_of_query(state.name, progress, seconds))
        for name, source in zip(source_names(progress.sources), progress.sources, strict=True):
            state.records[name] += max(0, source.numInputRows)
            state.last += _of_source(state.name, name, source)


def export_metrics(
    spark: SparkSession, port: int = 9309, address: str = "127.0.0.1"
) -> PrometheusListener:
    """Serve the progress of all streaming queries of a session on ``http://ADDRESS:PORT/metrics``.

    The page is served by a daemon thread of this Python process, also with Spark Connect.

    :param port: 0 for a free one; the listener's ``server_port`` has it
    :raises OSError: the port is in use
    """
    listener = PrometheusListener()
    registry = CollectorRegistry()
    registry.register(listener)
    server, _ = start_http_server(port, address, registry)
    listener.server_port = server.server_port
    spark.streams.addListener(listener)
    return listener


def _samples(state: _QueryState) -> Iterator[Sample]:
    query = (state.name,)
    yield RUNNING, query, float(state.is_running)
    yield FAILURES, query, state.failures
    yield BATCHES, query, state.batches
    yield BATCH_SECONDS_TOTAL, query, state.seconds
    for source, records in state.records.items():
        yield INPUT, (state.name, source), records
    yield from state.last


def _of_query(query: str, progress: Any, seconds: float) -> Iterator[Sample]:
    yield BATCH_SECONDS, (query,), seconds
    for phase, duration_ms in dict(progress.durationMs).items():
        yield PHASE_SECONDS, (query, phase), duration_ms / 1000
    started = datetime.fromisoformat(progress.timestamp.replace("Z", "+00:00"))
    yield LAST_PROGRESS, (query,), started.timestamp()


def _of_source(query: str, name: str, source: Any) -> Iterator[Sample]:
    labels = (query, name)
    for family, rate in (
        (INPUT_RATE, source.inputRowsPerSecond),
        (PROCESSING_RATE, source.processedRowsPerSecond),
    ):
        if rate is not None and isfinite(rate):  # Spark has no rate for the first trigger
            yield family, labels, rate
    progress = source_progress(source)
    if progress is None:
        return
    for topic, lag in lag_by_topic(progress).items():
        yield LAG, (query, name, topic), lag
    for outcome in _OUTCOMES:
        if outcome in progress:
            yield OUTCOMES, (query, name, outcome), progress[outcome]
    if "waiting" in progress:
        yield WAITING, labels, len(progress["waiting"])
    for family, counted in ((LATE, "lateRecords"), (ENFORCED, "enforcedProcessing")):
        if counted in progress:
            yield family, labels, progress[counted]
