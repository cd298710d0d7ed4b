"""Commands on committed offsets: committing, deleting and expiring them (KIP-211, KIP-496;
docs/behaviour/groups.md).

Every ``offsets.retention.check.interval.ms`` a round over all groups begins. It is divided into
portions, so that it does not block the event loop; a group with many topics takes several. The
group determines when the retention of an offset begins and to which topics it is subscribed. An
offset does not expire while its partition has another one in an open transaction. A group without
offsets and members is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

from headrace.deadlines import Deadlines
from headrace.groups.classic.group import ACCEPTED, ClassicGroup
from headrace.groups.classic.member import MemberIdentity
from headrace.groups.deadlines import OFFSETS, TimerKey
from headrace.groups.meters import GroupMeters
from headrace.groups.records import CommittedOffset, GroupOutcome, GroupRecord, OffsetCommit
from headrace.groups.service import Group
from headrace.groups.share.group import ShareGroup
from headrace.outcome import Outcome, Unapplied
from headrace.protocol.configuration import Configuration
from headrace.protocol.errors import ErrorCode
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

NO_MEMBER = MemberIdentity("")


class OffsetService:
    """Commands on the committed offsets of all groups. The coordinator replays their records.

    :param groups: all groups by id
    :ivar committed: the committed offsets
    """

    def __init__(
        self,
        groups: Mapping[str, Group],
        config: Configuration,
        timers: Deadlines[TimerKey],
        meters: GroupMeters,
    ) -> None:
        self.committed = CommittedOffsets()
        self._groups, self._config, self._timers, self._meters = groups, config, timers, meters
        self._unchecked: list[str] = []  # the groups of the round
        self._topics: list[str] | None = None  # the unchecked ones of the last of these groups

    # Commands -------------------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        member: MemberIdentity,
        generation_id: int,
        commits: Sequence[OffsetCommit],
        now_ms: int,
        *,
        knows_group_id_not_found: bool = True,
        transactional: bool = False,
    ) -> Outcome[GroupRecord, ErrorCode]:
        """Commit offsets (OffsetCommit, TxnOffsetCommit), all or none; the reply is their error.

        :param generation_id: -1 for an administrator, or a consumer that assigns partitions itself
        :param now_ms: the steady time
        :param knows_group_id_not_found: the client knows this error, and in a transaction
            STALE_MEMBER_EPOCH (OffsetCommit 9, TxnOffsetCommit 6)
        :param transactional: the commit is part of a transaction; a member id is optional
        """
        code, apply = ACCEPTED
        group = self._groups.get(group_id)
        if isinstance(group, ShareGroup):
            code = ErrorCode.GROUP_ID_NOT_FOUND
        elif group is None:
            if generation_id >= 0:
                code = ErrorCode.ILLEGAL_GENERATION
                if knows_group_id_not_found:
                    code = ErrorCode.GROUP_ID_NOT_FOUND
        elif transactional and generation_id < 0 and member == NO_MEMBER:
            pass  # a producer without a consumer
        elif isinstance(group, ClassicGroup):
            code, apply = group.check_commit(
                member, generation_id, now_ms, transactional=transactional
            )
        else:
            knows_epochs = knows_group_id_not_found or transactional
            code = group.check_commit(
                member.member_id, generation_id, commits, knows_epochs=knows_epochs
            )
            is_stale = code is ErrorCode.STALE_MEMBER_EPOCH
            if transactional and is_stale and not knows_group_id_not_found:
                code = ErrorCode.ILLEGAL_GENERATION
        return Outcome(code) if code else Outcome(code, tuple(commits), apply=apply)

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Return the error if a member may not fetch offsets (OffsetFetch), or NONE. Only consumer
        and streams groups check.
        """
        group = self._groups.get(group_id)
        if group is None or isinstance(group, ClassicGroup | ShareGroup):
            return ErrorCode.NONE
        return group.check_fetch(member_id, member_epoch)

    def delete(
        self, group_id: str, partitions: Sequence[tuple[str, int]]
    ) -> Outcome[GroupRecord, ErrorCode | tuple[ErrorCode, ...]]:
        """Delete offsets (OffsetDelete, KIP-496).

        :param partitions: (topic, partition) pairs
        :returns: a code for each partition, or one for the request
        """
        group = self._groups.get(group_id)
        if not group_id:
            return Outcome(ErrorCode.INVALID_GROUP_ID)
        if group is None or isinstance(group, ShareGroup):
            return Outcome(ErrorCode.GROUP_ID_NOT_FOUND)
        if code := group.check_offset_delete():
            return Outcome(code)
        subscribed = {topic: group.is_subscribed(topic) for topic, _ in partitions}
        codes = tuple(
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed[topic] else ErrorCode.NONE
            for topic, _ in partitions
        )
        deletable = [(topic, partition) for topic, partition in partitions if not subscribed[topic]]
        tombstones = self.committed.deletions(group_id, deletable)
        return Outcome(codes, tombstones, apply=partial(self._meters.deleted, len(tombstones)))

    # Time -----------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        """Schedule the next check for expired offsets."""
        interval_ms = self._config.get_int("offsets.retention.check.interval.ms")
        self._timers.set(OFFSETS, now_ms + interval_ms)

    def expire(self, now_ms: int, wall_ms: int) -> Iterator[tuple[str, GroupOutcome[None]]]:
        """Expire offsets of some groups; yield (group id, outcome). Apply each outcome before
        requesting the next. A timer continues the round.

        If an outcome is not applied, its group is left for the next round: its log may be offline
        for long, and others must not wait for it.
        """
        self._timers.set(OFFSETS, now_ms + PAUSE_MS)
        self._unchecked = self._unchecked or list(self._groups)
        left = PORTION
        while self._unchecked and left > 0:
            group_id = self._unchecked[-1]
            group = self._groups.get(group_id)
            # It may be deleted meanwhile. Share groups have no committed offsets.
            if group is None or isinstance(group, ShareGroup):
                self._end_group()
                left -= 1
                continue
            if self._topics is None:
                self._topics = list(self.committed.of_group(group_id))
            looks, rest, records = self._expired(group, self._topics, left, wall_ms)
            left -= looks + 1
            count = len(records)
            if group.is_empty and self._are_all(group_id, count):
                records += group.tombstones()
            unapplied = Unapplied()
            if records:
                left -= WRITE_COST
                counted = partial(self._meters.expired, count)
                yield group_id, unapplied.watch(Outcome(None, records, apply=counted))
            del self._topics[rest:]  # unless the caller has given up
            if unapplied.count or not rest:
                self._end_group()
        if not self._unchecked:
            self.start(now_ms)

    def _end_group(self) -> None:
        self._unchecked.pop()
        self._topics = None

    def _are_all(self, group_id: str, count: int) -> bool:
        """Return whether a group has just this number of offsets, and none in a transaction."""
        topics = self.committed.of_group(group_id)
        return (
            len(topics) <= count
            and sum(map(len, topics.values())) == count
            and not self.committed.pending.of_group(group_id)
        )

    def _expired(
        self, group: Group, topics: list[str], looks: int, wall_ms: int
    ) -> tuple[int, int, tuple[GroupRecord, ...]]:
        """Check topics of a group, from the end of the list.

        :param looks: the number of offsets to check; the last topic may exceed it
        :returns: the number of checked offsets, the number of topics left, and tombstones of
            expired offsets
        """
        retention_ms = self._config.get_int("offsets.retention.minutes") * 60_000
        group_id, offsets = group.group_id, self.committed.of_group(group.group_id)
        checked, rest, tombstones = 0, len(topics), list[GroupRecord]()
        while rest and checked < looks:
            topic = topics[rest - 1]
            partitions = offsets.get(topic, {})
            checked += max(len(partitions), 1)
            if not group.is_subscribed(topic):
                over = (
                    OffsetCommit(group_id, topic, partition, None)
                    for partition, committed in partitions.items()
                    if _is_over(
                        committed, group.retention_starts_ms(committed), wall_ms, retention_ms
                    )
                    and (group_id, topic, partition) not in self.committed.pending
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
