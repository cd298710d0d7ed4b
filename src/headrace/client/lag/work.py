"""What the members of groups do, besides the lag: records held, dead letters, and partitions that
stand still: a group has members and a lag there, and finishes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.dead_letters.originals import queues_of_groups
from headrace.client.errors import ClientError
from headrace.client.offsets import LATEST
from headrace.protocol.partitions import TopicPartition

from .model import GroupLag
from .partition_leaders import PartitionLeaders
from .watch import Course

_RATE_MS = 10_000
"""The time over which dead letters per second are a mean."""
_QUEUES_FOR_S = 60.0
"""The time for which the queues of the groups are taken to be the same."""


class GroupWork:
    """A series of looks at the groups of a cluster, one for each snapshot of a watch.

    :ivar held: group → the records that its members hold; only headrace tells
    :ivar stuck: group → the partitions that are stuck, and for how many seconds
    """

    def __init__(self, cluster: Cluster) -> None:
        self.held: dict[str, int] = {}
        self.stuck: dict[str, dict[TopicPartition, float]] = {}
        self._cluster = cluster
        self._now_s = self._asked_s = 0.0
        self._standstills = Standstills()
        self._queues: dict[str, str] = {}
        self._letters: dict[str, Course] = {}

    def begin(self, now_s: float) -> None:
        """Begin a look.

        :param now_s: on a steady clock
        """
        self._now_s, self.held = now_s, {}
        self._standstills.begin(now_s)

    def add(self, groups: Sequence[GroupLag]) -> None:
        """Add groups of the snapshot, with their partitions."""
        self._standstills.add(groups)
        for group in groups:
            counts = [lag.held for lag in group.partitions if lag.held is not None]
            if counts:
                self.held[group.group_id] = sum(counts)

    async def end(self) -> list[str]:
        """End the look: count the letters of dead-letter queues.

        :returns: what cannot be told
        """
        self.stuck = self._standstills.end()
        leaders = PartitionLeaders(self._cluster)
        try:
            if not self._asked_s or self._now_s - self._asked_s >= _QUEUES_FOR_S:
                self._queues, _ = await queues_of_groups(self._cluster)
                self._asked_s = self._now_s
            queues = set(self._queues.values())
            await leaders.learn(queues)
            partitions = [
                (queue, number) for queue in queues for number in leaders.partitions(queue) or ()
            ]
            ends = await leaders.offsets(partitions, LATEST)
        except ClientError as error:
            return [f"dead letters are unknown: {error}"]
        unknown = {queue for queue, _ in set(partitions) - ends.keys()}
        letters: Counter[str] = Counter()
        for (queue, _), end in ends.items():
            if queue not in unknown:
                letters[queue] += end
        self._letters = {queue: self._letters.get(queue) or Course(_RATE_MS) for queue in letters}
        for queue, count in letters.items():
            self._letters[queue].add(int(self._now_s * 1000), count)
        return []

    def letters_per_s(self, group_id: str) -> float | None:
        """Return the records per second that come to the dead-letter queue of a group; None without
        one, or before the second look.
        """
        course = self._letters.get(self._queues.get(group_id, ""))
        return None if course is None else course.rate()


# Standstills --------------------------------------------------------------------------------------


STUCK_S = 60.0
"""A partition that has stood still for so long is stuck. It is longer than the default lock of a
record, so that a member that is gone is no reason yet.
"""


class _Mark(NamedTuple):
    """What was finished in a partition, and since when that is all.

    :ivar done: the largest one seen: a share group's may be too small for a moment
    :ivar is_known: False if the snapshot does not tell what was finished
    """

    position: int
    done: int
    since_s: float
    is_known: bool = True


class Standstills:
    """Since when partitions stand still, from one snapshot to the next.

    For each snapshot call ``begin``, ``add`` for each part, then ``end``.
    """

    def __init__(self) -> None:
        self._marks: dict[str, dict[TopicPartition, _Mark]] = {}
        self._next = self._marks
        self._now_s = 0.0

    def begin(self, now_s: float) -> None:
        """Begin a snapshot.

        :param now_s: on a steady clock
        """
        self._now_s, self._next = now_s, {}

    def add(self, groups: Iterable[GroupLag]) -> None:
        """Add groups of the snapshot, with their partitions."""
        for group in groups:
            if not group.members or not group.lag.records:
                continue
            before = self._marks.get(group.group_id, {})
            marks = self._next[group.group_id] = {}
            for lag in group.partitions:
                if not lag.records:
                    continue
                is_begun = group.type == "share" and lag.position is not None
                is_known = not is_begun or lag.delivery_complete_count is not None
                position = -1 if lag.position is None else lag.position
                done, mark = position + (lag.delivery_complete_count or 0), before.get(lag.key)
                if is_known and (mark is None or done > mark.done or position < mark.position):
                    mark = _Mark(position, done, self._now_s)
                if mark is not None:
                    marks[lag.key] = mark._replace(is_known=is_known)

    def end(self, least_s: float = STUCK_S) -> dict[str, dict[TopicPartition, float]]:
        """End the snapshot.

        :returns: group id → the partitions that have stood still for at least ``least_s``, and for
            how many seconds; those that do so for longest first
        """
        self._marks = self._next
        stuck = {}
        for group_id, marks in self._marks.items():
            still_s = {
                key: for_s
                for key, mark in marks.items()
                if (for_s := self._now_s - mark.since_s) >= least_s and mark.is_known
            }
            if still_s:
                stuck[group_id] = dict(sorted(still_s.items(), key=lambda item: -item[1]))
        return dict(sorted(stuck.items(), key=lambda item: -max(item[1].values())))
