"""Filtered, sorted and paged lists, for the pages and the JSON API. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from headrace.client.lag.group_lines import GroupLine

from .limits import ROWS_OF_PAGE
from .observer import Observation, TopicLine
from .paging import Page, page_of

T = TypeVar("T")

GROUP_SORTS: Mapping[str, Callable[[GroupLine], Any]] = {
    "name": lambda line: line.group,
    "type": lambda line: (line.type, line.group),
    "state": lambda line: (line.state, line.group),
    "members": lambda line: line.members,
    "lag": lambda line: line.lag,
    "time": lambda line: line.time_lag_ms,
    "rate": lambda line: line.consumed_per_s,
    "new": lambda line: line.produced_per_s,
    "zero": lambda line: math.inf if line.seconds_to_zero == -1 else line.seconds_to_zero,
}
TOPIC_SORTS: Mapping[str, Callable[[TopicLine], Any]] = {
    "name": lambda line: line.name,
    "partitions": lambda line: line.partitions,
    "end": lambda line: line.end_offsets,
    "rate": lambda line: line.produced_per_s,
    "groups": lambda line: line.groups,
}
_ASCENDING = ("name", "type", "state")


class Listing(NamedTuple, Generic[T]):
    """A page of the lines that a request selects, and the request."""

    page: Page[T]
    sort: str
    filter: str


def listing(
    lines: Iterable[T],
    sorts: Mapping[str, Callable[[T], Any]],
    *,
    sort: str,
    text: str = "",
    page: int = 1,
    rows: int = ROWS_OF_PAGE,
) -> Listing[T]:
    """Return a page of the lines whose name contains a text.

    :param sorts: the keys of the orders; ``name`` is one of them
    :param sort: a key of ``sorts``; counts and times with the largest first, unknown ones last
    """
    wanted, name = text.strip().lower(), sorts["name"]
    chosen = [one for one in lines if not wanted or wanted in name(one).lower()]
    key = sorts[sort]
    known = [one for one in chosen if key(one) is not None]
    known.sort(key=name)
    known.sort(key=key, reverse=sort not in _ASCENDING)
    chosen = known + [one for one in chosen if key(one) is None]
    return Listing(page_of(chosen, page, rows), sort, text)


class Totals(NamedTuple):
    """The sums of an overview; None for an unknown value."""

    groups: int
    topics: int
    lag: int
    time_lag_ms: int | None
    consumed_per_s: float | None
    produced_per_s: float | None


def totals(seen: Observation) -> Totals:
    """Return the sums over all groups and topics."""
    lines = seen.groups.values()
    times = [one.time_lag_ms for one in lines if one.time_lag_ms is not None]
    consumed = [one.consumed_per_s for one in lines if one.consumed_per_s is not None]
    produced = [
        one.produced_per_s
        for one in seen.topics.values()
        if one.produced_per_s is not None and not one.is_internal
    ]
    return Totals(
        len(seen.groups),
        sum(not one.is_internal for one in seen.topics.values()),
        sum(one.lag or 0 for one in lines),
        max(times, default=None),
        sum(consumed) if consumed else None,
        sum(produced) if produced else None,
    )
