"""Counters of a broker; see ``docs/metrics.md``.

They cost a few additions for each request. What can be read from the broker's state, such as lag
and log sizes, is not counted: :mod:`headrace.broker.metrics.scrape` reads it for each scrape.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Sequence
from functools import cached_property
from time import perf_counter, time
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headrace.histogram import DURATION_BOUNDS_MS, Histogram

if TYPE_CHECKING:
    from headrace.log.cleaner import Round

    from .share_metrics import ShareMetrics

MAX_LOOP_HOLDERS = 200
"""The names of requests and timers for which delays of the event loop are counted."""


class RequestMetrics:
    """Counters of one API.

    :ivar total_ms: time from the arrival of a whole request to its answer, waiting included
    :ivar errors: number of responses by their top-level error code
    :ivar failures: number of requests whose handler raised
    """

    __slots__ = ("errors", "failures", "total_ms")

    def __init__(self) -> None:
        self.total_ms = Histogram(DURATION_BOUNDS_MS)
        self.errors: Counter[int] = Counter()
        self.failures = 0

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
        written = [type(one) for one in records if getattr(one, "value", 0) is not None]
        for kind in dict.fromkeys(written):  # mostly one
            self.kinds[kind] += written.count(kind)
        self.append_ms.observe((perf_counter() - started) * 1000)


class CleanerMetrics:
    """Counters of log compaction.

    :ivar rounds: number of compactions of a log that succeeded
    :ivar failures: number of compactions that failed, for damage or a full disk
    :ivar read_bytes: bytes of the segments that were read
    :ivar written_bytes: bytes of the segments that were written
    :ivar keys: number of different keys in the parts of logs compacted for the first time
    """

    def __init__(self) -> None:
        self.rounds = self.failures = self.read_bytes = self.written_bytes = self.keys = 0

    def cleaned(self, one: Round) -> None:
        """Count a compaction that succeeded."""
        self.rounds += 1
        self.read_bytes += one.read_bytes
        self.written_bytes += one.written_bytes
        self.keys += one.keys


class ScrubberMetrics:
    """Counters of the background verification of stored batches.

    :ivar read_bytes: bytes of the batches that were verified
    :ivar damaged: number of places with damaged batches that were found, each counted once
    :ivar passes: number of verifications of all batches that came to their end
    :ivar last_pass_s: end of the last one, in seconds since the epoch; None before the first
    """

    def __init__(self) -> None:
        self.read_bytes = self.damaged = self.passes = 0
        self.last_pass_s: float | None = None


class MemoryUse:
    """The memory of requests or of responses, of all connections together.

    :ivar used_bytes: the memory in use
    :ivar limit_bytes: the most that may be in use; -1 for no limit
    :ivar closed_connections: the connections that were closed because the memory was spent
    """

    __slots__ = ("closed_connections", "limit_bytes", "used_bytes")

    def __init__(self) -> None:
        self.used_bytes = self.closed_connections = 0
        self.limit_bytes = -1


class LoopMetrics:
    """The delays of the event loop.

    :ivar delay_ms: how late a timer ran, measured every ``LOOP_WATCH_MS``
    :ivar longest_ms: the longest delay since the start
    :ivar held_ms: the sum of the delays of at least ``LOOP_HELD_MS``, by what held the loop
    """

    def __init__(self) -> None:
        self.delay_ms = Histogram(DURATION_BOUNDS_MS)
        self.longest_ms = 0.0
        self.held_ms: Counter[str] = Counter()

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


class Metrics:
    """All counters of one broker.

    :param known_topics: the ids of the topics that exist
    :ivar started: the start of the broker, in seconds since the epoch
    :ivar requests: counters by API key
    :ivar connections: the open connections
    :ivar connections_refused: connections for which there was no file descriptor
    :ivar failed_logins: connections closed because their login has failed
    :ivar throttled_requests: requests that exceeded a client quota
    :ivar throttled_connections: connections that exceeded the quota of their address
    :ivar request_memory: requests that are not served yet
    :ivar response_memory: responses that are not sent yet
    :ivar refused_produces: number of refused batches of producers, by topic name
    :ivar coordinators: counters by the name of the coordinator's topic
    """

    def __init__(self, known_topics: Container[UUID]) -> None:
        self._known_topics = known_topics
        self.started = time()
        self.requests: defaultdict[int, RequestMetrics] = defaultdict(RequestMetrics)
        self.connections_accepted = 0
        self.connections: set[Any] = set()
        self.connections_refused = 0
        self.failed_logins = 0
        self.throttled_requests = self.throttled_connections = 0
        self.request_memory = MemoryUse()
        self.response_memory = MemoryUse()
        self.received_bytes = 0
        self.sent_bytes = 0
        self.refused_produces: Counter[str] = Counter()
        self.cleaner = CleanerMetrics()
        self.scrubber = ScrubberMetrics()
        self.loop = LoopMetrics()
        self.coordinators: defaultdict[str, CoordinatorMetrics] = defaultdict(CoordinatorMetrics)

    @cached_property
    def share(self) -> ShareMetrics:
        """Counters of share groups, created when first needed."""
        from .share_metrics import ShareMetrics

        return ShareMetrics(self._known_topics)
