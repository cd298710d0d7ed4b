"""The metrics page: what :mod:`headrace.broker.metrics.registry` counted and what looking at the
broker shows, as text.

The text is the one that Prometheus reads (exposition format 0.0.4). ``docs/metrics.md`` says how
names are made from Kafka's. The page is made in slices: between them requests are served, so the
lines of one page are not of one instant, but those of one partition are.
"""

from __future__ import annotations

import os
import resource
from importlib.metadata import version

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode
from headrace.groups.coordinator import GroupMeters
from headrace.groups.records import OffsetCommit, ShareGroupMetadata
from headrace.handlers import APIS
from headrace.internal_topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from headrace.share.share_session import ShareSessions

from .scrape import Walk
from .text import Page, labels

_VERSION = version("headrace")
_ACKNOWLEDGE_TYPES = {1: "Accept", 2: "Release", 3: "Reject", 4: "Renew"}

_REQUESTS = {
    key: "".join(part.capitalize() for part in api.name.split("_")) for key, api in APIS.items()
}
"""The label ``request``: the names of the APIs as Kafka writes them."""


async def page(broker: Broker) -> bytes:
    """The metrics of a broker as they are now."""
    made = Page()
    walk = Walk(broker, made)
    _requests(broker, made)
    _process(broker, made)
    await walk.logs()
    await walk.groups()
    await walk.share_groups()
    await _share(broker, made)
    await walk.share_histograms()
    _coordinators(broker, made)
    _cleaner(broker, made)
    made.family(
        "headrace_scrape_left_out",
        "gauge",
        "Partitions without metrics on this page, for there are too many.",
    )
    for what, count in sorted(walk.left_out.items()):
        made.sample(count, labels(what=what))
    return made.text()


def _requests(broker: Broker, made: Page) -> None:
    metrics = broker.metrics
    requests = sorted(metrics.requests.items())
    prefix = "kafka_network_requestmetrics_"
    made.family(f"{prefix}requests_total", "counter", "Requests answered.")
    for key, one in requests:
        made.sample(sum(one.total_ms.counts), labels(request=_REQUESTS[key]))
    made.family(
        f"{prefix}errors_total", "counter", "Responses with a top-level error code, by that."
    )
    for key, one in requests:
        for code, count in sorted(one.errors.items()):
            made.sample(count, labels(request=_REQUESTS[key], error=ErrorCode(code).name))
    made.family(
        "headrace_request_failures_total",
        "counter",
        "Requests that could not be served as they should.",
    )
    for key, one in requests:
        made.sample(one.failures, labels(request=_REQUESTS[key]))
    made.family(
        f"{prefix}totaltimems",
        "histogram",
        "From a request to its answer, waiting included, in milliseconds.",
    )
    for key, one in requests:
        made.histogram(one.total_ms, labels(request=_REQUESTS[key]))
    prefix = "kafka_server_socket_server_metrics_"
    made.one(
        f"{prefix}connection_count", "gauge", "Connections that are open.", len(metrics.connections)
    )
    made.one(
        f"{prefix}connection_creation_total",
        "counter",
        "Connections accepted.",
        metrics.connections_accepted,
    )
    made.one(
        f"{prefix}incoming_byte_total",
        "counter",
        "Bytes received from clients.",
        metrics.received_bytes,
    )
    made.one(
        f"{prefix}outgoing_byte_total", "counter", "Bytes sent to clients.", metrics.sent_bytes
    )
    name = "kafka_server_brokertopicmetrics_failedproducerequests_total"
    made.family(name, "counter", "Batches refused, by topic.")
    for topic, count in sorted(metrics.refused_produces.items()):
        made.sample(count, labels(topic=topic))
    prefix, sessions = "kafka_server_fetchsessioncache_", broker.fetch_sessions
    made.one(f"{prefix}numincrementalfetchsessions", "gauge", "Fetch sessions.", len(sessions))
    made.one(
        f"{prefix}numincrementalfetchpartitionscached",
        "gauge",
        "Partitions of all fetch sessions.",
        sessions.partitions,
    )
    made.one(
        f"{prefix}incrementalfetchsessionevictions_total",
        "counter",
        "Fetch sessions that made place for others.",
        sessions.evictions,
    )


