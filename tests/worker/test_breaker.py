"""The circuit breaker: when a task pauses because most records fail."""

from __future__ import annotations

import pytest

from headrace.client.errors import ClientError
from headrace.worker.breaker import Breaker

CLOSED, OPEN, PROBING = "closed", "open", "probing"


def failing(breaker: Breaker, records: int, now_s: float = 0.0) -> list[bool]:
    return [breaker.failed(number, "away", now_s, now_s) for number in range(records)]


def test_it_opens_when_most_of_twenty_records_have_failed() -> None:
    breaker = Breaker(pause=10)
    assert failing(breaker, 19) == [False] * 19
    assert (breaker.state(0), breaker.is_doubtful) == (CLOSED, True)
    assert breaker.failed(19, "away", 0, 0)
    assert (breaker.state(0), breaker.state(9.9), breaker.state(10)) == (OPEN, OPEN, PROBING)
    assert (breaker.reason, breaker.opens_for_s(4)) == ("away", 6)


def test_one_that_never_opens() -> None:
    assert failing(Breaker(1), 200) == [False] * 200


def test_half_of_the_records_may_fail() -> None:
    breaker = Breaker()
    for number in range(100):
        breaker.succeeded(0)
        assert not breaker.failed(number, "no", 0, 0)
    assert not breaker.is_doubtful
    assert breaker.failed(100, "no", 0, 0)


def test_a_record_alone_that_always_fails_is_no_reason() -> None:
    breaker = Breaker()
    assert not any(breaker.failed(number % 4, "poison", 0, 0) for number in range(300))
    assert not breaker.is_doubtful


def test_only_the_last_outcomes_count() -> None:
    breaker = Breaker(of=20)
    failing(breaker, 10)
    for _ in range(20):
        breaker.succeeded(0)
    assert failing(breaker, 10) == [False] * 10


def test_one_record_is_probed_and_the_pauses_grow_until_it_succeeds() -> None:
    breaker = Breaker(pause=10, max_pause=30)
    failing(breaker, 20)
    now_s = 0.0
    for pause_s in (10, 20, 30, 30):
        assert breaker.opens_for_s(now_s) == pause_s
        assert not breaker.succeeded(now_s)  # it began before
        assert not breaker.failed(77, "away", now_s, now_s)
        now_s += pause_s
        assert breaker.state(now_s) == PROBING
        assert breaker.failed(78, "away", now_s, now_s)
    now_s += 30
    assert breaker.succeeded(now_s)
    assert (breaker.state(now_s), breaker.is_doubtful, breaker.reason) == (CLOSED, False, "")
    assert not breaker.succeeded(now_s)
    failing(breaker, 25, now_s)
    assert breaker.opens_for_s(now_s) == 10  # the first pause again


def test_what_began_before_the_probe_neither_closes_it_nor_keeps_it_open() -> None:
    breaker = Breaker(pause=10)
    failing(breaker, 20)
    assert not breaker.succeeded(9)
    assert not breaker.failed(77, "away", 9, 12)
    assert (breaker.state(12), breaker.is_probe(9), breaker.is_probe(10)) == (PROBING, False, True)
    assert breaker.failed(78, "away", 10, 12)
    assert breaker.opens_for_s(12) == 20


def test_a_failed_record_comes_after_the_next_probe() -> None:
    breaker = Breaker(pause=10)
    assert breaker.retry_after_s(19, 1, 0) == 1
    failing(breaker, 20)
    assert breaker.retry_after_s(19, 1, 0) == 16
    assert breaker.retry_after_s(19, 60, 0) == 60


def test_every_record_is_probed_however_many_in_front_of_it_always_fail() -> None:
    breaker = Breaker(pause=10, max_pause=10)
    failing(breaker, 20)
    due_s = dict.fromkeys(range(40), 0.0)
    probed = set[int]()
    now_s = 0.0
    while probed != due_s.keys():
        now_s += breaker.opens_for_s(now_s)
        assert now_s < 10 * 40 * 8
        record = next(record for record, at_s in due_s.items() if at_s <= now_s)
        breaker.failed(record, "poison", now_s, now_s)
        due_s[record] = now_s + breaker.retry_after_s(record, 1, now_s)
        probed.add(record)


@pytest.mark.parametrize(("failures", "of"), [(1.1, 100), (-0.1, 100), (0.5, 19), (0.5, True)])
def test_parameters_that_make_no_sense_are_refused(failures: float, of: int) -> None:
    with pytest.raises(ClientError, match="failures is"):
        Breaker(failures, of)
