"""The timer of a broker's coordinators."""

from __future__ import annotations

from headrace.coordinators.coordinators import DeadlineTimer
from headrace.deadlines import RETRY_MS
from tests.turns import Turns


class Timed:
    """An object that is always due, and counts how often it was called."""

    def __init__(self, error: Exception | None = None) -> None:
        self.deadline_ms: int | None = 0
        self.calls = 0
        self.error = error

    def next_deadline_ms(self) -> int | None:
        return self.deadline_ms

    def expire(self, now_ms: int) -> None:
        self.calls += 1
        if self.error is not None:
            raise self.error


def test_one_that_fails_pauses_alone() -> None:
    failing, honest = Timed(ValueError("it never works")), Timed()
    now_ms = 0
    timer = DeadlineTimer(lambda: now_ms, lambda: (failing, honest))
    calls = []
    with Turns().turn():
        for time_ms in (0, 1, RETRY_MS - 1, RETRY_MS):
            now_ms = time_ms
            timer.expire()
            calls.append((failing.calls, honest.calls))
    assert calls == [(1, 1), (1, 2), (1, 3), (2, 4)]
