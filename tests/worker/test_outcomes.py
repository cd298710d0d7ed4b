"""What becomes of records: decisions, attempts and times."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from uuid import UUID

import pytest
from confluent_kafka import KafkaError

from headrace import App, Record, Reject, Retry
from headrace.client.errors import ClientError
from headrace.protocol import dead_letters
from headrace.worker.attempts import Terms, Waiting, attempt_of, origin_of, terms_of, written_again
from headrace.worker.breaker import Breaker
from headrace.worker.endings import Endings
from headrace.worker.letters import letter, without_content
from headrace.worker.outcomes import ACCEPTED, Ending, TimedOut, Undecodable, decide
from headrace.worker.runner import Runner
from headrace.worker.sending import SendFailed
from tests.support import story

Headers = tuple[tuple[str, bytes | None], ...]


def record(headers: Headers = (), *, deliveries: int = 1, value: bytes = b"v") -> Record:
    return Record("t", 0, 7, b"k", value, headers, 0, "CreateTime", deliveries, UUID(int=1))


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
    assert [outcome.is_failure for outcome in outcomes] == [True, True, False, False, False, False]
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
    assert terms_of(record(headers)) == Terms(9, 1.5, 2.5)
    assert attempt_of(record(headers, deliveries=2)) == 11
    assert terms_of(record((("other", b"x"),))) == Terms()


@pytest.mark.parametrize("value", [b"-1", b"", b"1e9", "¹".encode(), b"9" * 16, None])
def test_headers_that_are_no_numbers_say_nothing(value: bytes | None) -> None:
    headers: Headers = (("headrace-due", value), ("headrace-attempts", value))
    assert terms_of(record(headers)) == Terms()


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


def test_records_wait_in_the_order_of_their_times() -> None:
    waiting = Waiting()
    one, two, three = (record(value=value) for value in (b"1", b"22", b"333"))
    for late, due_s in ((one, 30.0), (two, 10.0), (three, 20.0)):
        waiting.add(late, due_s)
    assert (len(waiting), waiting.size_bytes, waiting.next_due_s()) == (3, 9, 10.0)
    assert waiting.take_due(9.9, 5) == []
    assert waiting.take_due(30, 1) == [two]
    waiting.remove([three])
    assert waiting.take_due(30, 5) == [one]
    assert (len(waiting), waiting.size_bytes, waiting.next_due_s()) == (0, 0, None)


def test_a_lost_record_waits_no_longer_and_its_equal_does() -> None:
    waiting = Waiting()
    lost, again = record(), record()
    waiting.add(lost, 1.0)
    waiting.add(again, 2.0)
    waiting.remove([lost])
    assert [entry for _, entry in waiting.items()] == [again]
    assert waiting.take_due(5.0, 5)[0] is again


def failure() -> Exception:
    try:
        raise ValueError("no\x1b[31m red " + "x" * 20_000)
    except ValueError as error:
        return error


def test_a_letter_names_record_exception_and_worker() -> None:
    error = failure()
    copy = letter(
        "dlq.t",
        record((("a", b"1"),), deliveries=2),
        group="g",
        worker="host-1",
        attempt=11,
        reason=f"ValueError: {error}",
        error=error,
    )
    headers = dict(copy.headers)
    assert (copy.topic, copy.key, copy.value, headers["a"]) == ("dlq.t", b"k", b"v", b"1")
    context = [headers[name] for name in dead_letters.HEADERS[:5]]
    assert context == [b"t", b"0", b"7", b"g", b"2"]
    message = headers[dead_letters.MESSAGE] or b""
    assert message.startswith(rb"ValueError: no\x1b[31m red") and len(message) < 1100
    assert (headers[dead_letters.ATTEMPT], headers[dead_letters.WORKER]) == (b"11", b"host-1")
    assert headers[dead_letters.EXCEPTION] == b"ValueError"
    assert len(headers[dead_letters.TRACEBACK] or b"") <= 8000


def test_a_smaller_letter_has_what_names_the_record() -> None:
    original = record((("a", b"1"),))
    copy = letter(
        "dlq.t", original, group="g", worker="w", attempt=1, reason="no", error=OSError("no")
    )
    smaller = without_content(copy, original)
    assert (smaller.key, smaller.value) == (None, None)
    assert {name for name, _ in smaller.headers} == {
        *dead_letters.HEADERS,
        *dead_letters.WORKER_HEADERS,
    }


def test_the_traceback_of_an_exception_whose_text_fails() -> None:
    class Rude(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    outcome = decide(Rude(), 4, Retry(4), lambda: 0.5)
    copy = letter(
        "q", record(), group="g", worker="w", attempt=4, reason=outcome.reason, error=outcome.error
    )
    assert outcome.reason == "Rude: <Rude without text: RuntimeError>"
    assert dict(copy.headers)[dead_letters.EXCEPTION].endswith(b"Rude")  # type: ignore[union-attr]


class _Closed:
    """A member that is closed."""

    def by_holder(self, records: list[Record]) -> dict[_Closed, list[Record]]:
        return {self: records}

    async def accept(self, records: list[Record]) -> None:
        raise ClientError("the consumer is closed")


@story
async def test_an_end_that_no_broker_has_confirmed_is_that_of_the_next_delivery() -> None:
    app = App("127.0.0.1:1")

    @app.task()
    async def task() -> None: ...

    counts: dict[str, int] = defaultdict(int)
    ended = asyncio.Event()
    endings = Endings(task, "w", counts, ended.set)
    endings.begin(_Closed(), is_counted=True)  # type: ignore[arg-type]
    endings.accept(record())
    await ended.wait()
    again = record(deliveries=2)
    assert not endings.has_ended(Record(*again)._replace(offset=8))
    assert not endings.has_ended(Record(*again)._replace(timestamp_ms=1))  # after a power cut
    assert endings.has_ended(again)
    assert not endings.has_ended(again)
    assert counts["late"] == 1


class _Bringing(_Closed):
    """A member whose poll has brought records meanwhile."""

    def __init__(self, records: list[Record]) -> None:
        self.records, self.released = records, list[Record]()

    def arrived(self) -> list[Record]:
        return self.records

    async def release(self, records: list[Record], *, delay: float, counted: bool) -> None:
        assert not counted
        self.released += records


@story
async def test_what_arrives_during_a_pause_goes_back() -> None:
    app = App("127.0.0.1:1")

    @app.task()
    async def task() -> None: ...

    runner = Runner(task, app.conf, "w", 10)
    assert runner.breaker is not None
    for number in range(Breaker.MIN_OUTCOMES):
        runner.breaker.failed(number, "no", time.monotonic())
    assert runner.breaker.is_pausing
    members = _Bringing([record()])
    runner._endings.begin(members, is_counted=True)  # type: ignore[arg-type]
    runner.stop()
    await runner._take(members)  # type: ignore[arg-type]
    while runner._endings.is_busy:
        await asyncio.sleep(0)
    assert members.released == members.records
    assert not runner._ready and not runner.running


def test_a_refused_record_says_which_permission_is_missing() -> None:
    refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    needs = "the user needs the permission WRITE on topic 'dlq.pack'"
    assert str(SendFailed("dlq.pack", refused)).endswith(needs)
    assert needs not in str(SendFailed("dlq.pack", KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)))
