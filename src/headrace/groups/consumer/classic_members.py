"""Members of the classic protocol in a consumer group (KIP-848): JoinGroup, SyncGroup, Heartbeat,
LeaveGroup.

A classic member is never the leader. JoinGroup returns at once, with the member epoch as the
generation; SyncGroup returns the partitions that the member may read. Heartbeat returns
REBALANCE_IN_PROGRESS when the assignment changes: there is a new target assignment, the member has
to revoke partitions, or partitions that it waits for are free.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from headrace.groups.classic.member import (
    JoinReply,
    JoinRequest,
    LeaveReply,
    MemberIdentity,
    SyncReply,
    SyncRequest,
)
from headrace.groups.deadlines import REJOIN, RESYNC, SESSION, TimerChanges
from headrace.groups.heartbeats.group import Context
from headrace.groups.records import (
    ClassicMember,
    GroupOutcome,
    MemberState,
    each,
)
from headrace.outcome import Outcome
from headrace.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    by_topic,
    read_subscription,
    subscription_version,
    write_assignment,
)
from headrace.protocol.errors import ErrorCode

from .group import ConsumerGroup, ConsumerGroupService, MemberTransition
from .member import ClassicJoin
from .migration import downgraded, downgrades, migration_policy, named


class ClassicMembers:
    """The classic protocol in a consumer group that has members."""

    def __init__(self, service: ConsumerGroupService, group: ConsumerGroup) -> None:
        self._service, self._group = service, group

    # Joining --------------------------------------------------------------------------------------

    def join(
        self, request: JoinRequest, ticket: int, now_ms: int, wall_ms: int
    ) -> GroupOutcome[JoinReply | None]:
        """Join or rejoin a member (JoinGroup). If it replaces the last member of the consumer
        protocol, the group becomes classic.
        """
        group, state = self._group, self._group.state
        context = Context(self._service.catalog, now_ms, wall_ms)
        owner = group.owner(request.group_instance_id)
        is_last = (
            owner is not None
            and owner not in state.classic_members
            and downgrades(state, (owner,), group.config, joining=1)
        )
        outcome = self._service.counted(self._join(request, context, assigns=not is_last))
        if not is_last or outcome.reply.code:
            return outcome
        after = state.after(outcome.records)
        rebalances = after.epoch > after.target_epoch.epoch
        if rebalances:
            outcome = outcome.then(partial(self._service.rebalance, group.group_id, context))
        records = downgraded(after, (), context, state.epoch, rebalances=rebalances)
        return outcome._replace(records=(*outcome.records, *records))

    def _join(
        self, request: JoinRequest, context: Context, *, assigns: bool
    ) -> GroupOutcome[JoinReply]:
        """Decide a JoinGroup as the consumer group that the group is.

        :param assigns: see :class:`~headrace.groups.consumer.member.ClassicJoin`
        """
        group, now_ms = self._group, context.now_ms
        if code := self._check_join(request):
            return Outcome(JoinReply(code, ""))
        instance_id, is_new = request.group_instance_id, not request.member_id
        is_static = instance_id is not None
        if is_new and not is_static and request.known_member_id_required:
            return Outcome(JoinReply(ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id))
        protocol, metadata = request.protocols[0]
        try:
            subscription = read_subscription(metadata)
        except ValueError:
            return Outcome(JoinReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ""))
        member_id = request.member_id or request.new_member_id
        if is_static and not is_new and (refusal := group.check_member(member_id, instance_id)):
            return Outcome(JoinReply(refusal.code, ""))
        owner = group.owner(instance_id) if is_new else None
        topics = context.catalog.topics
        owned = {
            topics[name].topic_id: frozenset(partitions)
            for name, partitions in by_topic(subscription.owned_partitions).items()
            if name in topics
        }
        join = ClassicJoin(member_id, request, subscription, owned, assigns)
        transition = MemberTransition(group, join, context, owner)
        refusal = transition.run()
        assert refusal is None, "a classic member has no regular expression"
        timers = group.timer_changes(transition, request.session_timeout_ms)
        timers[REJOIN, member_id] = None
        timers[RESYNC, member_id] = now_ms + request.rebalance_timeout_ms
        epoch = transition.now.member_epoch
        reply = JoinReply(ErrorCode.NONE, member_id, epoch, PROTOCOL_TYPE, protocol, leader="")
        apply = partial(group.apply, transition, timers)
        return Outcome(reply, tuple(transition.records), apply=apply)

    def _check_join(self, request: JoinRequest) -> ErrorCode:
        """Return the error of a JoinGroup that does not depend on its subscription, or NONE."""
        state = self._group.state
        if refusal := self._group.check_room(request.member_id):
            return refusal.code
        shared, classic = state.classic_protocols, len(state.classic_members)
        supports = any(shared[name] == classic for name, _ in request.protocols)
        is_mixed = migration_policy(self._group.config) != "disabled"
        if not is_mixed or request.protocol_type != PROTOCOL_TYPE or not supports:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    # Staying --------------------------------------------------------------------------------------

    def sync(
        self, request: SyncRequest, ticket: int, now_ms: int, wall_ms: int
    ) -> GroupOutcome[SyncReply | None]:
        """Return the partitions that a joined member may read (SyncGroup)."""
        group, member_id = self._group, request.member_id
        classic = self._member(member_id, request.group_instance_id, request.generation_id)
        if isinstance(classic, ErrorCode):
            return Outcome(SyncReply(classic))
        current = group.state.current[member_id]
        protocol = classic.supported_protocols[0]
        agreed = (PROTOCOL_TYPE, protocol.name)
        if (request.protocol_type or PROTOCOL_TYPE, request.protocol or protocol.name) != agreed:
            return Outcome(SyncReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        timers: TimerChanges
        if (
            group.state.target_epoch.epoch > current.member_epoch
            and current.state is not MemberState.UNREVOKED
        ):
            timers = self._rejoin_timer(member_id, now_ms)
            reply = SyncReply(ErrorCode.REBALANCE_IN_PROGRESS)
            return Outcome(reply, apply=partial(group.timers.apply, timers))
        timers = {
            (RESYNC, member_id): None,
            (SESSION, member_id): now_ms + classic.session_timeout_ms,
        }
        partitions = named(current.assigned, self._service.catalog)
        assignment = write_assignment(subscription_version(protocol.metadata), partitions)
        reply = SyncReply(ErrorCode.NONE, request.protocol_type, request.protocol, assignment)
        return Outcome(reply, apply=partial(group.timers.apply, timers))

    def heartbeat(
        self, member: MemberIdentity, generation_id: int, now_ms: int
    ) -> GroupOutcome[ErrorCode]:
        """Extend a member's session (Heartbeat); return REBALANCE_IN_PROGRESS if it must rejoin."""
        group, member_id = self._group, member.member_id
        classic = self._member(*member, generation_id)
        if isinstance(classic, ErrorCode):
            return Outcome(classic)
        timers: TimerChanges = {(SESSION, member_id): now_ms + classic.session_timeout_ms}
        code = ErrorCode.NONE
        if self._must_rejoin(member_id):
            code = ErrorCode.REBALANCE_IN_PROGRESS
            timers |= self._rejoin_timer(member_id, now_ms)
        return Outcome(code, apply=partial(group.timers.apply, timers))

    def _must_rejoin(self, member_id: str) -> bool:
        """Return whether there is a newer target assignment, or the member has partitions to
        revoke, or all partitions that it waits for are free.
        """
        state = self._group.state
        current = state.current[member_id]
        if current.member_epoch < state.target_epoch.epoch:
            return True
        if current.state is not MemberState.UNRELEASED:
            return current.state is MemberState.UNREVOKED
        return not any(
            number not in current.assigned.get(topic_id, {}) and not state.is_free(topic_id, number)
            for topic_id, number in each(state.target.get(member_id, {}))
        )

    def _rejoin_timer(self, member_id: str, now_ms: int) -> TimerChanges:
        """Return the rebalance timeout of a member that must rejoin; nothing if it runs already."""
        if self._group.timers.has(REJOIN, member_id):
            return {}
        member = self._group.state.members[member_id]
        return {(REJOIN, member_id): now_ms + member.rebalance_timeout_ms}

    def _member(
        self, member_id: str, instance_id: str | None, generation_id: int
    ) -> ClassicMember | ErrorCode:
        """Return what only a classic member has, or the error if it is none, or not of this
        generation.
        """
        state = self._group.state
        if refusal := self._group.check_member(member_id, instance_id):
            return refusal.code
        classic = state.members[member_id].classic_member_metadata
        if classic is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        is_current = generation_id == state.current[member_id].member_epoch
        return classic if is_current else ErrorCode.ILLEGAL_GENERATION

    # Leaving --------------------------------------------------------------------------------------

    def leave(
        self, leavers: Sequence[MemberIdentity], now_ms: int, wall_ms: int
    ) -> GroupOutcome[LeaveReply]:
        """Remove members of either protocol (LeaveGroup); the reply has a code for each."""
        group, codes = self._group, []
        leaving: dict[str, None] = {}  # an ordered set: a member may be named twice
        for named_id, instance_id in leavers:
            member_id = named_id or group.owner(instance_id) or ""
            refusal = group.check_member(member_id, instance_id)
            if refusal is None:
                leaving[member_id] = None
            codes.append(ErrorCode.NONE if refusal is None else refusal.code)
        if not leaving:
            return Outcome(tuple(codes))
        context = Context(self._service.catalog, now_ms, wall_ms)
        return self._service.remove(group, tuple(leaving), context).with_reply(tuple(codes))
