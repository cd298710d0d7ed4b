"""The metrics page of a broker: its counters, and what a scrape reads from its state.

``docs/metrics.md`` says how names are made from Kafka's. The page is written in slices, between
which requests are served. So samples of two partitions may be of different moments; all samples of
one partition are of the same moment.
"""

from __future__ import annotations

import os
import resource
from importlib.metadata import version

from headrace.broker.broker import Broker
from headrace.groups.meters import GroupMeters
from headrace.groups.records import SHARE_RECORDS, OffsetCommit
from headrace.handlers import APIS
from headrace.metric_family import labels
from headrace.net.metrics import Metrics, RequestMetrics
from headrace.net.share_metrics import ShareTopicMetrics
from headrace.protocol.errors import ErrorCode
from headrace.protocol.internal_topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from headrace.share.share_session import ShareSessions

from .scrape import MetricsScrape
from .text import MetricsPage

_VERSION = version("headrace")
_ACKNOWLEDGE_TYPES = {1: "Accept", 2: "Release", 3: "Reject", 4: "Renew"}


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
    page.family(
        "headrace_scrape_left_out",
        "Partitions without metrics on this page: too many, or with logs that are not loaded.",
    )
    for what, count in sorted(scrape.left_out.items()):
        page.sample(count, labels(what=what))
    return page.text()


async def _write_requests(broker: Broker, page: MetricsPage) -> None:
    metrics = broker.metrics
    requests = [
        (labels(request=APIS[key].title), counters)
        for key, counters in sorted(metrics.requests.items())
    ]
    prefix = "kafka_network_requestmetrics_"
    page.family(f"{prefix}requests_total", "Requests answered.")
    for label, counters in requests:
        page.sample(sum(counters.total_ms.counts), label)
    page.family(f"{prefix}errors_total", "Responses with a top-level error, by its code.")
    for key, counters in sorted(metrics.requests.items()):
        for code, count in sorted(counters.errors.items()):
            page.sample(count, labels(request=APIS[key].title, error=ErrorCode(code).name))
    await page.rows(RequestMetrics, requests)
    await page.row(metrics)
    page.single(
        "kafka_server_socket_server_metrics_connection_count",
        "Open connections.",
        len(metrics.connections),
    )
    _write_memory(metrics, page)
    prefix, sessions = "kafka_server_fetchsessioncache_", broker.fetch_sessions
    page.single(f"{prefix}numincrementalfetchsessions", "Fetch sessions.", len(sessions))
    page.single(
        f"{prefix}numincrementalfetchpartitionscached",
        "Partitions of all fetch sessions.",
        sessions.partitions,
    )
    page.single(
        f"{prefix}incrementalfetchsessionevictions_total",
        "Fetch sessions evicted for new ones.",
        sessions.evictions,
    )


async def _write_share(broker: Broker, page: MetricsPage) -> None:
    share = broker.metrics.share
    page.family(
        "kafka_server_sharegroupmetrics_recordacknowledgements_total", "Records acknowledged."
    )
    for acknowledge_type, name in _ACKNOWLEDGE_TYPES.items():
        page.sample(share.acknowledged[acknowledge_type], labels(ackType=name))
    await page.row(share)
    prefix = "kafka_server_sharesessioncache_"
    partitions = broker.coordinators.loaded_share
    sessions = ShareSessions() if partitions is None else partitions.sessions
    page.single(f"{prefix}sharesessionscount", "Share sessions.", len(sessions))
    page.single(
        f"{prefix}sharepartitionscount", "Partitions of all share sessions.", sessions.partitions()
    )
    page.family(
        "kafka_server_delayedoperationpurgatory_numdelayedoperations", "Requests that are waiting."
    )
    page.sample(share.delayed_fetches, labels(delayedOperation="ShareFetch"))
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
        page.sample(0 if topic is None else topic.partitions, labels(state="active"))
        for state in ("loading", "failed"):
            page.sample(0, labels(state=state))
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
    page.family("headrace_build_info", "The version of headrace.")
    page.sample(1, labels(version=_VERSION))
