"""The lag of groups by topic, from the rows of a snapshot. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .rows import LagRow, known_sum


@dataclass(slots=True)
class TopicLag:
    """The lag of a group in one topic; None for an unknown value.

    :ivar known_lag: sum over the partitions whose lag is known
    :ivar time_lag_ms: the largest known time lag of a partition
    :ivar unknown: number of partitions whose lag is unknown
    """

    known_lag: int | None = None
    time_lag_ms: int | None = None
    unknown: int = 0

    @property
    def lag(self) -> int | None:
        """The lag, see :func:`headrace.client.lag.rows.known_sum`."""
        return known_sum([self.known_lag, *([None] if self.unknown else [])])


@dataclass(slots=True)
class GroupLag:
    """The lag of a group.

    :ivar members: ids of its members
    :ivar topics: topic → lag
    """

    type: str
    state: str
    members: set[str] = field(default_factory=set)
    topics: dict[str, TopicLag] = field(default_factory=dict)


def add_rows(groups: dict[str, GroupLag], rows: Iterable[LagRow]) -> None:
    """Add rows of a snapshot.

    :param groups: group id → lag
    """
    for row in rows:
        group = groups.get(row.group_id)
        if group is None:
            group = groups[row.group_id] = GroupLag(row.group_type, row.group_state)
        if row.member_id is not None:
            group.members.update(row.member_id.split(","))
        if row.topic is None:
            continue
        topic = group.topics.setdefault(row.topic, TopicLag())
        if row.lag is None:
            topic.unknown += 1
        else:
            topic.known_lag = row.lag + (topic.known_lag or 0)
        if row.time_lag_ms is not None:
            topic.time_lag_ms = max(row.time_lag_ms, topic.time_lag_ms or 0)
