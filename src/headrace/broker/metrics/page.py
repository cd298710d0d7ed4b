"""The metrics page of a broker: its counters, and what a scrape reads from its state.

``docs/metrics.md`` says how names are made from Kafka's. The page is written in slices, between
which requests are served. So samples of two partitions may be of different moments; all samples of
one partition are of the same moment.
"""

from __future__ import annotations

import os
import resource
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from importlib.metadata import version

from headrace.broker.broker import Broker
from headrace.coordinators.dead_letters import DeadLetterCounts
from headrace.coordinators.share_metrics import ShareGroupMetrics, ShareTopicMetrics
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.meters import GroupMeters
from headrace.groups.records import SHARE_RECORDS, OffsetCommit
from headrace.groups.service import Group
from headrace.groups.share.group import ShareGroup
from headrace.handlers import APIS
from headrace.log.partition_log import PartitionLog
from headrace.log_lines import LimitedLog
from headrace.metric_family import labels, metric
from headrace.net.metrics import Metrics, RequestMetrics
from headrace.protocol.errors import ErrorCode
from headrace.protocol.internal_topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from headrace.share.records import UNKNOWN, SharePartitionKey
from headrace.share.share_session import ShareSessions
from headrace.share.share_state import ShareState
from headrace.topics.catalog import Topic
from headrace.topics.topic_logs import TOPICS_PER_TURN

from .text import MetricsPage

_VERSION = version("headrace")
_ACKNOWLEDGE_TYPES = "Accept", "Release", "Reject", "Renew"
"""By their numbers, which begin with 1."""


MAX_METRIC_PARTITIONS = 50_000
"""Partitions with metrics, and partitions of groups with metrics. The number of those left out is a
metric, too.
"""

SCRAPE_LOADING_MS = 100
"""The time that one scrape spends on opening logs that were not used since the start. The next one
continues.
"""

limited = LimitedLog("headrace.metrics")

_PARTITIONS_PER_SLICE = 100
_STATES = {
    "classic": "PreparingRebalance CompletingRebalance Stable Dead Empty",
    "consumer": "Empty Assigning Reconciling Stable Dead",
    "share": "Empty Stable Dead",
    "streams": "Empty NotReady Assigning Reconciling Stable Dead",
}
"""The states that are counted, by type of group."""


@dataclass(slots=True)
class _LogRow:
    """The metrics of one partition's log."""

    start_offset: int = metric("kafka_log_log_logstartoffset", "First offset of a partition.")
    end_offset: int = metric(
        "kafka_log_log_logendoffset", "Offset of the next record of a partition."
    )
    size_bytes: int = metric("kafka_log_log_size", "Bytes of a partition's log.")


@dataclass(slots=True)
class _OffsetRow:
    """The metrics of one committed offset. The lag is None while the log is not loaded."""

    offset: int = metric("headrace_consumer_group_offset", "Committed offset of a consumer group.")
    lag: int | None = metric(
        "headrace_consumer_group_lag", "Records from the committed offset to the end of the log."
    )


@dataclass(slots=True)
class _SharePartitionRow:
    """The metrics of one share-partition; None for those without a sample."""

    start_offset: int = metric(
        "headrace_share_group_start_offset", "First record that is not finished (SPSO)."
    )
    end_offset: int = metric(
        "headrace_share_group_end_offset", "End of the log that the share group reads."
    )
    lag: int | None = metric(
        "headrace_share_group_lag", "Records that the share group has not finished (KIP-1226)."
    )
    in_flight: int | None = metric(
        "kafka_server_sharepartitionmetrics_inflightmessagecount",
        "Records between start and end of a share-partition.",
    )
    in_flight_batches: int | None = metric(
        "kafka_server_sharepartitionmetrics_inflightbatchcount",
        "Batches in which those were acquired.",
    )
    lock_timeouts: int = metric(
        "kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total",
        "Records whose acquisition lock timed out.",
    )


