"""The part of the metrics page that walks over topics and groups, of which there may be many."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

from headrace.broker.broker import Broker
from headrace.broker.catalog import Topic
from headrace.broker.limits import MAX_METRIC_PARTITIONS, SCRAPE_LOADING_MS
from headrace.errors import Refusal
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.kinds import Group
from headrace.groups.offsets.committed import CommittedOffsets
from headrace.groups.share.group import ShareGroup
from headrace.log.partition_log import PartitionLog
from headrace.share.records import UNKNOWN, SharePartitionKey

from .text import Page, labels

_AT_ONCE = 100  # partitions looked at before others may work
_CLASSIC_STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")


class SharePartitionRow(NamedTuple):
    """What is told of one share-partition."""

    label: str
    start_offset: int
    end_offset: int
    lag: int | None
    in_flight: int | None
    in_flight_batches: int | None
    lock_timeouts: int


class Walk:
    """The part of a page that walks over topics and groups, of which there may be many."""

    def __init__(self, broker: Broker, made: Page) -> None:
        self.broker = broker
        self.page = made
        self.left_out: Counter[str] = Counter()
        self._loading_ms = 0.0
        self._seen = 0

    async def _loaded(self, partition_log: PartitionLog | None) -> bool:
        """Whether a log may be looked at: it was used before, or there is time to open it."""
        if partition_log is None or partition_log.is_loaded:
            return partition_log is not None
        if self._loading_ms >= SCRAPE_LOADING_MS:
            return False
        started = time.perf_counter()
        _ = partition_log.end_offset
        self._loading_ms += (time.perf_counter() - started) * 1000
        await self.page.pause()
        return True

    async def _tick(self) -> None:
        """Let others work now and then."""
        self._seen += 1
        if self._seen % _AT_ONCE == 0:
            await self.page.pause()

    async def logs(self) -> None:
        """Offsets and sizes of all partitions that have records."""
        rows: list[tuple[str, int, int, int]] = []
        count = 0
        topics = list(self.broker.catalog.topics.values())
        for topic in topics:
            for partition in self.broker.logs.existing_partitions(topic.name, topic.partitions):
                count += 1
                known = self._of(topic)
                partition_log = self.broker.log(known, partition) if known is not None else None
                if count > MAX_METRIC_PARTITIONS or not await self._loaded(partition_log):
                    self.left_out["partitions"] += 1
                    continue
                assert partition_log is not None
                size = partition_log.size_bytes()
                label = labels(topic=topic.name, partition=partition)
                rows.append((label, partition_log.log_start_offset, partition_log.end_offset, size))
                await self._tick()
        for i, name, meaning in (
            (1, "logstartoffset", "First offset of a partition."),
            (2, "logendoffset", "Offset that the next record of a partition gets."),
            (3, "size", "Bytes of a partition's log."),
        ):
            self.page.family(f"kafka_log_log_{name}", "gauge", meaning)
            for row in rows:
                self.page.sample(row[i], row[0])  # type: ignore[arg-type]
                await self.page.breathe()
        partitions = sum(topic.partitions for topic in topics)
        prefix = "kafka_controller_kafkacontroller_global"
        self.page.one(f"{prefix}topiccount", "gauge", "Topics.", len(topics))
        self.page.one(f"{prefix}partitioncount", "gauge", "Partitions of all topics.", partitions)

    def _of(self, topic: Topic) -> Topic | None:
        """The topic, if it is still there."""
        return self.broker.catalog.topics_by_id.get(topic.topic_id)

    async def groups(self) -> None:
        """Groups by kind and state, their members, and how far the consumer groups are."""
        groups = list(self._groups())
        kinds: Counter[str] = Counter({"classic": 0, "consumer": 0, "share": 0})
        states: Counter[tuple[str, str]] = Counter()
        self.page.family("headrace_group_members", "gauge", "Members of a group.")
        for group in groups:
            kinds[group.type_name] += 1
            states[group.type_name, group.state_name] += 1
            self.page.sample(_members(group), labels(group=group.group_id, type=group.type_name))
            await self.page.breathe()
        _group_counts(self.page, kinds, states)
        await self._consumer_lag()

    def _groups(self) -> Collection[Group]:
        coordinator = self.broker.coordinators.loaded_groups
        return () if coordinator is None else coordinator.groups.values()

    async def _consumer_lag(self) -> None:
        rows: list[tuple[str, int, int | None]] = []
        coordinator = self.broker.coordinators.loaded_groups
        offsets = (
            CommittedOffsets(self.broker.config) if coordinator is None else coordinator.offsets
        )
        for group_id in list(offsets):
            for name, committed in list(offsets.of_group(group_id).items()):
                topic = self.broker.catalog.topics.get(name)
                for partition, one in list(committed.items()):
                    if len(rows) >= MAX_METRIC_PARTITIONS:
                        self.left_out["consumer_group_partitions"] += 1
                        continue
                    partition_log = None if topic is None else self.broker.log(topic, partition)
                    lag = None
                    if await self._loaded(partition_log):
                        assert partition_log is not None
                        lag = max(partition_log.end_offset - one.offset, 0)
                    rows.append(
                        (labels(group=group_id, topic=name, partition=partition), one.offset, lag)
                    )
                    await self._tick()
        made = self.page
        made.one(
            "kafka_coordinator_group_groupmetadatamanager_numoffsets",
            "gauge",
            "Committed offsets.",
            len(rows) + self.left_out["consumer_group_partitions"],
        )
        made.family(
            "headrace_consumer_group_offset", "gauge", "Committed offset of a consumer group."
        )
        for label, offset, _ in rows:
            made.sample(offset, label)
            await made.breathe()
        made.family(
            "headrace_consumer_group_lag",
            "gauge",
            "Records from the committed offset to the log's end.",
        )
        for label, _, lag in rows:
            if lag is not None:
                made.sample(lag, label)
            await made.breathe()

    async def share_groups(self) -> None:
        """How far the share groups are, and what is in flight."""
        rows = [row async for row in self._share_partitions()]
        prefix = "kafka_server_sharepartitionmetrics_"
        for i, name, kind, meaning in (
            (
                1,
                "headrace_share_group_start_offset",
                "gauge",
                "First record that is not finished (SPSO).",
            ),
            (
                2,
                "headrace_share_group_end_offset",
                "gauge",
                "End of the log that the share group reads.",
            ),
            (
                3,
                "headrace_share_group_lag",
                "gauge",
                "Records that the share group has still to finish (KIP-1226).",
            ),
            (
                4,
                f"{prefix}inflightmessagecount",
                "gauge",
                "Records between start and end of a share-partition.",
            ),
            (5, f"{prefix}inflightbatchcount", "gauge", "In how many batches those were acquired."),
            (
                6,
                f"{prefix}acquisitionlocktimeout_total",
                "counter",
                "Records whose acquisition lock ran out.",
            ),
        ):
            self.page.family(name, kind, meaning)
            for row in rows:
                value = row[i]
                if value is not None:
                    self.page.sample(value, row.label)  # type: ignore[arg-type]
                await self.page.breathe()

    async def _share_partitions(self) -> AsyncIterator[SharePartitionRow]:
        groups = [group for group in self._groups() if isinstance(group, ShareGroup)]
        self.broker.metrics.share.forget(
            (group.group_id for group in groups), self.broker.catalog.topics_by_id
        )
        count = 0
        for group in groups:
            for topic_id, partition in _share_partitions(group):
                count += 1
                if count > MAX_METRIC_PARTITIONS:
                    self.left_out["share_partitions"] += 1
                    continue
                topic = self.broker.catalog.topics_by_id.get(topic_id)
                partition_log = None if topic is None else self.broker.log(topic, partition)
                if topic is not None and await self._loaded(partition_log):
                    assert partition_log is not None
                    yield self._share_partition(
                        group.group_id, topic, partition, partition_log.end_offset
                    )
                await self._tick()

    def _share_partition(
        self, group_id: str, topic: Topic, partition: int, end_offset: int
    ) -> SharePartitionRow:
        key = SharePartitionKey(group_id, topic.topic_id, partition)
        summary = self.broker.share_state.summary(key, topic.partitions)
        partitions = self.broker.coordinators.loaded_share
        loaded = None if partitions is None else partitions.loaded(*key)
        start, lag = UNKNOWN, None
        if not isinstance(summary, Refusal) and UNKNOWN not in (
            summary.start_offset,
            summary.delivery_complete_count,
        ):
            start = summary.start_offset
            lag = end_offset - start - summary.delivery_complete_count
        return SharePartitionRow(
            labels(group=group_id, topic=topic.name, partition=partition),
            start,
            end_offset,
            lag,
            None if loaded is None else loaded.partition.in_flight,
            None if loaded is None else loaded.partition.in_flight_batches,
            self.broker.metrics.share.lock_timeouts.get(key, 0),
        )

    async def share_histograms(self) -> None:
        """What is counted of each share group."""
        made, share = self.page, self.broker.metrics.share
        prefix = "kafka_server_sharegroupmetrics_"
        for attribute, name, meaning in (
            (
                "acquire_ms",
                f"{prefix}topicpartitionsacquiretimems",
                "Until a ShareFetch had records, in milliseconds.",
            ),
            (
                "fetch_percent",
                f"{prefix}requesttopicpartitionsfetchratio",
                "Percentage of its partitions that gave records to a ShareFetch that got some.",
            ),
            (
                "batch_records",
                "kafka_server_sharepartitionmetrics_inflightbatchmessagecount",
                "Records in each batch that was acquired.",
            ),
        ):
            made.family(name, "histogram", meaning)
            for group_id, group in list(share.groups.items()):
                made.histogram(getattr(group, attribute), labels(group=group_id))
                await made.breathe()
        partitions = self.broker.coordinators.loaded_share
        dead_letters = [] if partitions is None else list(partitions.dead_letters.counts.items())
        for attribute, name, meaning in (
            ("records", "recordcount_total", "Records written to the dead-letter queue."),
            ("writes", "totalproducerequests_total", "Batches for the dead-letter queue."),
            (
                "failed_writes",
                "failedproducerequests_total",
                "Writes to the dead-letter queue that failed.",
            ),
        ):
            made.family(f"{prefix}deadletterqueue{name}", "counter", meaning)
            for group_id, counts in dead_letters:
                made.sample(getattr(counts, attribute), labels(group=group_id))
                await made.breathe()


def _members(group: Group) -> int:
    if isinstance(group, ConsumerGroup):
        return len(group.state.members)
    return len(group.members)


def _share_partitions(group: ShareGroup) -> Iterator[tuple[UUID, int]]:
    for topic_id, shared in group.state_partitions.initialized.items():
        for partition in shared.partitions:
            yield topic_id, partition


def _group_counts(
    made: Page, kinds: Mapping[str, int], states: Mapping[tuple[str, str], int]
) -> None:
    prefix = "kafka_server_group_coordinator_metrics_"
    made.family(f"{prefix}group_count", "gauge", "Groups by protocol.")
    for kind, count in kinds.items():
        made.sample(count, labels(protocol=kind))
    made.family(f"{prefix}consumer_group_count", "gauge", "Consumer groups by state.")
    for state in ("Empty", "Assigning", "Reconciling", "Stable", "Dead"):
        made.sample(states.get(("consumer", state), 0), labels(state=state))
    made.family(f"{prefix}share_group_count", "gauge", "Share groups by state.")
    for state in ("Empty", "Stable", "Dead"):
        made.sample(states.get(("share", state), 0), labels(state=state))
    prefix = "kafka_coordinator_group_groupmetadatamanager_numgroups"
    made.one(prefix, "gauge", "Classic groups.", kinds["classic"])
    for state in _CLASSIC_STATES:
        count = states.get(("classic", state), 0)
        made.one(f"{prefix}{state.lower()}", "gauge", f"Classic groups that are {state}.", count)
