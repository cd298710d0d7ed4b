"""The part of the group coordinator that is about consumer groups (KIP-848), and groups that become
or were such.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

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
from headrace.groups.deadlines import SESSION, SYNC, GroupDeadlines, TimerKey
from headrace.groups.records import GroupMetadata, GroupRecord
from headrace.groups.settings import Configuration, ConsumerSettings, TopicCatalog
from headrace.outcome import Completion, Outcome

from . import classic_members as consumer_classic
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

if TYPE_CHECKING:
    from headrace.groups.offsets.service import Group


class ConsumerGroups:
    """Requests to consumer groups. Commands decide; the coordinator replays their records.

    :param groups: all groups by id
    """

    def __init__(
        self,
        groups: Mapping[str, Group],
        config: Configuration,
        catalog: TopicCatalog,
        timers: Deadlines[TimerKey],
    ) -> None:
        self._groups, self._config, self._catalog, self._timers = groups, config, catalog, timers

    def settings(self, group_id: str) -> ConsumerSettings:
        """As configured now for a group."""
        return ConsumerSettings.of(self._config, group_id)

    # The consumer protocol ------------------------------------------------------------------------

    def heartbeat(
        self, group_id: str, request: ConsumerHeartbeat, now_ms: int
    ) -> Outcome[GroupRecord, ConsumerHeartbeatReply | Refusal]:
        """A ConsumerGroupHeartbeat."""
        settings = self.settings(group_id)
        refusal = request.check(group_id, settings.assignors)
        if refusal is not None:
            return Outcome(refusal)
        if request.leaves:
            return self._leave(group_id, request, settings, now_ms)
        group = self._groups.get(group_id)
        if request.member_epoch == JOIN_EPOCH and isinstance(group, ClassicGroup):
            return self._take_over(group, request, settings, now_ms)
        if group is None:
            if request.member_epoch != JOIN_EPOCH:
                return Outcome(
                    Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
                )
            group = ConsumerGroup(group_id, self._timers)
        if not isinstance(group, ConsumerGroup):
            return Outcome(not_a_consumer_group(group_id))
        return group.heartbeat(request, self._catalog, settings, now_ms)

    def _take_over(
        self,
        classic: ClassicGroup,
        request: ConsumerHeartbeat,
        settings: ConsumerSettings,
        now_ms: int,
    ) -> Outcome[GroupRecord, ConsumerHeartbeatReply | Refusal]:
        """A member of the consumer protocol joins a classic group, which becomes a consumer group
        with this.
        """
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
            request, self._catalog, settings, now_ms
        )
        if isinstance(outcome.reply, Refusal):
            return outcome
        timers = GroupDeadlines(self._timers, group_id)
        for member in classic.roster.all():
            timers.set(SESSION, member.member_id, now_ms + member.session_timeout_ms)
        return outcome._replace(records=(*converted, *outcome.records), completions=completions)

    def _leave(
        self, group_id: str, request: ConsumerHeartbeat, settings: ConsumerSettings, now_ms: int
    ) -> Outcome[GroupRecord, ConsumerHeartbeatReply | Refusal]:
        group = self.group(group_id)
        refusal = group if isinstance(group, Refusal) else group.leaver(request)
        if refusal is not None:
            return Outcome(refusal)
        assert isinstance(group, ConsumerGroup)
        reply = ConsumerHeartbeatReply(request.member_id, request.member_epoch)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            return Outcome(reply, group.pause(request.member_id))
        return Outcome(reply, self._without(group, (request.member_id,), settings, now_ms))

    def _without(
        self,
        group: ConsumerGroup,
        member_ids: Collection[str],
        settings: ConsumerSettings,
        now_ms: int,
    ) -> tuple[GroupRecord, ...]:
        """Members go. A group of which only classic members are left becomes classic, and
        rebalances.
        """
        if not downgrades(group.state, member_ids, settings):
            return group.remove(member_ids, self._catalog)
        self._rebalance_classic(group.group_id, now_ms)
        return downgraded(group.state, member_ids, self._catalog, now_ms, group.state.epoch)

    def _rebalance_classic(self, group_id: str, now_ms: int) -> None:
        """Have a group that has become classic rebalance, as it does when its time for syncing is
        over.
        """
        GroupDeadlines(self._timers, group_id).set(SYNC, "", now_ms)

    def group(self, group_id: str) -> ConsumerGroup | Refusal:
        """A consumer group, to be described or left; or why there is none of that id."""
        group = self._groups.get(group_id)
        if group is None:
            return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group if isinstance(group, ConsumerGroup) else not_a_consumer_group(group_id)

    # The classic protocol -------------------------------------------------------------------------

    def join(
        self, group: ConsumerGroup, request: JoinRequest, now_ms: int
    ) -> Outcome[GroupRecord, JoinReply | None]:
        """JoinGroup to a consumer group that has members."""
        settings, state = self.settings(group.group_id), group.state
        replaced = state.static_members.get(request.group_instance_id or "")
        is_last = replaced is not None and replaces_last(state, replaced, settings)
        outcome = consumer_classic.join(
            group, request, self._catalog, settings, now_ms, assigns=not is_last
        )
        if not is_last or outcome.reply.code:
            return Outcome(outcome.reply, outcome.records)
        after = state.after(outcome.records)  # type: ignore[arg-type]
        if after.epoch > after.target_epoch.epoch:
            self._rebalance_classic(group.group_id, now_ms)
        records = downgraded(after, (), self._catalog, now_ms, state.epoch)
        return Outcome(outcome.reply, (*outcome.records, *records))

    def sync(self, group: ConsumerGroup, request: SyncRequest, now_ms: int) -> SyncReply:
        """SyncGroup."""
        return consumer_classic.sync(group, request, self._catalog, now_ms)

    def leave(
        self, group: ConsumerGroup, leavers: Sequence[MemberIdentity], now_ms: int
    ) -> Outcome[GroupRecord, LeaveReply]:
        """LeaveGroup, also of members of the consumer protocol: the reply has a code for each."""
        found = [consumer_classic.leaver(group, identity) for identity in leavers]
        member_ids = dict.fromkeys(one for one in found if not isinstance(one, ErrorCode))
        codes = tuple(one if isinstance(one, ErrorCode) else ErrorCode.NONE for one in found)
        if not member_ids:
            return Outcome(codes)
        return Outcome(
            codes, self._without(group, tuple(member_ids), self.settings(group.group_id), now_ms)
        )

    # Time -----------------------------------------------------------------------------------------

    def expire(
        self, group: ConsumerGroup, kind: str, member_id: str, now_ms: int
    ) -> Outcome[GroupRecord, None]:
        """One of a group's timers has run out."""
        if not group.expired(kind, member_id, now_ms):
            return Outcome(None)
        return Outcome(
            None, self._without(group, (member_id,), self.settings(group.group_id), now_ms)
        )


def not_a_consumer_group(group_id: str) -> Refusal:
    """The answer to a request of the consumer protocol about a group of another type."""
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
