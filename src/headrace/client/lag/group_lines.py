"""Groups with their lag, rates and forecasts, one line for each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .rates import LagRates, eta_s
from .summary import GroupLag


class GroupLine(NamedTuple):
    """A group in an overview; None for an unknown value.

    :param seconds_to_zero: time until the lag is zero; -1 if it does not shrink
    """

    group: str
    type: str
    state: str
    members: int
    lag: int | None
    time_lag_ms: int | None
    consumed_per_s: float | None
    produced_per_s: float | None
    seconds_to_zero: float | None


def group_line(group_id: str, group: GroupLag, rates: LagRates) -> GroupLine:
    """Return the line of a group.

    :param rates: with the snapshot of the group
    """
    topics = group.topics.values()
    lag = _sum(one.lag for one in topics)
    consumed = _sum(rates.consumed(group_id, topic)[1] for topic in group.topics)
    produced = _sum(rates.produced(topic)[1] for topic in group.topics)
    left_s: float | None = None
    if lag == 0:
        left_s = 0.0
    elif lag is not None and consumed is not None and produced is not None:
        left_s = eta_s(lag, consumed, produced)
        left_s = -1.0 if left_s is None else left_s
    if any(one.unknown for one in topics):
        left_s = None
    times = [one.time_lag_ms for one in topics if one.time_lag_ms is not None]
    return GroupLine(
        group_id,
        group.type,
        group.state,
        len(group.members),
        None if lag is None else int(lag),
        max(times, default=None),
        consumed,
        produced,
        left_s,
    )


def group_lines(groups: Mapping[str, GroupLag], rates: LagRates) -> list[GroupLine]:
    """Return the lines of groups, by id."""
    return [group_line(group_id, groups[group_id], rates) for group_id in sorted(groups)]


def _sum(values: Iterable[float | None]) -> float | None:
    """Return the sum of the known values; None if there is none."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
