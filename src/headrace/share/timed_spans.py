"""Spans of offsets whose values have a deadline: acquisition locks, release backoffs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from operator import itemgetter
from typing import Generic, Protocol, TypeVar

from headrace.share.spans import Run, Spans


class Timed(Protocol):
    """A value with a deadline."""

    @property
    def deadline_ms(self) -> int:
        """The deadline."""


T = TypeVar("T", bound=Timed)


class TimedSpans(Generic[T]):
    """Spans, and their timers in the order of deadlines.

    A timer whose span has ended early is removed when it becomes the first one.
    """

    __slots__ = ("_timers", "spans")

    def __init__(self) -> None:
        self.spans: Spans[T] = Spans()
        self._timers: list[tuple[int, int, int]] = []  # (deadline, first, last), ascending

    def grant(self, runs: Sequence[Run[T]], deadline_ms: int) -> None:
        """Set ``runs`` (ascending, disjoint), which all end at ``deadline_ms``, and replace
        existing spans.
        """
        self.spans.paint(runs)
        insort(self._timers, (deadline_ms, runs[0][0], runs[-1][1]))

    def next_deadline_ms(self) -> int | None:
        """Return when the first span ends; None when there is none."""
        timers = self._timers
        ended = 0
        while ended < len(timers) and not self._in_force(*timers[ended]):
            ended += 1
        del timers[:ended]
        return timers[0][0] if timers else None

    def _in_force(self, deadline_ms: int, first: int, last: int) -> bool:
        spans = self.spans
        values = spans.values
        reach = range(bisect_left(spans.lasts, first), bisect_right(spans.firsts, last))
        return any(values[i].deadline_ms == deadline_ms for i in reach)

    def expired(self, now_ms: int) -> list[Run[T]]:
        """Return the spans whose deadline has passed. They stay until they are erased."""
        firsts, lasts, values = self.spans.firsts, self.spans.lasts, self.spans.values
        due = bisect_right(self._timers, now_ms, key=itemgetter(0))
        reach = sorted(
            (bisect_left(lasts, first), bisect_right(firsts, last))
            for _, first, last in self._timers[:due]
        )
        expired: list[Run[T]] = []
        seen = 0
        for begin, end in reach:
            for i in range(max(begin, seen), end):
                if values[i].deadline_ms <= now_ms:
                    expired.append((firsts[i], lasts[i], values[i]))
            seen = max(seen, end)
        return expired
