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
from headrace.errors import ErrorCode
from headrace.groups.meters import GroupMeters
from headrace.groups.records import OffsetCommit, ShareGroupMetadata
from headrace.handlers import APIS
from headrace.internal_topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from headrace.metric_family import labels
from headrace.net.metrics import Metrics
from headrace.share.share_session import ShareSessions

from .scrape import MetricsScrape
from .text import MetricsPage

_VERSION = version("headrace")
_ACKNOWLEDGE_TYPES = {1: "Accept", 2: "Release", 3: "Reject", 4: "Renew"}

_REQUESTS = {
    key: "".join(part.capitalize() for part in api.name.split("_")) for key, api in APIS.items()
}
"""The values of the label ``request``: the APIs as Kafka writes them, by API key."""


async def metrics_page(broker: Broker) -> bytes:
    """Return the present metrics of a broker, in the text format of Prometheus."""
    page = MetricsPage()
    scrape = MetricsScrape(broker, page)
    _write_requests(broker, page)
    _write_loop(broker, page)
    _write_process(broker, page)
    await scrape.logs()
    await scrape.groups()
    await scrape.share_groups()
    await _write_share(broker, page)
    await scrape.share_group_counters()
    _write_coordinators(broker, page)
    _write_cleaner(broker, page)
    _write_scrubber(broker, page)
    page.family(
        "headrace_scrape_left_out",
        "Partitions without metrics on this page: too many, or with logs that are not loaded.",
    )
    for what, count in sorted(scrape.left_out.items()):
        page.sample(count, labels(what=what))
    return page.text()


def _write_requests(broker: Broker, page: MetricsPage) -> None:
    metrics = broker.metrics
    requests = sorted(metrics.requests.items())
    prefix = "kafka_network_requestmetrics_"
    page.family(f"{prefix}requests_total", "Requests answered.")
    for key, one in requests:
        page.sample(sum(one.total_ms.counts), labels(request=_REQUESTS[key]))
    page.family(f"{prefix}errors_total", "Responses with a top-level error, by its code.")
    for key, one in requests:
        for code, count in sorted(one.errors.items()):
            page.sample(count, labels(request=_REQUESTS[key], error=ErrorCode(code).name))
    page.family(
        "headrace_request_failures_total",
        "Requests that ended in an unexpected error or a storage error.",
    )
    for key, one in requests:
        page.sample(one.failures, labels(request=_REQUESTS[key]))
    page.family(
        f"{prefix}totaltimems",
        "Time from a request to its answer, waiting included, in milliseconds.",
        "histogram",
    )
    for key, one in requests:
        page.histogram(one.total_ms, labels(request=_REQUESTS[key]))
    prefix = "kafka_server_socket_server_metrics_"
    page.single(f"{prefix}connection_count", "Open connections.", len(metrics.connections))
    page.single(
        f"{prefix}connection_creation_total", "Connections accepted.", metrics.connections_accepted
    )
    page.single(
        f"{prefix}incoming_byte_total", "Bytes received from clients.", metrics.received_bytes
    )
    page.single(f"{prefix}outgoing_byte_total", "Bytes sent to clients.", metrics.sent_bytes)
    _write_memory(metrics, page)
    name = "kafka_server_brokertopicmetrics_failedproducerequests_total"
    page.family(name, "Batches refused, by topic.")
    for topic, count in sorted(metrics.refused_produces.items()):
        page.sample(count, labels(topic=topic))
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
    name = "kafka_server_sharegroupmetrics_partitionloadtimems"
    page.family(name, "Time to load a share-partition, in milliseconds.", "histogram")
    page.histogram(share.partition_load_ms)
    prefix = "kafka_server_sharesessioncache_"
    partitions = broker.coordinators.loaded_share
    sessions = ShareSessions() if partitions is None else partitions.sessions
    page.single(f"{prefix}sharesessionscount", "Share sessions.", len(sessions))
    page.single(
        f"{prefix}sharepartitionscount", "Partitions of all share sessions.", sessions.partitions()
    )
    page.single(
        f"{prefix}sharesessionevictions_total",
        "Share sessions that ended with their connection.",
        share.session_evictions,
    )
    page.family(
        "kafka_server_delayedoperationpurgatory_numdelayedoperations", "Requests that are waiting."
    )
    page.sample(share.delayed_fetches, labels(delayedOperation="ShareFetch"))
    page.single(
        "kafka_server_delayedsharefetchmetrics_expires_total",
        "ShareFetches that timed out without records.",
        share.expired_fetches,
    )
    known = [("", share.all_topics)]
    for topic_id, counts in share.topics.items():
        topic = broker.catalog.topics_by_id.get(topic_id)
        if topic is not None:
            known.append((labels(topic=topic.name), counts))
    for attribute, name, meaning in (
        (
            "fetches",
            "totalsharefetchrequests",
            "ShareFetches; without the label topic, of all topics.",
        ),
        (
            "failed_fetches",
            "failedsharefetchrequests",
            "Partitions of ShareFetches that had an error.",
        ),
        (
            "acknowledges",
            "totalshareacknowledgementrequests",
            "Requests with acknowledgements; without the label topic, of all topics.",
        ),
        (
            "failed_acknowledges",
            "failedshareacknowledgementrequests",
            "Partitions whose acknowledgements were refused.",
        ),
    ):
        page.family(f"kafka_server_brokertopicmetrics_{name}_total", meaning)
        for label, counts in known:
            page.sample(getattr(counts, attribute), label)
            await page.end_slice_if_full()


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
    page.single(
        "headrace_connections_refused_total",
        "Connections refused because the process has too few file descriptors.",
        metrics.connections_refused,
    )
    page.single(
        "headrace_failed_logins_total",
        "Connections closed because their login has failed.",
        metrics.failed_logins,
    )
    page.single(
        "headrace_throttled_requests_total",
        "Requests that exceeded a client quota.",
        metrics.throttled_requests,
    )
    page.single(
        "headrace_throttled_connections_total",
        "Connections that exceeded the quota of their address.",
        metrics.throttled_connections,
    )


