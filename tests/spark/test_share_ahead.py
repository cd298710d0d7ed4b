"""Acquisition ahead of the running micro-batch: nothing is lost, doubled, or waited for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any, TypeVar, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client import (
    Acknowledgement,
    AcknowledgeType,
    Acquired,
    AcquiredRange,
    ClientError,
    ConnectionFailed,
    RangeConsumer,
)
from headrace.client.share.spans import Span, normalize
from headrace.protocol.partitions import TopicPartition
from headrace.spark.share import acquisitions as acquisitions_module
from headrace.spark.share.acquisitions import Acquisitions
from headrace.spark.share.ahead import still_held
from headrace.spark.share.last_delivery import GroupLimits, Step, advice
from headrace.spark.share.options import ShareOptions
from tests.support import story

pytestmark = pytest.mark.pure

T = TypeVar("T")


@pytest.fixture(autouse=True, scope="module")
def _configs_of_the_fake() -> Iterator[None]:
    async def describe_config(consumer: Any, *_: object) -> dict[str, str]:
        return consumer.configs  # type: ignore[no-any-return]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(acquisitions_module, "describe_config", describe_config)
        yield


OPTIONS = {
    "kafka.bootstrap.servers": "127.0.0.1:9092",
    "kafka.group.id": "g",
    "subscribe": "t",
    "acquireAhead": "true",
}


class FakeConsumer:
    """A share group of one member and one partition, without a broker.

    :ivar end: the end of the log
    :ivar locks: most records that may be locked
    :ivar waits_ms: the wait of each acquisition
    :ivar gate: acquisitions are answered while it is set
    """

    def __init__(self, end: int, locks: int = 1 << 30) -> None:
        self.end = end
        self.locks = locks
        self.waits_ms: list[int] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failures: deque[ConnectionFailed] = deque()
        self.accepted: list[int] = []
        self.configs = {"share.delivery.count.limit": "5"}
        self._held: list[int] = []
        self._deliveries: dict[int, int] = {}

    async def acquire(self, *, max_records: int, max_wait_ms: int, **_: object) -> Acquired:
        self.waits_ms.append(max_wait_ms)
        if self.failures:
            raise self.failures.popleft()
        free = [n for n in range(self.end) if n not in self._held and n not in set(self.accepted)][
            : min(max_records, self.locks - len(self._held))
        ]
        self._held += free
        for offset in free:
            self._deliveries[offset] = self._deliveries.get(offset, 0) + 1
        await self.gate.wait()
        return Acquired(
            tuple(
                AcquiredRange("t", 0, first, last, count)
                for count, offsets in groupby(free, self._deliveries.__getitem__)
                for first, last in runs(offsets)
            )
        )

    async def acknowledge(self, wanted: Iterable[Acknowledgement]) -> list[Acknowledgement]:
        done = []
        for one in wanted:
            offsets = [n for n in range(one.first_offset, one.last_offset + 1) if n in self._held]
            self._held = [n for n in self._held if n not in offsets]
            if one.type is AcknowledgeType.ACCEPT:
                self.accepted += offsets
            done += [Acknowledgement("t", 0, *run, one.type) for run in runs(offsets)]
        return done

    async def release_unprocessed(self, ranges: Iterable[AcquiredRange]) -> None:
        for n in offsets(ranges):
            self._held.remove(n)
            self._deliveries[n] -= 1

    @property
    def cluster(self) -> FakeConsumer:
        return self

    def held(self) -> dict[TopicPartition, list[Span]]:
        return {("t", 0): list(runs(sorted(self._held)))}

    def lose(self, *offsets: int) -> None:
        """Lose the locks of records: with the session, or because they ran out."""
        self._held = [n for n in self._held if n not in offsets]


def runs(offsets: Iterable[int]) -> Iterator[Span]:
    yield from normalize((n, n) for n in offsets)


def acquisitions(consumer: FakeConsumer, **more: object) -> Acquisitions:
    options = {**OPTIONS, **{name: str(value) for name, value in more.items()}}
    return Acquisitions(cast(RangeConsumer, consumer), ShareOptions.parse(options, is_source=True))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)


def offsets(ranges: Iterable[AcquiredRange]) -> list[int]:
    return [n for r in ranges for n in range(r.first_offset, r.last_offset + 1)]


async def accept(queue: Acquisitions, ranges: list[AcquiredRange]) -> None:
    await queue.acknowledge(ranges, AcknowledgeType.ACCEPT)


@story
async def test_the_next_micro_batch_is_acquired_while_one_runs() -> None:
    consumer = FakeConsumer(end=25)
    queue = acquisitions(consumer, maxOffsetsPerTrigger=10)
    first = await queue.acquire()
    assert offsets(first) == list(range(10))
    await until(lambda: consumer.held()["t", 0] == [(0, 19)])  # before any acknowledgement
    await accept(queue, first)
    second = await queue.acquire()
    await accept(queue, second)
    third = await queue.acquire()
    await accept(queue, third)
    assert offsets(second) == list(range(10, 20))
    assert offsets(third) == list(range(20, 25))
    assert sorted(consumer.accepted) == list(range(25))
    assert queue.counts["acquired"] == queue.counts["accepted"] == 25
    await queue.close()


@story
async def test_without_the_option_nothing_is_acquired_before_the_trigger() -> None:
    consumer = FakeConsumer(end=25)
    queue = acquisitions(consumer, maxOffsetsPerTrigger=10, acquireAhead="false")
    await queue.acquire()
    for _ in range(100):
        await asyncio.sleep(0)
    assert consumer.held()["t", 0] == [(0, 9)]


@story
async def test_acquiring_ahead_never_waits_where_acknowledgements_would_queue() -> None:
    consumer = FakeConsumer(end=5)
    queue = acquisitions(consumer, maxOffsetsPerTrigger=10)
    first = await queue.acquire()
    asked = len(consumer.waits_ms)
    await until(lambda: len(consumer.waits_ms) > asked)
    assert set(consumer.waits_ms[asked:]) == {0}
    await accept(queue, first)
    await queue.close()


@story
async def test_locks_that_an_acknowledgement_frees_are_used_at_once() -> None:
    consumer = FakeConsumer(end=30, locks=10)
    queue = acquisitions(consumer)
    first = await queue.acquire()
    asked = len(consumer.waits_ms)
    await until(lambda: len(consumer.waits_ms) > asked)  # in vain: all locks are taken
    await accept(queue, first)
    await until(lambda: consumer.held()["t", 0] == [(10, 19)])
    assert offsets(await queue.acquire()) == list(range(10, 20))
    await queue.close()


@story
async def test_records_whose_locks_ran_out_are_left_to_their_next_delivery() -> None:
    consumer = FakeConsumer(end=20)
    queue = acquisitions(consumer, maxOffsetsPerTrigger=10)
    first = await queue.acquire()
    await until(lambda: consumer.held()["t", 0] == [(0, 19)])
    consumer.lose(13, 14)
    await accept(queue, first)
    second = await queue.acquire()
    # The lost ones came again, as what the trigger still had room for.
    assert sorted(offsets(second)) == list(range(10, 20))
    assert {r.delivery_count: offsets([r]) for r in second if r.delivery_count > 1} == {2: [13, 14]}
    await accept(queue, second)
    assert sorted(consumer.accepted) == list(range(20))
    assert queue.counts["acquired"] == 20
    await queue.close()


@story
async def test_an_answer_that_is_on_its_way_when_the_trigger_comes_is_waited_for() -> None:
    consumer = FakeConsumer(end=20)
    queue = acquisitions(consumer, maxOffsetsPerTrigger=10)
    first = await queue.acquire()
    consumer.gate.clear()
    await until(lambda: consumer.held()["t", 0] == [(0, 19)])  # locked, and not answered yet
    await accept(queue, first)
    second = asyncio.create_task(queue.acquire())
    await asyncio.sleep(0)
    assert not second.done()
    consumer.gate.set()
    assert offsets(await second) == list(range(10, 20))
    await queue.close()


@story
async def test_a_failure_leaves_what_was_acquired_to_the_next_micro_batch() -> None:
    consumer = FakeConsumer(end=10, locks=5)
    queue = acquisitions(consumer)
    first = await queue.acquire()
    consumer.locks = 8
    await until(lambda: consumer.held()["t", 0] == [(0, 7)])
    consumer.failures.append(ConnectionFailed("the broker is gone"))
    await accept(queue, first)
    await until(lambda: not consumer.failures)
    assert offsets(await queue.acquire()) == list(range(5, 10))
    await queue.close()


class FailsAfterwards(FakeConsumer):
    """A consumer whose brokers answer once."""

    async def acquire(self, **limits: Any) -> Acquired:
        acquired = await super().acquire(**limits)
        self.failures.append(ConnectionFailed("the broker is gone"))
        return acquired


@story
async def test_a_failure_after_records_were_acquired_leaves_these_to_the_query() -> None:
    consumer = FailsAfterwards(end=10, locks=5)
    queue = acquisitions(consumer, acquireAhead="false")
    assert offsets(await queue.acquire()) == list(range(5))
    assert queue.counts["acquired"] == 5


@story
async def test_what_was_acquired_and_not_processed_does_not_count() -> None:
    consumer = FakeConsumer(end=20)
    queue = acquisitions(consumer, maxOffsetsPerTrigger=10)
    first = await queue.acquire()
    await until(lambda: consumer.held()["t", 0] == [(0, 19)])
    await queue.close()
    assert consumer.held()["t", 0] == []
    assert {consumer._deliveries[n] for n in offsets(first)} == {0}

    queue = acquisitions(consumer, maxOffsetsPerTrigger=10)
    first = await queue.acquire()
    await until(lambda: consumer.held()["t", 0] == [(0, 19)])
    await queue.apply([Acknowledgement("t", 0, 0, 0, AcknowledgeType.ACCEPT)])
    await queue.close()
    assert consumer.held()["t", 0] == []
    assert set(consumer._deliveries.values()) == {0, 1}


@story
async def test_a_record_that_fails_alone_counts_if_it_comes_into_a_dead_letter_queue() -> None:
    for configs, left in (({}, []), ({"errors.deadletterqueue.topic.name": "dlq"}, [(0, 0)])):
        consumer = FakeConsumer(end=20)
        consumer.configs = configs
        queue = acquisitions(consumer, maxOffsetsPerTrigger=1)
        assert offsets(await queue.acquire()) == [0]
        await until(lambda consumer=consumer: consumer.held()["t", 0] == [(0, 1)])  # type: ignore[misc]
        await queue.close()
        assert consumer.held()["t", 0] == left  # the session's end releases it, which counts


@story
@pytest.mark.parametrize(
    ("deliveries", "configs", "other_members", "step"),
    [
        (3, {}, False, Step.RUN),
        (4, {}, False, Step.START_OVER),
        (4, {}, True, Step.START_OVER),  # which waits until they leave
        (5, {}, False, Step.START_OVER),
        (5, {}, True, Step.SPEND),
        (5, {"errors.deadletterqueue.topic.name": "dlq"}, False, Step.RUN),
        (7, {"share.delivery.count.limit": "9"}, False, Step.RUN),
        (2, {"share.delivery.count.limit": "2"}, False, Step.START_OVER),
    ],
)
async def test_last_deliveries_are_not_spent_on_failures(
    deliveries: int,
    configs: dict[str, str],
    other_members: bool,
    step: Step,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the broker counts each delivery."""
    can_uncount = False

    async def uncounts(*_: object) -> bool:
        return can_uncount

    async def has_others(*_: object) -> bool:
        return other_members

    monkeypatch.setattr(Acquisitions, "_broker_can_uncount", uncounts)
    monkeypatch.setattr(Acquisitions, "_has_other_members", has_others)
    consumer = FakeConsumer(end=1)
    consumer.configs |= configs
    queue = acquisitions(consumer)
    acquired = [AcquiredRange("t", 0, 0, 9, 1), AcquiredRange("t", 0, 10, 19, deliveries)]
    assert await queue._next_step(acquired) is step
    can_uncount = True
    assert await queue._next_step(acquired) is Step.RUN
    can_uncount, queue._releases_records = False, True
    assert await queue._next_step(acquired) is Step.RUN


