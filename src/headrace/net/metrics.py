"""Counters of a broker; see ``docs/metrics.md``.

They cost a few additions for each request. What can be read from the broker's state, such as lag
and log sizes, is not counted: :mod:`headrace.broker.metrics.page` reads it for each scrape.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter, time
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headrace.metric_family import DURATION_BOUNDS_MS, Histogram, histogram, metric

if TYPE_CHECKING:
    from headrace.coordinators.share_metrics import ShareMetrics
    from headrace.log.cleaner import Round

MAX_LOOP_HOLDERS = 200
"""The names of requests and timers for which delays of the event loop are counted."""


@dataclass(slots=True)
class RequestMetrics:
    """Counters of one API.

    :ivar errors: number of responses by their top-level error code
    """

    errors: Counter[int] = field(default_factory=Counter)
    failures: int = metric(
        "headrace_request_failures_total",
        "Requests that ended in an unexpected error or a storage error.",
    )
    total_ms: Histogram = histogram(
        "kafka_network_requestmetrics_totaltimems",
        "Time from a request to its answer, waiting included, in milliseconds.",
    )

    def took(self, started: float) -> None:
        """Count a request without a top-level error.

        :param started: its arrival, by ``time.perf_counter``
        """
        self.total_ms.observe((perf_counter() - started) * 1000)

    def answered(self, started: float, response: object) -> None:
        """Count a request and the top-level error of its response.

        :param started: as for :meth:`took`
        """
        self.took(started)
        code = getattr(response, "error_code", None)
        if code:
            self.errors[code] += 1


class CoordinatorMetrics:
    """Counters of one coordinator's writes.

    :ivar records: number of records, tombstones included
    :ivar kinds: number of records by their class, without tombstones
    :ivar append_ms: time to append and replay a batch of records
    """

    def __init__(self) -> None:
        self.records = 0
        self.kinds: Counter[type] = Counter()
        self.append_ms = Histogram(DURATION_BOUNDS_MS)

    def wrote(self, records: Sequence[object], started: float) -> None:
        """Count a batch of records that was appended and replayed.

        :param started: the start of the append, by ``time.perf_counter``
        """
        self.records += len(records)
        self.kinds.update(
            type(record) for record in records if getattr(record, "value", 0) is not None
        )
        self.append_ms.observe((perf_counter() - started) * 1000)


@dataclass(slots=True)
class CleanerMetrics:
    """Counters of log compaction."""

    rounds: int = metric("headrace_cleaner_rounds_total", "Compactions of a log that succeeded.")
    failures: int = metric(
        "headrace_cleaner_failures_total",
        "Compactions of a log that failed, for damage or a full disk.",
    )
    read_bytes: int = metric("headrace_cleaner_read_bytes_total", "Bytes read by compaction.")
    written_bytes: int = metric(
        "headrace_cleaner_written_bytes_total", "Bytes of the segments written by compaction."
    )
    keys: int = metric(
        "headrace_cleaner_keys_total",
        "Different keys in the parts of logs compacted for the first time.",
    )

    def cleaned(self, compaction: Round) -> None:
        """Count a compaction that succeeded."""
        self.rounds += 1
        self.read_bytes += compaction.read_bytes
        self.written_bytes += compaction.written_bytes
        self.keys += compaction.keys


@dataclass(slots=True)
class ScrubberMetrics:
    """Counters of the background verification of stored batches."""

    read_bytes: int = metric(
        "headrace_scrubber_read_bytes_total", "Bytes of stored batches verified in the background."
    )
    damaged: int = metric(
        "headrace_scrubber_damaged_total", "Places with damaged batches found in the background."
    )
    passes: int = metric(
        "headrace_scrubber_passes_total", "Verifications of all stored batches that were finished."
    )
    last_pass_s: float | None = metric(
        "headrace_scrubber_last_pass_time_seconds",
        "End of the last verification of all stored batches, in seconds since the epoch.",
        start=None,
    )


@dataclass(slots=True)
class MemoryUse:
    """The memory of requests or of responses, of all connections together.

    :ivar used_bytes: the memory in use
    :ivar limit_bytes: the most that may be in use; -1 for no limit
    :ivar closed_connections: the connections that were closed because the memory was spent
    """

    used_bytes: int = 0
    limit_bytes: int = -1
    closed_connections: int = 0


@dataclass(slots=True)
class LoopMetrics:
    """The delays of the event loop: how late a timer ran, measured every ``LOOP_WATCH_MS``. Those
    of at least ``LOOP_HELD_MS`` are counted by what held the loop.
    """

    delay_ms: Histogram = histogram(
        "headrace_loop_delay_ms",
        "Time by which a timer of the event loop was late, in milliseconds.",
    )
    longest_ms: float = metric(
        "headrace_loop_delay_max_ms",
        "The longest delay of the event loop since the start, in milliseconds.",
        start=0.0,
    )
    held_ms: Counter[str] = metric(
        "headrace_loop_held_ms_total",
        "Long delays of the event loop in milliseconds, by the request or timer that held it.",
        "by",
    )

    def delayed(self, delay_ms: float) -> None:
        """Count a measurement."""
        self.delay_ms.observe(delay_ms)
        self.longest_ms = max(self.longest_ms, delay_ms)

    def held(self, name: str, delay_ms: float) -> None:
        """Count a long delay.

        :param name: what held the loop
        """
        if name in self.held_ms or len(self.held_ms) < MAX_LOOP_HOLDERS:
            self.held_ms[name] += int(delay_ms)


@dataclass
class Metrics:
    """All counters of one broker.

    :param known_topics: the ids of the topics that exist
    :ivar started: the start of the broker, in seconds since the epoch
    :ivar requests: counters by API key
    :ivar connections: the open connections
    :ivar request_memory: requests that are not served yet
    :ivar response_memory: responses that are not sent yet
    :ivar coordinators: counters by the name of the coordinator's topic
    """

    known_topics: Container[UUID]
    started: float = field(default_factory=time)
    requests: defaultdict[int, RequestMetrics] = field(
        default_factory=lambda: defaultdict(RequestMetrics)
    )
    connections: set[Any] = field(default_factory=set)
    request_memory: MemoryUse = field(default_factory=MemoryUse)
    response_memory: MemoryUse = field(default_factory=MemoryUse)
    cleaner: CleanerMetrics = field(default_factory=CleanerMetrics)
    scrubber: ScrubberMetrics = field(default_factory=ScrubberMetrics)
    loop: LoopMetrics = field(default_factory=LoopMetrics)
    coordinators: defaultdict[str, CoordinatorMetrics] = field(
        default_factory=lambda: defaultdict(CoordinatorMetrics)
    )
    connections_accepted: int = metric(
        "kafka_server_socket_server_metrics_connection_creation_total", "Connections accepted."
    )
    received_bytes: int = metric(
        "kafka_server_socket_server_metrics_incoming_byte_total", "Bytes received from clients."
    )
    sent_bytes: int = metric(
        "kafka_server_socket_server_metrics_outgoing_byte_total", "Bytes sent to clients."
    )
    connections_refused: int = metric(
        "headrace_connections_refused_total",
        "Connections refused because the process has too few file descriptors.",
    )
    failed_logins: int = metric(
        "headrace_failed_logins_total", "Connections closed because their login has failed."
    )
    throttled_requests: int = metric(
        "headrace_throttled_requests_total", "Requests that exceeded a client quota."
    )
    throttled_connections: int = metric(
        "headrace_throttled_connections_total",
        "Connections that exceeded the quota of their address.",
    )
    refused_produces: Counter[str] = metric(
        "kafka_server_brokertopicmetrics_failedproducerequests_total",
        "Batches refused, by topic.",
        "topic",
    )

    @cached_property
    def share(self) -> ShareMetrics:
        """Counters of share groups, created when first needed."""
        from headrace.coordinators.share_metrics import ShareMetrics

        return ShareMetrics(self.known_topics)
