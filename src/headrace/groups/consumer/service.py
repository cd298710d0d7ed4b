"""Commands to consumer groups, and conversion to and from classic groups (KIP-848)."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from headrace.groups.classic.group import ClassicGroup
from headrace.groups.deadlines import (
    JOIN,
    PENDING,
    REJOIN,
    RESYNC,
    SESSION,
    SYNC,
    GroupDeadlines,
    TimerChanges,
)
from headrace.groups.heartbeats.service import HeartbeatService
from headrace.groups.heartbeats.transition import Context
from headrace.groups.records import GroupMetadata, GroupOutcome, GroupRecord
from headrace.groups.settings import ConsumerSettings
from headrace.outcome import Completion, Outcome
from headrace.protocol.errors import Refusal

from .group import ConsumerGroup
from .member import ConsumerHeartbeat, ConsumerHeartbeatReply
from .migration import check_upgrade, downgraded, downgrades, told_to_rejoin, upgraded
from .state import ConsumerState


class ConsumerGroupService(
    HeartbeatService[ConsumerGroup, ConsumerHeartbeat, ConsumerHeartbeatReply, ConsumerSettings]
):
    """Commands to consumer groups; :mod:`.classic_members` has those of classic members."""

    kind = ConsumerGroup
    settings_type = ConsumerSettings

    def unresolved_regex(self, group_id: str, request: ConsumerHeartbeat) -> str | None:
        """Return the regular expression that a heartbeat needs matched with the topics; None for
        nearly all. The heartbeat has the result in its ``regex_match``; without it, the member gets
        the partitions with a later heartbeat.
        """
        if request.leaves:
            return None
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group.unresolved_regex(request, self.catalog.version)
        return request.subscribed_topic_regex or None

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