def test_the_line_about_last_deliveries_says_what_to_do() -> None:
    acquired = [AcquiredRange("t", 0, 0, 9, 1), AcquiredRange("t", 0, 10, 19, 4)]
    assert advice(acquired, "g", GroupLimits(5)) == (
        "share group 'g' gives up records after 5 deliveries, and t-0 offsets 10 to 19 have had 4, "
        "in micro-batches that did not finish. Raise share.delivery.count.limit of the group, set "
        "its errors.deadletterqueue.topic.name, or let the query reject a record that it cannot "
        "process"
    )


@story
async def test_a_record_that_failed_alone_waits_for_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    consumer = FakeConsumer(end=20)
    queue = acquisitions(consumer, maxOffsetsPerTrigger=10, acquireAhead=False)
    await queue.suspect(8, {("t", 0): (0, 7)}, [("t", 0, 9)])
    (line,) = caplog.messages
    assert line == (
        "share group g: the last micro-batch did not finish (8 records, t-0 offsets 0 to 7): the "
        "next ones have at most 4, until these are done"
    )
    batches = []
    while ranges := await queue.acquire():
        batches.append(offsets(ranges))
        await accept(queue, ranges)
        if batches[-1] == [9]:
            break
    assert batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, *range(10, 19)], [19], [9]]
    assert sorted(consumer.accepted) == list(range(20))

    await queue.suspect(1, {("t", 0): (3, 3)}, [])
    assert caplog.records[-1].levelname == "ERROR"
    assert "the micro-batch with nothing but t-0 offset 3 did not finish" in caplog.messages[-1]


