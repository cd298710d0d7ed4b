"""Planning with a broker, and reading of the planned ranges, without a JVM."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from headrace.spark.option_parsing import KafkaOptions
from headrace.spark.ordered.broker_log import BrokerLog
from headrace.spark.ordered.executor import TaskWork, offset_ranges, read
from headrace.spark.ordered.options import OrderedOptions
from headrace.spark.ordered.plan import Inputs, Offsets, Pacing, plan
from headrace.spark.ordered.positions import all_partitions, tasks_of
from headrace.spark.reader.log_reader import LogReader
from headrace.spark.reader.ranges import OffsetRange, ReadOptions
from tests.spark.ordered_topics import Place, Topics
from tests.support import RUN_SEED


def read_all(planned: dict[int, Inputs], options: OrderedOptions) -> list[Place]:
    """Return the rows of all tasks, one after the other."""
    found: list[Place] = []
    for inputs in planned.values():
        work = TaskWork(offset_ranges(inputs))
        for batch in read(work, options.kafka, options.reading):
            columns = (batch.column(name).to_pylist() for name in ("topic", "partition", "offset"))
            found += zip(*columns, strict=True)
    return found


def as_spark(offsets: Offsets) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        found.setdefault(topic, {})[str(partition)] = offset
    return found


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("max_task_idle_ms", [0, 1000])
def test_micro_batches_are_the_merge_in_pieces(
    bootstrap_servers: str, isolation: str, max_task_idle_ms: int
) -> None:
    seed = RUN_SEED
    print("seed", seed)
    chance = random.Random(seed)
    committed = isolation == "read_committed"
    topics = Topics.create(bootstrap_servers, 3, partitions=2)
    given = topics.options(kafka__isolation__level=isolation, maxTaskIdleMs=max_task_idle_ms)
    options = OrderedOptions.parse(given, streaming=True)
    log, pacing = BrokerLog(options), Pacing(max_task_idle_ms)
    position = dict.fromkeys(all_partitions(log.topics()), 0)
    now_ms, clock, read_so_far = 0, 1000, []
    for _ in range(4):
        for topic in range(3):
            for partition in topics.numbers:
                stamps = [
                    clock + 3 * i - chance.choice([0, 0, 40]) for i in range(chance.randrange(50))
                ]
                if chance.random() < 0.4:
                    topics.transaction(
                        topic, stamps or [clock], partition, commit=chance.random() < 0.6
                    )
                else:
                    topics.produce(topic, stamps, partition)
        clock += 100
        available, before = log.ends(list(position)), dict(position)
        owned = tasks_of(all_partitions(log.topics()))
        taken: dict[int, list[Place]] = {task: [] for task in owned}
        while position != available:
            tasks = {
                task: Inputs(own, {p: position[p] for p in own}, {p: available[p] for p in own})
                for task, own in owned.items()
            }
            planned = plan(log, pacing, tasks, now_ms, chance.choice([None, 20, 60]))
            for task in tasks:
                taken[task] += read_all({task: planned[task]}, options)
            reached = {
                p: offset for inputs in planned.values() for p, offset in inputs.reached.items()
            }
            if reached == position:
                now_ms += max_task_idle_ms  # every task with records waits
            position = reached
        pieces = [place for rows in taken.values() for place in rows]
        assert pieces == topics.merged(as_spark(before), as_spark(available), committed)
        read_so_far += pieces
    assert len(set(read_so_far)) == len(read_so_far)


def test_answers_of_a_broker(bootstrap_servers: str) -> None:
    topics = Topics.create(bootstrap_servers, 2)
    topics.produce(0, [10, 30, 20])
    topics.transaction(0, [40], commit=False)
    log = BrokerLog(
        OrderedOptions.parse(
            topics.options(kafka__isolation__level="read_committed"), streaming=True
        )
    )
    first, empty = ((name, 0) for name in topics.names)
    assert log.topics() == dict.fromkeys(topics.names, 1)
    assert log.starts([first, empty]) == {first: 0, empty: 0}
    assert log.ends([first, empty]) == {first: 5, empty: 0}
    assert log.offsets_at({first: 15, empty: 15}) == {first: 1, empty: None}
    assert log.offsets_at({first: 2}) == {first: 0}
    assert log.first_visible({first: (1, 5)}) == {first: (1, 30)}
    assert log.first_visible({first: (3, 5)}) == {}  # an aborted record and its marker
    scanned = [
        (o, t)
        for offsets, times in log.scan(first, 1, 5)
        for o, t in zip(offsets, times, strict=True)
    ]
    assert scanned == [(1, 30), (2, 20)]
    largest_ms, offset = log.largest_timestamps([first, empty])[first]
    assert offset == 4  # the marker, whose timestamp is that of its writing
    assert largest_ms > 10**12


def test_batches_are_opened_only_where_their_heads_tell_too_little(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = Topics.create(bootstrap_servers, 1)
    topics.produce(0, [10, 30, 20])
    topics.transaction(0, [40], commit=False)
    partition = topics.names[0], 0
    opened: list[int] = []

    class CountedReader(LogReader):
        def __init__(
            self, kafka: KafkaOptions, ranges: Sequence[OffsetRange], options: ReadOptions
        ) -> None:
            opened.extend(r.start for r in ranges)
            super().__init__(kafka, ranges, options)

    monkeypatch.setattr("headrace.spark.ordered.broker_log.LogReader", CountedReader)

    def firsts(log: BrokerLog) -> list[tuple[int, int] | None]:
        assert log.topics() == {partition[0]: 1}
        assert log.offsets_at({partition: 15}) == {partition: 1}
        return [log.first_visible({partition: (start, 5)}).get(partition) for start in range(5)]

    options = topics.options(kafka__isolation__level="read_committed")
    committed = BrokerLog(OrderedOptions.parse(options, streaming=True))
    assert firsts(committed) == [(0, 10), (1, 30), (2, 20), None, None]
    assert opened == [2, 3, 4]  # neither the first nor found by the broker; aborted; a marker
    opened.clear()
    uncommitted = BrokerLog(OrderedOptions.parse(topics.options(), streaming=True))
    assert firsts(uncommitted) == [(0, 10), (1, 30), (2, 20), (3, 40), None]
    assert opened == [2, 4]
    topics.drop(partition[0])
    topics.add(partition[0])
    topics.produce(0, [50, 70])
    uncommitted.expire_metadata()
    uncommitted.topics()
    assert uncommitted.first_visible({partition: (1, 2)}) == {partition: (1, 70)}
