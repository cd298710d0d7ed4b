"""What the members of groups do, besides the lag: records held, partitions stuck, dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.dead_letters.sources import queues_of_groups
from headrace.client.errors import ClientError
from headrace.client.offsets import LATEST, list_offsets

from .model import GroupLag

STUCK_S = 30.0
"""A partition with a lag in which nothing was finished for so long is stuck."""
_QUEUES_FOR_S = 60.0
"""The time for which the queues of the groups are taken to be the same."""


class _Still(NamedTuple):
    """What was finished in a partition, and since when that is all."""

    position: int | None
    complete_count: int | None
    since_s: float


class GroupWork:
    """A series of looks at the groups of a cluster, one for each snapshot of a watch.

    :ivar held: group → the records that its members hold; only headrace tells
    """

    def __init__(self, cluster: Cluster) -> None:
        self.held: dict[str, int] = {}
        self._cluster = cluster
        self._now_s = self._counted_s = self._asked_s = 0.0
        self._still: dict[str, dict[tuple[str, int], _Still]] = {}
        self._before = self._still
        self._queues: dict[str, str] = {}
        self._letters: dict[str, int] = {}
        self._rates: dict[str, float] = {}

    def begin(self, now_s: float) -> None:
        """Begin a look.

        :param now_s: on a steady clock
        """
        self._now_s = now_s
        self.held, self._before, self._still = {}, self._still, {}

    def add(self, groups: Sequence[GroupLag]) -> None:
        """Add groups of the snapshot, with their partitions."""
        for group in groups:
            before = self._before.get(group.group_id, {})
            still = self._still[group.group_id] = {}
            for lag in group.partitions:
                if lag.held is not None:
                    self.held[group.group_id] = self.held.get(group.group_id, 0) + lag.held
                if lag.records:
                    key = lag.topic, lag.partition
                    done = lag.position, lag.delivery_complete_count
                    last = before.get(key)
                    is_same = last is not None and last[:2] == done
                    since_s = last.since_s if last is not None and is_same else self._now_s
                    still[key] = _Still(*done, since_s)

    async def end(self) -> list[str]:
        """End the look: count the letters of dead-letter queues.

        :returns: what cannot be told
        """
        try:
            if not self._asked_s or self._now_s - self._asked_s >= _QUEUES_FOR_S:
                self._queues, _ = await queues_of_groups(self._cluster)
                self._asked_s = self._now_s
            letters = await self._count()
        except ClientError as error:
            return [f"dead letters are unknown: {error}"]
        elapsed_s = self._now_s - self._counted_s
        self._rates = {
            queue: max(0, count - self._letters[queue]) / elapsed_s
            for queue, count in letters.items()
            if queue in self._letters and elapsed_s > 0
        }
        self._letters, self._counted_s = letters, self._now_s
        return []

    async def _count(self) -> dict[str, int]:
        existing = await self._cluster.all_topics() if self._queues else {}
        partitions = [
            (queue, number)
            for queue in sorted({*self._queues.values()} & existing.keys())
            for number in existing[queue].leaders
        ]
        counts: dict[str, int] = {}
        listed = await list_offsets(self._cluster, dict.fromkeys(partitions, LATEST))
        for (queue, _), end in listed.items():
            if not isinstance(end, ClientError):
                counts[queue] = counts.get(queue, 0) + (end.offset or 0)
        return counts

    def stuck(self, group_id: str) -> int:
        """Return the number of partitions of a group in which nothing is finished, for all that
        waits.
        """
        still = self._still.get(group_id, {}).values()
        return sum(self._now_s - partition.since_s >= STUCK_S for partition in still)

    def letters_per_s(self, group_id: str) -> float | None:
        """Return the records per second that come to the dead-letter queue of a group; None without
        one, or before the second look.
        """
        return self._rates.get(self._queues.get(group_id, ""))
