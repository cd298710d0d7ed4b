"""The measurements, one function each: from a broker to named numbers.

A broker is a `KafkaPeer` or a `HeadraceProcess`; both have `name`, `bootstrap_servers` and `pid`.
Numbers are in the unit of their `Metric`.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import psutil
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from bench import clients, offset_commits, rebalances
from tests.support import unique
from tests.wire_client import answers, frame, receive_frame, request_header

Broker = Any
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Scale:
    """The amount of work of each measurement."""

    large_records: int = 400_000
    small_records: int = 2_000_000
    explicit_records: int = 200_000
    latency_s: float = 15
    connections: int = 5_000
    partitions: int = 10_000
    idle_s: float = 20
    idle_groups: int = 1_000
    commits: int = offset_commits.COMMITS
    transactions: int = 5_000
    members: int = rebalances.MEMBERS
    spark_records: int = 640_000
    lag_groups: int = 1_000
    attack_s: float = 5
    attack_topics: int = 500
    attack_bytes: int = 50 * MIB
    many_topics: int = 10_000
    start_partitions: int = 100_000
    start_commits: int = 1_000_000
    logins: int = 1_000
    pipeline_rows: int = 336_776

    @classmethod
    def quick(cls) -> Scale:
        """Return a scale that shows whether everything works; its numbers mean little."""
        return cls(
            20_000,
            50_000,
            20_000,
            2,
            200,
            200,
            2,
            50,
            1_000,
            500,
            5,
            200_000,
            20,
            2,
            50,
            5 * MIB,
            500,
            1_000,
            10_000,
            100,
            3_000,
        )


@dataclass(frozen=True, slots=True)
class Metric:
    """A row of the results.

    :param wanted: the target of the ratio; above 1, headrace is better
    :param less_is_better: True for times and sizes
    """

    name: str
    unit: str
    wanted: float | None = None
    less_is_better: bool = False


@dataclass(frozen=True, slots=True)
class Measurement:
    """A step of the run, and the metrics that it fills."""

    metrics: tuple[Metric, ...]
    measure: Callable[[Broker, Scale], tuple[float, ...]]


@functools.lru_cache(maxsize=4)
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})


def forget_admins() -> None:
    """Close the admin clients of brokers that have ended, which would retry their connections."""
    admin.cache_clear()


@contextlib.contextmanager
def topic(broker: Broker, partitions: int = 1) -> Iterator[str]:
    """Yield a topic for one measurement, and delete it afterwards."""
    name = unique("bench")
    client = admin(broker.bootstrap_servers)
    client.create_topics([NewTopic(name, partitions, 1)])[name].result(60)
    yield name
    client.delete_topics([name])[name].result(60)


@functools.cache
def filled_topic(bootstrap: str, records: int) -> str:
    """Yield a topic with 1 KiB records for several measurements."""
    name = unique("bench-filled")
    admin(bootstrap).create_topics([NewTopic(name, 1, 1)])[name].result(60)
    clients.java_produce(bootstrap, name, records, 1024)
    return name


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process and its children, in MiB."""
    process = psutil.Process(pid)
    return sum(p.memory_info().rss for p in [process, *process.children(recursive=True)]) / MIB


def memory(broker: Broker, scale: Scale) -> tuple[float, ...]:
    return (resident_mib(broker.pid),)


def many_topics(broker: Broker, scale: Scale) -> tuple[float, ...]:
    """Create and delete topics, 2,000 with each request; return the times in seconds. Kafka refuses
    requests that are much larger.
    """
    client = admin(broker.bootstrap_servers)
    prefix = unique("many")
    names = [f"{prefix}-{n}" for n in range(scale.many_topics)]
    parts = [names[start : start + 2000] for start in range(0, len(names), 2000)]
    started = time.perf_counter()
    for part in parts:
        for created in client.create_topics([NewTopic(name, 1, 1) for name in part]).values():
            created.result(300)
    created_at = time.perf_counter()
    for part in parts:
        for deleted in client.delete_topics(part, operation_timeout=300).values():
            deleted.result(300)
    return created_at - started, time.perf_counter() - created_at


def produce_large(broker: Broker, scale: Scale) -> tuple[float, ...]:
    with topic(broker) as name:
        return (clients.java_produce(broker.bootstrap_servers, name, scale.large_records, 1024),)


def produce_small(broker: Broker, scale: Scale) -> tuple[float, ...]:
    with topic(broker) as name:
        return (clients.java_produce(broker.bootstrap_servers, name, scale.small_records, 100),)


def produce_librdkafka(broker: Broker, scale: Scale) -> tuple[float, ...]:
    with topic(broker) as name:
        return (
            clients.librdkafka_produce(broker.bootstrap_servers, name, scale.large_records, 1024),
        )


def consume_librdkafka(broker: Broker, scale: Scale) -> tuple[float, ...]:
    name = filled_topic(broker.bootstrap_servers, scale.large_records)
    return (clients.librdkafka_consume(broker.bootstrap_servers, name, scale.large_records),)


