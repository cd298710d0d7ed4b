"""Sorted, disjoint ranges of offsets, each with a value. Share groups use them instead of an
object per record.

They are three parallel lists, searched with :mod:`bisect`. The cost of an operation depends on the
number of spans that it touches, not on the number of offsets.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Generic, Protocol, TypeAlias, TypeVar

V = TypeVar("V")

Run: TypeAlias = "tuple[int, int, V]"
"""(first offset, last offset inclusive, value)"""

Range: TypeAlias = "tuple[int, int, *tuple[object, ...]]"
"""(first offset, last offset inclusive), perhaps with further elements"""


def offset_count(ranges: Iterable[Range]) -> int:
    """Return the number of offsets in ranges, which are disjoint."""
    return sum(last - first + 1 for first, last, *_ in ranges)


def offsets_in(ranges: Iterable[Range]) -> Iterator[int]:
    """Yield the offsets in ranges."""
    for first, last, *_ in ranges:
        yield from range(first, last + 1)


def subtract(runs: Iterable[Run[V]], ranges: Sequence[Range]) -> list[Run[V]]:
    """Return ``runs`` without ``ranges``, both ascending and disjoint. Adjacent runs are not
    joined.
    """
    remaining: list[Run[V]] = []
    n = len(ranges)
    r = 0
    for first, last, value in runs:
        while r < n and ranges[r][1] < first:
            r += 1
        while r < n and first <= last and ranges[r][0] <= last:
            if first < ranges[r][0]:
                remaining.append((first, ranges[r][0] - 1, value))
            first = ranges[r][1] + 1
            if first <= last:
                r += 1
        if first <= last:
            remaining.append((first, last, value))
    return remaining


@dataclass(slots=True)
class Spans(Generic[V]):
    """Disjoint inclusive ranges in ascending order. Adjacent ranges with equal values are joined to
    one span.

    The lists are public for reading; only the methods change them.

    :ivar firsts: first offset of each span
    :ivar lasts: last offset of each span, inclusive
    :ivar values: value of each span, compared with ``==``
    """

    firsts: list[int] = field(default_factory=list)
    lasts: list[int] = field(default_factory=list)
    values: list[V] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.firsts)

    def __iter__(self) -> Iterator[Run[V]]:
        return zip(self.firsts, self.lasts, self.values, strict=True)

    def within(self, first: int, last: int) -> list[Run[V]]:
        """Return the spans that overlap ``first..last``, cut to it."""
        i = bisect_left(self.lasts, first)
        j = bisect_right(self.firsts, last)
        runs = self._runs(i, j)
        if runs:
            runs[0] = (max(runs[0][0], first), runs[0][1], runs[0][2])
            runs[-1] = (runs[-1][0], min(runs[-1][1], last), runs[-1][2])
        return runs

    def _runs(self, i: int, j: int) -> list[Run[V]]:
        return list(zip(self.firsts[i:j], self.lasts[i:j], self.values[i:j], strict=True))

    def covers(self, first: int, last: int) -> bool:
        """Return True if a single span contains all of ``first..last``."""
        i = bisect_right(self.firsts, first) - 1
        return i >= 0 and self.lasts[i] >= last

    def count_below(self, offset: int) -> int:
        """Return the number of offsets below ``offset`` that are in a span. Takes time in
        proportion to the spans below it.
        """
        return offset_count(self.within(0, offset - 1))

    def drop_below(self, offset: int) -> None:
        """Remove everything before ``offset``."""
        firsts = self.firsts
        if not firsts or firsts[0] >= offset:
            return
        i = bisect_left(self.lasts, offset)
        del firsts[:i], self.lasts[:i], self.values[:i]
        if firsts and firsts[0] < offset:
            firsts[0] = offset

    def paint(self, runs: Sequence[Run[V]]) -> None:
        """Set the values of ``runs`` (ascending, disjoint), replacing existing spans."""
        if not runs:
            return
        i = bisect_left(self.lasts, runs[0][0])
        j = bisect_right(self.firsts, runs[-1][1], i)
        if i < j:
            runs = sorted([*subtract(self._runs(i, j), runs), *runs], key=itemgetter(0))
        # The neighbour on either side, to join equal ones.
        if i and self.lasts[i - 1] == runs[0][0] - 1:
            i -= 1
            runs = [(self.firsts[i], self.lasts[i], self.values[i]), *runs]
        if j < len(self.firsts) and self.firsts[j] == runs[-1][1] + 1:
            runs = [*runs, (self.firsts[j], self.lasts[j], self.values[j])]
            j += 1
        self._replace(i, j, runs)

    def _replace(self, i: int, j: int, runs: Sequence[Run[V]]) -> None:
        firsts: list[int] = []
        lasts: list[int] = []
        values: list[V] = []
        end: int | None = None
        for first, last, value in runs:
            if first == end and values[-1] == value:
                lasts[-1] = last
            else:
                firsts.append(first)
                lasts.append(last)
                values.append(value)
            end = last + 1
        self.firsts[i:j], self.lasts[i:j], self.values[i:j] = firsts, lasts, values

    def erase(self, runs: Sequence[Range]) -> None:
        """Remove the ranges ``runs`` (ascending, disjoint)."""
        if not runs:
            return
        firsts, lasts = self.firsts, self.lasts
        i = bisect_left(lasts, runs[0][0])
        j = bisect_right(firsts, runs[-1][1], i)
        if i == j:
            return
        bounds = [run[0] for run in runs], [run[1] for run in runs]
        # often the runs are whole spans
        if len(runs) == j - i and (firsts[i:j], lasts[i:j]) == bounds:
            del firsts[i:j], lasts[i:j], self.values[i:j]
        else:
            self._replace(i, j, subtract(self._runs(i, j), runs))


class Timed(Protocol):
    """A value with a deadline: an acquisition lock, a release backoff."""

    @property
    def deadline_ms(self) -> int:
        """The deadline."""


T = TypeVar("T", bound=Timed)


@dataclass(slots=True)
class TimedSpans(Generic[T]):
    """Spans, and their timers in the order of deadlines.

    A timer whose span has ended early is removed when it becomes the first one.
    """

    spans: Spans[T] = field(default_factory=Spans)
    _timers: list[tuple[int, int, int]] = field(default_factory=list)
    """(deadline, first, last), ascending"""

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