async def _share(broker: Broker, made: Page) -> None:
    share = broker.metrics.share
    made.family(
        "kafka_server_sharegroupmetrics_recordacknowledgements_total",
        "counter",
        "Records acknowledged.",
    )
    for acknowledge_type, name in _ACKNOWLEDGE_TYPES.items():
        made.sample(share.acknowledged[acknowledge_type], labels(ackType=name))
    name = "kafka_server_sharegroupmetrics_partitionloadtimems"
    made.family(name, "histogram", "Loading a share-partition, in milliseconds.")
    made.histogram(share.partition_load_ms)
    prefix = "kafka_server_sharesessioncache_"
    partitions = broker.coordinators.loaded_share
    sessions = ShareSessions() if partitions is None else partitions.sessions
    made.one(f"{prefix}sharesessionscount", "gauge", "Share sessions.", len(sessions))
    made.one(
        f"{prefix}sharepartitionscount",
        "gauge",
        "Partitions of all share sessions.",
        sessions.partitions(),
    )
    made.one(
        f"{prefix}sharesessionevictions_total",
        "counter",
        "Share sessions ended with their connection.",
        share.session_evictions,
    )
    made.family(
        "kafka_server_delayedoperationpurgatory_numdelayedoperations",
        "gauge",
        "Requests that wait for something.",
    )
    made.sample(share.delayed_fetches, labels(delayedOperation="ShareFetch"))
    made.one(
        "kafka_server_delayedsharefetchmetrics_expires_total",
        "counter",
        "ShareFetches that waited in vain.",
        share.expired_fetches,
    )
    known = [("", share.all_topics)]
    for topic_id, counts in share.topics.items():
        topic = broker.catalog.topics_by_id.get(topic_id)
        if topic is not None:
            known.append((labels(topic=topic.name), counts))
    for attribute, name, meaning in (
        ("fetches", "totalsharefetchrequests", "ShareFetches; without topic: all."),
        (
            "failed_fetches",
            "failedsharefetchrequests",
            "Partitions of ShareFetches answered with an error.",
        ),
        (
            "acknowledges",
            "totalshareacknowledgementrequests",
            "Requests that acknowledge; without topic: all.",
        ),
        (
            "failed_acknowledges",
            "failedshareacknowledgementrequests",
            "Partitions whose acknowledgement was refused.",
        ),
    ):
        made.family(f"kafka_server_brokertopicmetrics_{name}_total", "counter", meaning)
        for label, counts in known:
            made.sample(getattr(counts, attribute), label)
            await made.breathe()


def _coordinators(broker: Broker, made: Page) -> None:
    for prefix, coordinator in (
        ("kafka_server_group_coordinator_metrics_", CONSUMER_OFFSETS),
        ("kafka_server_share_coordinator_metrics_", SHARE_GROUP_STATE),
    ):
        counted = broker.metrics.coordinators[coordinator]
        topic = broker.catalog.topics.get(coordinator)
        made.family(f"{prefix}num_partitions", "gauge", "Partitions of the coordinator's topic.")
        for state in ("active", "loading", "failed"):
            made.sample(
                topic.partitions if topic is not None and state == "active" else 0,
                labels(state=state),
            )
        made.one(f"{prefix}write_total", "counter", "Coordinator records written.", counted.records)
        made.family(
            f"{prefix}batch_flush_time_ms",
            "histogram",
            "Writing a batch of records, in milliseconds.",
        )
        made.histogram(counted.append_ms)
    kinds = broker.metrics.coordinators[CONSUMER_OFFSETS].kinds
    prefix = "kafka_server_group_coordinator_metrics_"
    made.one(f"{prefix}offset_commit_total", "counter", "Offsets committed.", kinds[OffsetCommit])
    groups = broker.coordinators.loaded_groups
    meters = GroupMeters() if groups is None else groups.meters
    for name, meaning, count in (
        ("offset_expiration", "Offsets whose retention was over.", meters.offset_expirations),
        ("offset_deletion", "Offsets that OffsetDelete forgot.", meters.offset_deletions),
        (
            "group_completed_rebalance",
            "Generations of classic groups assigned.",
            meters.completed_rebalances,
        ),
        (
            "consumer_group_rebalance",
            "New epochs of consumer groups, but for leavers.",
            meters.consumer_rebalances,
        ),
    ):
        made.one(f"{prefix}{name}_total", "counter", meaning, count)
    name = f"{prefix}share_group_rebalance_total"
    made.one(
        name, "counter", "Times that the epoch of a share group went up.", kinds[ShareGroupMetadata]
    )


def _cleaner(broker: Broker, made: Page) -> None:
    counted = broker.metrics.cleaner
    for name, meaning, count in (
        ("rounds", "Compactions of a log that ended well.", counted.rounds),
        (
            "failures",
            "Compactions of a log that damage or a full disk has ended.",
            counted.failures,
        ),
        ("read_bytes", "Bytes that compaction has read.", counted.read_bytes),
        (
            "written_bytes",
            "Bytes of the segments that compaction has written.",
            counted.written_bytes,
        ),
        ("keys", "Different keys in what was compacted for the first time.", counted.keys),
    ):
        made.one(f"headrace_cleaner_{name}_total", "counter", meaning, count)


def _process(broker: Broker, made: Page) -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    made.one(
        "process_cpu_seconds_total",
        "counter",
        "Seconds of CPU.",
        round(usage.ru_utime + usage.ru_stime, 3),
    )
    made.one(
        "process_start_time_seconds",
        "gauge",
        "When the broker was made.",
        round(broker.metrics.started, 3),
    )
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            resident = int(statm.read().split()[1]) * resource.getpagesize()
        made.one("process_resident_memory_bytes", "gauge", "Bytes of memory in use.", resident)
        made.one(
            "process_open_fds", "gauge", "Open file descriptors.", len(os.listdir("/proc/self/fd"))
        )
    except OSError:
        pass  # not Linux
    made.family("headrace_build_info", "gauge", "The version of headrace.")
    made.sample(1, labels(version=_VERSION))
