"""A group whose members send one request, the heartbeat: its checks, timers and answers.

Nearly all heartbeats change nothing. A member repeats the same one until its group changes. If
neither the group nor topics nor configs have changed since a heartbeat without effect, the next
equal one has the same reply: nothing is decided again, it only restarts the member's session.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from headrace.deadlines import Deadlines
from headrace.groups.catalog import TopicCatalog
from headrace.groups.deadlines import REVOKE, SESSION, GroupDeadlines, TimerChanges, TimerKey
from headrace.groups.records import (
    AssignmentEpoch,
    CommittedOffset,
    GroupOutcome,
    GroupRecord,
    MemberState,
    OffsetCommit,
)
from headrace.outcome import Apply, Outcome
from headrace.protocol.configuration import Configuration
from headrace.protocol.errors import ErrorCode, Refusal

from .member import STATIC_LEAVE_EPOCH, Heartbeat, HeartbeatReply
from .state import HeartbeatState

StateT = TypeVar("StateT", bound=HeartbeatState[Any, Any, Any, Any])
RequestT = TypeVar("RequestT", bound=Heartbeat)


class Context(NamedTuple):
    """What a decision depends on beside the group and the request.

    :param now_ms: the steady time of timers
    :param wall_ms: the epoch time of records
    """

    catalog: TopicCatalog
    now_ms: int
    wall_ms: int


class HeartbeatTransition(Generic[StateT]):
    """The transition of an accepted member. Changes nothing; collects records, in the order in
    which Kafka writes them: the member, the group epoch, the target assignment, the member's
    current assignment.

    A kind of groups says when the group needs a new epoch, how it assigns, and how the assignment
    of a member follows its target.

    :param owner: the static member that has come back with another id, or with its own; None for a
        new one, and for one that stays
    :ivar state: of the group, or as it is after the static member has come back
    :ivar former: the member before
    :ivar member: the member with the changes of this heartbeat
    :ivar records: to append, in order
    :ivar was: the member's assignment before
    :ivar now: the member's assignment after
    """

    def __init__(self, group: Any, request: Any, context: Context, owner: str | None) -> None:
        self.group, self.request, self.context = group, request, context
        self.catalog = context.catalog
        self.member_id = member_id = request.member_id
        self.records: list[GroupRecord] = []
        state: StateT = group.state
        if owner is not None:
            self.records += state.replacement(owner, member_id)
            state = state.after(self.records)
        self.state = state
        self.former = state.members.get(member_id) or state.no_member
        self.member = request.member(self.former)
        self.was = self.now = state.current.get(member_id, state.no_current)
        self.epoch = state.group_epoch
        self.target_epoch = state.target_epoch
        self.target = state.target.get(member_id, state.no_target)

    def run(self) -> Refusal | None:
        """Decide the transition.

        :returns: the error of a heartbeat that the group refuses
        """
        state, types = self.state, self.state.records
        if self.member != state.members.get(self.member_id):
            self.records.append(types.member(state.group_id, self.member_id, self.member))
        if refusal := self._prepare():
            return refusal
        epoch = self._next_epoch()
        if epoch is not None:
            self.epoch = epoch
            self.records.append(types.group(state.group_id, epoch))
        if self._assigns():
            target = self._assign()
            self.target = target.get(self.member_id, state.no_target)
            self.target_epoch = AssignmentEpoch(self.epoch.epoch, self.context.wall_ms)
            self.records += state.retarget(target, self.target_epoch)
        self.now = self._reconcile()
        if self.now != self.was:
            self.records.append(types.current(state.group_id, self.member_id, self.now))
        return None

    @property
    def is_settled(self) -> bool:
        """True if the member has its target assignment, and the group needs no other one."""
        return (
            self.now.state is MemberState.STABLE
            and self.now.member_epoch == self.target_epoch.epoch == self.epoch.epoch
        )

    @property
    def members(self) -> dict[str, Any]:
        """All members, with the changes of this heartbeat."""
        return {**self.state.members, self.member_id: self.member}

    def _is_due(self) -> bool:
        """Return whether the interval between two target assignments has passed."""
        age_ms = self.context.wall_ms - self.target_epoch.timestamp_ms
        # The wall clock may have been set back since.
        return not 0 <= age_ms < self.group.number("assignment.interval.ms")

    def _assigns(self) -> bool:
        """Return whether the group needs a target assignment, and may compute it now."""
        return self.epoch.epoch > self.target_epoch.epoch and self._is_due()

    # The policy of a kind of groups ---------------------------------------------------------------

    def _prepare(self) -> Refusal | None:
        """Check and take what the member brings beside its own fields."""
        return None

    def _next_epoch(self) -> Any:
        """Return the group epoch that this heartbeat begins, None if it begins none."""
        raise NotImplementedError

    def _assign(self) -> Mapping[str, Any]:
        """Return a target assignment for each member."""
        raise NotImplementedError

    def _reconcile(self) -> Any:
        """Return the member's next assignment."""
        raise NotImplementedError


