"""Counters of share groups; see ``docs/metrics.md``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from time import perf_counter
from uuid import UUID

from headrace.errors import ErrorCode, Refusal
from headrace.histogram import DURATION_BOUNDS_MS, Histogram
from headrace.share.acknowledgement import ACCEPT, REJECT, RELEASE, RENEW, AcknowledgementBatch
from headrace.share.acquisition_locks import AcquiredRecords
from headrace.share.records import SharePartitionKey

PERCENT_BOUNDS = (0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 100.0)
"""The bounds of histograms of percentages."""

RECORDS_BOUNDS = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2000.0)
"""The bounds of histograms of numbers of records."""


class ShareTopicMetrics:
    """Counters of ShareFetch and ShareAcknowledge of one topic, or of all topics."""

    __slots__ = ("acknowledges", "failed_acknowledges", "failed_fetches", "fetches")

    def __init__(self) -> None:
        self.fetches = self.failed_fetches = self.acknowledges = self.failed_acknowledges = 0


class ShareGroupMetrics:
    """Counters of one share group.

    :ivar acquire_ms: time in which a ShareFetch acquired records; without those that acquired none
    :ivar fetch_percent: percentage of the session's partitions from which such a ShareFetch
        acquired records
    :ivar batch_records: number of records in each acquired batch
    :ivar lock_timeouts: number of records whose acquisition lock timed out, by topic id and
        partition
    :ivar archived: number of records that were archived without having been accepted, likewise
    :ivar late: number of records that were acknowledged after their lock, likewise
    """

    __slots__ = (
        "acquire_ms",
        "archived",
        "batch_records",
        "fetch_percent",
        "late",
        "lock_timeouts",
    )

    def __init__(self) -> None:
        self.acquire_ms = Histogram(DURATION_BOUNDS_MS)
        self.fetch_percent = Histogram(PERCENT_BOUNDS)
        self.batch_records = Histogram(RECORDS_BOUNDS)
        self.lock_timeouts: Counter[tuple[UUID, int]] = Counter()
        self.archived: Counter[tuple[UUID, int]] = Counter()
        self.late: Counter[tuple[UUID, int]] = Counter()


class ShareMetrics:
    """Counters of all share groups. Those of a topic or a group end with it.

    :param known_topics: the ids of the topics that exist
    :ivar acknowledged: number of acknowledged records by acknowledge type, without refused ones
    :ivar all_topics: counters of all topics together
    :ivar topics: counters by topic id
    :ivar groups: counters by group id
    :ivar partition_load_ms: time to load a share-partition
    :ivar session_evictions: number of share sessions that ended with their connection
    :ivar delayed_fetches: number of ShareFetches that are waiting
    :ivar expired_fetches: number of ShareFetches that timed out without records
    """

    def __init__(self, known_topics: Container[UUID]) -> None:
        self._known_topics = known_topics
        self._unknown_topics = ShareTopicMetrics()  # one for all: clients may send any id
        self.acknowledged = {ACCEPT: 0, RELEASE: 0, REJECT: 0, RENEW: 0}
        self.all_topics = ShareTopicMetrics()
        self.topics: dict[UUID, ShareTopicMetrics] = {}
        self.groups: dict[str, ShareGroupMetrics] = {}
        self.partition_load_ms = Histogram(DURATION_BOUNDS_MS)
        self.session_evictions = 0
        self.delayed_fetches = 0
        self.expired_fetches = 0

    def _topic(self, topic_id: UUID) -> ShareTopicMetrics:
        found = self.topics.get(topic_id)
        if found is None:
            if topic_id not in self._known_topics:
                return self._unknown_topics
            found = self.topics[topic_id] = ShareTopicMetrics()
        return found

    def _group(self, group_id: str) -> ShareGroupMetrics:
        found = self.groups.get(group_id)
        if found is None:
            found = self.groups[group_id] = ShareGroupMetrics()
        return found

    def fetch(self, partitions: Iterable[tuple[UUID, int]]) -> None:
        """Count a ShareFetch of these partitions."""
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
        """Count the result of a ShareFetch.

        :param started: its start, by ``time.perf_counter``
        :param asked: the number of partitions of its session
        :param results: topic id, error and acquired records of each partition that has an error or
            records
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
            group = self._group(group_id)
            group.acquire_ms.observe((perf_counter() - started) * 1000)
            group.fetch_percent.observe(100 * successful / asked)
            for size in sizes:
                group.batch_records.observe(size)

    def acknowledges(self, topic_ids: Iterable[UUID]) -> None:
        """Count a request with acknowledgements for these topics."""
        self.all_topics.acknowledges += 1
        for topic_id in topic_ids:
            self._topic(topic_id).acknowledges += 1

    def acknowledge(
        self, topic_id: UUID, batches: Iterable[AcknowledgementBatch], refusal: Refusal | None
    ) -> None:
        """Count the acknowledgements of one partition, which were applied or refused."""
        if refusal is not None:
            self._topic(topic_id).failed_acknowledges += 1
            self.all_topics.failed_acknowledges += 1
            return
        acknowledged = self.acknowledged
        for first, last, types in batches:
            if len(types) == 1:
                if types[0] in acknowledged:  # gaps are not counted, as in Kafka
                    acknowledged[types[0]] += last - first + 1
            else:
                left = len(types)
                for acknowledge_type in acknowledged:
                    of_this = types.count(acknowledge_type)
                    acknowledged[acknowledge_type] += of_this
                    left -= of_this
                    if not left:
                        break

    def locks_timed_out(self, key: SharePartitionKey, records: int) -> None:
        """Count records whose acquisition lock timed out."""
        self._group(key.group_id).lock_timeouts[key.topic_id, key.partition] += records

    def lock_timeouts(self, key: SharePartitionKey) -> int:
        """Return the number of a share-partition's records whose acquisition lock timed out."""
        group = self.groups.get(key.group_id)
        return 0 if group is None else group.lock_timeouts[key.topic_id, key.partition]

    def archived(self, key: SharePartitionKey, records: int) -> None:
        """Count records that are archived without having been accepted."""
        self._group(key.group_id).archived[key.topic_id, key.partition] += records

    def archived_count(self, key: SharePartitionKey) -> int:
        """Return the number of a share-partition's records that were archived without having been
        accepted.
        """
        group = self.groups.get(key.group_id)
        return 0 if group is None else group.archived[key.topic_id, key.partition]

    def late(self, key: SharePartitionKey, records: int) -> None:
        """Count records that were acknowledged after their lock."""
        self._group(key.group_id).late[key.topic_id, key.partition] += records

    def late_total(self, group_id: str) -> int:
        """Return the number of a group's records that were acknowledged after their lock. It takes
        time by the number of share-partitions.
        """
        return self._group(group_id).late.total()

    def late_count(self, key: SharePartitionKey) -> int:
        """Return the number of a share-partition's records that were acknowledged after their
        lock.
        """
        group = self.groups.get(key.group_id)
        return 0 if group is None else group.late[key.topic_id, key.partition]

    def group_deleted(self, group_id: str) -> None:
        """Drop the counters of a group."""
        self.groups.pop(group_id, None)

    def topics_deleted(self, topic_ids: Collection[UUID]) -> Iterator[None]:
        """Drop the counters of topics; yield between pieces of work."""
        for topic_id in topic_ids:
            self.topics.pop(topic_id, None)
        for group in list(self.groups.values()):
            for counts in (group.lock_timeouts, group.archived, group.late):
                for key in [key for key in counts if key[0] in topic_ids]:
                    del counts[key]
            yield