@story
async def test_without_the_limits_the_query_goes_on_and_warns_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(*_: object) -> dict[str, str]:
        raise ClientError("describing configs: GROUP_AUTHORIZATION_FAILED")

    consumer = FakeConsumer(end=4)
    consumer._deliveries = {1: 4, 2: 7}
    monkeypatch.setattr(acquisitions_module, "describe_config", refuse)
    queue = acquisitions(consumer, maxOffsetsPerTrigger=3)
    assert offsets(await queue.acquire()) == [0, 1, 2]
    await queue.close()
    (line,) = caplog.messages
    assert line.startswith("share group g: share.delivery.count.limit is unknown, so records may")


@story
async def test_a_coordinator_that_does_not_answer_does_not_end_the_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(*_: object) -> dict[object, object]:
        raise ConnectionFailed("the coordinator is gone")

    monkeypatch.setattr("headrace.spark.share.acquisitions.share_states", fail)
    consumer = FakeConsumer(end=4)
    consumer._deliveries = {1: 4}
    monkeypatch.setattr("headrace.spark.share.acquisitions.describe_group", fail)
    queue = acquisitions(consumer)
    # A release might count.
    assert sorted(offsets(await queue.acquire())) == [0, 1, 2, 3]
    await queue.close()


SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 8)), max_size=8)


@given(SPANS, SPANS)
def test_each_held_record_is_in_its_latest_range(
    acquired: list[tuple[int, int]], held: list[tuple[int, int]]
) -> None:
    ranges = [
        AcquiredRange("t", 0, first, first + more, number)
        for number, (first, more) in enumerate(acquired)
    ]
    locked = {n for first, more in held for n in range(first, first + more + 1)}
    latest = {n: r.delivery_count for r in ranges for n in offsets([r]) if n in locked}
    found = still_held(ranges, {("t", 0): list(runs(sorted(locked)))})
    assert sorted((n, r.delivery_count) for r in found for n in offsets([r])) == sorted(
        latest.items()
    )
