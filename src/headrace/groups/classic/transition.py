"""One decision about a classic group: JoinGroup, SyncGroup, LeaveGroup or a timeout.

The decision changes a draft of the group's membership. The draft, the timers and the answers to
waiting requests are part of the outcome. They take effect when its records have been appended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headrace.groups.deadlines import JOIN, PENDING, SESSION, SYNC, TimerChanges
from headrace.groups.records import GroupMetadata
from headrace.outcome import Completion
from headrace.protocol.configuration import Configuration
from headrace.protocol.errors import ErrorCode

from .member import JoinReply, JoinRequest, Member, MemberIdentity, SyncReply, SyncRequest
from .membership import Membership
from .states import Event, State

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""The longest wait of a new member's first JoinGroup. The member does not know its id yet, so it
has no session that could expire.
"""


class GroupTransition:
    """A decision about a classic group: a draft of its membership, records, timers and answers.

    :ivar draft: the new membership
    :ivar records: records to append; :attr:`draft` includes their effect
    :ivar completions: answers to waiting requests
    """

    def __init__(
        self,
        group_id: str,
        membership: Membership,
        config: Configuration,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        self.draft = membership.copy()
        self.timers: TimerChanges = {}
        self.records: tuple[GroupMetadata, ...] = ()
        self.completions: list[Completion] = []
        self._group_id, self._config = group_id, config
        self._now_ms, self._wall_ms = now_ms, wall_ms

    # Joining --------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, ticket: int) -> JoinReply | None:
        """Join a member to the next generation; return None if the answer has to wait."""
        member_id, instance_id, draft = request.member_id, request.group_instance_id, self.draft
        if not draft.has_room(member_id, self._config.get_int("group.max.size")):
            self._forget_pending(member_id)
            if member_id in draft.by_id:
                self._remove(member_id)
            return JoinReply(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        if not draft.supports(request):
            return JoinReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        if not member_id:
            static_id = draft.static_member_id(instance_id)
            if static_id is not None:
                return self._replace_static(static_id, request, ticket)
            if instance_id is None and request.known_member_id_required:
                return self._require_member_id(request)
            self._add(request.new_member_id, request, ticket)
            return None
        if member_id in draft.pending and instance_id is None:
            self._forget_pending(member_id)
            self._add(member_id, request, ticket)
            return None
        if code := draft.check(member_id, instance_id):
            return JoinReply(code, member_id)
        return self._join_again(draft.by_id[member_id], request, ticket)

    def _require_member_id(self, request: JoinRequest) -> JoinReply:
        """Give a new member an id and require it to rejoin with that id (KIP-394)."""
        member_id = request.new_member_id
        self.draft.pending.add(member_id)
        self.timers[PENDING, member_id] = self._now_ms + request.session_timeout_ms
        return JoinReply(ErrorCode.MEMBER_ID_REQUIRED, member_id)

    def _add(self, member_id: str, request: JoinRequest, ticket: int) -> None:
        draft = self.draft
        draft.add(member_id, request, ticket)
        draft.has_newcomer = True
        self.timers[SESSION, member_id] = self._now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS
        if not draft.is_empty:
            self.rebalance()
            return
        # The group was empty: wait for more members.
        draft.handle(Event.MEMBERS_CHANGED, self._wall_ms)
        draft.initial_delay_left_ms = max(draft.rebalance_timeout_ms(), self._initial_delay_ms)
        self._delay_initial_rebalance()

    def _join_again(self, member: Member, request: JoinRequest, ticket: int) -> JoinReply | None:
        lost_its_answer = self.draft.state is State.COMPLETING_REBALANCE
        repeats = self.draft.state is State.STABLE and member.member_id != self.draft.leader
        if member.protocols == request.protocols and (lost_its_answer or repeats):
            return self._joined(member)
        self._update(member, request, ticket)
        self.rebalance()
        return None

    def _update(self, member: Member, request: JoinRequest, ticket: int) -> Member:
        if member.join_ticket is not None:
            reply = JoinReply(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            self.completions.append((member.join_ticket, reply))
        return self.draft.put(
            member._replace(
                protocols=request.protocols,
                rebalance_timeout_ms=request.rebalance_timeout_ms,
                session_timeout_ms=request.session_timeout_ms,
                join_ticket=ticket,
            )
        )

    def _replace_static(self, old_id: str, request: JoinRequest, ticket: int) -> JoinReply | None:
        """Replace the id of a static member that rejoined; a stable group does not rebalance
        (KIP-345).
        """
        draft, old_leader = self.draft, self.draft.leader
        self.completions += draft.by_id[old_id].refused(ErrorCode.FENCED_INSTANCE_ID, old_id)
        self.timers[SESSION, old_id] = None
        member = draft.replace_static(old_id, request)
        self._restart_session(member)  # a new session timeout applies from the first heartbeat on
        member = self._update(member, request, ticket)
        if draft.state is not State.STABLE or draft.select_protocol() != draft.protocol:
            self.rebalance()
            return None
        member = draft.put(member._replace(join_ticket=None))
        if request.skips_assignment:
            reply = self._joined(member, skip_assignment=draft.leader == member.member_id)
        else:
            # A client without skip_assignment would assign if the leader id were its own. With the
            # old leader id it acts as a follower.
            reply = replace(self._joined(member), leader=old_leader or "", members=())
        self._record()
        return reply

    def _joined(self, member: Member, *, skip_assignment: bool = False) -> JoinReply:
        draft = self.draft
        leads = member.member_id == draft.leader
        return JoinReply(
            ErrorCode.NONE,
            member.member_id,
            draft.generation_id,
            draft.protocol_type,
            draft.protocol,
            draft.leader or "",
            draft.introduce() if leads else (),
            skip_assignment,
        )

    # Rebalancing ----------------------------------------------------------------------------------

    @property
    def _initial_delay_ms(self) -> int:
        return self._config.get_int("group.initial.rebalance.delay.ms")

    def _delay_initial_rebalance(self) -> None:
        """Delay the first rebalance as long as members keep joining, up to the rebalance timeout
        in all.
        """
        draft = self.draft
        left_ms = draft.initial_delay_left_ms or 0
        wait_ms = min(self._initial_delay_ms, left_ms)
        if draft.has_newcomer and wait_ms > 0:
            draft.has_newcomer = False
            draft.initial_delay_left_ms = left_ms - wait_ms
            self.timers[JOIN, ""] = self._now_ms + wait_ms
        else:
            self._complete_join()

    def rebalance(self) -> None:
        """Begin a rebalance, or complete the one in progress if all members have joined."""
        draft = self.draft
        if draft.state is not State.PREPARING_REBALANCE:
            unassigned = draft.state is State.COMPLETING_REBALANCE
            for member in draft.all():
                if unassigned and member.assignment:
                    member = draft.put(member._replace(assignment=b""))
                self._answer_sync(member, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS))
            self.timers[SYNC, ""] = None
            draft.handle(Event.MEMBERS_CHANGED, self._wall_ms)
            self.timers[JOIN, ""] = self._now_ms + draft.rebalance_timeout_ms()
        if draft.initial_delay_left_ms is None and draft.all_joined():
            self._complete_join()

    def _complete_join(self) -> None:
        """Remove dynamic members that have not joined, and begin the next generation."""
        draft = self.draft
        self.timers[JOIN, ""] = None
        draft.initial_delay_left_ms = None
        for member in draft.all():
            if member.join_ticket is None and member.group_instance_id is None:
                self._remove(member.member_id)
        if draft.by_id and not draft.elect():
            # Only static members remain and none has joined: wait for them.
            self.timers[JOIN, ""] = self._now_ms + draft.rebalance_timeout_ms()
            return
        draft.begin_generation()
        if not draft.by_id:
            draft.handle(Event.NONE_LEFT, self._wall_ms)
            self._record()
            return
        draft.handle(Event.JOINED, self._wall_ms)
        for member in draft.all():
            if member.join_ticket is not None:
                self.completions.append((member.join_ticket, self._joined(member)))
            self._restart_session(member)
        draft.expect_syncs()
        self.timers[SYNC, ""] = self._now_ms + draft.rebalance_timeout_ms()

    # Syncing and leaving --------------------------------------------------------------------------

    def sync(self, request: SyncRequest, ticket: int) -> SyncReply | None:
        """Answer a checked SyncGroup with the member's assignment; return None if it has to wait
        for the leader.
        """
        draft = self.draft
        member = draft.by_id[request.member_id]
        member = draft.put(member._replace(is_unsynced=False))
        if draft.all_synced():
            self.timers[SYNC, ""] = None
        self._restart_session(member)
        if draft.state is State.STABLE:
            return self._synced(member.assignment)
        member = self._answer_sync(member, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS))
        draft.put(member._replace(sync_ticket=ticket))
        if member.member_id == draft.leader:
            self._assign(dict(request.assignments))
        return None

    def _assign(self, assignments: Mapping[str, bytes]) -> None:
        """Apply the leader's assignment (SyncGroup) and answer all waiting members."""
        self.draft.handle(Event.ASSIGNED, self._wall_ms)
        for member in self.draft.all():
            assignment = assignments.get(member.member_id, b"")
            member = self.draft.put(member._replace(assignment=assignment))
            self._answer_sync(member, self._synced(assignment))
        self._record()

    def _synced(self, assignment: bytes) -> SyncReply:
        draft = self.draft
        return SyncReply(ErrorCode.NONE, draft.protocol_type, draft.protocol, assignment)

    def leave(self, leavers: Sequence[MemberIdentity]) -> tuple[ErrorCode, ...]:
        """Remove members; return a code for each."""
        codes = tuple(self._leave(*leaver) for leaver in leavers)
        if ErrorCode.NONE in codes and not self.draft.is_empty:
            self.rebalance()
        return codes

    def _leave(self, member_id: str, instance_id: str | None) -> ErrorCode:
        draft = self.draft
        if not member_id:
            member_id = draft.static_member_id(instance_id) or ""
        if member_id in draft.pending:
            self._forget_pending(member_id)
            return ErrorCode.NONE
        code = draft.check(member_id, instance_id)
        if not code:
            self._dismiss(member_id)
        return code

    # Time -----------------------------------------------------------------------------------------

    def expire(self, kind: str, member_id: str) -> None:
        """Handle a timer that has run out."""
        draft = self.draft
        preparing = draft.state is State.PREPARING_REBALANCE
        if kind == PENDING:
            draft.pending.discard(member_id)
            if preparing:
                self.rebalance()
        elif kind == SESSION and member_id in draft.by_id:
            member = draft.by_id[member_id]
            waits = member.join_ticket is not None or member.sync_ticket is not None
            if member.is_new or not waits:
                self._dismiss(member_id)
                self.rebalance()
        elif kind == JOIN and preparing:
            if draft.initial_delay_left_ms is not None:
                self._delay_initial_rebalance()
            else:
                self._complete_join()
        elif kind == SYNC:
            for late in draft.all():
                if late.is_unsynced:
                    self._dismiss(late.member_id)
            self.rebalance()

    # Small steps ----------------------------------------------------------------------------------

    def _restart_session(self, member: Member) -> None:
        self.timers[SESSION, member.member_id] = self._now_ms + member.session_timeout_ms

    def _dismiss(self, member_id: str) -> None:
        """Remove a member and answer its waiting requests with UNKNOWN_MEMBER_ID."""
        self.completions += self.draft.by_id[member_id].refused(ErrorCode.UNKNOWN_MEMBER_ID, "")
        self._remove(member_id)

    def _remove(self, member_id: str) -> None:
        self.draft.remove(member_id)
        self.timers[SESSION, member_id] = None

    def _forget_pending(self, member_id: str) -> None:
        self.draft.pending.discard(member_id)
        self.timers[PENDING, member_id] = None

    def _answer_sync(self, member: Member, reply: SyncReply) -> Member:
        if member.sync_ticket is None:
            return member
        self.completions.append((member.sync_ticket, reply))
        self._restart_session(member)
        return self.draft.put(member._replace(sync_ticket=None))

    def _record(self) -> None:
        """Record the current generation."""
        generation = self.draft.generation()
        self.draft.restore(generation)
        self.records = (GroupMetadata(self._group_id, generation),)
