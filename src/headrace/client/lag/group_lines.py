"""Groups with their lag, rates and forecasts, one line for each. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .rates import LagRates, seconds_to_zero
from .rows import known_sum
from .summary import GroupLag


class GroupLine(NamedTuple):
    """A group in an overview; None for an unknown value.

    :param produced_per_s: in the partitions whose lag is known, if there are some
    :param seconds_to_zero: see :func:`headrace.client.lag.rates.seconds_to_zero`; -1 if the lag
        does not shrink
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
    lag = known_sum(one.lag for one in topics)
    consumed = _sum(rates.consumed(group_id, topic)[1] for topic in group.topics)
    produced = _sum(
        rates.produced(topic)[1] if one.lag is None else rates.produced_for(group_id, topic)
        for topic, one in group.topics.items()
    )
    left_s = seconds_to_zero(lag, sum(one.unknown for one in topics), consumed, produced)
    times = [
        one.time_lag_ms for one in topics if one.time_lag_ms is not None and one.lag is not None
    ]
    return GroupLine(
        group_id,
        group.type,
        group.state,
        len(group.members),
        lag,
        None if lag is None else max(times, default=None),
        consumed,
        produced,
        -1.0 if left_s == math.inf else left_s,
    )


def group_lines(groups: Mapping[str, GroupLag], rates: LagRates) -> list[GroupLine]:
    """Return the lines of groups, by id."""
    return [group_line(group_id, groups[group_id], rates) for group_id in sorted(groups)]


def _sum(values: Iterable[float | None]) -> float | None:
    """Return the sum of the known values; None if there is none."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None
