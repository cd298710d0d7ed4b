"""A consumer group (KIP-848, docs/behaviour/groups.md).

A heartbeat has the member's subscription and the partitions that the member holds; the answer has
the partitions that the member may read. Members of the classic protocol may also join:
:mod:`headrace.groups.consumer.classic_members`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial

from headrace.groups.classic.group import ClassicGroup
from headrace.groups.deadlines import (
    JOIN,
    PENDING,
    REJOIN,
    RESYNC,
    REVOKE,
    SESSION,
    SYNC,
    GroupDeadlines,
    TimerChanges,
)
from headrace.groups.heartbeats.group import Context, HeartbeatGroup
from headrace.groups.heartbeats.member import STATIC_LEAVE_EPOCH
from headrace.groups.heartbeats.service import HeartbeatService
from headrace.groups.records import (
    ConsumerAssignment,
    ConsumerMember,
    GroupMetadata,
    GroupOutcome,
    GroupRecord,
    OffsetCommit,
)
from headrace.groups.settings import ConsumerSettings
from headrace.outcome import Completion, Outcome
from headrace.protocol.errors import Refusal

from .member import ConsumerHeartbeat, ConsumerHeartbeatReply
from .migration import check_upgrade, downgraded, downgrades, told_to_rejoin, upgraded
from .reconciliation import holds_only
from .state import ConsumerState
from .transition import MemberTransition


class ConsumerGroup(
    HeartbeatGroup[
        ConsumerState,
        ConsumerHeartbeat,
        ConsumerHeartbeatReply,
        ConsumerSettings,
        MemberTransition,
    ]
):
    """One consumer group. Commands decide and change nothing; :meth:`replay` applies their
    records.
    """

    type_name = "consumer"
    member_timers = (SESSION, REVOKE, REJOIN, RESYNC)
    state_type = ConsumerState

    def _transition(
        self, state: ConsumerState, request: ConsumerHeartbeat, context: Context[ConsumerSettings]
    ) -> MemberTransition:
        member = request.member(state.members.get(request.member_id) or ConsumerMember())
        return MemberTransition(
            state,
            request.member_id,
            member,
            request.owned,
            context,
            regex_match=request.regex_match,
            may_see=request.may_see,
        )

    def apply(self, transition: MemberTransition, timers: TimerChanges) -> None:
        """Apply the volatile changes of a member's transition."""
        super().apply(transition, timers)
        regex, version = transition.member.subscribed_topic_regex, transition.resolved_version
        if version is not None and regex in self.state.regexes:
            self.state.resolved_versions[regex] = version

    def _is_released(self, owner: str) -> bool:
        return owner in self.state.classic_members or super()._is_released(owner)

    def _may_repeat(self, request: ConsumerHeartbeat, current: ConsumerAssignment) -> bool:
        return holds_only(request.owned, current.assigned)

    def _paused(self, current: ConsumerAssignment) -> ConsumerAssignment:
        return replace(current, member_epoch=STATIC_LEAVE_EPOCH, pending_revocation={})

    # Committed offsets ----------------------------------------------------------------------------

    def is_subscribed(self, topic: str) -> bool:
        """Return whether a member is subscribed to a topic, by name or by regular expression."""
        return topic in self.state.subscribed

    def _held_since(self, current: ConsumerAssignment, commit: OffsetCommit, epoch: int) -> bool:
        _, _, partition, value = commit
        if value is None or value.topic_id is None:
            return False
        epochs = (
            held.get(value.topic_id, {}).get(partition)
            for held in (current.assigned, current.pending_revocation)
        )
        return any(since is not None and since <= epoch for since in epochs)


class ConsumerGroupService(
    HeartbeatService[ConsumerGroup, ConsumerHeartbeat, ConsumerHeartbeatReply, ConsumerSettings]
):
    """Commands to consumer groups; :mod:`.classic_members` has those of classic members."""

    kind = ConsumerGroup
    record_types = ConsumerState.records.all()
    settings_type = ConsumerSettings

    def unresolved_regex(self, group_id: str, request: ConsumerHeartbeat) -> str | None:
        """Return the regular expression that a heartbeat needs matched with the topics; None for
        nearly all. The heartbeat has the result in its ``regex_match``; without it, the member gets
        the partitions with a later heartbeat.
        """
        if request.leaves:
            return None
        group, regex = self._groups.get(group_id), request.subscribed_topic_regex
        if not isinstance(group, ConsumerGroup):
            return regex or None
        state = group.state
        if regex is None:
            owner = group.owner(request.group_instance_id) or ""
            member = state.members.get(request.member_id) or state.members.get(owner)
            regex = "" if member is None else member.subscribed_topic_regex
        is_resolved = state.resolved_versions.get(regex) == self.catalog.version
        return None if is_resolved else regex or None

    def _take_over(
        self, classic: ClassicGroup, request: ConsumerHeartbeat, context: Context[ConsumerSettings]
    ) -> GroupOutcome[ConsumerHeartbeatReply | Refusal]:
        """Turn a classic group into a consumer group and join a member of the consumer protocol."""
        group_id, now_ms = classic.group_id, context.now_ms
        converted: tuple[GroupRecord, ...] = (GroupMetadata(group_id, None),)
        completions: tuple[Completion, ...] = ()
        state = ConsumerState(group_id)
        if not classic.is_empty:
            refusal = check_upgrade(classic, context.settings)
            records = upgraded(classic, self.catalog) if refusal is None else refusal
            if isinstance(records, Refusal):
                return Outcome(records)
            state, converted = state.after(records), (*converted, *records)
            completions = tuple(told_to_rejoin(classic))
        outcome = ConsumerGroup(group_id, self._timers, state).heartbeat(request, context)
        if isinstance(outcome.reply, Refusal):
            return outcome
        timers = TimerChanges(GroupDeadlines(self._timers, group_id))
        timers.cancel(JOIN)
        timers.cancel(SYNC)
        for member_id in classic.members.pending:
            timers.cancel(PENDING, member_id)
        for member in classic.members.all():
            timers.set(SESSION, member.member_id, now_ms + member.session_timeout_ms)
            for kind in (REJOIN, RESYNC):  # set before the group became classic
                timers.cancel(kind, member.member_id)
        upgraded_outcome = outcome._replace(
            records=(*converted, *outcome.records), completions=completions
        )
        return upgraded_outcome.then(timers.apply)

    def remove(
        self, group: ConsumerGroup, member_ids: Collection[str], context: Context[ConsumerSettings]
    ) -> GroupOutcome[None]:
        """Remove members. If only classic members remain, the group becomes classic and
        rebalances.
        """
        state = group.state
        if not downgrades(state, member_ids, context.settings):
            return super().remove(group, member_ids, context)
        records = downgraded(state, member_ids, context, state.epoch, rebalances=True)
        return Outcome(None, records, apply=partial(self.rebalance, group.group_id, context))

    def rebalance(self, group_id: str, context: Context[ConsumerSettings]) -> None:
        """Begin a rebalance of a group that has become classic."""
        group = self._groups[group_id]
        assert isinstance(group, ClassicGroup)
        group.rebalance(context.now_ms, context.wall_ms)
