"""The part of the group coordinator that is about committed offsets: who may commit, ask for and
delete them.

What is committed is kept by :class:`~headrace.groups.offsets.committed.CommittedOffsets`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.errors import ErrorCode
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.classic.member import MemberIdentity
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.kinds import Group
from headrace.groups.records import GroupRecord, OffsetCommit
from headrace.groups.settings import Configuration
from headrace.groups.share.group import ShareGroup
from headrace.outcome import Apply, Outcome

from .committed import CommittedOffsets, TopicOffsets

NO_MEMBER = MemberIdentity("")


class GroupOffsets:
    """All groups by id, and all committed offsets.

    :param config: where limits and times are looked up when they are needed
    """

    def __init__(self, config: Configuration) -> None:
        self.offsets = CommittedOffsets(config)
        self.groups: dict[str, Group] = {}
        self._config = config

    def commit(
        self,
        group_id: str,
        member: MemberIdentity,
        generation_id: int,
        commits: Sequence[OffsetCommit],
        now_ms: int,
        *,
        says_group_unknown: bool = True,
        transactional: bool = False,
    ) -> Outcome[GroupRecord, tuple[ErrorCode, ...]]:
        """OffsetCommit and TxnOffsetCommit: a code for each of ``commits``, those of which that are
        let in are written.

        Parameters as of :meth:`check_commit`.
        """
        unfit = self.offsets.check(commits)
        fit = [commit for commit, error in zip(commits, unfit, strict=True) if not error]
        refused, apply = self.check_commit(
            group_id, member, generation_id, fit, now_ms, says_group_unknown, transactional
        )
        codes = (refused,) * len(commits) if refused else tuple(unfit)
        accepted = tuple(commit for commit, code in zip(commits, codes, strict=True) if not code)
        return Outcome(codes, accepted, apply=apply)

    def check_commit(
        self,
        group_id: str,
        member: MemberIdentity,
        generation_id: int,
        commits: Sequence[OffsetCommit],
        now_ms: int,
        says_group_unknown: bool,
        transactional: bool = False,
    ) -> tuple[ErrorCode, Apply | None]:
        """Return whether the group accepts these commits, all of them or none, and the volatile
        changes that come with them.

        :param generation_id: -1 for an administrator, or a consumer that assigns itself
        :param says_group_unknown: the client knows GROUP_ID_NOT_FOUND (OffsetCommit 9 and later)
        :param transactional: as part of a transaction, where a producer need not say which member
            it commits for
        """
        group = self.groups.get(group_id)
        if isinstance(group, ShareGroup):
            return ErrorCode.GROUP_ID_NOT_FOUND, None
        if group is None:
            unknown = (
                ErrorCode.GROUP_ID_NOT_FOUND if says_group_unknown else ErrorCode.ILLEGAL_GENERATION
            )
            return (ErrorCode.NONE if generation_id < 0 else unknown), None
        if transactional and generation_id < 0 and member == NO_MEMBER:
            return ErrorCode.NONE, None
        if isinstance(group, ClassicGroup):
            return group.check_commit(
                member.member_id, member.group_instance_id, generation_id, now_ms, transactional
            )
        knows_epochs = says_group_unknown or transactional
        code = group.check_commit(
            member.member_id, generation_id, commits, knows_epochs=knows_epochs
        )
        return code, None

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether a member may ask for its group's offsets. Only consumer groups mind who asks."""
        group = self.groups.get(group_id)
        return (
            group.check_fetch(member_id, member_epoch)
            if isinstance(group, ConsumerGroup)
            else ErrorCode.NONE
        )

    def end_transaction(self, producer_id: int, partition: int, *, commit: bool) -> None:
        """A transaction's marker stands in ``partition`` of the internal topic: its offsets count
        now, or never.
        """
        self.offsets.end_transaction(producer_id, partition, commit=commit)

    def committed(self, group_id: str) -> Mapping[str, TopicOffsets]:
        """OffsetFetch: all offsets of a group by topic and partition; empty for a group that has
        none (KIP-88).
        """
        return self.offsets.of_group(group_id)

    def delete_offsets(
        self, group_id: str, partitions: Sequence[tuple[str, int]]
    ) -> Outcome[GroupRecord, ErrorCode | tuple[ErrorCode, ...]]:
        """OffsetDelete (KIP-496): a code for each (topic, partition), or one that refuses them
        all."""
        group = self.groups.get(group_id)
        if not group_id:
            return Outcome(ErrorCode.INVALID_GROUP_ID)
        if group is None or isinstance(group, ShareGroup):
            return Outcome(ErrorCode.GROUP_ID_NOT_FOUND)
        code = group.check_offset_delete()
        if code:
            return Outcome(code)
        needed = {topic: group.is_subscribed(topic) for topic, _ in partitions}
        codes = tuple(
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if needed[topic] else ErrorCode.NONE
            for topic, _ in partitions
        )
        return Outcome(
            codes,
            self.offsets.deletions(group_id, (one for one in partitions if not needed[one[0]])),
        )