def consume_java(broker: Broker, scale: Scale) -> tuple[float, ...]:
    name = filled_topic(broker.bootstrap_servers, scale.large_records)
    return (clients.java_consume(broker.bootstrap_servers, name, scale.large_records),)


def _share_consume(
    broker: Broker, records: int, consumers: int, explicit: bool
) -> tuple[float, float]:
    group = unique("bench-share")
    resource = ConfigResource(ResourceType.GROUP, group)
    resource.add_incremental_config(
        ConfigEntry(
            "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
        )
    )
    admin(broker.bootstrap_servers).incremental_alter_configs([resource])[resource].result(60)
    name = filled_topic(broker.bootstrap_servers, records)
    return clients.java_share_consume(
        broker.bootstrap_servers, name, group, records, consumers, explicit
    )


def share_consume(broker: Broker, scale: Scale, consumers: int) -> tuple[float, ...]:
    return _share_consume(broker, scale.large_records, consumers, explicit=False)[:1]


def share_explicit(broker: Broker, scale: Scale, consumers: int) -> tuple[float, ...]:
    return _share_consume(broker, scale.explicit_records, consumers, explicit=True)[1:]


def share_poll(broker: Broker, scale: Scale, record_bytes: int) -> tuple[float, ...]:
    """Poll and accept with headrace's client and with confluent-kafka's; return records/s."""
    bootstrap = broker.bootstrap_servers
    records = scale.large_records if record_bytes > 100 else scale.small_records // 2
    with topic(broker) as name:
        clients.librdkafka_produce(bootstrap, name, records, record_bytes)
        return tuple(
            clients.share_consumer(bootstrap, name, work, records)["records_per_s"]
            for work in ("headrace", "confluent")
        )


