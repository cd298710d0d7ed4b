"""The cost of reading two inputs in the order of their timestamps (KIP-695), and of its decisions.

    python -m bench.ordered_consumer                    1,000,000 records of 100 B over two topics
    python -m bench.ordered_consumer --records 100000

Measured is the CPU time (user and system) of this process for a record of ``OrderedConsumer``,
beside a record of confluent-kafka's own consumer, which reads both topics in no order, in
alternating runs. Then follows the cost of a decision: with records in all inputs, with an empty
input that is not waited for, and recomputed each time.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.client import OrderedConsumer
from headrace.ordered.ordered_task import OrderedTask
from headrace.ordered.readiness import Readiness
from tests.support import HeadraceProcess, unique

RECORDS = 1_000_000
RECORD_BYTES = 100
ROUNDS = 3
DECISIONS = 200_000
FETCHING = {
    "auto.offset.reset": "earliest",
    "fetch.queue.backoff.ms": 5,
    "queued.min.messages": 10_000,
}
"""For both readers: librdkafka's own backoff of a second would dominate the time."""

CONFIGS = {"group.initial.rebalance.delay.ms": "0"}


def fill(bootstrap: str, topics: Sequence[str], records: int) -> None:
    """Produce ``records`` records whose timestamps alternate between the topics."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        future.result(60)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    )
    value = b"x" * RECORD_BYTES
    for number in range(records):
        producer.produce(
            topics[number % len(topics)], value, partition=0, timestamp=1_700_000_000_000 + number
        )
        if number % 10_000 == 0:
            producer.poll(0.05)
    if producer.flush(120):
        raise RuntimeError("the records were not acknowledged")


Times = tuple[float, float]
"""Seconds of wall time and of CPU, from the first record to the last, without joining the group."""


def now() -> Times:
    return time.perf_counter(), time.process_time()


def since(start: Times) -> Times:
    clock, cpu = now()
    return clock - start[0], cpu - start[1]


def unordered(bootstrap: str, topics: Sequence[str], records: int) -> Times:
    """Read all records with confluent-kafka's consumer, and each record's timestamp."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": unique("plain"), **FETCHING})
    consumer.assign([TopicPartition(topic, 0, 0) for topic in topics])
    assert consumer.poll(60) is not None
    start, left = now(), records - 1
    while left:
        for message in consumer.consume(min(left, 2_000), 0.1):
            message.timestamp()
            left -= 1
    times = since(start)
    consumer.close()
    return times


def ordered(bootstrap: str, topics: Sequence[str], records: int) -> Times:
    """Read all records with :class:`OrderedConsumer`, and each record's timestamp."""
    conf = {"bootstrap.servers": bootstrap, "group.id": unique("ordered")}
    with OrderedConsumer(conf, topics) as consumer:
        assert consumer.poll(60) is not None
        start, last = now(), 0
        for _ in range(records - 1):
            record = consumer.poll(60)
            assert record is not None
            timestamp = record.timestamp()[1]
            assert timestamp >= last
            last = timestamp
        return since(start)


def per_call_ns(call: Callable[[int], object], calls: int = DECISIONS) -> float:
    """Return the CPU time of one call, in nanoseconds."""
    started = time.process_time_ns()
    for number in range(calls):
        call(number)
    return (time.process_time_ns() - started) / calls


def decisions(partitions: int) -> Iterator[tuple[str, float]]:
    """Measure the cost of a decision of a task with the given number of inputs."""
    names = [f"topic{index}-0" for index in range(partitions)]
    readiness = Readiness(names, 0)
    buffered, lags = dict.fromkeys(names, 1), dict.fromkeys(names, 0)
    yield "Readiness.decide", per_call_ns(lambda now_ms: readiness.decide(buffered, lags, now_ms))
    task: OrderedTask[str, None] = OrderedTask(names, 0)
    for name in names:
        task.add(name, [(1, None)])
    yield "a task, all buffered", per_call_ns(task.is_ready)
    task.take(0)
    task.update_lags(lags)
    yield "a task, one empty", per_call_ns(task.is_ready)


def medians(bootstrap: str, records: int) -> dict[str, tuple[float, float]]:
    """Return for each reader the records per second and the CPU time for a record in µs."""
    topics = [unique("left"), unique("right")]
    fill(bootstrap, topics, records)
    runs: dict[str, list[tuple[float, float]]] = {"unordered": [], "ordered": []}
    for _ in range(ROUNDS):
        for work in (unordered, ordered):
            runs[work.__name__].append(work(bootstrap, topics, records))
    result = {}
    for name, times in runs.items():
        clock_s, cpu_s = (
            statistics.median(column) / records for column in zip(*times, strict=True)
        )
        result[name] = (1 / clock_s, cpu_s * 1e6)
    return result


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument(
        "--bootstrap", help="of a broker that runs already; default: a headrace for this run"
    )
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        bootstrap = (
            arguments.bootstrap
            or stack.enter_context(HeadraceProcess(configs=CONFIGS)).bootstrap_servers
        )
        for name, (per_second, cpu_us) in medians(bootstrap, arguments.records).items():
            print(f"{name:<22} {per_second:>10,.0f} records/s {cpu_us:>8.2f} µs CPU a record")
    for partitions in (2, 16):
        for name, cost_ns in decisions(partitions):
            print(f"{name:<22} {partitions:>3} inputs {cost_ns:>10,.0f} ns")


if __name__ == "__main__":
    main()
