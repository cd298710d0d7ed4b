"""A group of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup (KIP-62, KIP-134,
KIP-345, KIP-394).

Members join and wait until all have; the answer makes one of them leader, who assigns and brings
the result with its SyncGroup, for which the others wait in turn::

    EMPTY ──join──> PREPARING_REBALANCE ──all joined, or time──> COMPLETING_REBALANCE
    COMPLETING_REBALANCE ──leader's sync──> STABLE
      ^                ^        │                                        │
      │ └──nobody left───┼────────┘                                        │
      │
                       └──────a member comes, goes, or
                       changes───────────┴─────────────────────────────────┘

Durable is the last finished generation only, a :class:`~headrace.groups.records.Generation`:
written when the leader has assigned and when the last member has gone. All that happens between two
of them, and every session, is volatile by design: a restart falls back to the last generation,
whose members go on or join again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from headrace.deadlines import Deadlines
from headrace.errors import ErrorCode
from headrace.groups.deadlines import JOIN, PENDING, SESSION, SYNC, GroupDeadlines, TimerKey
from headrace.groups.records import Generation, GroupMetadata, GroupRecord
from headrace.groups.settings import ClassicSettings
from headrace.outcome import Completion, Outcome

from .member import (
    JoinReply,
    JoinRequest,
    LeaveReply,
    Member,
    MemberIdentity,
    State,
    SyncReply,
    SyncRequest,
)
from .offsets import ClassicOffsets

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a new member's first JoinGroup waits at most. It does not know its id yet, so no session
can end it.
"""

Records: TypeAlias = tuple[GroupRecord, ...]


