"""Measurements of headrace alone: the cost of requests and of idle groups."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench import (
    columnar_reader,
    fetch_sessions,
    heartbeats,
    idle_groups,
    many_topics,
    offset_commits,
    ordered_consumer,
    page,
    pipeline,
    security,
    share_partition,
)
from bench import spark_history as spark_history_source
from bench import spark_lag as spark_lag_source
from bench import spark_memory as spark_memory_sources
from bench import spark_ordered as spark_ordered_source
from bench import spark_share as spark_share_source
from bench import spark_sink as spark_sink_source
from bench.measurements import Scale
from bench.spark_application import spark_application
from tests.support import HeadraceProcess

_GROWTH = 1.1
"""The limit of the factor for 16 times the backlog, below which a value does not grow with it."""


@dataclass(frozen=True, slots=True)
class Cost:
    """A row of the results.

    :param below: exclusive upper bound of the value
    :param above: lower bound of the value
    :param before: the same value for less work, if the bound applies to the growth
    """

    name: str
    unit: str
    value: float
    below: float | None = None
    above: float | None = None
    before: tuple[float, ...] = ()

    @property
    def is_good(self) -> bool | None:
        """True if the value is within its bound; None without a bound."""
        if self.below is None and self.above is None:
            return None
        return (self.below is None or self.value < self.below) and (
            self.above is None or self.value >= self.above
        )


def share_partition_requests(scale: Scale) -> list[Cost]:
    """Run `bench/share_partition.py`: requests to a large share-partition."""
    costs = []
    for name, (prepare, request) in share_partition.REQUESTS.items():
        whole = "5,000" in name  # of all spans at once, which no client asks for
        value = share_partition.measure(prepare, request)
        costs.append(
            Cost(
                f"10,000 locks, every second ended: {name}",
                "ms",
                value,
                None if whole else share_partition.WANTED_MS,
            )
        )
    return costs


def idle_share_groups(scale: Scale) -> list[Cost]:
    """Run `bench/idle_groups.py`: idle share groups."""
    costs = idle_groups.measure(scale.idle_groups)
    many = f"{scale.idle_groups:,} share groups on one topic"
    per_request = 1e6 / idle_groups.PRODUCES
    return [
        Cost(
            f"{many}, nobody sends anything: CPU", "%", 100 * costs.idle_s / idle_groups.IDLE_S, 0.5
        ),
        Cost(
            f"{many}, a heartbeat each every 5 s: CPU",
            "%",
            100 * costs.heartbeats_s / idle_groups.IDLE_S,
        ),
        Cost(f"{many}: CPU of a produce request", "µs", per_request * costs.produce_s),
        Cost(
            "no share groups: CPU of a produce request", "µs", per_request * costs.produce_alone_s
        ),
    ]


def offset_fetch(scale: Scale) -> list[Cost]:
    """Run `bench/offset_commits.py`: all offsets of a group with 10,000 partitions."""
    with (
        tempfile.TemporaryDirectory() as directory,
        HeadraceProcess(Path(directory) / "data", {}) as broker,
        offset_commits.create(broker.bootstrap_servers, offset_commits.PARTITIONS) as topic,
    ):
        value = offset_commits.fetch_ms(broker.bootstrap_servers, topic)
    return [
        Cost(
            f"OffsetFetch of all {offset_commits.PARTITIONS:,} offsets of a group", "ms", value, 20
        )
    ]


def steady_heartbeats(scale: Scale) -> list[Cost]:
    """Run `bench/heartbeats.py`: heartbeats that change nothing."""
    costs = heartbeats.measure()
    return [
        Cost(f"a heartbeat of a {kind} group's member that changes nothing: CPU", "µs", cost)
        for kind, cost in costs.items()
    ]


def idle_polls(scale: Scale) -> list[Cost]:
    """Run `bench/fetch_sessions.py`: polls of 10,000 partitions without new records."""
    costs = fetch_sessions.measure(fetch_sessions.PARTITIONS)
    many = f"an idle poll of {fetch_sessions.PARTITIONS:,} partitions"
    return [
        Cost(f"{many}, in a fetch session: CPU", "ms", costs.in_session_ms, 1),
        Cost(f"{many}, without one: CPU", "ms", costs.without_ms),
    ]


def ordered_inputs(scale: Scale) -> list[Cost]:
    """Run `bench/ordered_consumer.py`: two topics of 100 B records in the order of their
    timestamps.
    """
    with HeadraceProcess(configs=ordered_consumer.CONFIGS) as broker:
        found = ordered_consumer.medians(broker.bootstrap_servers, scale.small_records // 4)
    return [
        Cost("OrderedConsumer, two topics of 100 B records: records", "/s", found["ordered"][0]),
        Cost("the same: CPU time of the consumer for a record", "µs", found["ordered"][1]),
        Cost(
            "confluent-kafka's consumer, in no order: CPU time for a record",
            "µs",
            found["unordered"][1],
        ),
    ]


def starts(scale: Scale) -> list[Cost]:
    """Run `bench/many_topics.py`: a start with many partitions, and with many commits."""
    partitions, commits = scale.start_partitions, scale.start_commits
    return [
        Cost(f"start with {partitions:,} partitions", "s", many_topics.start_s(partitions, 0)),
        Cost(f"start with {commits:,} commits", "s", many_topics.start_s(0, commits), below=5),
    ]


def whole_pipeline(scale: Scale) -> list[Cost]:
    """Run `bench/pipeline.py`: the reference pipeline, with two cores and with one."""
    two, one = (pipeline.run(scale.pipeline_rows, cores=cores) for cores in (2, 1))
    what = f"make demo, {scale.pipeline_rows:,} flights"
    return [
        Cost(f"{what}, two cores", "s", two.took_s, below=60),
        Cost("the same: CPU time of all processes", "s", two.cpu_s),
        Cost(f"{what}, one core", "s", one.took_s),
        Cost("the same: CPU time of all processes", "s", one.cpu_s),
    ]


def spark_share(scale: Scale) -> list[Cost]:
    """Run `bench/spark_share.py`: kafka-share on Spark."""
    two, one = (
        spark_application(spark_share_source.__name__, scale.spark_records, cores)
        for cores in (2, 1)
    )
    half = spark_share_source.LOCKS // 2
    most = spark_share_source.PARTITIONS[-1]
    costs = []
    for partitions in spark_share_source.PARTITIONS:
        for micro_batch in spark_share_source.MICRO_BATCHES:
            of = f"{partitions} partitions, {micro_batch}"
            what = f"kafka-share, {partitions} partitions, micro-batches of {micro_batch:,}"
            costs += [
                Cost(f"{what}, local[2]", "records/s", two[f"share, {of}"]),
                Cost(
                    "the same beside Spark's own source",
                    "×",
                    two[f"share, {of}"] / two[f"own, {of}"],
                    above=1,
                ),
                Cost(
                    "the same on local[1] beside Spark's own source",
                    "×",
                    one[f"share, {of}"] / one[f"own, {of}"],
                ),
            ]
    what = f"kafka-share, {most} partitions, 1 KiB records"
    return [
        *costs,
        Cost(f"{what}, local[2]", "records/s", two["share"], above=30_000),
        Cost(
            f"the same in micro-batches of {half:,} records per partition, local[2]",
            "records/s",
            two["half"],
        ),
        Cost("the same with acquireAhead", "records/s", two["half, ahead"]),
        Cost(f"{what}, local[1]", "records/s", one["share"]),
        Cost("kafka-share, a trigger that finds nothing", "ms", two["idle_ms"], below=500),
    ]


def spark_lag(scale: Scale) -> list[Cost]:
    """Run `bench/spark_lag.py`: a snapshot of all groups on Spark."""
    two, one = (
        spark_application(spark_lag_source.__name__, scale.lag_groups, cores) for cores in (2, 1)
    )
    what = f"kafka-lag, {scale.lag_groups:,} groups × {spark_lag_source.PARTITIONS} partitions"
    return [
        Cost(f"{what}, with time lag, local[2]", "s", two["time_lag_s"], below=5),
        Cost("the same, local[1]", "s", one["time_lag_s"]),
        Cost(f"{what}, without time lag, local[2]", "s", two["lag_s"]),
        Cost("the same, local[1]", "s", one["lag_s"]),
    ]


def spark_ordered(scale: Scale) -> list[Cost]:
    """Run `bench/spark_ordered.py`: kafka-ordered on Spark."""
    records = 4 * scale.spark_records
    two, one = (
        spark_application(spark_ordered_source.__name__, records, cores) for cores in (2, 1)
    )
    what = "kafka-ordered, two topics of 100 B records"
    costs = []
    for cores, rates in ((2, two), (1, one)):
        limit = 100_000 if cores == 2 else None
        for batch, kind in (("", "a stream"), (", batch", "a batch")):
            rate = rates["kafka-ordered" + batch]
            costs += [
                Cost(f"{what}, {kind}, local[{cores}]", "records/s", rate, above=limit),
                Cost(
                    "the same beside Spark's own source",
                    "×",
                    rate / rates["kafka" + batch],
                    above=2,
                ),
            ]
        unordered = rates[spark_ordered_source.UnorderedSource.name()]
        costs.append(
            Cost(
                f"{what}, a stream, local[{cores}], beside reading them in no order",
                "×",
                rates["kafka-ordered"] / unordered,
                above=0.7,
            )
        )
    idle = Cost("kafka-ordered, a trigger that finds nothing", "ms", two["idle_ms"], below=500)
    return [*costs, idle]


def spark_sink(scale: Scale) -> list[Cost]:
    """Run `bench/spark_sink.py`: kafka-produce on Spark."""
    rates = spark_application(spark_sink_source.__name__, scale.spark_records, 2)
    what = "kafka-produce, a batch of 100 B records, local[2]"
    rate = rates["kafka-produce"]
    return [
        Cost(what, "records/s", rate),
        Cost("the same beside Spark's own sink", "×", rate / rates["Spark's own"]),
        Cost(
            "the same beside confluent-kafka alone in one process",
            "×",
            rate / rates["confluent-kafka"],
        ),
        Cost(f"{what}, in transactions", "records/s", rates["in transactions"]),
    ]


def spark_history(scale: Scale) -> list[Cost]:
    """Run `bench/spark_history.py`: the internal topics on Spark."""
    records = scale.spark_records * 3 // 2
    two, one = (
        spark_application(spark_history_source.__name__, records, cores) for cores in (2, 1)
    )
    what = "kafka-group-history, one record to a batch"
    return [
        Cost(f"{what}, local[2]", "records/s", two["records_per_s"], above=300_000),
        Cost("the same for each second of CPU, JVM and all", "records/s", two["records_per_cpu_s"]),
        Cost(f"{what}, local[1]", "records/s", one["records_per_s"]),
    ]


def spark_memory(scale: Scale) -> list[Cost]:
    """Run `bench/spark_memory.py`: memory of the driver with a backlog, and with 4 and 16 times as
    much.
    """
    parts = {
        "heap": "the JVM's heap after a collection",
        "jvm": "the JVM, resident after it",
        "python": "the program in Python, resident",
        "reader": "the largest Python process that Spark starts for it, resident",
    }
    costs = []
    for source, found in spark_application(
        spark_memory_sources.__name__, scale.spark_records
    ).items():
        least, most = found["records"][0], found["records"][-1]
        for part, name in parts.items():
            *before, value = found[part]
            what = f"{source}'s driver, backlogs of {least:,} to {most:,}: {name}"
            # The JVM itself grows until its pools have their threads and its compiler is done,
            # which takes longer.
            below = None if part == "jvm" else round(_GROWTH * before[0])
            costs.append(Cost(what, "MiB", value, below, before=tuple(before)))
    return costs


def columnar(scale: Scale) -> list[Cost]:
    """Run `bench/columnar_reader.py`: the readers of tasks on Spark."""
    costs = []
    for record_bytes, records in columnar_reader.RECORDS.items():
        rates = columnar_reader.measure(min(records, scale.spark_records), record_bytes)
        costs += [
            Cost(f"{name}, {record_bytes} B", "records/CPU s", rate) for name, rate in rates.items()
        ]
    return costs


def acls(scale: Scale) -> list[Cost]:
    """Run `bench/security.py`: requests and decisions with ACLs."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as directory:
        ratios = security.acls_beside_none(Path(directory), scale)
    cached, uncached = security.decision_us()
    many = f"a decision with {security.DECISION_ACLS:,} ACLs"
    return [
        *(
            Cost(f"{what}, Java, with ACLs beside without", "×", ratio, above=security.ACLS_KEEP)
            for what, ratio in ratios.items()
        ),
        Cost(f"{many}, cached", "µs", cached, below=security.CACHED_US),
        Cost(f"{many}, not cached", "µs", uncached, below=security.UNCACHED_US),
    ]