def share_answers(broker: Broker, scale: Scale) -> tuple[float, ...]:
    """Accept 1 and 500 records, and pick up records that come one after another."""
    bootstrap = broker.bootstrap_servers
    rounds = min(200, scale.explicit_records // 1000)
    with topic(broker) as name, topic(broker) as empty:
        clients.librdkafka_produce(bootstrap, name, 600 * rounds, 100)
        accepts = clients.share_consumer(bootstrap, name, "accept", rounds)
        waits = clients.share_consumer(bootstrap, empty, "pick-up", int(scale.latency_s * 20))
    return (*accepts.values(), *waits.values())


def latency(broker: Broker, scale: Scale) -> tuple[float, ...]:
    with topic(broker) as name:
        return clients.end_to_end_latency(broker.bootstrap_servers, name, scale.latency_s)


def produce_in_transactions(broker: Broker, scale: Scale) -> tuple[float, ...]:
    with topic(broker) as name:
        records_per_s = clients.java_transactional_produce(
            broker.bootstrap_servers, name, scale.transactions, records=100, record_bytes=1024
        )
        return (records_per_s,)


def commits(broker: Broker, scale: Scale, groups: int) -> tuple[float, ...]:
    with topic(broker) as name:
        return (
            offset_commits.commits_per_second(
                broker.bootstrap_servers, name, groups, scale.commits
            ),
        )


def rebalance(
    broker: Broker, scale: Scale, measure: Callable[[str, str, int], float]
) -> tuple[float, ...]:
    with topic(broker, rebalances.PARTITIONS) as name:
        time.sleep(1)  # coordinators hear of a new topic a moment after its creator does
        return (measure(broker.bootstrap_servers, name, scale.members),)


MEASUREMENTS: Mapping[str, Measurement] = {
    "memory-idle": Measurement((Metric("resident memory, idle", "MiB", 6, True),), memory),
    "produce-1k": Measurement(
        (Metric("produce, Java, 1 KiB records, acks=all", "MiB/s", 1.3),), produce_large
    ),
    "produce-100": Measurement(
        (Metric("produce, Java, 100 B records, acks=all", "MiB/s"),), produce_small
    ),
    "produce-librdkafka": Measurement(
        (Metric("produce, librdkafka, 1 KiB records, acks=all", "MiB/s"),), produce_librdkafka
    ),
    "consume-librdkafka": Measurement(
        (Metric("consume, librdkafka, 1 KiB", "MiB/s", 1.0),), consume_librdkafka
    ),
    "consume-java": Measurement((Metric("consume, Java, 1 KiB", "MiB/s", 1.0),), consume_java),
    "share-1": Measurement(
        (Metric("share-consume, Java, 1 consumer", "MiB/s", 1.2),),
        functools.partial(share_consume, consumers=1),
    ),
    "share-4": Measurement(
        (Metric("share-consume, Java, 4 consumers", "MiB/s", 1.0),),
        functools.partial(share_consume, consumers=4),
    ),
    "share-8": Measurement(
        (Metric("share-consume, Java, 8 consumers", "MiB/s", 1.0),),
        functools.partial(share_consume, consumers=8),
    ),
    "share-explicit": Measurement(
        (
            Metric(
                "share-consume, Java, accept and release record by record in turns",
                "records/s",
                1.0,
            ),
        ),
        functools.partial(share_explicit, consumers=1),
    ),
    "share-explicit-8": Measurement(
        (Metric("the same, 8 consumers", "records/s", 1.0),),
        functools.partial(share_explicit, consumers=8),
    ),
    "share-poll-100": Measurement(
        (
            Metric("headrace.ShareConsumer, poll(500) and accept, 100 B", "records/s"),
            Metric("confluent_kafka.ShareConsumer, the same", "records/s"),
        ),
        functools.partial(share_poll, record_bytes=100),
    ),
    "share-poll-1k": Measurement(
        (
            Metric("headrace.ShareConsumer, poll(500) and accept, 1 KiB", "records/s"),
            Metric("confluent_kafka.ShareConsumer, the same", "records/s"),
        ),
        functools.partial(share_poll, record_bytes=1024),
    ),
    "share-answers": Measurement(
        (
            Metric("headrace.ShareConsumer, accept of 1 record", "µs", None, True),
            Metric("headrace.ShareConsumer, accept of 500 records", "µs", None, True),
            Metric("an idle headrace.ShareConsumer gets a record, p50", "ms", None, True),
            Metric("an idle headrace.ShareConsumer gets a record, p99", "ms", None, True),
        ),
        share_answers,
    ),
    "commits-1": Measurement(
        (Metric("offset commits, one group", "commits/s", 1.0),),
        functools.partial(commits, groups=1),
    ),
    "commits-500": Measurement(
        (Metric("offset commits, 500 groups at a time", "commits/s", 1.0),),
        functools.partial(commits, groups=500),
    ),
    "produce-transactions": Measurement(
        (Metric("produce, Java, transactions of 100 records of 1 KiB", "records/s", 1.0),),
        produce_in_transactions,
    ),
    "rebalance-classic": Measurement(
        (Metric(f"a rebalance of {rebalances.MEMBERS} classic members", "ms", 1.0, True),),
        functools.partial(rebalance, measure=rebalances.classic_ms),
    ),
    "rebalance-consumer": Measurement(
        (
            Metric(
                f"one more joins {rebalances.MEMBERS - 1} members of the consumer protocol",
                "ms",
                1.0,
                True,
            ),
        ),
        functools.partial(rebalance, measure=rebalances.consumer_ms),
    ),
    "latency": Measurement(
        (
            Metric("end-to-end latency at 1,000 records/s, p50", "ms", None, True),
            Metric("end-to-end latency at 1,000 records/s, p99", "ms", None, True),
        ),
        latency,
    ),
    "memory-load": Measurement((Metric("resident memory, after load", "MiB", 6, True),), memory),
    # last, because Kafka deletes their files a minute later
    "many-topics": Measurement(
        (
            Metric("create 10,000 topics, 2,000 a request", "s", less_is_better=True),
            Metric("delete 10,000 topics, 2,000 a request", "s", less_is_better=True),
        ),
        many_topics,
    ),
}
"""The measurements on brokers that stay up for the whole run, in this order."""

START_UP = Metric("start-up, process start to first answer", "s", 10, True)
IDLE_CPU = (
    "CPU used in {seconds:g} s with {connections:,} idle connections and {partitions:,} partitions"
)
IDLE_MEMORY = "resident memory with {connections:,} idle connections and {partitions:,} partitions"


def start_up(broker: Broker) -> float:
    """Measure the seconds from starting the process to its first response. The broker has been
    formatted and stopped before.
    """
    started = time.perf_counter()
    broker.start()
    host, port = broker.bootstrap_servers.rsplit(":", 1)
    assert answers(host, int(port))
    return time.perf_counter() - started


def hold(broker: Broker, scale: Scale) -> tuple[float, float]:
    """Measure CPU seconds while idle, and resident MiB, with many connections and partitions."""
    client = admin(broker.bootstrap_servers)
    per_topic = 100
    names = [unique("held") for _ in range(scale.partitions // per_topic)]
    for start in range(0, len(names), 10):
        wanted = [NewTopic(name, per_topic, 1) for name in names[start : start + 10]]
        for future in client.create_topics(wanted, request_timeout=120).values():
            future.result(180)
    host, port = broker.bootstrap_servers.rsplit(":", 1)
    sockets: list[socket.socket] = []
    try:
        for _ in range(scale.connections):
            held = socket.create_connection((host, int(port)), timeout=60)
            held.sendall(frame(request_header(18, 0, 1)))
            assert receive_frame(held) is not None
            sockets.append(held)
        time.sleep(min(10, scale.idle_s))  # whatever creating them has left to do
        before = cpu_seconds(broker.pid)
        time.sleep(scale.idle_s)
        return cpu_seconds(broker.pid) - before, resident_mib(broker.pid)
    finally:
        for held in sockets:
            held.close()


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of a process and its children, in seconds."""
    process = psutil.Process(pid)
    return sum(sum(p.cpu_times()[:2]) for p in [process, *process.children(recursive=True)])