@dataclass
class MetricsScrape:
    """One scrape of a broker's logs and groups.

    It reads only what is loaded, and loads no coordinator. Logs are loaded for at most
    ``SCRAPE_LOADING_MS``.

    :ivar left_out: number of partitions without metrics, by the kind of metrics
    """

    _broker: Broker
    _page: MetricsPage
    _loading_ms: float = 0.0
    _partitions: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = metric(
        "headrace_scrape_left_out",
        "Partitions without metrics on this page: too many, or with logs that are not loaded.",
        "what",
    )

    async def _admits(self, kind: str) -> bool:
        """Count a partition of a kind, and return False if there are too many of it. Yield to the
        event loop after every :data:`_PARTITIONS_PER_SLICE` partitions.
        """
        self._partitions[kind] += 1
        if self._partitions.total() % _PARTITIONS_PER_SLICE == 0:
            await self._page.yield_to_loop()
        if self._partitions[kind] <= MAX_METRIC_PARTITIONS:
            return True
        self.left_out[kind] += 1
        return False

    async def _log(self, topic: Topic | None, partition: int) -> PartitionLog | None:
        """Return the log of a partition, loaded; None if there is none, the time for loading is
        over, or the disk cannot be read.
        """
        partition_log = None if topic is None else self._broker.topic_logs.log(topic, partition)
        if partition_log is None or partition_log.is_loaded:
            return partition_log
        if self._loading_ms >= SCRAPE_LOADING_MS:
            return None
        started = time.perf_counter()
        try:
            partition_log.load()
        except OSError as error:
            path = partition_log.path
            limited.error(path, "no metrics of %s, which cannot be opened: %s", path, error)
        self._loading_ms += (time.perf_counter() - started) * 1000
        await self._page.yield_to_loop()
        return partition_log if partition_log.is_loaded else None

    # Logs -----------------------------------------------------------------------------------------

    async def logs(self) -> None:
        """Write offsets and sizes of all partitions with records, and the number of topics."""
        topics = list(self._broker.catalog.topics.values())
        rows = []
        for number, topic in enumerate(topics):
            if number % TOPICS_PER_TURN == 0:
                await self._page.yield_to_loop()
            for partition in self._broker.logs.existing_partitions(topic.name, topic.partitions):
                if not await self._admits("partitions"):
                    continue
                partition_log = await self._log(topic, partition)
                if partition_log is None:
                    self.left_out["partitions"] += 1
                    continue
                row = _LogRow(
                    partition_log.log_start_offset,
                    partition_log.end_offset,
                    partition_log.size_bytes(),
                )
                rows.append((labels(topic=topic.name, partition=partition), row))
        await self._page.rows(_LogRow, rows)
        partitions = sum(topic.partitions for topic in topics)
        prefix = "kafka_controller_kafkacontroller_global"
        self._page.single(f"{prefix}topiccount", "Topics.", len(topics))
        self._page.single(f"{prefix}partitioncount", "Partitions of all topics.", partitions)

    # Groups ---------------------------------------------------------------------------------------

    def _groups(self) -> list[Group]:
        coordinator = self._broker.coordinators.loaded_groups
        return [] if coordinator is None else list(coordinator.groups.values())

    async def groups(self) -> None:
        """Write the groups by type and state, their members, and the consumer groups' lag."""
        types: Counter[str] = Counter(dict.fromkeys(_STATES, 0))
        states: Counter[tuple[str, str]] = Counter()
        self._page.family("headrace_group_members", "Members of a group.")
        for group in self._groups():
            types[group.type_name] += 1
            states[group.type_name, group.state_name] += 1
            members = (
                group.members.by_id if isinstance(group, ClassicGroup) else group.state.members
            )
            self._page.sample(len(members), labels(group=group.group_id, type=group.type_name))
            await self._page.end_slice_if_full()
        _write_group_counts(self._page, types, states)
        rows = [row async for row in self._offset_rows()]
        self._page.single(
            "kafka_coordinator_group_groupmetadatamanager_numoffsets",
            "Committed offsets.",
            len(rows) + self.left_out["consumer_group_partitions"],
        )
        await self._page.rows(_OffsetRow, rows)

    async def _offset_rows(self) -> AsyncIterator[tuple[str, _OffsetRow]]:
        coordinator = self._broker.coordinators.loaded_groups
        if coordinator is None:
            return
        offsets = coordinator.offsets.committed
        for group_id in list(offsets):
            for name, committed in list(offsets.of_group(group_id).items()):
                topic = self._broker.catalog.topics.get(name)
                for partition, commit in list(committed.items()):
                    if not await self._admits("consumer_group_partitions"):
                        continue
                    partition_log = await self._log(topic, partition)
                    lag = None
                    if partition_log is not None:
                        lag = max(partition_log.end_offset - commit.offset, 0)
                    label = labels(group=group_id, topic=name, partition=partition)
                    yield label, _OffsetRow(commit.offset, lag)

    # Share groups ---------------------------------------------------------------------------------

    async def share_groups(self) -> None:
        """Write offsets, lag and in-flight records of all share-partitions."""
        rows = []
        for group in self._groups():
            if not isinstance(group, ShareGroup):
                continue
            for topic_id, shared in group.state.partitions.initialized.items():
                for partition in shared.partitions:
                    if not await self._admits("share_partitions"):
                        continue
                    topic = self._broker.catalog.topics_by_id.get(topic_id)
                    partition_log = await self._log(topic, partition)
                    if topic is not None and partition_log is not None:
                        row = self._share_partition_row(
                            group.group_id, topic, partition, partition_log.end_offset
                        )
                        label = labels(group=group.group_id, topic=topic.name, partition=partition)
                        rows.append((label, row))
        await self._page.rows(_SharePartitionRow, rows)

    def _share_partition_row(
        self, group_id: str, topic: Topic, partition: int, end_offset: int
    ) -> _SharePartitionRow:
        key = SharePartitionKey(group_id, topic.topic_id, partition)
        coordinators = self._broker.coordinators
        state, share = coordinators.loaded_share_state, coordinators.loaded_share
        summary = ShareState() if state is None else state.state(key)
        loaded = None if share is None else share.loaded(key)
        start, lag = UNKNOWN, None
        if UNKNOWN not in (summary.start_offset, summary.delivery_complete_count):
            start = summary.start_offset
            lag = end_offset - start - summary.delivery_complete_count
        return _SharePartitionRow(
            start,
            end_offset,
            lag,
            None if loaded is None else loaded.partition.in_flight,
            None if loaded is None else len(loaded.partition.batches),
            self._broker.metrics.share.of_group(group_id).lock_timeouts[key],
        )

    async def share_group_counters(self) -> None:
        """Write the histograms and the counts of dead letters of each share group."""
        page = self._page
        groups = [
            (labels(group=group_id), counters)
            for group_id, counters in self._broker.metrics.share.groups.items()
        ]
        await page.rows(ShareGroupMetrics, groups)
        page.family(
            "headrace_share_group_late_acknowledgements_total",
            "Records that were acknowledged after the end of their acquisition lock.",
        )
        for label, counters in groups:
            page.sample(counters.late.total(), label)
            await page.end_slice_if_full()
        share = self._broker.coordinators.loaded_share
        dead_letters = {} if share is None else share.dead_letters.counts
        rows = [(labels(group=group_id), counts) for group_id, counts in dead_letters.items()]
        await page.rows(DeadLetterCounts, rows)