def page_beside(scale: Scale) -> list[Cost]:
    """Run `bench/page.py`: the page of a broker."""
    idle = page.idle(scale.idle_s)
    costs = [
        Cost("an idle broker: CPU", "%", 100 * idle.alone),
        Cost("the same with --ui, nobody looks: CPU of the broker", "%", 100 * idle.beside, 0.5),
        Cost("the same: CPU of the page", "%", 100 * idle.page),
    ]
    for groups in (0, scale.lag_groups):
        what = (
            f"{groups:,} groups × {spark_lag_source.PARTITIONS} partitions"
            if groups
            else "no groups"
        )
        found = page.opened(groups, scale.large_records, watched_s=scale.idle_s)
        costs += [
            Cost(f"a page is open, {what}: CPU of the broker", "%", 100 * found.broker),
            Cost("the same: CPU of the page", "%", 100 * found.page),
            Cost(
                f"produce, librdkafka, 1 KiB, {what}: with a page open beside without",
                "×",
                found.ratio,
                above=0.9,
            ),
        ]
    return costs


ALONE: Mapping[str, Callable[[Scale], list[Cost]]] = {
    "share-partition": share_partition_requests,
    "idle-groups": idle_share_groups,
    "offset-fetch": offset_fetch,
    "starts": starts,
    "ordered-consumer": ordered_inputs,
    "heartbeats": steady_heartbeats,
    "fetch-sessions": idle_polls,
    "acls": acls,
    "page": page_beside,
    "columnar-reader": columnar,
    "pipeline": whole_pipeline,
    "spark-share": spark_share,
    "spark-lag": spark_lag,
    "spark-ordered": spark_ordered,
    "spark-sink": spark_sink,
    "spark-history": spark_history,
    "spark-memory": spark_memory,
}
"""Name of ``--only`` → measurement."""