class ClassicGroup(ClassicOffsets):
    """One classic group.

    Commands take ``now_ms`` and answer an Outcome. ``ticket`` is the number of the caller's
    request: when the reply is None, a later outcome (or the same one) completes it.

    :param timers: shared by all groups; what is due comes back through :meth:`expire`
    :ivar is_lasting: it began with committed offsets, or has had a generation
    """

    type_name = "classic"

    def __init__(self, group_id: str, timers: Deadlines[TimerKey]) -> None:
        super().__init__()
        self.group_id = group_id
        self.recorded: Generation | None = None
        self.is_lasting = False
        self._timers = GroupDeadlines(timers, group_id)
        self._completions: list[Completion] = []
        self._initial_left_ms: int | None = (
            None  # of an initial rebalance: how much longer it may be put off
        )
        self._newcomer = False  # somebody joined the initial rebalance since it was last put off

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_vacant(self) -> bool:
        """Nothing would be lost if the group were forgotten."""
        return self.is_empty and not self.roster.pending and not self.is_lasting

    # Joining --------------------------------------------------------------------------------------

    def join(
        self, request: JoinRequest, ticket: int, settings: ClassicSettings, now_ms: int
    ) -> Outcome[GroupRecord, JoinReply | None]:
        """Take part in the next generation. The reply comes when all members have joined, or their
        time is over.
        """
        member_id, instance_id, roster = request.member_id, request.group_instance_id, self.roster
        preparing = self.state is State.PREPARING_REBALANCE
        if not self.is_empty and not roster.has_room(
            member_id, settings.max_size, preparing=preparing
        ):
            self._forget_pending(member_id)  # nobody waits for it any longer
            if member_id in roster.members:
                self._remove(roster.members[member_id])
            return Outcome(JoinReply(ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
        if not roster.speaks(request):
            return Outcome(JoinReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
        if not member_id:
            known_as = roster.static_member_id(instance_id)
            if known_as is not None:
                return self._replace_static(roster.members[known_as], request, ticket, now_ms)
            if instance_id is None and request.known_member_id_required:
                roster.pending.add(request.new_member_id)
                self._timers.set(
                    PENDING, request.new_member_id, now_ms + request.session_timeout_ms
                )
                return Outcome(JoinReply(ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id))
            return self._add(request.new_member_id, request, ticket, settings, now_ms)
        if member_id in roster.pending and instance_id is None:
            self._forget_pending(member_id)
            return self._add(member_id, request, ticket, settings, now_ms)
        code = roster.check(member_id, instance_id)
        if code:
            return Outcome(JoinReply(code, member_id))
        return self._join_again(roster.members[member_id], request, ticket, now_ms)

    def _add(
        self,
        member_id: str,
        request: JoinRequest,
        ticket: int,
        settings: ClassicSettings,
        now_ms: int,
    ) -> Outcome[GroupRecord, JoinReply | None]:
        self.roster.add(member_id, request, ticket)
        self._newcomer = True
        self._timers.set(SESSION, member_id, now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        if not self.is_empty:
            return self._parked(self._rebalance(now_ms))
        # The first members of an empty group: leave time for the others to come.
        self._transition(State.PREPARING_REBALANCE, now_ms)
        self._initial_left_ms = max(
            self.roster.rebalance_timeout_ms(), settings.initial_rebalance_delay_ms
        )
        return self._parked(self._prolong_initial(settings.initial_rebalance_delay_ms, now_ms))

    def _join_again(
        self, member: Member, request: JoinRequest, ticket: int, now_ms: int
    ) -> Outcome[GroupRecord, JoinReply | None]:
        if member.protocols == request.protocols and (
            self.state is State.COMPLETING_REBALANCE  # it lost its answer
            or (self.state is State.STABLE and member.member_id != self.roster.leader)
        ):
            return Outcome(self._joined(member))
        self._update(member, request, ticket)
        return self._parked(self._rebalance(now_ms))

    def _update(self, member: Member, request: JoinRequest, ticket: int) -> None:
        member.protocols = request.protocols
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        self._answer_join(member, JoinReply(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        member.join_ticket = ticket

    def _replace_static(
        self, member: Member, request: JoinRequest, ticket: int, now_ms: int
    ) -> Outcome[GroupRecord, JoinReply | None]:
        """A static member is back under a new id (KIP-345): a stable group goes on without a
        rebalance.
        """
        old_leader = self.roster.leader
        self._answer_join(member, JoinReply(ErrorCode.FENCED_INSTANCE_ID, member.member_id))
        self._answer_sync(member, SyncReply(ErrorCode.FENCED_INSTANCE_ID), now_ms)
        self._timers.cancel(SESSION, member.member_id)
        self.roster.rename(member, request)
        self._restart_session(
            member, now_ms
        )  # as long as it was so far: another timeout counts from a heartbeat on
        self._update(member, request, ticket)
        if self.state is not State.STABLE or self.roster.select_protocol() != self.protocol:
            return self._parked(self._rebalance(now_ms))
        member.join_ticket = None
        if request.skips_assignment:
            reply = self._joined(member, skip_assignment=self.roster.leader == member.member_id)
        else:  # told the old leader's id, it takes itself for a follower and does not assign
            reply = replace(self._joined(member), leader=old_leader or "", members=())
        return Outcome(reply, (self._record(),), self._drain())

    def _joined(self, member: Member, *, skip_assignment: bool = False) -> JoinReply:
        return JoinReply(
            ErrorCode.NONE,
            member.member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol,
            self.roster.leader or "",
            self.roster.introduce(self.protocol) if member.member_id == self.roster.leader else (),
            skip_assignment,
        )

    # Rebalancing ----------------------------------------------------------------------------------

    def _prolong_initial(self, delay_ms: int, now_ms: int) -> Records:
        """Wait another delay as long as somebody new came during the last, up to the rebalance
        timeout in all.
        """
        left_ms = self._initial_left_ms or 0
        wait_ms = min(delay_ms, left_ms)
        if self._newcomer and wait_ms > 0:
            self._newcomer = False
            self._initial_left_ms = left_ms - wait_ms
            self._timers.set(JOIN, "", now_ms + wait_ms)
            return ()
        return self._complete_join(now_ms)

    def _rebalance(self, now_ms: int) -> Records:
        """Something changed: begin a rebalance, or see whether the one that is on can end."""
        if self.state is not State.PREPARING_REBALANCE:
            for member in self.roster.all():
                if (
                    self.state is State.COMPLETING_REBALANCE
                ):  # of a generation that has ended unassigned
                    member.assignment = b""
                self._answer_sync(member, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS), now_ms)
            self._timers.cancel(SYNC)
            self._transition(State.PREPARING_REBALANCE, now_ms)
            self._timers.set(JOIN, "", now_ms + self.roster.rebalance_timeout_ms())
        if self._initial_left_ms is None and self.roster.all_joined():
            return self._complete_join(now_ms)
        return ()

    def _complete_join(self, now_ms: int) -> Records:
        """End the joining: whoever did not come is out, unless static; the rest are the next
        generation.
        """
        self._timers.cancel(JOIN)
        self._initial_left_ms = None
        for member in self.roster.all():
            if member.join_ticket is None and member.group_instance_id is None:
                self._remove(member)
        if (
            len(self.roster) and not self.roster.elect()
        ):  # only static members, all of them away: wait on
            self._timers.set(JOIN, "", now_ms + self.roster.rebalance_timeout_ms())
            return ()
        self.generation_id += 1
        self.protocol = self.roster.select_protocol()
        self.learn_subscriptions()
        if not len(self.roster):
            self._transition(State.EMPTY, now_ms)
            return (self._record(),)
        self._transition(State.COMPLETING_REBALANCE, now_ms)
        for member in self.roster.all():
            self._answer_join(member, self._joined(member))
            member.is_new = False
            self._restart_session(member, now_ms)
        self.roster.unsynced = set(self.roster.members)
        self._timers.set(SYNC, "", now_ms + self.roster.rebalance_timeout_ms())
        return ()

    # Syncing, staying, leaving --------------------------------------------------------------------

    def sync(
        self, request: SyncRequest, ticket: int, now_ms: int
    ) -> Outcome[GroupRecord, SyncReply | None]:
        """Ask for the assignment of this generation; the reply comes when the leader has brought
        it.
        """
        code = self._check_sync(request)
        if code:
            return Outcome(SyncReply(code))
        member, unsynced = self.roster.members[request.member_id], self.roster.unsynced
        unsynced.discard(member.member_id)
        if not unsynced:
            self._timers.cancel(SYNC)
        self._restart_session(member, now_ms)
        if self.state is State.STABLE:
            return Outcome(self._synced(member.assignment))
        self._answer_sync(member, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS), now_ms)
        member.sync_ticket = ticket
        if member.member_id != self.roster.leader:
            return Outcome(None, (), self._drain())
        return self._assign(dict(request.assignments), now_ms)

    def _check_sync(self, request: SyncRequest) -> ErrorCode:
        code = self._check(request.member_id, request.group_instance_id, request.generation_id)
        if code:
            return code
        if request.protocol_type not in (None, self.protocol_type) or request.protocol not in (
            None,
            self.protocol,
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is State.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _assign(
        self, assignments: Mapping[str, bytes], now_ms: int
    ) -> Outcome[GroupRecord, SyncReply | None]:
        """The leader has spoken.

        The tickets are given up only when the record is replayed, so that none is lost if it cannot
        be written.
        """
        self.state_since_ms = now_ms
        for member in self.roster.all():
            if member.sync_ticket is not None:
                reply = self._synced(assignments.get(member.member_id, b""))
                self._completions.append(Completion(member.sync_ticket, reply))
                self._restart_session(member, now_ms)
        return Outcome(None, (self._record(assignments),), self._drain())

    def _synced(self, assignment: bytes) -> SyncReply:
        return SyncReply(ErrorCode.NONE, self.protocol_type, self.protocol, assignment)

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation_id: int, now_ms: int
    ) -> ErrorCode:
        """A member is alive; REBALANCE_IN_PROGRESS asks it to join again."""
        code = self._check(member_id, instance_id, generation_id)
        if code:
            return code
        self._restart_session(self.roster.members[member_id], now_ms)
        return (
            ErrorCode.REBALANCE_IN_PROGRESS
            if self.state is State.PREPARING_REBALANCE
            else ErrorCode.NONE
        )

    def _check(self, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
        code = self.roster.check(member_id, instance_id)
        return (
            ErrorCode.ILLEGAL_GENERATION
            if not code and generation_id != self.generation_id
            else code
        )

    def leave(
        self, leavers: Sequence[MemberIdentity], now_ms: int
    ) -> Outcome[GroupRecord, LeaveReply]:
        """Members go; their places are given to the others at once. The reply has a code for
        each."""
        codes = []
        for member_id, instance_id in leavers:
            if not member_id:
                member_id = self.roster.static_member_id(instance_id) or ""
            if member_id in self.roster.pending:
                self._forget_pending(member_id)
                codes.append(ErrorCode.NONE)
                continue
            code = self.roster.check(member_id, instance_id)
            if not code:
                self._dismiss(self.roster.members[member_id], now_ms)
            codes.append(code)
        changed = ErrorCode.NONE in codes and not self.is_empty
        records = self._rebalance(now_ms) if changed else ()
        return Outcome(tuple(codes), records, self._drain())

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        now_ms: int,
        transactional: bool,
    ) -> ErrorCode:
        """Whether offsets may be committed. A member's commit counts as a heartbeat, unless it is a
        transaction's.
        """
        if generation_id < 0 and self.state is State.EMPTY:
            return ErrorCode.NONE
        if generation_id < 0 and not member_id and instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID  # an administrator, while members are at work
        code = self._check(member_id, instance_id, generation_id)
        if (
            code or transactional
        ):  # the producer may be another: the member has other ways to say that it lives
            return code
        if self.state is State.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._restart_session(self.roster.members[member_id], now_ms)
        return ErrorCode.NONE

    def tombstones(self) -> tuple[GroupRecord, ...]:
        """What forgets the group, but for its offsets."""
        return (GroupMetadata(self.group_id, None),)

    # Time -----------------------------------------------------------------------------------------

    def expire(
        self, kind: str, member_id: str, settings: ClassicSettings, now_ms: int
    ) -> Outcome[GroupRecord, None]:
        """One of the group's timers has run out."""
        records: Records = ()
        if kind == PENDING:
            self.roster.pending.discard(member_id)
            if self.state is State.PREPARING_REBALANCE:
                records = self._rebalance(now_ms)
        elif kind == SESSION and member_id in self.roster.members:
            member = self.roster.members[member_id]
            waits = member.join_ticket is not None or member.sync_ticket is not None
            if member.is_new or not waits:
                self._dismiss(member, now_ms)
                records = self._rebalance(now_ms)
        elif kind == JOIN and self._initial_left_ms is not None:
            records = self._prolong_initial(settings.initial_rebalance_delay_ms, now_ms)
        elif kind == JOIN:
            records = self._complete_join(now_ms)
        elif kind == SYNC:
            for late in sorted(self.roster.unsynced):
                self._dismiss(self.roster.members[late], now_ms)
            records = self._rebalance(now_ms)
        return Outcome(None, records, self._drain())

    def start_sessions(self, now_ms: int) -> None:
        """After a restart: the members' sessions begin anew."""
        for member in self.roster.all():
            self._restart_session(member, now_ms)

    # Small steps ----------------------------------------------------------------------------------

    def _restart_session(self, member: Member, now_ms: int) -> None:
        self._timers.set(SESSION, member.member_id, now_ms + member.session_timeout_ms)

    def _transition(self, state: State, now_ms: int) -> None:
        self.state, self.state_since_ms = state, now_ms

    def _dismiss(self, member: Member, now_ms: int) -> None:
        """Remove a member, telling its waiting requests so."""
        self._answer_join(member, JoinReply(ErrorCode.UNKNOWN_MEMBER_ID, ""))
        self._answer_sync(member, SyncReply(ErrorCode.UNKNOWN_MEMBER_ID), now_ms)
        self._remove(member)

    def _remove(self, member: Member) -> None:
        self.roster.remove(member)
        self._timers.cancel(SESSION, member.member_id)

    def _forget_pending(self, member_id: str) -> None:
        self.roster.pending.discard(member_id)
        self._timers.cancel(PENDING, member_id)

    def _answer_join(self, member: Member, reply: JoinReply) -> None:
        if member.join_ticket is not None:
            self._completions.append(Completion(member.join_ticket, reply))
            member.join_ticket = None

    def _answer_sync(self, member: Member, reply: SyncReply, now_ms: int) -> None:
        if member.sync_ticket is not None:
            self._completions.append(Completion(member.sync_ticket, reply))
            member.sync_ticket = None
            self._restart_session(member, now_ms)

    def _drain(self) -> tuple[Completion, ...]:
        completions = tuple(self._completions)
        self._completions.clear()
        return completions

    def _parked(self, records: Records) -> Outcome[GroupRecord, JoinReply | None]:
        return Outcome(None, records, self._drain())

    def _record(self, assignments: Mapping[str, bytes] | None = None) -> GroupMetadata:
        roster, protocol = self.roster, self.protocol
        members = roster.record(protocol, assignments)
        generation = Generation(
            self.protocol_type,
            self.generation_id,
            protocol,
            roster.leader,
            self.state_since_ms,
            members,
        )
        return GroupMetadata(self.group_id, generation)

    # Replay ---------------------------------------------------------------------------------------

    def replay(self, generation: Generation) -> None:
        """Take over a finished generation: our own decision just now, or after a restart the
        past."""
        self.recorded, self.is_lasting = generation, True
        self.generation_id, self.protocol = generation.generation_id, generation.protocol
        self.state = State.STABLE if generation.members else State.EMPTY
        self.state_since_ms = generation.current_state_timestamp_ms
        self.roster.restore(generation)
        self.learn_subscriptions()
