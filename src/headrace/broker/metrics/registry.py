"""What a broker counts while it works. Here is nothing but whole numbers that go up; see
``docs/metrics.md``.

What can be found by looking (how far groups are, how large logs are) is not counted here:
:mod:`headrace.broker.metrics.page` looks when it is asked. What is counted costs a few additions,
asked for or not.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Container, Sequence
from functools import cached_property
from time import perf_counter, time
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from headrace.log.cleaner import Round

    from .share import ShareMetrics

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


class Histogram:
    """How often a value was at most so large.

    :param bounds: ascending, inclusive; one more bucket takes what is larger
    :ivar counts: of each bucket for itself
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


class RequestMetrics:
    """Of one API.

    :ivar total_ms: from the arrival of a whole request until it is answered, waiting included
    :ivar errors: responses by their top-level error code
    :ivar failures: requests whose handler raised
    """

    __slots__ = ("errors", "failures", "total_ms")

    def __init__(self) -> None:
        self.total_ms = Histogram(DURATION_BOUNDS_MS)
        self.errors: Counter[int] = Counter()
        self.failures = 0

    def took(self, started: float) -> None:
        """Count a request that has no top-level error.

        :param started: when it arrived, by ``time.perf_counter``
        """
        self.total_ms.observe((perf_counter() - started) * 1000)

    def answered(self, started: float, response: object) -> None:
        """Count a request whose response is known.

        :param started: as of :meth:`took`
        """
        self.took(started)
        code = getattr(response, "error_code", None)
        if code:
            self.errors[code] += 1


class CoordinatorMetrics:
    """Of one coordinator's writes: the records, those of each kind without tombstones, and each
    batch's append.
    """

    def __init__(self) -> None:
        self.records = 0
        self.kinds: Counter[type] = Counter()
        self.append_ms = Histogram(DURATION_BOUNDS_MS)

    def wrote(self, records: Sequence[object], started: float) -> None:
        """A batch of records was appended and replayed."""
        self.records += len(records)
        self.kinds.update(
            [type(record) for record in records if getattr(record, "value", 0) is not None]
        )
        self.append_ms.observe((perf_counter() - started) * 1000)


class CleanerMetrics:
    """Of compaction.

    :ivar rounds: over one log each, finished
    :ivar failures: rounds that damage or a full disk has ended
    :ivar keys: different keys in what was cleaned for the first time
    """

    def __init__(self) -> None:
        self.rounds = self.failures = self.read_bytes = self.written_bytes = self.keys = 0

    def cleaned(self, one: Round) -> None:
        """A round has ended well."""
        self.rounds += 1
        self.read_bytes += one.read_bytes
        self.written_bytes += one.written_bytes
        self.keys += one.keys


class Metrics:
    """All that one broker counts.

    :ivar started: in seconds since the epoch
    :ivar requests: by api key
    :ivar connections: those that are open
    :ivar refused_produces: batches of producers that were refused, by topic name
    :ivar coordinators: by the name of their topic
    """

    def __init__(self, known_topics: Container[UUID]) -> None:
        self._known_topics = known_topics
        self.started = time()
        self.requests: defaultdict[int, RequestMetrics] = defaultdict(RequestMetrics)
        self.connections_accepted = 0
        self.connections: set[Any] = set()
        self.received_bytes = 0
        self.sent_bytes = 0
        self.refused_produces: Counter[str] = Counter()
        self.cleaner = CleanerMetrics()
        self.coordinators: defaultdict[str, CoordinatorMetrics] = defaultdict(CoordinatorMetrics)

    @cached_property
    def share(self) -> ShareMetrics:
        """Those of share groups, which not every broker has."""
        from .share import ShareMetrics

        return ShareMetrics(self._known_topics)
