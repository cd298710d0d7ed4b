"""Commands to consumer groups, and conversion to and from classic groups (KIP-848)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TypeVar

from headrace.deadlines import Deadlines
from headrace.errors import ErrorCode, Refusal
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.classic.member import (
    JoinReply,
    JoinRequest,
    LeaveReply,
    MemberIdentity,
    SyncReply,
    SyncRequest,
)
from headrace.groups.deadlines import (
    JOIN,
    PENDING,
    REJOIN,
    RESYNC,
    SESSION,
    SYNC,
    GroupDeadlines,
    TimerChanges,
    TimerKey,
)
from headrace.groups.kinds import Group, group_of_kind, wrong_kind
from headrace.groups.meters import GroupMeters
from headrace.groups.records import ConsumerGroupMetadata, GroupMetadata, GroupRecord
from headrace.groups.settings import Configuration, ConsumerSettings, TopicCatalog
from headrace.outcome import Completion, Outcome

from . import classic_members
from .group import ConsumerGroup
from .member import JOIN_EPOCH, STATIC_LEAVE_EPOCH, ConsumerHeartbeat, ConsumerHeartbeatReply
from .migration import (
    check_upgrade,
    downgraded,
    downgrades,
    replaces_last,
    told_to_rejoin,
    upgraded,
)
from .state import ConsumerState

R = TypeVar("R")


class ConsumerGroupService:
    """Commands to consumer groups. They decide; the coordinator replays their records.

    ``now_ms`` is the steady time of timers, ``wall_ms`` the epoch time of records.

    :param groups: all groups by id
    """

    def __init__(
        self,
        groups: Mapping[str, Group],
        config: Configuration,
        catalog: TopicCatalog,
        timers: Deadlines[TimerKey],
        meters: GroupMeters,
    ) -> None:
        self._groups, self._config, self._catalog = groups, config, catalog
        self._timers, self._meters = timers, meters

    def settings(self, group_id: str) -> ConsumerSettings:
        """Return the settings of a group, as configured now."""
        return ConsumerSettings.of(self._config, group_id)

    # The consumer protocol ------------------------------------------------------------------------

    def heartbeat(
        self, group_id: str, request: ConsumerHeartbeat, now_ms: int, wall_ms: int
    ) -> Outcome[GroupRecord, ConsumerHeartbeatReply | Refusal]:
        """Join, keep or remove a member (ConsumerGroupHeartbeat)."""
        known = self._groups.get(group_id)
        if isinstance(known, ConsumerGroup):
            repeated = known.steady.repeat(request, self._catalog.version, now_ms)
            if repeated is not None:
                return repeated
        settings = self.settings(group_id)
        refusal = request.check(group_id, settings.assignors)
        if refusal is not None:
            return Outcome(refusal)
        if request.leaves:
            return self._leave(group_id, request, settings, now_ms, wall_ms)
        return self._counted(self._join_or_stay(group_id, request, settings, now_ms, wall_ms))

    def unresolved_regex(self, group_id: str, request: ConsumerHeartbeat) -> str | None:
        """Return the regular expression that a heartbeat needs matched with the topics; None for
        nearly all. The heartbeat has the result in its ``regex_match``; without it, the member gets
        the partitions with a later heartbeat.
        """
        if request.leaves:
            return None
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group.unresolved_regex(request, self._catalog.version)
        return request.subscribed_topic_regex or None

    def _join_or_stay(
        self,
        group_id: str,
        request: ConsumerHeartbeat,
        settings: ConsumerSettings,
        now_ms: int,
        wall_ms: int,
    ) -> Outcome[GroupRecord, ConsumerHeartbeatReply | Refusal]:
        group = self._groups.get(group_id)
        if request.member_epoch == JOIN_EPOCH and isinstance(group, ClassicGroup):
            return self._upgrade(group, request, settings, now_ms, wall_ms)
        if group is None:
            if request.member_epoch != JOIN_EPOCH:
                return Outcome(
                    Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
                )
            group = ConsumerGroup(group_id, self._timers)
        if not isinstance(group, ConsumerGroup):
            return Outcome(wrong_kind(group_id, "consumer"))
        return group.heartbeat(request, self._catalog, settings, now_ms, wall_ms)

    def _counted(self, outcome: Outcome[GroupRecord, R]) -> Outcome[GroupRecord, R]:
        """Count a new group epoch if the request begins one."""
        for record in outcome.records:
            if isinstance(record, ConsumerGroupMetadata) and record.value is not None:
                return outcome.then(self._meters.began_consumer_epoch)
        return outcome

    def _upgrade(
        self,
        classic: ClassicGroup,
        request: ConsumerHeartbeat,
        settings: ConsumerSettings,
        now_ms: int,
        wall_ms: int,
    ) -> Outcome[GroupRecord, ConsumerHeartbeatReply | Refusal]:
        """Turn a classic group into a consumer group and join a member of the consumer protocol."""
        group_id = classic.group_id
        converted: tuple[GroupRecord, ...] = (GroupMetadata(group_id, None),)
        completions: tuple[Completion, ...] = ()
        state = ConsumerState(group_id)
        if not classic.is_empty:
            refusal = check_upgrade(classic, settings)
            records = upgraded(classic, self._catalog) if refusal is None else refusal
            if isinstance(records, Refusal):
                return Outcome(records)
            state, converted = state.after(records), (*converted, *records)
            completions = tuple(told_to_rejoin(classic))
        outcome = ConsumerGroup(group_id, self._timers, state).heartbeat(
            request, self._catalog, settings, now_ms, wall_ms
        )
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

    def _leave(
        self,
        group_id: str,
        request: ConsumerHeartbeat,
        settings: ConsumerSettings,
        now_ms: int,
        wall_ms: int,
    ) -> Outcome[GroupRecord, ConsumerHeartbeatReply | Refusal]:
        group = self.group(group_id)
        refusal = group if isinstance(group, Refusal) else group.check_leave(request)
        if refusal is not None:
            return Outcome(refusal)
        assert isinstance(group, ConsumerGroup)
        reply = ConsumerHeartbeatReply(request.member_id, request.member_epoch)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            return group.pause(request.member_id, reply)
        removal = self._remove(group, (request.member_id,), settings, now_ms, wall_ms)
        return removal.with_reply(reply)

    def _remove(
        self,
        group: ConsumerGroup,
        member_ids: Collection[str],
        settings: ConsumerSettings,
        now_ms: int,
        wall_ms: int,
    ) -> Outcome[GroupRecord, None]:
        """Remove members. If only classic members remain, the group becomes classic and
        rebalances.
        """
        if not downgrades(group.state, member_ids, settings):
            return Outcome(None, group.remove(member_ids, self._catalog))
        records = downgraded(
            group.state, member_ids, self._catalog, group.state.epoch, wall_ms, rebalances=True
        )
        return Outcome(
            None, records, apply=partial(self._rebalance, group.group_id, now_ms, wall_ms)
        )

    def _rebalance(self, group_id: str, now_ms: int, wall_ms: int) -> None:
        """Begin a rebalance of a group that has become classic."""
        group = self._groups[group_id]
        assert isinstance(group, ClassicGroup)
        group.rebalance(now_ms, wall_ms)

    def group(self, group_id: str) -> ConsumerGroup | Refusal:
        """Return a consumer group, or GROUP_ID_NOT_FOUND."""
        return group_of_kind(self._groups, group_id, ConsumerGroup)

    # The classic protocol -------------------------------------------------------------------------

    def join(
        self, group: ConsumerGroup, request: JoinRequest, now_ms: int, wall_ms: int
    ) -> Outcome[GroupRecord, JoinReply | None]:
        """Join a classic member to a consumer group that has members (JoinGroup)."""
        settings, state = self.settings(group.group_id), group.state
        replaced = state.static_members.get(request.group_instance_id or "")
        is_last = replaced is not None and replaces_last(state, replaced, settings)
        outcome = classic_members.join(
            group, request, self._catalog, settings, now_ms, wall_ms, assigns=not is_last
        )
        outcome = self._counted(outcome)
        if not is_last or outcome.reply.code:
            return outcome
        after = state.after(outcome.records)  # type: ignore[arg-type]
        rebalances = after.epoch > after.target_epoch.epoch
        if rebalances:
            outcome = outcome.then(partial(self._rebalance, group.group_id, now_ms, wall_ms))
        records = downgraded(after, (), self._catalog, state.epoch, wall_ms, rebalances=rebalances)
        return outcome._replace(records=(*outcome.records, *records))

    def sync(
        self, group: ConsumerGroup, request: SyncRequest, now_ms: int
    ) -> Outcome[GroupRecord, SyncReply | None]:
        """Return a classic member's assignment (SyncGroup)."""
        return classic_members.sync(group, request, self._catalog, now_ms)

    def leave(
        self, group: ConsumerGroup, leavers: Sequence[MemberIdentity], now_ms: int, wall_ms: int
    ) -> Outcome[GroupRecord, LeaveReply]:
        """Remove members of either protocol (LeaveGroup); the reply has a code for each."""
        found = [classic_members.leaver(group, identity) for identity in leavers]
        member_ids = dict.fromkeys(one for one in found if not isinstance(one, ErrorCode))
        codes = tuple(one if isinstance(one, ErrorCode) else ErrorCode.NONE for one in found)
        if not member_ids:
            return Outcome(codes)
        settings = self.settings(group.group_id)
        removal = self._remove(group, tuple(member_ids), settings, now_ms, wall_ms)
        return removal.with_reply(codes)

    # Time -----------------------------------------------------------------------------------------

    def expire(
        self, group: ConsumerGroup, kind: str, member_id: str, now_ms: int, wall_ms: int
    ) -> Outcome[GroupRecord, None]:
        """Handle a timer of a group that has run out."""
        if not group.removes(kind, member_id):
            return Outcome(None)
        settings = self.settings(group.group_id)
        return self._remove(group, (member_id,), settings, now_ms, wall_ms)
