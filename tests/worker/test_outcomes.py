"""What becomes of records: decisions, attempts and times."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from math import inf
from uuid import UUID

import pytest
from confluent_kafka import KafkaError

from headrace import App, Record, Reject, Retry
from headrace.client.errors import ClientError
from headrace.protocol import dead_letters
from headrace.worker.attempts import Attempt, Waiting, letter, origin_of, written_again
from headrace.worker.backends import LoopBackend
from headrace.worker.breaker import Breaker
from headrace.worker.endings import Endings
from headrace.worker.outcomes import ACCEPTED, Ending, Outcome, TimedOut, Undecodable, decide
from headrace.worker.runner import Runner
from headrace.worker.sending import NewRecord, Report, Sender, SendFailed
from tests.support import story

Headers = tuple[tuple[str, bytes | None], ...]


def record(headers: Headers = (), *, deliveries: int = 1, value: bytes = b"v") -> Record:
    return Record(
        "t", 0, 7, b"k", value, headers, 0, "CreateTime", deliveries, UUID(int=1), len(value)
    )


def ending(result: object, attempt: int, policy: Retry) -> tuple[Ending, float]:
    outcome = decide(result, attempt, policy, lambda: 0.5)
    return outcome.ending, outcome.delay_s


POLICY = Retry(4, first=1, factor=3, max=5, on=(OSError,), ignore=(KeyError,))


@pytest.mark.parametrize(
    ("result", "attempt", "expected"),
    [
        (None, 1, (Ending.ACCEPT, 0)),
        (OSError("away"), 1, (Ending.RETRY, 1)),
        (OSError("away"), 2, (Ending.RETRY, 3)),
        (ConnectionError("away"), 3, (Ending.RETRY, 5)),  # a subclass; the longest delay
        (OSError("away"), 4, (Ending.LETTER, 0)),
        (ValueError("no"), 1, (Ending.LETTER, 0)),
        (KeyError("gone"), 1, (Ending.ACCEPT, 0)),
        (TimedOut("late"), 1, (Ending.RETRY, 1)),
        (TimedOut("late"), 4, (Ending.LETTER, 0)),
        (Undecodable("no JSON"), 1, (Ending.LETTER, 0)),
        (Reject("no such item"), 1, (Ending.LETTER, 0)),
        (Retry(after=9), 1, (Ending.RETRY, 9)),
        (Retry(), 2, (Ending.RETRY, 3)),
        (Retry(after=9), 4, (Ending.LETTER, 0)),
        (SystemExit(3), 1, (Ending.LETTER, 0)),
        (asyncio.CancelledError(), 1, (Ending.LETTER, 0)),
        (type("OutOfStock", (Reject,), {"__init__": lambda _: None})(), 1, (Ending.LETTER, 0)),
        (type("TooEarly", (Retry,), {"__init__": lambda _: None})(), 1, (Ending.RETRY, 1)),
    ],
    ids=repr,
)
def test_results_are_accepted_retried_or_dead_letters(
    result: object, attempt: int, expected: tuple[Ending, float]
) -> None:
    assert ending(result, attempt, POLICY) == expected


def test_failures_count_for_the_breaker_and_decisions_do_not() -> None:
    results = [OSError(), Undecodable("x"), Reject("x"), Retry(), KeyError(), None]
    outcomes = [decide(result, 1, POLICY, lambda: 0.5) for result in results]
    assert [outcome.error is not None for outcome in outcomes] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]
    assert outcomes[-1] is ACCEPTED


def test_at_most_once_is_one_attempt() -> None:
    once = POLICY.once()
    assert ending(OSError(), 1, once) == (Ending.LETTER, 0)
    assert ending(KeyError(), 1, once) == (Ending.ACCEPT, 0)


def test_jitter_spreads_delays_around_the_policys() -> None:
    policy = Retry(first=10, jitter=0.5)
    assert [policy.delay_s(1, chance) for chance in (0, 0.5, 1)] == [5, 10, 15]


def test_any_number_of_attempts_has_a_delay() -> None:
    assert Retry(factor=1000, max=60, jitter=0).delay_s(10**15, 0.5) == 60
    for factor in (1001.0, 0.5, float("inf"), float("nan")):
        with pytest.raises(ClientError, match="factor is"):
            Retry(factor=factor)


def test_types_of_exceptions_are_listed_in_any_way() -> None:
    for on in (OSError, (OSError,), [OSError], {OSError}):
        assert ending(OSError(), 1, Retry(on=on, jitter=0)) == (Ending.RETRY, 1)
    for name in ("on", "ignore"):
        with pytest.raises(ClientError, match=f"{name} is .*, not types of exceptions"):
            Retry(**{name: [OSError, "ValueError"]})  # type: ignore[arg-type]


@pytest.mark.parametrize("attempts", [0, -1, 1.5, True])
def test_a_policy_without_an_attempt_is_refused(attempts: int) -> None:
    with pytest.raises(ClientError, match=f"attempts is {attempts}"):
        Retry(attempts)


def test_headers_say_attempts_and_times() -> None:
    headers: Headers = (
        ("headrace-attempts", b"9"),
        ("headrace-due", b"1500"),
        ("headrace-expires", b"2500"),
    )
    attempt = Attempt(record(headers, deliveries=2))
    assert (attempt.number, attempt.earlier) == (11, 9)
    assert (attempt.due_s, attempt.expires_s) == (1.5, 2.5)
    plain = Attempt(record((("other", b"x"),)))
    assert (plain.number, plain.earlier, plain.due_s, plain.expires_s) == (1, 0, 0, 0)


@pytest.mark.parametrize("value", [b"-1", b"", b"1e9", "¹".encode(), b"9" * 16, None])
def test_headers_that_are_no_numbers_say_nothing(value: bytes | None) -> None:
    attempt = Attempt(record((("headrace-due", value), ("headrace-attempts", value))))
    assert (attempt.number, attempt.due_s) == (1, 0)


def test_a_record_is_written_again_with_attempts_and_a_time() -> None:
    first = written_again("g-later", record((("a", b"1"),)), 9, 1.5)
    assert first[:3] == ("g-later", b"v", b"k")
    origin = ("headrace-origin", b"t/0/7")
    attempts, due = ("headrace-attempts", b"9"), ("headrace-due", b"1500")
    assert first.headers == [("a", b"1"), origin, attempts, due]
    copy = record(tuple(first.headers))._replace(topic="g-later", offset=99)
    second = written_again("g-later", Record(*copy), 18)
    assert second.headers == [("a", b"1"), origin, ("headrace-attempts", b"18")]


def test_an_origin_that_anybody_may_have_written_says_nothing() -> None:
    forged = record((("headrace-origin", b"u/1/1"),))
    assert origin_of(forged, "g-later") == b"t/0/7"
    assert ("headrace-origin", b"t/0/7") in written_again("g-later", forged, 1).headers


def due(at_ms: int, value: bytes = b"v") -> Attempt:
    return Attempt(record((("headrace-due", b"%d" % at_ms),), value=value))


def test_records_wait_in_the_order_of_their_times() -> None:
    waiting = Waiting()
    third, first, second = due(30_000, b"1"), due(10_000, b"22"), due(20_000, b"333")
    for attempt in (third, first, second):
        waiting.add(attempt)
    assert (len(waiting.attempts), waiting.size_bytes, waiting.next_due_s()) == (3, 6, 10.0)
    assert waiting.take_due(9.9, 5) == []
    assert waiting.take_due(30, 1) == [first]
    assert waiting.remove({id(second.record)}) == [second]
    assert waiting.take_due(30, 5) == [third]
    assert (len(waiting.attempts), waiting.size_bytes, waiting.next_due_s()) == (0, 0, inf)


def test_a_lost_record_waits_no_longer_and_its_equal_does() -> None:
    waiting = Waiting()
    lost, again = due(1000), due(1000)
    waiting.add(lost)
    waiting.add(again)
    waiting.remove({id(lost.record)})
    assert waiting.attempts == [again]


def failure() -> Exception:
    try:
        raise ValueError("no\x1b[31m red " + "x" * 20_000)
    except ValueError as error:
        return error


def test_a_letter_names_record_exception_and_worker() -> None:
    error = failure()
    attempt = Attempt(record((("a", b"1"), ("headrace-attempts", b"9")), deliveries=2))
    outcome = Outcome(Ending.LETTER, reason=f"ValueError: {error}", error=error)
    whole, smaller = letter("dlq.t", attempt, outcome, group="g", worker="host-1")
    headers = dict(whole.headers)
    assert (whole.topic, whole.key, whole.value, headers["a"]) == ("dlq.t", b"k", b"v", b"1")
    context = [headers[name] for name in dead_letters.HEADERS[:5]]
    assert context == [b"t", b"0", b"7", b"g", b"2"]
    message = headers[dead_letters.MESSAGE] or b""
    assert message.startswith(rb"ValueError: no\x1b[31m red") and len(message) < 1100
    assert (headers[dead_letters.ATTEMPT], headers[dead_letters.WORKER]) == (b"11", b"host-1")
    assert headers[dead_letters.EXCEPTION] == b"ValueError"
    assert len(headers[dead_letters.TRACEBACK] or b"") <= 8000
    assert (smaller.topic, smaller.key, smaller.value) == ("dlq.t", None, None)
    assert {name for name, _ in smaller.headers} == {
        *dead_letters.HEADERS,
        *dead_letters.WORKER_HEADERS,
    }


@story
async def test_the_traceback_begins_in_the_function() -> None:
    async def pack() -> None:
        raise ValueError("no such item")

    try:
        await LoopBackend(pack, "pack", 1, {}).run(((), {}))
    except ValueError as error:  # its first frame is this one, which a worker does not have
        error.__traceback__ = error.__traceback__.tb_next  # type: ignore[union-attr]
        outcome = decide(error, 4, Retry(4), lambda: 0.5)
    copy, _ = letter("q", Attempt(record()), outcome, group="g", worker="w")
    lines = (dict(copy.headers)[dead_letters.TRACEBACK] or b"").decode().splitlines()
    assert "in pack" in lines[1] and lines[-1] == "ValueError: no such item"


def test_the_traceback_of_an_exception_whose_text_fails() -> None:
    class Rude(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    outcome = decide(Rude(), 4, Retry(4), lambda: 0.5)
    copy, _ = letter("q", Attempt(record()), outcome, group="g", worker="w")
    assert outcome.reason == "Rude: <Rude without text: RuntimeError>"
    assert dict(copy.headers)[dead_letters.EXCEPTION].endswith(b"Rude")  # type: ignore[union-attr]


class _Closed:
    """A member that is closed."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def holds(self, record: Record) -> _Closed:
        return self

    async def accept(self, records: list[Record]) -> None:
        self.calls.append("accept")
        raise ClientError("the consumer is closed")

    async def reject(self, records: list[Record], *, reason: str) -> None:
        self.calls.append(f"reject: {reason}")
        raise ClientError("the consumer is closed")


