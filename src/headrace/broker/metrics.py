"""What a broker counts while it works. Here is nothing but whole numbers that go up; see ``docs/metrics.md``.

What can be found by looking (how far groups are, how large logs are) is not counted here:
:mod:`headrace.broker.metrics_page` looks when it is asked. What is counted costs a few additions, asked for or not.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Sequence
from time import perf_counter, time
from typing import Any
from uuid import UUID

from headrace.errors import ErrorCode, Refusal
from headrace.log.cleaner import Round
from headrace.share.acknowledgement import ACCEPT, REJECT, RELEASE, RENEW, AcknowledgementBatch
from headrace.share.acquisition_locks import AcquiredRecords
from headrace.share.records import SharePartitionKey

DURATION_BOUNDS_MS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 10_000.0)
PERCENT_BOUNDS = (0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 100.0)
RECORDS_BOUNDS = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2000.0)


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

    def answered(self, started: float, response: object) -> None:
        """Count a request whose response is known.

        :param started: when it began, by ``time.perf_counter``
        """
        self.total_ms.observe((perf_counter() - started) * 1000)
        code = getattr(response, "error_code", None)
        if code:
            self.errors[code] += 1


class ShareTopicMetrics:
    """ShareFetch and ShareAcknowledge of one topic, or of all."""

    __slots__ = ("acknowledges", "failed_acknowledges", "failed_fetches", "fetches")

    def __init__(self) -> None:
        self.fetches = self.failed_fetches = self.acknowledges = self.failed_acknowledges = 0


class ShareGroupMetrics:
    """Of one share group.

    :ivar acquire_ms: how long a ShareFetch that got records took to get them
    :ivar fetch_percent: of the partitions of a session, how many gave records to a ShareFetch
    :ivar batch_records: records in each run that was acquired
    """

    __slots__ = ("acquire_ms", "batch_records", "fetch_percent")

    def __init__(self) -> None:
        self.acquire_ms = Histogram(DURATION_BOUNDS_MS)
        self.fetch_percent = Histogram(PERCENT_BOUNDS)
        self.batch_records = Histogram(RECORDS_BOUNDS)


class ShareMetrics:
    """Of all share groups.

    :ivar acknowledged: records by acknowledge type, of acknowledgements that were not refused
    :ivar lock_timeouts: records whose lock ran out, by share-partition
    :ivar delayed_fetches: how many ShareFetches wait now
    :ivar expired_fetches: how many waited in vain
    """

    def __init__(self, known_topics: Container[UUID]) -> None:
        self._known_topics = known_topics
        self._strangers = ShareTopicMetrics()  # whatever ids clients make up
        self.acknowledged = {ACCEPT: 0, RELEASE: 0, REJECT: 0, RENEW: 0}
        self.all_topics = ShareTopicMetrics()
        self.topics: dict[UUID, ShareTopicMetrics] = {}
        self.groups: dict[str, ShareGroupMetrics] = {}
        self.lock_timeouts: Counter[SharePartitionKey] = Counter()
        self.partition_load_ms = Histogram(DURATION_BOUNDS_MS)
        self.session_evictions = 0
        self.delayed_fetches = 0
        self.expired_fetches = 0

    def _topic(self, topic_id: UUID) -> ShareTopicMetrics:
        found = self.topics.get(topic_id)
        if found is None:
            if topic_id not in self._known_topics:
                return self._strangers
            found = self.topics[topic_id] = ShareTopicMetrics()
        return found

    def fetch(self, partitions: Iterable[tuple[UUID, int]]) -> None:
        """A ShareFetch of these partitions begins."""
        self.all_topics.fetches += 1
        for topic_id in {topic_id for topic_id, _ in partitions}:
            self._topic(topic_id).fetches += 1

    def fetched(
        self,
        group_id: str,
        started: float,
        asked: int,
        results: Iterable[tuple[UUID, ErrorCode, Sequence[AcquiredRecords]]],
    ) -> None:
        """A ShareFetch is answered.

        :param started: when it began, by ``time.perf_counter``
        :param asked: how many partitions its session has
        :param results: of each partition with an error or records: topic, error and what was acquired
        """
        sizes: list[int] = []
        successful = 0
        for topic_id, code, acquired in results:
            if code:
                self._topic(topic_id).failed_fetches += 1
                self.all_topics.failed_fetches += 1
            elif acquired:
                successful += 1
                sizes += [last - first + 1 for first, last, _ in acquired]
        if successful:
            group = self.groups.get(group_id)
            if group is None:
                group = self.groups[group_id] = ShareGroupMetrics()
            group.acquire_ms.observe((perf_counter() - started) * 1000)
            group.fetch_percent.observe(100 * successful / asked)
            for size in sizes:
                group.batch_records.observe(size)

    def acknowledges(self, topic_ids: Iterable[UUID]) -> None:
        """A request acknowledges records of these topics."""
        self.all_topics.acknowledges += 1
        for topic_id in topic_ids:
            self._topic(topic_id).acknowledges += 1

    def acknowledge(self, topic_id: UUID, batches: Iterable[AcknowledgementBatch], refusal: Refusal | None) -> None:
        """The acknowledgements of one partition were applied or refused."""
        if refusal is not None:
            self._topic(topic_id).failed_acknowledges += 1
            self.all_topics.failed_acknowledges += 1
            return
        acknowledged = self.acknowledged
        for first, last, types in batches:
            if len(types) == 1:
                if types[0] in acknowledged:  # a gap is not counted, in Kafka neither
                    acknowledged[types[0]] += last - first + 1
            else:
                left = len(types)
                for acknowledge_type in acknowledged:
                    of_this = types.count(acknowledge_type)
                    acknowledged[acknowledge_type] += of_this
                    left -= of_this
                    if not left:
                        break

    def forget(self, groups: Iterable[str], topics: Iterable[UUID]) -> None:
        """Drop what is known of groups and topics that are no more.

        :param groups: those there are
        :param topics: likewise
        """
        known, topic_ids = set(groups), set(topics)
        for group_id in self.groups.keys() - known:
            del self.groups[group_id]
        for topic_id in self.topics.keys() - topic_ids:
            del self.topics[topic_id]
        for key in [key for key in self.lock_timeouts if key.group_id not in known or key.topic_id not in topic_ids]:
            del self.lock_timeouts[key]


class CoordinatorMetrics:
    """Of one coordinator's writes: the records, those of each kind (tombstones apart), and each batch's append."""

    def __init__(self) -> None:
        self.records = 0
        self.kinds: Counter[tuple[type, bool]] = Counter()
        self.append_ms = Histogram(DURATION_BOUNDS_MS)

    def wrote(self, records: Sequence[object], started: float) -> None:
        """A batch of records was appended and replayed."""
        self.records += len(records)
        for record in records:
            self.kinds[type(record), getattr(record, "value", 0) is None] += 1
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
        self.started = time()
        self.requests: defaultdict[int, RequestMetrics] = defaultdict(RequestMetrics)
        self.connections_accepted = 0
        self.connections: set[Any] = set()
        self.received_bytes = 0
        self.sent_bytes = 0
        self.refused_produces: Counter[str] = Counter()
        self.share = ShareMetrics(known_topics)
        self.cleaner = CleanerMetrics()
        self.coordinators: defaultdict[str, CoordinatorMetrics] = defaultdict(CoordinatorMetrics)
