"""The expiration of committed offsets (KIP-211, KIP-496; docs/behaviour/offsets.md).

Every ``offsets.retention.check.interval.ms`` a round over all groups begins. It is divided into
portions, so that it does not block the event loop. The group determines when the retention of an
offset begins and to which topics it is subscribed. An offset does not expire while its partition
has another one in an open transaction. A group without offsets and members is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Protocol

from headrace.groups.records import NO_TIMESTAMP, CommittedOffset, GroupRecord, OffsetCommit
from headrace.outcome import Outcome

from .committed import CommittedOffsets

PORTION = 2_000
"""The size of a portion: an offset that is checked counts as one, a write as :data:`WRITE_COST`."""

WRITE_COST = 50
"""The cost of one append to the internal topic, in checks."""

MAX_TOMBSTONES = 1_000
"""The limit of offsets that one write deletes."""

PAUSE_MS = 1
"""The time between two portions in milliseconds, in which other requests are served."""


class OffsetOwner(Protocol):
    """The part of a group that the expiration of offsets uses."""

    @property
    def group_id(self) -> str: ...
    @property
    def is_empty(self) -> bool: ...

    def tombstones(self) -> tuple[GroupRecord, ...]:
        """Return the records that delete the group, except its offsets."""

    def is_subscribed(self, topic: str) -> bool:
        """Return whether the group is subscribed to a topic."""

    def retention_starts_ms(self, committed: CommittedOffset) -> int | None:
        """Return when the retention of an offset began, in epoch milliseconds; None if it does not
        expire.
        """


class OffsetExpiration:
    """The current round over all groups."""

    def __init__(self, offsets: CommittedOffsets) -> None:
        self._offsets = offsets
        self._left: list[str] = []

    @property
    def is_under_way(self) -> bool:
        """True while the round has groups left to check."""
        return bool(self._left)

    def begin(self, group_ids: Iterable[str]) -> None:
        """Start a round over these groups."""
        self._left = list(group_ids)

    def portion(
        self, owner_of: Callable[[str], OffsetOwner | None], wall_ms: int, retention_ms: int
    ) -> Iterator[tuple[str, Outcome[GroupRecord, int]]]:
        """Check groups; yield (group id, outcome). Apply each outcome before requesting the next.

        If an outcome is not applied, its group is left for the next round: its log may be offline
        for long, and others must not wait for it.

        :param owner_of: returns a group by its id; None if it is deleted or its kind has no offsets
        :param retention_ms: ``offsets.retention.minutes``
        :returns: outcomes; the reply is the number of expired offsets
        """
        left = PORTION
        while self._left and left > 0:
            group_id = self._left[-1]
            owner = owner_of(group_id)
            if owner is None:
                self._left.pop()
                left -= 1
                continue
            looks, tombstones = self._expired(owner, wall_ms, retention_ms)
            left -= looks + 1
            records = tombstones
            if (
                len(tombstones) == looks
                and owner.is_empty
                and not self._offsets.pending.of_group(group_id)
            ):
                records += owner.tombstones()
            is_applied = not records

            def applied() -> None:
                nonlocal is_applied
                is_applied = True

            if records:
                left -= WRITE_COST
                yield group_id, Outcome(len(tombstones), records, apply=applied)
            if not is_applied or len(tombstones) < MAX_TOMBSTONES:
                self._left.pop()

    def _expired(
        self, owner: OffsetOwner, wall_ms: int, retention_ms: int
    ) -> tuple[int, tuple[GroupRecord, ...]]:
        """Return the number of a group's offsets, and tombstones of expired ones."""
        topics = self._offsets.of_group(owner.group_id)
        over = (
            OffsetCommit(owner.group_id, topic, partition, None)
            for topic, partitions in topics.items()
            if not owner.is_subscribed(topic)
            for partition, committed in partitions.items()
            if _is_over(committed, owner.retention_starts_ms(committed), wall_ms, retention_ms)
            and (owner.group_id, topic, partition) not in self._offsets.pending
        )
        return sum(map(len, topics.values())), tuple(islice(over, MAX_TOMBSTONES))


def _is_over(
    committed: CommittedOffset, starts_ms: int | None, wall_ms: int, retention_ms: int
) -> bool:
    if starts_ms is None:
        return False
    if committed.expire_timestamp_ms != NO_TIMESTAMP:
        return wall_ms >= committed.expire_timestamp_ms
    return wall_ms - starts_ms >= retention_ms
