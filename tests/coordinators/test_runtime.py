"""The coordinators' runtime over a log in memory: batches, ordering and failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from headrace.coordinators import runtime
from headrace.coordinators.clock import Clock
from headrace.coordinators.coordinators import load
from headrace.coordinators.runtime import CoordinatorRuntime
from headrace.coordinators.waiting import Deferred
from headrace.outcome import NOWHERE, Outcome, Position
from headrace.protocol import record_batch
from headrace.protocol.errors import StorageError
from tests.memory_log import MemoryLog
from tests.support import story, story_in

TOPIC = "__numbers"


class Numbers:
    """A coordinator that adds numbers up by key. Parked requests are answered with the next sum."""

    topic = TOPIC

    def __init__(self) -> None:
        self.sums: dict[str, int] = {}
        self.positions: list[Position] = []
        self.waiting: list[int] = []
        self.due: list[tuple[str, Outcome[Any, None]]] = []

    def add(self, key: str, number: int) -> Outcome[Any, int]:
        """Decide to add, and answer what the sum will be."""
        reply = self.sums.get(key, 0) + number
        completions = tuple((ticket, reply) for ticket in self.waiting)
        return Outcome(reply, ((key, number),), completions, apply=self.waiting.clear)

    def wait(self, ticket: int) -> Outcome[Any, int | None]:
        """Decide to wait for the next sum."""
        return Outcome(None, apply=lambda: self.waiting.append(ticket))

    def encode(self, record: tuple[str, int]) -> tuple[bytes, bytes | None]:
        key, number = record
        if number > 999:
            raise ValueError("a number is too large")
        return key.encode(), str(number).encode()

    def decode(self, key: bytes, value: bytes | None) -> tuple[str, int]:
        return key.decode(), int(value or b"0")

    def replay(self, record: tuple[str, int], at: Position = NOWHERE) -> None:
        key, number = record
        self.sums[key] = self.sums.get(key, 0) + number
        self.positions.append(at)

    def next_deadline_ms(self) -> int | None:
        return None

    def expire(self, now_ms: int) -> Iterable[tuple[str, Outcome[Any, None]]]:
        yield from self.due


class Meter:
    def __init__(self) -> None:
        self.batches: list[int] = []

    def wrote(self, records: Sequence[object], started: float) -> None:
        self.batches.append(len(records))


class Stand:
    """A runtime with everything around it."""

    def __init__(self, partitions: int = 1) -> None:
        self.log = MemoryLog(partitions)
        self.numbers = Numbers()
        self.meter = Meter()
        self.runtime = CoordinatorRuntime(
            self.numbers, self.log, Clock(lambda: 5, lambda: 7), self.meter, lambda: None
        )

    def add(self, key: str, number: int) -> asyncio.Future[int]:
        return started(self.runtime.write(key, self._adding(key, number)))

    def commute(self, key: str, number: int) -> asyncio.Future[int]:
        return started(self.commuting(key, number))

    def commuting(self, key: str, number: int) -> Deferred[int]:
        return self.runtime.write(key, self._adding(key, number), commutes=True)

    def _adding(self, key: str, number: int) -> Callable[[int, int], Outcome[Any, int]]:
        return lambda now_ms, wall_ms: self.numbers.add(key, number)

    def wait(self, key: str) -> asyncio.Future[int]:
        return started(
            self.runtime.write_parkable(
                key, lambda ticket, now_ms, wall_ms: self.numbers.wait(ticket)
            )
        )

    def restarted(self) -> Numbers:
        """A coordinator that knows what the log has kept."""
        fresh = Numbers()
        load(self.log, fresh)
        return fresh

    def check(self) -> None:
        """Memory says what a restart would find."""
        assert self.restarted().sums == self.numbers.sums


def started(awaitable: Awaitable[Any]) -> asyncio.Future[Any]:
    """Wait for it from now on."""

    future = asyncio.get_running_loop().create_future()
    awaitable.waiter = (  # type: ignore[attr-defined]
        lambda answer: (
            future.set_exception(answer)
            if isinstance(answer, Exception)
            else future.set_result(answer)
        )
    )
    return future


@asynccontextmanager
async def standing(**options: Any) -> AsyncIterator[Stand]:
    """A stand, checked at the end."""
    stand = Stand(**options)
    yield stand
    stand.check()


def on_stand(**options: Any) -> Callable[..., Callable[..., None]]:
    """Run an async test on its own loop with a :class:`Stand`, its first argument."""
    return story_in(partial(standing, **options))


@on_stand(partitions=3)
async def test_the_commands_of_a_turn_are_one_batch_for_each_partition(stand: Stand) -> None:
    told = [stand.add(f"key-{n}", n) for n in range(20)]
    assert stand.numbers.sums == {}  # nothing is decided before the turn ends
    assert await asyncio.gather(*told) == list(range(20))
    assert len(stand.meter.batches) == 3
    assert sum(stand.meter.batches) == 20
    assert len(set(stand.numbers.positions)) == 20


@on_stand()
async def test_a_command_sees_earlier_commands_of_its_key(stand: Stand) -> None:
    told = [stand.add("a", 1), stand.add("b", 10), stand.add("a", 2), stand.add("a", 3)]
    assert await asyncio.gather(*told) == [1, 10, 3, 6]
    assert stand.meter.batches == [2, 1, 1]


@on_stand()
async def test_commands_that_commute_are_decided_together(stand: Stand) -> None:
    told = [stand.commute("a", 1), stand.commute("a", 2)]
    assert await asyncio.gather(*told) == [1, 2]
    assert stand.numbers.sums == {"a": 3}
    mixed = [stand.commute("a", 1), stand.add("a", 1), stand.commute("a", 1)]
    assert await asyncio.gather(*mixed) == [4, 5, 6]
    assert stand.meter.batches == [2, 1, 1, 1]


@story
async def test_commands_that_commute_are_answered_in_their_order() -> None:
    stand, answered = Stand(partitions=2), []
    for key in "abcd":
        command = stand.commuting(key, 1)
        command.waiter = lambda _, key=key: answered.append(key)  # type: ignore[misc]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    by_partition = [key for key, _ in stand.log.records(TOPIC)]
    assert by_partition == [b"b", b"d", b"a", b"c"]
    assert answered == [*"abcd"]


@on_stand()
async def test_an_error_of_one_command_does_not_affect_others(stand: Stand) -> None:
    def undecided(now_ms: int, wall_ms: int) -> Outcome[Any, int]:
        raise ZeroDivisionError

    told = [
        stand.add("a", 1),
        stand.add("a", 5000),  # which cannot be encoded
        started(stand.runtime.write("b", undecided)),
        stand.add("b", 2),
    ]
    answers = await asyncio.gather(*told, return_exceptions=True)
    assert [answers[0], answers[3]] == [1, 2]
    assert [type(answer) for answer in answers[1:3]] == [ValueError, ZeroDivisionError]


@on_stand()
async def test_an_answer_that_cannot_be_given_does_not_affect_others(stand: Stand) -> None:
    def tell(answer: object) -> None:
        raise ConnectionError

    stand.commuting("a", 1).waiter = tell
    assert await stand.add("b", 1) == 1


@on_stand()
async def test_a_failed_append_changes_nothing_and_fails_its_requests(stand: Stand) -> None:
    parked = stand.wait("a")
    await asyncio.sleep(0)
    stand.log.is_full = True
    told = [stand.add("a", 1), stand.add("b", 1)]
    answers = await asyncio.gather(*told, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StorageError] * 2
    assert stand.numbers.sums == {}
    with pytest.raises(StorageError):
        await parked
    parked = stand.wait("a")
    await asyncio.sleep(0)
    with pytest.raises(StorageError):
        stand.runtime.write_now("a", stand.numbers.add("a", 1))
    with pytest.raises(StorageError):
        await parked
    assert stand.numbers.waiting  # it may complete a ticket without a parked request
    stand.log.is_full = False
    assert await stand.add("a", 4) == 4


@on_stand()
async def test_a_batch_that_is_refused_is_tried_again_command_by_command(stand: Stand) -> None:
    def too_large(topic: str, partition: int, data: bytes) -> bool:
        return sum(1 for _ in record_batch.records(data)) > 1 or b"culprit" in data

    stand.log.refuses = too_large
    told = [stand.add("a", 1), stand.add("culprit", 2), stand.add("c", 3)]
    answers = await asyncio.gather(*told, return_exceptions=True)
    assert [answers[0], answers[2]] == [1, 3]
    assert isinstance(answers[1], StorageError)


@on_stand()
async def test_write_now_answers_a_parked_request(stand: Stand) -> None:
    parked = [stand.wait("a"), stand.wait("b")]
    await asyncio.sleep(0)
    stand.runtime.write_now("c", stand.numbers.add("c", 3))
    assert not parked[0].done()  # not in the middle of whatever writes
    assert await asyncio.gather(*parked) == [3, 3]


@on_stand()
async def test_a_cancelled_command_is_written_and_not_answered(stand: Stand) -> None:
    command = stand.commuting("a", 1)
    command.waiter = pytest.fail
    command.cancel()
    assert await stand.add("b", 1) == 1
    assert stand.numbers.sums == {"a": 1, "b": 1}


@on_stand()
async def test_answers_wait_until_the_log_is_durable(stand: Stand) -> None:
    stand.log.flushed = asyncio.get_running_loop().create_future()
    told = stand.add("a", 1)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not told.done()
    stand.log.flushed.set_result(None)
    assert await told == 1
    stand.log.flushed = asyncio.get_running_loop().create_future()
    told, refused = stand.add("a", 1), stand.add("a", 1000)
    for _ in range(5):
        await asyncio.sleep(0)
    stand.log.flushed.set_exception(StorageError("cannot flush"))
    answers = await asyncio.gather(told, refused, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StorageError, ValueError]


@on_stand()
async def test_write_now_in_a_decision_follows_earlier_commands_of_its_key(stand: Stand) -> None:
    def decide(now_ms: int, wall_ms: int) -> Outcome[Any, int]:
        stand.runtime.write_now("a", Outcome(None, (("a", 100),)))
        return stand.numbers.add("b", 1)

    told = [stand.add("a", 1), started(stand.runtime.write("b", decide))]
    assert await asyncio.gather(*told) == [1, 1]
    assert [record[1] for record in stand.log.records(TOPIC)] == [b"1", b"100", b"1"]


@story
async def test_many_commands_take_turns_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "COMMANDS_AT_ONCE", 3)
    monkeypatch.setattr(runtime, "ANSWERS_AT_ONCE", 2)
    monkeypatch.setattr(runtime, "TURN_MS", 0)
    stand = Stand()
    answers = [stand.add("a", 1) for _ in range(10)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    late = stand.add("a", 100)
    assert stand.numbers.sums["a"] < 10, "the others wait for the next turn"
    assert await asyncio.gather(*answers, late) == [*range(1, 11), 110]
    stand.check()


@story
async def test_many_waiting_requests_are_answered_over_several_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runtime, "ANSWERS_AT_ONCE", 2)
    monkeypatch.setattr(runtime, "TURN_MS", 0)
    stand = Stand()
    waiting = [stand.wait("a") for _ in range(9)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    adding = stand.add("a", 5)
    assert await waiting[0] == 5
    assert not adding.done(), "its turn comes after those that waited"
    assert await asyncio.gather(*waiting, adding) == [5] * 10


class Sceptic(Numbers):
    """A coordinator that replays no odd number."""

    def replay(self, record: tuple[str, int], at: Position = NOWHERE) -> None:
        if record[1] % 2:
            raise ValueError("odd")
        super().replay(record, at)


def test_batches_decoded_at_once_are_replayed_like_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = MemoryLog()
    for key in (b"a", b"b"):
        pairs = [(key, b"2"), (key, b"3"), (key, b"4")]
        data = record_batch.build(
            pairs, timestamp_ms=1, attributes=record_batch.TRANSACTIONAL_BIT, producer_id=9
        )
        log.append(TOPIC, 0, data, 1)

    def only_a(
        batch: memoryview, header: record_batch.BatchHeader
    ) -> list[tuple[int, tuple[str, int]]] | None:
        decoded = [
            (record.offset, (str(record.key, "ascii"), int(record.value)))
            for record in record_batch.records(batch)
        ]
        return decoded if decoded[0][1][0] == "a" else None

    sceptic = Sceptic()
    load(log, sceptic, decode_batch=only_a)
    assert sceptic.sums == {"a": 6, "b": 6}
    assert sceptic.positions == [Position(0, offset, 9) for offset in (0, 2, 3, 5)]
    assert "skipped the record at offset 1 of __numbers, with the key 61: odd" in caplog.text
