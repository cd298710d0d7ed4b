"""Commands on committed offsets: committing, deleting and expiring them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from headrace.deadlines import Deadlines
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.classic.member import MemberIdentity
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.deadlines import OFFSETS, TimerKey
from headrace.groups.meters import GroupMeters
from headrace.groups.records import GroupRecord, OffsetCommit
from headrace.groups.service import Group
from headrace.groups.share.group import ShareGroup
from headrace.groups.streams.group import StreamsGroup
from headrace.outcome import Apply, Outcome
from headrace.protocol.configuration import Configuration
from headrace.protocol.errors import ErrorCode

from .committed import CommittedOffsets
from .expiration import PAUSE_MS, OffsetExpiration

NO_MEMBER = MemberIdentity("")

_ACCEPTED = ErrorCode.NONE, None
"""The result of most checks."""


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
        self.committed = CommittedOffsets(config)
        self._groups, self._config, self._timers, self._meters = groups, config, timers, meters
        self._expiration = OffsetExpiration(self.committed, groups)

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
    ) -> Outcome[GroupRecord, tuple[ErrorCode, ...]]:
        """Commit offsets (OffsetCommit, TxnOffsetCommit); the reply has a code for each.

        See :meth:`check_commit` for the parameters.
        """
        codes = self.committed.check(commits)
        fit = commits
        if any(codes):
            fit = [commit for commit, code in zip(commits, codes, strict=True) if not code]
        refused, apply = self.check_commit(
            group_id, member, generation_id, knows_group_id_not_found, transactional, fit, now_ms
        )
        if refused:
            return Outcome((refused,) * len(commits))
        return Outcome(tuple(codes), tuple(fit), apply=apply)

    def check_commit(
        self,
        group_id: str,
        member: MemberIdentity,
        generation_id: int,
        knows_group_id_not_found: bool,
        transactional: bool,
        commits: Sequence[OffsetCommit],
        now_ms: int,
    ) -> tuple[ErrorCode, Apply | None]:
        """Return the error if the group refuses these commits, or NONE, and the volatile changes.

        :param generation_id: -1 for an administrator, or a consumer that assigns partitions itself
        :param now_ms: the steady time
        :param knows_group_id_not_found: the client knows this error, and in a transaction
            STALE_MEMBER_EPOCH (OffsetCommit 9, TxnOffsetCommit 6)
        :param transactional: the commit is part of a transaction; a member id is optional
        """
        group = self._groups.get(group_id)
        if isinstance(group, ShareGroup):
            return ErrorCode.GROUP_ID_NOT_FOUND, None
        if group is None:
            unknown = (
                ErrorCode.GROUP_ID_NOT_FOUND
                if knows_group_id_not_found
                else ErrorCode.ILLEGAL_GENERATION
            )
            return _ACCEPTED if generation_id < 0 else (unknown, None)
        if transactional and generation_id < 0 and member == NO_MEMBER:
            return _ACCEPTED
        if isinstance(group, ClassicGroup):
            return group.check_commit(
                member.member_id, member.group_instance_id, generation_id, now_ms, transactional
            )
        knows_epochs = knows_group_id_not_found or transactional
        code = group.check_commit(
            member.member_id, generation_id, commits, knows_epochs=knows_epochs
        )
        stale = code is ErrorCode.STALE_MEMBER_EPOCH
        if transactional and stale and not knows_group_id_not_found:
            code = ErrorCode.ILLEGAL_GENERATION
        return code, None

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Return the error if a member may not fetch offsets (OffsetFetch), or NONE. Only consumer
        and streams groups check.
        """
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup | StreamsGroup):
            return group.check_fetch(member_id, member_epoch)
        return ErrorCode.NONE

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
        code = group.check_offset_delete()
        if code:
            return Outcome(code)
        subscribed = {topic: group.is_subscribed(topic) for topic, _ in partitions}
        codes = tuple(
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed[topic] else ErrorCode.NONE
            for topic, _ in partitions
        )
        deleted = (one for one in partitions if not subscribed[one[0]])
        tombstones = self.committed.deletions(group_id, deleted)
        return Outcome(codes, tombstones, apply=partial(self._meters.deleted, len(tombstones)))

    # Time -----------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        """Schedule the next check for expired offsets."""
        interval_ms = self._config.get_int("offsets.retention.check.interval.ms")
        self._timers.set(OFFSETS, now_ms + interval_ms)

    def expire(self, now_ms: int, wall_ms: int) -> Iterable[tuple[str, Outcome[GroupRecord, None]]]:
        """Expire offsets of some groups; yield (group id, outcome). Apply each outcome before
        requesting the next. A timer continues the round.
        """
        retention_ms = self._config.get_int("offsets.retention.minutes") * 60_000
        self._timers.set(OFFSETS, now_ms + PAUSE_MS)
        for group_id, outcome in self._expiration.portion(wall_ms, retention_ms):
            count = partial(self._meters.expired, outcome.reply)
            yield group_id, outcome.with_reply(None).then(count)
        if not self._expiration.is_under_way:
            self.start(now_ms)
