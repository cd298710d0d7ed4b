"""A listener of streaming queries that exports their progress to Prometheus.

``docs/spark/running.md`` lists the metrics.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from math import isfinite
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming import StreamingQueryListener

from headrace.metric_family import CONTENT_TYPE, Family

from .share.acquisitions import COUNTED
from .source_progress import by_name, lag_by_topic, source_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_ENDED_QUERIES = 100
"""Queries that have ended and keep their counters; the oldest are forgotten first."""

_CLIENT_TIMEOUT_S = 10
"""The time that a client has for its request, and to receive the page."""

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

Sample = tuple[Family, tuple[str, ...], float]


@dataclass(slots=True)
class _QueryState:
    """Sums over the life of the listener, and the last progress of a query that runs."""

    name: str
    is_running: bool = True
    failures: int = 0
    batches: int = 0
    seconds: float = 0.0
    records: Counter[str] = field(default_factory=Counter)
    progress: Any = None


class PrometheusListener(StreamingQueryListener):
    """The progress of all streaming queries of a session, as metrics.

    Add it to a session and serve its :meth:`page`, or let :func:`export_metrics` do both. A query
    is labelled by its name, or by its id if it has none.
    """

    def __init__(self) -> None:
        self.server_port: int | None = None
        """The port of the page; None if :func:`export_metrics` has not served one."""
        self._lock = threading.Lock()
        self._queries: dict[str, _QueryState] = {}

    def onQueryStarted(self, event: Any) -> None:
        """Note that a query runs."""
        with self._lock:
            self._state(event.id, event.name).is_running = True

    def onQueryProgress(self, event: Any) -> None:
        """Note the progress of a query."""
        progress = event.progress
        with self._lock:
            state = self._state(progress.id, progress.name)
            state.progress = progress
            # An idle query repeats its last micro-batch, with no records.
            if progress.numInputRows > 0:
                state.batches += 1
                state.seconds += progress.batchDuration / 1000
            for name, source in by_name(progress.sources).items():
                state.records[name] += max(0, source.numInputRows)

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing: an idle query keeps its last progress."""

    def onQueryTerminated(self, event: Any) -> None:
        """Note that a query has ended, and whether it has failed."""
        with self._lock:
            state = self._queries.get(str(event.id))
            if state is None:
                return
            state.is_running = False
            state.progress = None
            if event.exception is not None:
                state.failures += 1
            ended = [key for key, query in self._queries.items() if not query.is_running]
            for key in ended[:-MAX_ENDED_QUERIES]:
                del self._queries[key]

    def page(self) -> str:
        """Return the metrics, in the text format of Prometheus."""
        with self._lock:
            samples = [sample for state in self._queries.values() for sample in _samples(state)]
        lines: dict[Family, list[str]] = {}
        for family, labels, value in samples:
            line = family.line(family.label(*labels), value)
            lines.setdefault(family, [family.head]).append(line)
        return "".join(chain.from_iterable(lines.values()))

    def _state(self, query_id: Any, name: str | None) -> _QueryState:
        key = str(query_id)
        state = self._queries.pop(key, None) or _QueryState(name or key)
        self._queries[key] = state  # the last one to be forgotten
        return state


def export_metrics(
    spark: SparkSession, port: int = 9309, address: str = "127.0.0.1"
) -> PrometheusListener:
    """Serve the progress of all streaming queries of a session on ``http://ADDRESS:PORT/metrics``.

    The page is served by a daemon thread of this Python process, also with Spark Connect.

    :param port: 0 for a free one; the listener's ``server_port`` has it
    :raises OSError: the port is in use
    """
    # Executors import this module, too, and serve nothing.
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    listener = PrometheusListener()

    class Handler(BaseHTTPRequestHandler):
        timeout = _CLIENT_TIMEOUT_S

        def do_GET(self) -> None:
            page = listener.page().encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        address_family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        daemon_threads = True

    server = Server((address, port), Handler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
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
    progress = state.progress
    if progress is None:
        return
    yield BATCH_SECONDS, query, progress.batchDuration / 1000
    for phase, duration_ms in dict(progress.durationMs).items():
        yield PHASE_SECONDS, (state.name, phase), duration_ms / 1000
    yield LAST_PROGRESS, query, datetime.fromisoformat(progress.timestamp).timestamp()
    for name, source in by_name(progress.sources).items():
        yield from _of_source(state.name, name, source)


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
    for outcome in COUNTED:
        if outcome in progress:
            yield OUTCOMES, (query, name, outcome), progress[outcome]
    if "waiting" in progress:
        yield WAITING, labels, len(progress["waiting"])
    for family, counted in ((LATE, "lateRecords"), (ENFORCED, "enforcedProcessing")):
        if counted in progress:
            yield family, labels, progress[counted]
