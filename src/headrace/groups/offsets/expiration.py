"""The expiration of committed offsets (KIP-211, KIP-496; docs/behaviour/groups.md).

Every ``offsets.retention.check.interval.ms`` a round over all groups begins. It is divided into
portions, so that it does not block the event loop; a group with many topics takes several. The
group determines when the retention of an
offset begins and to which topics it is subscribed. An offset does not expire while its partition
has another one in an open transaction. A group without offsets and members is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from headrace.groups.records import CommittedOffset, GroupOutcome, GroupRecord, OffsetCommit
from headrace.groups.service import Group
from headrace.groups.share.group import ShareGroup
from headrace.outcome import Outcome, Unapplied
from headrace.protocol.record_batch import NO_TIMESTAMP

from .committed import CommittedOffsets

PORTION = 2_000
"""The size of a portion: an offset that is checked counts as one, a write as :data:`WRITE_COST`."""

WRITE_COST = 50
"""The cost of one append to the internal topic, in checks."""

MAX_TOMBSTONES = 1_000
"""The limit of offsets that one write deletes."""

PAUSE_MS = 1
"""The time between two portions in milliseconds, in which other requests are served."""


class OffsetExpiration:
    """The current round over all groups.

    :param groups: all groups by id
    """

    def __init__(self, offsets: CommittedOffsets, groups: Mapping[str, Group]) -> None:
        self._offsets, self._all_groups = offsets, groups
        self._groups: list[str] = []  # not yet checked
        self._topics: list[str] | None = None  # of the last group, not yet checked

    @property
    def is_under_way(self) -> bool:
        """True while the round has groups left to check."""
        return bool(self._groups)

    def portion(self, wall_ms: int, retention_ms: int) -> Iterator[tuple[str, GroupOutcome[int]]]:
        """Check groups, in a new round if none is under way; yield (group id, outcome). Apply each
        outcome before requesting the next.

        If an outcome is not applied, its group is left for the next round: its log may be offline
        for long, and others must not wait for it.

        :param retention_ms: ``offsets.retention.minutes``
        :returns: outcomes; the reply is the number of expired offsets
        """
        if not self._groups:
            self._groups = list(self._all_groups)
        left = PORTION
        while self._groups and left > 0:
            group_id = self._groups[-1]
            owner = self._all_groups.get(group_id)
            # It may be deleted meanwhile. Share groups have no committed offsets.
            if owner is None or isinstance(owner, ShareGroup):
                self._end_group()
                left -= 1
                continue
            if self._topics is None:
                self._topics = list(self._offsets.of_group(group_id))
            looks, rest, tombstones = self._expired(
                owner, self._topics, left, wall_ms, retention_ms
            )
            left -= looks + 1
            records = tombstones
            if owner.is_empty and self._are_all(group_id, len(tombstones)):
                records += owner.tombstones()
            unapplied = Unapplied()
            if records:
                left -= WRITE_COST
                yield group_id, unapplied.watch(Outcome(len(tombstones), records))
            del self._topics[rest:]
            if unapplied.count or not rest:
                self._end_group()

    def _end_group(self) -> None:
        self._groups.pop()
        self._topics = None

    def _are_all(self, group_id: str, count: int) -> bool:
        """Return whether a group has just this number of offsets, and none in a transaction."""
        topics = self._offsets.of_group(group_id)
        return (
            len(topics) <= count
            and sum(map(len, topics.values())) == count
            and not self._offsets.pending.of_group(group_id)
        )

    def _expired(
        self, owner: Group, topics: list[str], looks: int, wall_ms: int, retention_ms: int
    ) -> tuple[int, int, tuple[GroupRecord, ...]]:
        """Check topics of a group, from the end of the list.

        :param looks: the number of offsets to check; the last topic may exceed it
        :returns: the number of checked offsets, the number of topics left, and tombstones of
            expired offsets
        """
        group_id, offsets = owner.group_id, self._offsets.of_group(owner.group_id)
        checked, rest, tombstones = 0, len(topics), list[GroupRecord]()
        while rest and checked < looks:
            topic = topics[rest - 1]
            partitions = offsets.get(topic, {})
            checked += max(len(partitions), 1)
            if not owner.is_subscribed(topic):
                over = (
                    OffsetCommit(group_id, topic, partition, None)
                    for partition, committed in partitions.items()
                    if _is_over(
                        committed, owner.retention_starts_ms(committed), wall_ms, retention_ms
                    )
                    and (group_id, topic, partition) not in self._offsets.pending
                )
                tombstones += islice(over, MAX_TOMBSTONES - len(tombstones))
                if len(tombstones) == MAX_TOMBSTONES:
                    break  # the topic may have more
            rest -= 1
        return checked, rest, tuple(tombstones)


def _is_over(
    committed: CommittedOffset, starts_ms: int | None, wall_ms: int, retention_ms: int
) -> bool:
    if starts_ms is None:
        return False
    if committed.expire_timestamp_ms != NO_TIMESTAMP:
        return wall_ms >= committed.expire_timestamp_ms
    return wall_ms - starts_ms >= retention_ms