ReplyT = TypeVar("ReplyT", bound=HeartbeatReply[Any])


class HeartbeatGroup(Generic[StateT, RequestT, ReplyT]):
    """One group. Commands decide and change nothing; :meth:`replay` applies their records.

    A kind of groups says which heartbeats it accepts, and what the answer tells.

    :cvar type_name: Kafka's name for the kind of groups
    :cvar member_timers: the kinds of timers that remove their member when they run out
    :cvar becomes_classic: an empty group becomes classic when a classic member joins
    :cvar earlier_epoch_detail: the end of the reason to refuse an earlier epoch than the previous
    :param config: the configuration, read whenever a value is needed
    :ivar state: the durable state
    :ivar timers: the timers of the members
    :ivar steady: the last heartbeat of each member that had no effect, with the version of topics
        and configs, its reply and the session timeout
    """

    type_name: ClassVar[str]
    member_timers: ClassVar[tuple[str, ...]] = (SESSION, REVOKE)
    becomes_classic: ClassVar[bool] = True
    earlier_epoch_detail: ClassVar[str] = ""
    state_type: type[StateT]
    transition_type: type[HeartbeatTransition[StateT]]

    def __init__(self, group_id: str, timers: Deadlines[TimerKey], config: Configuration) -> None:
        self.group_id, self.config = group_id, config
        self.state = self.state_type(group_id)
        self.timers = GroupDeadlines(timers, group_id)
        self.steady: dict[str, tuple[RequestT, int, ReplyT | Refusal, int]] = {}

    def number(self, name: str) -> int:
        """Return a config of the group by its name without the kind: ``session.timeout.ms``."""
        return self.config.group_int(self.group_id, f"{self.type_name}.{name}")

    @property
    def protocol_type(self) -> str:
        """The protocol type of the members: the name of the kind."""
        return self.type_name

    @property
    def state_name(self) -> str:
        """Kafka's name for the state of the group."""
        return self.state.state_name

    @property
    def is_empty(self) -> bool:
        """True if the group has no members."""
        return not self.state.members

    # Joining and staying --------------------------------------------------------------------------

    def heartbeat(self, request: RequestT, context: Context) -> GroupOutcome[ReplyT | Refusal]:
        """Join or keep a member, and return its assignment."""
        if refusal := self.check(request):
            return Outcome(refusal)
        owner = self.owner(request.instance_id) if request.joins else None
        transition = self.transition_type(self, request, context, owner)
        if refusal := transition.run():
            return Outcome(refusal)
        session_timeout_ms = self.number("session.timeout.ms")
        timers = self.timer_changes(transition, session_timeout_ms)
        if owner is not None and owner != request.member_id:
            # its id has gone with the replacement
            timers.update({(kind, owner): None for kind in self.member_timers})
        reply, apply = self._answer(request, transition, timers)
        outcome: GroupOutcome[ReplyT | Refusal] = Outcome(
            reply, tuple(transition.records), apply=apply
        )
        if outcome.records or request.member_epoch != reply.member_epoch:
            return outcome
        if not transition.is_settled:
            return outcome  # an equal heartbeat may have another answer as time passes
        last = request, context.catalog.version, reply, session_timeout_ms
        return outcome.then(partial(self.steady.__setitem__, request.member_id, last))

    def repeat(
        self, request: RequestT, version: int, now_ms: int
    ) -> GroupOutcome[ReplyT | Refusal] | None:
        """Return the outcome of a heartbeat that equals the one before; None if it has to be
        decided.

        :param version: the version of topics and configs
        """
        last = self.steady.get(request.member_id)
        if last is None or last[1] != version or last[0] != request:
            return None
        _, _, reply, session_timeout_ms = last
        deadline_ms = now_ms + session_timeout_ms
        restart = partial(self.timers.set, SESSION, request.member_id, deadline_ms)
        return Outcome(reply, apply=restart)

    def timer_changes(self, transition: Any, session_timeout_ms: int) -> TimerChanges:
        """Restart a member's session; start or cancel its rebalance timeout."""
        member_id = transition.member_id
        member, now, now_ms = transition.member, transition.now, transition.context.now_ms
        timers: TimerChanges = {(SESSION, member_id): now_ms + session_timeout_ms}
        if now.state is not MemberState.UNREVOKED:
            timers[REVOKE, member_id] = None
        # The timeout runs from the first answer that asks for the revocation.
        elif now is not transition.was and _classic(member) is None:
            timers[REVOKE, member_id] = now_ms + member.rebalance_timeout_ms
        return timers

    def check(self, request: RequestT) -> Refusal | None:
        """Return the error if the group refuses a heartbeat, or None."""
        member_id, instance_id = request.member_id, request.instance_id
        owner = self.owner(instance_id)
        if self._needs_room(request, owner) and (refusal := self.check_room(member_id)):
            return refusal
        if request.joins:
            if owner is None or self._is_released(owner):
                return None
            return Refusal(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group "
                f"because the instance id is owned by {owner} member.",
            )
        refusal = self.check_member(member_id, instance_id)
        return refusal or self._check_epoch(request, self.state.current[member_id])

    def check_member(self, member_id: str, instance_id: str | None) -> Refusal | None:
        """Return the error if the group does not have the member, or another one has its instance
        id.
        """
        owner = member_id if instance_id is None else self.owner(instance_id)
        if owner is None:
            return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if owner not in self.state.members:
            return Refusal(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        if owner != member_id:
            return Refusal(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member "
                f"{owner}.",
            )
        return None

    def check_room(self, member_id: str) -> Refusal | None:
        """Return the error if the group is full and the member is new."""
        max_size = self.config.get_int(f"group.{self.type_name}.max.size")
        if len(self.state.members) < max_size or member_id in self.state.members:
            return None
        return Refusal(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The {self.type_name} group has reached its maximum capacity of {max_size} members.",
        )

    def owner(self, instance_id: str | None) -> str | None:
        """Return the id of a static member, or None."""
        return None if instance_id is None else self.state.static_members.get(instance_id)

    def _is_released(self, owner: str) -> bool:
        """Return whether another member may take the instance id of this one."""
        return bool(self.state.current[owner].member_epoch == STATIC_LEAVE_EPOCH)

    def _check_epoch(self, request: RequestT, current: Any) -> Refusal | None:
        epoch, previous = request.member_epoch, current.previous_member_epoch
        if epoch == current.member_epoch:
            return None
        is_earlier, more = epoch < current.member_epoch, ""
        if is_earlier:
            if epoch == previous and self._may_repeat(request, current):
                return None  # the answer to its last heartbeat was lost
            more = self.earlier_epoch_detail.format(previous)
        return Refusal(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The {self.type_name} group member has a {'smaller' if is_earlier else 'greater'} "
            f"member epoch ({epoch}) than the one known by the group coordinator "
            f"({current.member_epoch}){more}. The member must abandon all its partitions and "
            f"rejoin.",
        )

    # The policy of a kind of groups ---------------------------------------------------------------

    def _needs_room(self, request: RequestT, owner: str | None) -> bool:
        """Return whether a heartbeat is refused if the group is full and its member is new."""
        return True

    def _may_repeat(self, request: RequestT, current: Any) -> bool:
        """Return whether a member may repeat its last heartbeat with the previous epoch."""
        return True

    def _answer(
        self, request: RequestT, transition: Any, timers: TimerChanges
    ) -> tuple[Any, Apply]:
        """Return the answer to a heartbeat, and its volatile changes."""
        was, now = transition.was, transition.now
        tells = request.asks_assignment or was.assigned != now.assigned
        interval_ms = self.number("heartbeat.interval.ms")
        assigned = now.assigned if tells else None
        reply = HeartbeatReply(request.member_id, now.member_epoch, interval_ms, assigned)
        return reply, partial(self.apply, transition, timers)

    def apply(self, transition: Any, timers: TimerChanges) -> None:
        """Apply the volatile changes of a member's transition."""
        self.timers.apply(timers)

    def _paused(self, current: Any) -> Any:
        """Return the assignment of a static member that leaves temporarily."""
        nothing = self.state.no_current.pending_revocation
        return replace(current, member_epoch=STATIC_LEAVE_EPOCH, pending_revocation=nothing)

    def _assignment_epoch(self, held: Any, commit: OffsetCommit) -> int | None:
        """Return the epoch of the assignment of a partition that is committed; None if it is not
        among these partitions, or the tasks do not read it.
        """
        raise NotImplementedError

    def is_subscribed(self, topic: str) -> bool:
        """Return whether the group reads a topic."""
        raise NotImplementedError

    # Leaving --------------------------------------------------------------------------------------

    def pause(self, member_id: str) -> GroupOutcome[None]:
        """Let a static member leave temporarily; it keeps its assignment until its session ends."""
        paused = self._paused(self.state.current[member_id])
        record = self.state.records.current(self.group_id, member_id, paused)
        timers: TimerChanges = {(REVOKE, member_id): None}
        return Outcome(None, (record,), apply=partial(self.timers.apply, timers))

    def remove(self, member_ids: Collection[str], context: Context) -> GroupOutcome[None]:
        """Remove members. Others get what they had with later heartbeats."""
        state = self.state
        epoch = state.epoch_without(member_ids, context.catalog)
        records: list[GroupRecord] = [
            *state.removal(member_ids),
            *state.orphans(member_ids),
            state.records.group(self.group_id, epoch),
        ]
        if len(member_ids) == len(state.members):
            # No member is left to assign anything to; the next does not wait for the interval.
            target_epoch = AssignmentEpoch(epoch.epoch, 0)
            records.append(state.records.target_epoch(self.group_id, target_epoch))
        timers: TimerChanges = {
            (kind, member_id): None for member_id in member_ids for kind in self.member_timers
        }
        return Outcome(None, tuple(records), apply=partial(self.timers.apply, timers))

    def start_sessions(self, now_ms: int) -> None:
        """Start the sessions and rebalance timeouts of all members after a restart."""
        self.state.complete_members()
        session_timeout_ms = self.number("session.timeout.ms")
        for member_id, member in self.state.members.items():
            classic = _classic(member)
            timeout_ms = session_timeout_ms if classic is None else classic.session_timeout_ms
            self.timers.set(SESSION, member_id, now_ms + timeout_ms)
            is_revoking = self.state.current[member_id].state is MemberState.UNREVOKED
            if classic is None and is_revoking:
                self.timers.set(REVOKE, member_id, now_ms + member.rebalance_timeout_ms)

    def tombstones(self) -> tuple[GroupRecord, ...]:
        """Return the records that delete the group, except its offsets and share state."""
        return tuple(self.state.tombstones())

    def replay(self, record: GroupRecord) -> None:
        """Apply one durable record of this group."""
        self.state.replay(record)
        self.steady.clear()

    # Committed offsets, which share groups do not have --------------------------------------------

    def check_commit(
        self,
        member_id: str,
        member_epoch: int,
        commits: Sequence[OffsetCommit],
        *,
        knows_epochs: bool,
    ) -> ErrorCode:
        """Return the error if these offsets may not be committed, or NONE.

        A member may commit with an earlier epoch if it has held all partitions, or has run the
        tasks that read them, since then (KIP-1251).

        :param knows_epochs: the request version supports member epochs (OffsetCommit 9 and later)
        """
        if member_epoch < 0 and self.is_empty:
            return ErrorCode.NONE
        code = self._check_offset_epoch(member_id, member_epoch)
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            return code
        if not knows_epochs and member_id not in self.state.classic_members:
            return ErrorCode.UNSUPPORTED_VERSION
        if not code:
            return code
        current = self.state.current[member_id]
        if member_epoch > current.member_epoch:
            return code
        held = current.assigned, current.pending_revocation
        for commit in commits:
            epochs = [self._assignment_epoch(partitions, commit) for partitions in held]
            if not any(epoch is not None and epoch <= member_epoch for epoch in epochs):
                return code
        return ErrorCode.NONE

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Return the error if a member may not fetch offsets, or NONE. The id may be None."""
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        return self._check_offset_epoch(member_id or "", member_epoch)

    def _check_offset_epoch(self, member_id: str, member_epoch: int) -> ErrorCode:
        current = self.state.current.get(member_id)
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_epoch == current.member_epoch:
            return ErrorCode.NONE
        is_classic = member_id in self.state.classic_members
        return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH

    def check_offset_delete(self) -> ErrorCode:
        """Return the error if no offsets of the group may be deleted, or NONE (KIP-496).

        Those of topics that :meth:`is_subscribed` names are kept in any case.
        """
        return ErrorCode.NONE

    def retention_starts_ms(self, committed: CommittedOffset) -> int | None:
        """Return when the retention of an offset began, in epoch milliseconds: with its commit."""
        return committed.commit_timestamp_ms


def _classic(member: Any) -> Any:
    """Return what only a classic member has: its session timeout and protocols. It has other timers
    for its part in a rebalance.
    """
    return getattr(member, "classic_member_metadata", None)