@story
async def test_an_end_that_no_broker_has_confirmed_is_that_of_the_next_delivery() -> None:
    app = App("127.0.0.1:1")

    @app.task(dead_letters=False)
    async def task() -> None: ...

    counts: dict[str, int] = defaultdict(int)
    member = _Closed()
    endings = Endings(task, "w", counts, member.holds, lambda: None)  # type: ignore[arg-type]
    endings.begin(is_counted=True)
    for end, call in (
        (endings.accept, "accept"),
        (lambda it: endings.end(it, Outcome(Ending.LETTER, reason="no")), "reject: no"),
    ):
        member.calls.clear()
        again = Attempt(record(deliveries=2))
        end(Attempt(record()))
        while endings.is_busy:
            await asyncio.sleep(0)
        assert not endings.end_again(Attempt(again.record._replace(offset=8)))
        # After a power cut.
        assert not endings.end_again(Attempt(again.record._replace(timestamp_ms=1)))
        assert endings.end_again(again)
        assert not endings.end_again(again)
        while endings.is_busy:
            await asyncio.sleep(0)
        assert member.calls == [call, call]
    assert counts["late"] == 4


@story
async def test_at_most_once_a_record_is_accepted_before_its_copy_is_written(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("127.0.0.1:1")
    sent: list[NewRecord] = []

    @app.task(at_most_once=True)
    async def task() -> None: ...

    async def send(_: Sender, records: list[NewRecord]) -> None:
        sent.extend(records)

    monkeypatch.setattr(Sender, "send", send)
    member = _Closed()
    endings = Endings(task, "w", defaultdict(int), member.holds, lambda: None)  # type: ignore[arg-type]
    endings.write_again(Attempt(record()), 0)
    while endings.is_busy:
        await asyncio.sleep(0)
    assert member.calls == ["accept"] and not sent
    monkeypatch.setattr(_Closed, "accept", lambda self, _: asyncio.sleep(0))
    endings.write_again(Attempt(record()), 0)
    while endings.is_busy:
        await asyncio.sleep(0)
    assert len(sent) == 1

    async def refuse(_: Sender, records: list[NewRecord]) -> None:
        raise ClientError("no room")

    monkeypatch.setattr(Sender, "send", refuse)
    endings.write_again(Attempt(record()), 0)
    endings.stop()
    while endings.is_busy:
        await asyncio.sleep(0)
    assert caplog.messages[-1] == "task 'task': t-0 offset 7 is lost, at most once: no room"


class _Releasing(_Closed):
    """A member to which records go back."""

    def __init__(self) -> None:
        super().__init__()
        self.released: list[Record] = []

    async def release(self, records: list[Record], *, delay: float, counted: bool) -> None:
        assert not counted
        self.released += records


@story
async def test_what_arrives_during_a_pause_goes_back() -> None:
    app = App("127.0.0.1:1")

    @app.task()
    async def task() -> None: ...

    runner = Runner(task, app.conf, "w", 10)
    for number in range(Breaker.MIN_OUTCOMES):
        runner.breaker.failed(number, "no", 0, time.monotonic())
    assert runner.breaker.is_pausing
    member = _Releasing()
    runner._endings._holder = member.holds  # type: ignore[assignment]
    runner._endings.begin(is_counted=False)
    runner._begin([Attempt(record())])
    while runner._endings.is_busy:
        await asyncio.sleep(0)
    assert member.released == [record()]
    assert not runner._ready and not runner.running


def test_a_refused_record_says_which_permission_is_missing() -> None:
    refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    needs = "the user needs the permission WRITE on topic 'dlq.pack'"
    assert str(SendFailed("dlq.pack", refused)).endswith(needs)
    assert needs not in str(SendFailed("dlq.pack", KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)))


def test_a_report_that_comes_when_its_event_loop_is_closed_ends_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reports: list[Report] = []
    monkeypatch.setattr(Sender, "produce", lambda _, new, report: reports.append(report) or True)

    async def cancelled() -> None:
        sending = asyncio.create_task(Sender(dict).send([NewRecord("t", b"v")]))
        while not reports:
            await asyncio.sleep(0)
        sending.cancel()

    asyncio.run(cancelled())
    reports[0](None, None)  # as the thread that takes the reports calls it