def _write_group_counts(
    page: MetricsPage, types: Counter[str], states: Counter[tuple[str, str]]
) -> None:
    prefix = "kafka_server_group_coordinator_metrics_"
    page.family(f"{prefix}group_count", "Groups by protocol.")
    for type_name, count in types.items():
        page.sample(count, labels(protocol=type_name))
    for protocol in ("consumer", "share", "streams"):
        page.family(f"{prefix}{protocol}_group_count", f"{protocol.capitalize()} groups by state.")
        for state in _STATES[protocol].split():
            page.sample(states[protocol, state], labels(state=state))
    prefix = "kafka_coordinator_group_groupmetadatamanager_numgroups"
    page.single(prefix, "Classic groups.", types["classic"])
    for state in _STATES["classic"].split():
        meaning = f"Classic groups in the state {state}."
        page.single(f"{prefix}{state.lower()}", meaning, states["classic", state])


async def metrics_page(broker: Broker) -> bytes:
    """Return the present metrics of a broker, in the text format of Prometheus."""
    page = MetricsPage()
    scrape = MetricsScrape(broker, page)
    metrics = broker.metrics
    await _write_requests(broker, page)
    await page.row(metrics.loop)
    _write_process(broker, page)
    await scrape.logs()
    await scrape.groups()
    await scrape.share_groups()
    await _write_share(broker, page)
    await scrape.share_group_counters()
    await _write_coordinators(broker, page)
    await page.row(metrics.cleaner)
    await page.row(metrics.scrubber)
    await page.row(scrape)
    return page.text()


async def _write_requests(broker: Broker, page: MetricsPage) -> None:
    metrics = broker.metrics
    by_title = [(APIS[key].title, counters) for key, counters in sorted(metrics.requests.items())]
    requests = [(labels(request=title), counters) for title, counters in by_title]
    prefix = "kafka_network_requestmetrics_"
    page.family(f"{prefix}requests_total", "Requests answered.")
    for label, counters in requests:
        page.sample(sum(counters.total_ms.counts), label)
    page.family(f"{prefix}errors_total", "Responses with a top-level error, by its code.")
    for title, counters in by_title:
        for code, count in sorted(counters.errors.items()):
            page.sample(count, labels(request=title, error=ErrorCode(code).name))
    await page.rows(RequestMetrics, requests)
    await page.row(metrics)
    page.single(
        "kafka_server_socket_server_metrics_connection_count",
        "Open connections.",
        len(metrics.connections),
    )
    _write_memory(metrics, page)
    sessions = broker.fetch_sessions
    name = "kafka_server_fetchsessioncache_numincrementalfetchsessions"
    page.single(name, "Fetch sessions.", len(sessions))
    await page.row(sessions)


