"""Counters of share groups; see ``docs/metrics.md``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from time import perf_counter
from uuid import UUID

from headrace.metric_family import Histogram, histogram, metric
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.share.acknowledgement import ACCEPT, REJECT, RELEASE, RENEW, AcknowledgementBatch
from headrace.share.acquisition_locks import AcquiredRecords
from headrace.share.records import SharePartitionKey

PERCENT_BOUNDS = (0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 100.0)
"""The bounds of histograms of percentages."""

RECORDS_BOUNDS = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2000.0)
"""The bounds of histograms of numbers of records."""


@dataclass(slots=True)
class ShareTopicMetrics:
    """Counters of ShareFetch and ShareAcknowledge of one topic, or of all topics."""

    fetches: int = metric(
        "kafka_server_brokertopicmetrics_totalsharefetchrequests_total",
        "ShareFetches; without the label topic, of all topics.",
    )
    failed_fetches: int = metric(
        "kafka_server_brokertopicmetrics_failedsharefetchrequests_total",
        "Partitions of ShareFetches that had an error.",
    )
    acknowledges: int = metric(
        "kafka_server_brokertopicmetrics_totalshareacknowledgementrequests_total",
        "Requests with acknowledgements; without the label topic, of all topics.",
    )
    failed_acknowledges: int = metric(
        "kafka_server_brokertopicmetrics_failedshareacknowledgementrequests_total",
        "Partitions whose acknowledgements were refused.",
    )


@dataclass(slots=True)
class ShareGroupMetrics:
    """Counters of one share group.

    :ivar lock_timeouts: number of records whose acquisition lock timed out, by share-partition
    :ivar archived: number of records that were archived without having been accepted, likewise
    :ivar late: number of records that were acknowledged after their lock, likewise
    :ivar late_told_ms: when the last log line about them was written, in steady milliseconds
    """

    acquire_ms: Histogram = histogram(
        "kafka_server_sharegroupmetrics_topicpartitionsacquiretimems",
        "Time in which a ShareFetch acquired records, in milliseconds.",
    )
    fetch_percent: Histogram = histogram(
        "kafka_server_sharegroupmetrics_requesttopicpartitionsfetchratio",
        "Percentage of its partitions from which such a ShareFetch acquired records.",
        PERCENT_BOUNDS,
    )
    batch_records: Histogram = histogram(
        "kafka_server_sharepartitionmetrics_inflightbatchmessagecount",
        "Records in each acquired batch.",
        RECORDS_BOUNDS,
    )
    lock_timeouts: Counter[SharePartitionKey] = field(default_factory=Counter)
    archived: Counter[SharePartitionKey] = field(default_factory=Counter)
    late: Counter[SharePartitionKey] = field(default_factory=Counter)
    late_told_ms: int | None = None


@dataclass
class ShareMetrics:
    """Counters of all share groups. Those of a topic or a group end with it.

    :param known_topics: the ids of the topics that exist
    :ivar acknowledged: number of acknowledged records by acknowledge type, without refused ones
    :ivar all_topics: counters of all topics together
    :ivar topics: counters by topic id
    :ivar groups: counters by group id
    :ivar delayed_fetches: number of ShareFetches that are waiting
    """

    known_topics: Container[UUID]
    acknowledged: dict[int, int] = field(
        default_factory=lambda: {ACCEPT: 0, RELEASE: 0, REJECT: 0, RENEW: 0}
    )
    all_topics: ShareTopicMetrics = field(default_factory=ShareTopicMetrics)
    topics: dict[UUID, ShareTopicMetrics] = field(default_factory=dict)
    unknown_topics: ShareTopicMetrics = field(default_factory=ShareTopicMetrics)
    """One for all: clients may send any id."""
    groups: defaultdict[str, ShareGroupMetrics] = field(
        default_factory=lambda: defaultdict(ShareGroupMetrics)
    )
    delayed_fetches: int = 0
    partition_load_ms: Histogram = histogram(
        "kafka_server_sharegroupmetrics_partitionloadtimems",
        "Time to load a share-partition, in milliseconds.",
    )
    session_evictions: int = metric(
        "kafka_server_sharesessioncache_sharesessionevictions_total",
        "Share sessions that ended with their connection.",
    )
    expired_fetches: int = metric(
        "kafka_server_delayedsharefetchmetrics_expires_total",
        "ShareFetches that timed out without records.",
    )

    def _topic(self, topic_id: UUID) -> ShareTopicMetrics:
        counters = self.topics.get(topic_id)
        if counters is None:
            if topic_id not in self.known_topics:
                return self.unknown_topics
            counters = self.topics[topic_id] = ShareTopicMetrics()
        return counters

    def of_group(self, group_id: str) -> ShareGroupMetrics:
        """Return the counters of a group, for reading."""
        return self.groups.get(group_id, _NONE)

    def fetch(self, partitions: Iterable[SharePartitionKey]) -> None:
        """Count a ShareFetch of these partitions."""
        self.all_topics.fetches += 1
        for topic_id in {key.topic_id for key in partitions}:
            self._topic(topic_id).fetches += 1

    def fetched(
        self,
        group_id: str,
        started: float,
        partitions: int,
        results: Sequence[tuple[UUID, ErrorCode, Sequence[AcquiredRecords]]],
    ) -> None:
        """Count the result of a ShareFetch.

        :param started: its start, by ``time.perf_counter``
        :param partitions: the number of partitions of its session
        :param results: topic id, error and acquired records of each partition that has an error or
            records
        """
        for topic_id, code, _ in results:
            if code:
                self._topic(topic_id).failed_fetches += 1
                self.all_topics.failed_fetches += 1
        successful = [acquired for _, _, acquired in results if acquired]
        if successful:
            group = self.groups[group_id]
            group.acquire_ms.observe((perf_counter() - started) * 1000)
            group.fetch_percent.observe(100 * len(successful) / partitions)
            for first, last, _ in chain.from_iterable(successful):
                group.batch_records.observe(last - first + 1)

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
                for acknowledge_type in acknowledged:
                    acknowledged[acknowledge_type] += types.count(acknowledge_type)

    def topics_deleted(self, topic_ids: Collection[UUID]) -> Iterator[None]:
        """Drop the counters of topics; yield between pieces of work."""
        for topic_id in topic_ids:
            self.topics.pop(topic_id, None)
        for group in list(self.groups.values()):
            for counts in (group.lock_timeouts, group.archived, group.late):
                for key in [key for key in counts if key.topic_id in topic_ids]:
                    del counts[key]
            yield


_NONE = ShareGroupMetrics()
"""The counters of a group that has none."""