def _write_coordinators(broker: Broker, page: MetricsPage) -> None:
    for prefix, topic_name in (
        ("kafka_server_group_coordinator_metrics_", CONSUMER_OFFSETS),
        ("kafka_server_share_coordinator_metrics_", SHARE_GROUP_STATE),
    ):
        counted = broker.metrics.coordinators[topic_name]
        topic = broker.catalog.topics.get(topic_name)
        page.family(f"{prefix}num_partitions", "Partitions of the coordinator's topic.")
        for state in ("active", "loading", "failed"):
            page.sample(
                topic.partitions if topic is not None and state == "active" else 0,
                labels(state=state),
            )
        page.single(f"{prefix}write_total", "Coordinator records written.", counted.records)
        page.family(
            f"{prefix}batch_flush_time_ms",
            "Time to write a batch of records, in milliseconds.",
            "histogram",
        )
        page.histogram(counted.append_ms)
    kinds = broker.metrics.coordinators[CONSUMER_OFFSETS].kinds
    prefix = "kafka_server_group_coordinator_metrics_"
    page.single(f"{prefix}offset_commit_total", "Offsets committed.", kinds[OffsetCommit])
    groups = broker.coordinators.loaded_groups
    meters = GroupMeters() if groups is None else groups.meters
    for name, meaning, count in (
        ("offset_expiration", "Offsets that expired.", meters.offset_expirations),
        ("offset_deletion", "Offsets deleted by OffsetDelete.", meters.offset_deletions),
        (
            "group_completed_rebalance",
            "Generations of classic groups that got their assignment.",
            meters.completed_rebalances,
        ),
        (
            "consumer_group_rebalance",
            "New epochs of consumer groups, without those for leaving members.",
            meters.consumer_rebalances,
        ),
        (
            "streams_group_rebalance",
            "New epochs of streams groups, without those for leaving members.",
            meters.streams_rebalances,
        ),
    ):
        page.single(f"{prefix}{name}_total", meaning, count)
    name = f"{prefix}share_group_rebalance_total"
    page.single(name, "New epochs of share groups.", kinds[ShareGroupMetadata])


def _write_cleaner(broker: Broker, page: MetricsPage) -> None:
    counted = broker.metrics.cleaner
    for name, meaning, count in (
        ("rounds", "Compactions of a log that succeeded.", counted.rounds),
        (
            "failures",
            "Compactions of a log that failed, for damage or a full disk.",
            counted.failures,
        ),
        ("read_bytes", "Bytes read by compaction.", counted.read_bytes),
        ("written_bytes", "Bytes of the segments written by compaction.", counted.written_bytes),
        ("keys", "Different keys in the parts of logs compacted for the first time.", counted.keys),
    ):
        page.single(f"headrace_cleaner_{name}_total", meaning, count)


def _write_scrubber(broker: Broker, page: MetricsPage) -> None:
    counted = broker.metrics.scrubber
    for name, meaning, count in (
        ("read_bytes", "Bytes of stored batches verified in the background.", counted.read_bytes),
        ("damaged", "Places with damaged batches found in the background.", counted.damaged),
        ("passes", "Verifications of all stored batches that were finished.", counted.passes),
    ):
        page.single(f"headrace_scrubber_{name}_total", meaning, count)
    page.family(
        "headrace_scrubber_last_pass_time_seconds",
        "End of the last verification of all stored batches, in seconds since the epoch.",
    )
    if counted.last_pass_s is not None:
        page.sample(round(counted.last_pass_s, 3))


def _write_loop(broker: Broker, page: MetricsPage) -> None:
    loop = broker.metrics.loop
    page.family(
        "headrace_loop_delay_ms",
        "Time by which a timer of the event loop was late, in milliseconds.",
        "histogram",
    )
    page.histogram(loop.delay_ms)
    page.single(
        "headrace_loop_delay_max_ms",
        "The longest delay of the event loop since the start, in milliseconds.",
        round(loop.longest_ms, 3),
    )
    page.family(
        "headrace_loop_held_ms_total",
        "Long delays of the event loop in milliseconds, by the request or timer that held it.",
    )
    for name, held_ms in sorted(loop.held_ms.items()):
        page.sample(held_ms, labels(by=name))


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
