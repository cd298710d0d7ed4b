"""A group of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup (KIP-62, KIP-134,
KIP-345, KIP-394).

:mod:`headrace.groups.classic.states` explains the protocol. Only the last finished generation is
durable, as a :class:`~headrace.groups.records.Generation`. It is recorded when the leader has sent
the assignments, and when the last member has left. Rebalances and sessions are volatile.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from headrace.deadlines import Deadlines
from headrace.groups.deadlines import SESSION, GroupDeadlines, TimerKey
from headrace.groups.records import (
    CommittedOffset,
    Generation,
    GroupMetadata,
    GroupOutcome,
    GroupRecord,
)
from headrace.outcome import Apply, Outcome
from headrace.protocol.configuration import Configuration
from headrace.protocol.consumer_protocol import PROTOCOL_TYPE
from headrace.protocol.errors import ErrorCode
from headrace.protocol.record_batch import NO_TIMESTAMP

from .member import JoinReply, JoinRequest, LeaveReply, MemberIdentity, SyncReply, SyncRequest
from .membership import Membership
from .states import State
from .transition import GroupTransition

R = TypeVar("R")

# Looked up once, as this takes long for members of an enumeration, and every commit needs them.
_EMPTY = State.EMPTY
ACCEPTED: tuple[ErrorCode, Apply | None] = ErrorCode.NONE, None


class ClassicGroup:
    """One classic group.

    A command returns an Outcome and changes nothing. ``now_ms`` is the steady time of timers,
    ``wall_ms`` the epoch time of records. ``ticket`` numbers the caller's request: if the reply is
    None, this or a later outcome completes it. Apply or drop an outcome before deciding the next
    command; :meth:`heartbeat` and :meth:`check_commit` need not wait.

    :param timers: timers of all groups; a due timer calls :meth:`expire`
    :param config: the configuration, read whenever a value is needed
    :ivar members: the state of the group, its generation, and the members of this or the next one
    :ivar timers: the timers of the group and its members
    :ivar recorded: the last recorded generation; None before the first
    """

    type_name = "classic"
    becomes_classic = False

    def __init__(self, group_id: str, timers: Deadlines[TimerKey], config: Configuration) -> None:
        self.group_id = group_id
        self._config = config
        self.recorded: Generation | None = None
        self.members = Membership()
        self.timers = GroupDeadlines(timers, group_id)

    @property
    def state_name(self) -> str:
        """Kafka's name for the state of the group."""
        return self.members.state.value

    @property
    def protocol_type(self) -> str:
        """The protocol type of the members, such as ``consumer``; empty if none is known."""
        return self.members.protocol_type

    @property
    def is_empty(self) -> bool:
        """True in the state EMPTY."""
        return self.members.is_empty

    # Commands -------------------------------------------------------------------------------------

    def join(
        self, request: JoinRequest, ticket: int, now_ms: int, wall_ms: int
    ) -> GroupOutcome[JoinReply | None]:
        """Join a member to the next generation (JoinGroup).

        The reply is sent when all members have joined or the rebalance timeout has passed.
        """
        transition = self._transition(now_ms, wall_ms)
        return self._outcome(transition, transition.join(request, ticket))

    def sync(
        self, request: SyncRequest, ticket: int, now_ms: int, wall_ms: int
    ) -> GroupOutcome[SyncReply | None]:
        """Apply the leader's assignments, or return a member's assignment (SyncGroup)."""
        if code := self._check_sync(request):
            return Outcome(SyncReply(code))
        transition = self._transition(now_ms, wall_ms)
        return self._outcome(transition, transition.sync(request, ticket))

    def _check_sync(self, request: SyncRequest) -> ErrorCode:
        members = self.members
        if code := members.check(
            request.member_id, request.group_instance_id, request.generation_id
        ):
            return code
        if request.protocol_type not in (None, members.protocol_type) or (
            request.protocol not in (None, members.protocol)
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if members.state is State.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def heartbeat(
        self, member: MemberIdentity, generation_id: int, now_ms: int
    ) -> GroupOutcome[ErrorCode]:
        """Extend a member's session; return REBALANCE_IN_PROGRESS if it must rejoin."""
        code = self.members.check(*member, generation_id)
        if code:
            return Outcome(code)
        if self.members.state is State.PREPARING_REBALANCE:
            code = ErrorCode.REBALANCE_IN_PROGRESS
        return Outcome(code, apply=self._session_restart(member.member_id, now_ms))

    def leave(
        self, leavers: Sequence[MemberIdentity], now_ms: int, wall_ms: int
    ) -> GroupOutcome[LeaveReply]:
        """Remove members (LeaveGroup); the reply has a code for each."""
        transition = self._transition(now_ms, wall_ms)
        return self._outcome(transition, transition.leave(leavers))

    def expire(self, kind: str, member_id: str, now_ms: int, wall_ms: int) -> GroupOutcome[None]:
        """Handle a timer of the group that has run out."""
        transition = self._transition(now_ms, wall_ms)
        transition.expire(kind, member_id)
        return self._outcome(transition, None)

    def rebalance(self, now_ms: int, wall_ms: int) -> None:
        """Begin a rebalance of a group that has just become classic; write no records."""
        transition = self._transition(now_ms, wall_ms)
        transition.rebalance()
        assert not transition.records
        assert not transition.completions
        self._apply(self.members, transition)

    def _transition(self, now_ms: int, wall_ms: int) -> GroupTransition:
        return GroupTransition(self.group_id, self.members, self._config, now_ms, wall_ms)

    def _outcome(self, transition: GroupTransition, reply: R) -> GroupOutcome[R]:
        completions = tuple(transition.completions)
        apply = partial(self._apply, self.members, transition)
        return Outcome(reply, transition.records, completions, apply=apply)

    def _apply(self, before: Membership, transition: GroupTransition) -> None:
        assert self.members is before, "another decision was applied in between"
        self.members = transition.draft
        self.timers.apply(transition.timers)

    def tombstones(self) -> tuple[GroupRecord, ...]:
        """Return the records that delete the group, except its offsets."""
        return (GroupMetadata(self.group_id, None),)

    # Sessions -------------------------------------------------------------------------------------

    def _session_restart(self, member_id: str, now_ms: int) -> Apply:
        member = self.members.by_id[member_id]
        deadline_ms = now_ms + member.session_timeout_ms
        return partial(self.timers.set, SESSION, member_id, deadline_ms)

    def start_sessions(self, now_ms: int) -> None:
        """Start the sessions of all members, after a restart. Begin the rebalance of a group that
        became classic just before it.
        """
        for member_id in self.members.by_id:
            self._session_restart(member_id, now_ms)()
        if not self.is_empty and self.members.leader is None:
            self.rebalance(now_ms, self.members.state_since_ms)

    # Offsets --------------------------------------------------------------------------------------

    def check_commit(
        self, member: MemberIdentity, generation_id: int, now_ms: int, *, transactional: bool
    ) -> tuple[ErrorCode, Apply | None]:
        """Return the error if offsets may not be committed, or NONE, and the volatile changes.

        A member's commit counts as a heartbeat, unless it is part of a transaction.
        """
        membership = self.members
        if generation_id < 0 and membership.state is _EMPTY:
            return ACCEPTED
        # An administrator, while the group has members, is unknown, too.
        code = membership.check(*member, generation_id)
        if code or transactional:  # a transactional commit may come from another client
            return code, None
        if membership.state is State.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS, None
        return code, self._session_restart(member.member_id, now_ms)

    def check_offset_delete(self) -> ErrorCode:
        """Return the error if no offsets of the group may be deleted, or NONE (KIP-496).

        Those of topics that :meth:`is_subscribed` names are kept in any case.
        """
        topics_known = self.is_empty or self.protocol_type == PROTOCOL_TYPE
        return ErrorCode.NONE if topics_known else ErrorCode.NON_EMPTY_GROUP

    def is_subscribed(self, topic: str) -> bool:
        """Return whether the group is subscribed to a topic; True if a subscription cannot be
        parsed.
        """
        subscribed = self.members.subscribed
        if subscribed is None:
            return self.protocol_type == PROTOCOL_TYPE
        return topic in subscribed

    def retention_starts_ms(self, committed: CommittedOffset) -> int | None:
        """Return when the retention of an offset began, in epoch milliseconds; None while the
        offset does not expire (KIP-211).
        """
        since_ms = self.members.state_since_ms
        if self.is_empty and self.protocol_type and since_ms != NO_TIMESTAMP:
            return since_ms
        stable = self.members.state is State.STABLE and self.members.subscribed is not None
        if self.is_empty or not self.protocol_type or stable:
            return committed.commit_timestamp_ms
        return None

    # Replay ---------------------------------------------------------------------------------------

    def replay(self, record: GroupMetadata) -> None:
        """Apply a recorded generation."""
        generation = record.value
        assert generation is not None, "a tombstone deletes the group"
        self.recorded = generation
        self.members.restore(generation)