async def _write_share(broker: Broker, page: MetricsPage) -> None:
    share = broker.metrics.share
    page.family(
        "kafka_server_sharegroupmetrics_recordacknowledgements_total", "Records acknowledged."
    )
    for acknowledge_type, name in enumerate(_ACKNOWLEDGE_TYPES, 1):
        page.sample(share.acknowledged[acknowledge_type], labels(ackType=name))
    await page.row(share)
    prefix = "kafka_server_sharesessioncache_"
    partitions = broker.coordinators.loaded_share
    sessions = ShareSessions() if partitions is None else partitions.sessions
    page.single(f"{prefix}sharesessionscount", "Share sessions.", len(sessions))
    page.single(
        f"{prefix}sharepartitionscount", "Partitions of all share sessions.", sessions.partitions()
    )
    page.single(
        "kafka_server_delayedoperationpurgatory_numdelayedoperations",
        "Requests that are waiting.",
        share.delayed_fetches,
        labels(delayedOperation="ShareFetch"),
    )
    topics = [("", share.all_topics)]
    for topic_id, counters in share.topics.items():
        topic = broker.catalog.topics_by_id.get(topic_id)
        if topic is not None:
            topics.append((labels(topic=topic.name), counters))
    await page.rows(ShareTopicMetrics, topics)


def _write_memory(metrics: Metrics, page: MetricsPage) -> None:
    requests, responses = metrics.request_memory, metrics.response_memory
    prefix = "kafka_network_socketserver_"
    page.single(
        f"{prefix}memorypoolused",
        "Memory of requests that are not served yet, in bytes.",
        requests.used_bytes,
    )
    if requests.limit_bytes >= 0:
        page.single(
            f"{prefix}memorypoolavailable",
            "What is left of queued.max.request.bytes.",
            max(requests.limit_bytes - requests.used_bytes, 0),
        )
    page.single(
        "headrace_unsent_response_bytes",
        "Memory of responses that clients have not read, without records.",
        responses.used_bytes,
    )
    page.single(
        "headrace_unsent_response_limit_bytes",
        "The most that headrace_unsent_response_bytes may be, and one response more.",
        responses.limit_bytes,
    )
    page.family(
        "headrace_slow_connections_closed_total",
        "Connections closed because they took memory and did not use it.",
    )
    page.sample(requests.closed_connections, labels(memory="requests"))
    page.sample(responses.closed_connections, labels(memory="responses"))


async def _write_coordinators(broker: Broker, page: MetricsPage) -> None:
    for prefix, topic_name in (
        ("kafka_server_group_coordinator_metrics_", CONSUMER_OFFSETS),
        ("kafka_server_share_coordinator_metrics_", SHARE_GROUP_STATE),
    ):
        counters = broker.metrics.coordinators[topic_name]
        topic = broker.catalog.topics.get(topic_name)
        page.family(f"{prefix}num_partitions", "Partitions of the coordinator's topic.")
        active = 0 if topic is None else topic.partitions
        for state, count in (("active", active), ("loading", 0), ("failed", 0)):
            page.sample(count, labels(state=state))
        page.single(f"{prefix}write_total", "Coordinator records written.", counters.records)
        page.family(
            f"{prefix}batch_flush_time_ms",
            "Time to write a batch of records, in milliseconds.",
            "histogram",
        )
        page.histogram(counters.append_ms)
    kinds = broker.metrics.coordinators[CONSUMER_OFFSETS].kinds
    prefix = "kafka_server_group_coordinator_metrics_"
    page.single(f"{prefix}offset_commit_total", "Offsets committed.", kinds[OffsetCommit])
    groups = broker.coordinators.loaded_groups
    await page.row(GroupMeters() if groups is None else groups.meters)
    name = f"{prefix}share_group_rebalance_total"
    page.single(name, "New epochs of share groups.", kinds[SHARE_RECORDS.group])


def _write_process(broker: Broker, page: MetricsPage) -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    page.single(
        "process_cpu_seconds_total",
        "CPU time in seconds.",
        round(usage.ru_utime + usage.ru_stime, 3),
    )
    page.single(
        "process_start_time_seconds",
        "Start of the broker, in seconds since the epoch.",
        round(broker.metrics.started, 3),
    )
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            resident = int(statm.read().split()[1]) * resource.getpagesize()
        page.single("process_resident_memory_bytes", "Resident memory in bytes.", resident)
        page.single("process_open_fds", "Open file descriptors.", len(os.listdir("/proc/self/fd")))
    except OSError:
        pass  # not Linux
    page.single("headrace_build_info", "The version of headrace.", 1, labels(version=_VERSION))
