"""A consumer group: members, epochs and assignments (KIP-848, docs/behaviour/groups.md).

Members send one request, the heartbeat. It has the member's subscription and the partitions that
the member holds; the answer has the partitions that the member may read.
:class:`~headrace.groups.consumer.state.ConsumerState` is the durable state of the group;
:class:`~headrace.groups.consumer.transition.MemberTransition` decides one member's heartbeat.
Members of the classic protocol may also join: :mod:`headrace.groups.consumer.classic_members`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from headrace.deadlines import Deadlines
from headrace.errors import ErrorCode, Refusal
from headrace.groups.deadlines import (
    REJOIN,
    RESYNC,
    REVOKE,
    SESSION,
    GroupDeadlines,
    TimerChanges,
    TimerKey,
)
from headrace.groups.heartbeats import (
    check_instance,
    fenced_member,
    group_full,
    unknown_member,
    unreleased_instance,
)
from headrace.groups.records import (
    AssignmentEpoch,
    CommittedOffset,
    ConsumerAssignment,
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMetadata,
    ConsumerGroupRecord,
    ConsumerGroupRegularExpression,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMetadata,
    ConsumerMember,
    GroupEpoch,
    GroupRecord,
    MemberState,
    OffsetCommit,
)
from headrace.groups.settings import ConsumerSettings, TopicCatalog
from headrace.groups.steady import SteadyHeartbeats
from headrace.outcome import Outcome

from .member import JOIN_EPOCH, STATIC_LEAVE_EPOCH, ConsumerHeartbeat, ConsumerHeartbeatReply
from .reconciliation import holds_only
from .state import ConsumerState
from .transition import MemberTransition

Records: TypeAlias = tuple[GroupRecord, ...]


class ConsumerGroup:
    """One consumer group. Commands decide and change nothing; :meth:`replay` applies their records.

    :ivar state: the durable state
    :ivar timers: the timers of the members
    :ivar steady: heartbeats that changed nothing
    """

    type_name = "consumer"
    protocol_type = "consumer"

    def __init__(
        self, group_id: str, timers: Deadlines[TimerKey], state: ConsumerState | None = None
    ) -> None:
        self.group_id = group_id
        self.state = state or ConsumerState(group_id)
        self.timers = GroupDeadlines(timers, group_id)
        self.steady: SteadyHeartbeats[ConsumerHeartbeat, ConsumerHeartbeatReply | Refusal] = (
            SteadyHeartbeats(self.timers)
        )

    @property
    def state_name(self) -> str:
        """Kafka's name for the state of the group."""
        return self.state.state_name

    @property
    def is_empty(self) -> bool:
        """True if the group has no members."""
        return self.state.is_empty

    # Heartbeat ------------------------------------------------------------------------------------

    def heartbeat(
        self,
        request: ConsumerHeartbeat,
        catalog: TopicCatalog,
        settings: ConsumerSettings,
        now_ms: int,
        wall_ms: int,
    ) -> Outcome[GroupRecord, ConsumerHeartbeatReply | Refusal]:
        """Join or keep a member, and return the partitions that it may read."""
        refusal = self._check(request, settings.max_size)
        if refusal is not None:
            return Outcome(refusal)
        replaced = (
            self._replaced(request.group_instance_id)
            if request.member_epoch == JOIN_EPOCH
            else None
        )
        replacement = () if replaced is None else self.replacement(replaced, request.member_id)
        state = self.state.after(replacement) if replacement else self.state
        member = request.member(state.members.get(request.member_id) or ConsumerMember())
        transition = MemberTransition(
            state,
            request.member_id,
            member,
            request.owned,
            catalog,
            settings,
            wall_ms,
            regex_match=request.regex_match,
            may_see=request.may_see,
        )
        refusal = transition.run()
        if refusal is not None:
            return Outcome(refusal)
        now, was = transition.now, transition.was
        tell = request.member_epoch == JOIN_EPOCH or request.is_full or was.assigned != now.assigned
        reply = ConsumerHeartbeatReply(
            request.member_id,
            now.member_epoch,
            settings.heartbeat_interval_ms,
            now.assigned if tell else None,
        )
        timers = self.timer_changes(transition, settings.session_timeout_ms, now_ms)
        apply = partial(self.apply, transition, timers)
        outcome: Outcome[GroupRecord, ConsumerHeartbeatReply | Refusal] = Outcome(
            reply, (*replacement, *transition.records), apply=apply
        )
        if outcome.records or request.member_epoch != now.member_epoch or not transition.is_settled:
            return outcome
        return self.steady.remembering(
            outcome, request, catalog.version, settings.session_timeout_ms
        )

    def timer_changes(
        self, transition: MemberTransition, session_timeout_ms: int, now_ms: int
    ) -> TimerChanges:
        """Restart a member's session; start or cancel its rebalance timeout."""
        timers, member_id = TimerChanges(self.timers), transition.member_id
        timers.set(SESSION, member_id, now_ms + session_timeout_ms)
        if transition.now.state is not MemberState.UNREVOKED_PARTITIONS:
            timers.cancel(REVOKE, member_id)
        elif transition.now is not transition.was and transition.member.classic is None:
            timers.set(REVOKE, member_id, now_ms + transition.member.rebalance_timeout_ms)
        return timers

    def apply(self, transition: MemberTransition, timers: TimerChanges) -> None:
        """Apply the volatile changes of a member's transition."""
        timers.apply()
        regex, version = transition.member.subscribed_topic_regex, transition.resolved_version
        if version is not None and regex in self.state.regexes:
            self.state.resolved_versions[regex] = version

    def unresolved_regex(self, request: ConsumerHeartbeat, version: int) -> str | None:
        """Return the member's regular expression, if the topics of this version of the catalog were
        not matched with it.
        """
        members, regex = self.state.members, request.subscribed_topic_regex
        if regex is None:
            member = members.get(request.member_id) or members.get(
                self._replaced(request.group_instance_id) or ""
            )
            regex = member.subscribed_topic_regex if member is not None else ""
        return regex if regex and self.state.resolved_versions.get(regex) != version else None

    def check_room(self, member_id: str, max_size: int) -> Refusal | None:
        """Return the error if the group is full and the member is new."""
        if len(self.state.members) < max_size or member_id in self.state.members:
            return None
        return group_full("consumer", max_size)

    def _check(self, request: ConsumerHeartbeat, max_size: int) -> Refusal | None:
        return self.check_room(request.member_id, max_size) or (
            self._check_dynamic(request)
            if request.group_instance_id is None
            else self._check_static(request)
        )

    def _check_dynamic(self, request: ConsumerHeartbeat) -> Refusal | None:
        if request.member_epoch == JOIN_EPOCH:
            return None
        known = self.state.current.get(request.member_id)
        if known is None:
            return unknown_member(self.group_id, request.member_id)
        return _check_epoch(request, known)

    def _check_static(self, request: ConsumerHeartbeat) -> Refusal | None:
        instance_id = request.group_instance_id
        owner = self.state.static_members.get(instance_id or "")
        if request.member_epoch != JOIN_EPOCH:
            refusal = self.check_instance(request.member_id, instance_id or "")
            return refusal or _check_epoch(request, self.state.current[request.member_id])
        if owner is None or self.state.members[owner].classic is not None:
            return None
        if self.state.current[owner].member_epoch == STATIC_LEAVE_EPOCH:
            return None
        return unreleased_instance(request.member_id, instance_id or "", owner)

    def check_instance(self, member_id: str, instance_id: str) -> Refusal | None:
        """Return the error if the member does not own its instance id."""
        return check_instance(self.state.static_members, member_id, instance_id)

    def _replaced(self, instance_id: str | None) -> str | None:
        return None if instance_id is None else self.state.static_members.get(instance_id)

    def replacement(self, old_id: str, new_id: str) -> tuple[ConsumerGroupRecord, ...]:
        """Return the records that replace the id of a static member, which keeps its partitions."""
        state, group_id = self.state, self.group_id
        was = replace(state.current[old_id], member_epoch=0, previous_member_epoch=0)
        return (
            *self._removal(old_id),
            ConsumerGroupMemberMetadata(group_id, new_id, state.members[old_id]),
            ConsumerGroupTargetAssignmentMember(group_id, new_id, state.target.get(old_id, {})),
            ConsumerGroupCurrentMemberAssignment(group_id, new_id, was),
        )

    # Leaving --------------------------------------------------------------------------------------

    def check_leave(self, request: ConsumerHeartbeat) -> Refusal | None:
        """Return the error if the member may not leave, or None."""
        if request.group_instance_id is not None:
            return self.check_instance(request.member_id, request.group_instance_id)
        if request.member_id in self.state.members:
            return None
        return unknown_member(self.group_id, request.member_id)

    def pause(
        self, member_id: str, reply: ConsumerHeartbeatReply
    ) -> Outcome[GroupRecord, ConsumerHeartbeatReply | Refusal]:
        """Let a static member leave temporarily; it keeps its partitions until its session ends."""
        current = self.state.current[member_id]
        gone = replace(current, member_epoch=STATIC_LEAVE_EPOCH, pending_revocation={})
        record = ConsumerGroupCurrentMemberAssignment(self.group_id, member_id, gone)
        return Outcome(reply, (record,), apply=partial(self.timers.cancel, REVOKE, member_id))

    def _removal(self, member_id: str) -> tuple[ConsumerGroupRecord, ...]:
        return (
            ConsumerGroupCurrentMemberAssignment(self.group_id, member_id, None),
            ConsumerGroupTargetAssignmentMember(self.group_id, member_id, None),
            ConsumerGroupMemberMetadata(self.group_id, member_id, None),
        )

    def remove(self, member_ids: Collection[str], catalog: TopicCatalog) -> Records:
        """Return the records that remove members. Others get their partitions with later
        heartbeats.
        """
        state = self.state
        records: list[GroupRecord] = [
            record for member_id in member_ids for record in self._removal(member_id)
        ]
        leaving = [state.members[member_id].subscribed_topic_regex for member_id in member_ids]
        for regex in state.regexes:
            if leaving.count(regex) >= state.regex_users[regex]:
                records.append(ConsumerGroupRegularExpression(self.group_id, regex, None))
        new_hash = state.topics_hash(catalog, state.subscribed_without(member_ids))
        epoch = state.epoch + 1
        records.append(ConsumerGroupMetadata(self.group_id, GroupEpoch(epoch, new_hash)))
        if len(member_ids) == len(state.members):  # nobody is left to be assigned anything
            target_epoch = AssignmentEpoch(epoch, 0)
            records.append(ConsumerGroupTargetAssignmentMetadata(self.group_id, target_epoch))
        return tuple(records)

    # Time -----------------------------------------------------------------------------------------

    def removes(self, kind: str, member_id: str) -> bool:
        """Return whether a timer that has run out removes its member.

        Timers of members that have left are not cancelled. They run out and change nothing.
        """
        return member_id in self.state.members and kind in (SESSION, REVOKE, REJOIN, RESYNC)

    def start_sessions(self, settings: ConsumerSettings, now_ms: int) -> None:
        """Start the sessions and rebalance timeouts of all members after a restart."""
        self.state.complete_members()
        for member_id, member in self.state.members.items():
            classic = member.classic
            timeout_ms = (
                settings.session_timeout_ms if classic is None else classic.session_timeout_ms
            )
            self.timers.set(SESSION, member_id, now_ms + timeout_ms)
            current = self.state.current[member_id]
            if classic is None and current.state is MemberState.UNREVOKED_PARTITIONS:
                self.timers.set(REVOKE, member_id, now_ms + member.rebalance_timeout_ms)

    # Offsets --------------------------------------------------------------------------------------

    def check_commit(
        self,
        member_id: str,
        member_epoch: int,
        commits: Sequence[OffsetCommit],
        *,
        knows_epochs: bool,
    ) -> ErrorCode:
        """Return the error if these offsets may not be committed, or NONE.

        A member may commit with an earlier epoch if it has held all partitions since then
        (KIP-1251).

        :param knows_epochs: the request version supports member epochs (OffsetCommit 9 and later)
        """
        state = self.state
        if member_epoch < 0 and state.is_empty:
            return ErrorCode.NONE
        member, current = state.members.get(member_id), state.current.get(member_id)
        if member is None or current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.classic is None and not knows_epochs:
            return ErrorCode.UNSUPPORTED_VERSION
        if member_epoch == current.member_epoch:
            return ErrorCode.NONE
        if member_epoch < current.member_epoch and all(
            _held_since(current, one, member_epoch) for one in commits
        ):
            return ErrorCode.NONE
        return (
            ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
        )

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Return the error if a member may not fetch offsets, or NONE. The id may be None."""
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member, current = (
            self.state.members.get(member_id or ""),
            self.state.current.get(member_id or ""),
        )
        if member is None or current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_epoch == current.member_epoch:
            return ErrorCode.NONE
        return (
            ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
        )

    def check_offset_delete(self) -> ErrorCode:
        """Return the error if no offsets of the group may be deleted, or NONE (KIP-496).

        Those of topics that :meth:`is_subscribed` names are kept in any case.
        """
        return ErrorCode.NONE

    def is_subscribed(self, topic: str) -> bool:
        """Return whether a member is subscribed to a topic, by name or by regular expression."""
        return topic in self.state.subscribed

    def retention_starts_ms(self, committed: CommittedOffset) -> int | None:
        """Return when the retention of an offset began, in epoch milliseconds: with its commit."""
        return committed.commit_timestamp_ms

    def tombstones(self) -> tuple[GroupRecord, ...]:
        """Return the records that delete the group, except its offsets."""
        return tuple(self.state.tombstones())

    # Replay ---------------------------------------------------------------------------------------

    def replay(self, record: ConsumerGroupRecord) -> None:
        """Apply one durable record of this group."""
        self.state.replay(record)
        self.steady.forget()


def _held_since(current: ConsumerAssignment, commit: OffsetCommit, epoch: int) -> bool:
    """Return whether a member has held a partition since this epoch or earlier."""
    _, _, partition, value = commit
    if value is None or value.topic_id is None:
        return False
    given = (
        held.get(value.topic_id, {}).get(partition)
        for held in (current.assigned, current.pending_revocation)
    )
    return any(since is not None and since <= epoch for since in given)


def _check_epoch(request: ConsumerHeartbeat, known: ConsumerAssignment) -> Refusal | None:
    epoch, current = request.member_epoch, known.member_epoch
    if epoch == current:
        return None
    if (
        epoch < current
        and epoch == known.previous_member_epoch
        and holds_only(request.owned, known.assigned)
    ):
        return None  # the answer to its last heartbeat was lost
    return fenced_member("consumer", epoch, current)
