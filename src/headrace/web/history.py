"""Histories of groups and topics over the last minutes, in bounded memory. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from .limits import HISTORY_POINTS, MAX_HISTORIES


class Point(NamedTuple):
    """A group or topic at one time; None for an unknown value."""

    time_ms: int
    lag: float | None
    time_lag_ms: float | None
    consumed_per_s: float | None
    produced_per_s: float | None


class Histories:
    """The histories of groups, or of topics, by name.

    :param points: the number of points to keep for each name; the oldest are dropped
    :param most: the largest number of names with a history; further names have none
    """

    def __init__(self, points: int = HISTORY_POINTS, most: int = MAX_HISTORIES) -> None:
        self._points = points
        self._most = most
        self._by_name: dict[str, deque[Point]] = {}

    def add(self, points: Iterable[tuple[str, Point]]) -> None:
        """Add a point for each name; forget the names that have none."""
        now = dict(points)
        for gone in self._by_name.keys() - now.keys():
            del self._by_name[gone]
        for name, point in now.items():
            history = self._by_name.get(name)
            if history is None:
                if len(self._by_name) >= self._most:
                    continue
                history = self._by_name[name] = deque(maxlen=self._points)
            history.append(point)

    def of(self, name: str) -> tuple[Point, ...]:
        """Return the points of a name, the oldest first."""
        return tuple(self._by_name.get(name, ()))
