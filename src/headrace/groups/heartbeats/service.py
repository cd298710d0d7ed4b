"""Commands to groups whose members send heartbeats."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any, Generic, TypeVar

from headrace.groups.classic.group import ClassicGroup
from headrace.groups.records import GroupOutcome
from headrace.groups.service import GroupService
from headrace.groups.settings import Settings
from headrace.outcome import Outcome
from headrace.protocol.errors import ErrorCode, Refusal

from .group import Context, HeartbeatGroup, ReplyT, RequestT
from .member import STATIC_LEAVE_EPOCH, HeartbeatReply

GroupT = TypeVar("GroupT", bound=HeartbeatGroup[Any, Any, Any])
R = TypeVar("R")


class HeartbeatService(GroupService[GroupT], Generic[GroupT, RequestT, ReplyT]):
    """Commands to the groups of one kind.

    :cvar reply_type: the answer to a heartbeat
    """

    reply_type: Any = HeartbeatReply

    def new_group(self, group_id: str) -> GroupT:
        """Return a group without members, which is not registered."""
        return self.kind(group_id, self._timers)

    def context(self, group_id: str, now_ms: int, wall_ms: int) -> Context:
        """Return what a decision about a group depends on now."""
        return Context(self.catalog, self._settings(group_id), now_ms, wall_ms)

    def _settings(self, group_id: str) -> Settings:
        return Settings(self._config, self.kind.type_name, group_id)

    # Commands -------------------------------------------------------------------------------------

    def heartbeat(
        self, group_id: str, request: RequestT, now_ms: int, wall_ms: int
    ) -> GroupOutcome[ReplyT | Refusal]:
        """Join, keep or remove a member."""
        group = self._groups.get(group_id)
        if isinstance(group, self.kind):
            repeated = group.repeat(request, self.catalog.version, now_ms)
            if repeated is not None:
                return repeated
        context = self.context(group_id, now_ms, wall_ms)
        refusal = request.check(group_id, self._config)
        if refusal is not None:
            return Outcome(refusal)
        if request.leaves:
            return self._leave(group_id, request, context)
        return self.counted(self._join_or_stay(group_id, request, context))

    def _join_or_stay(
        self, group_id: str, request: RequestT, context: Context
    ) -> GroupOutcome[ReplyT | Refusal]:
        group = self._groups.get(group_id)
        if request.joins and isinstance(group, ClassicGroup):
            outcome = self._take_over(group, request, context)
            if outcome is not None:
                return outcome
        member_group = self.member_group(group_id, request)
        if isinstance(member_group, Refusal):
            return Outcome(member_group)
        return member_group.heartbeat(request, context)

    def member_group(self, group_id: str, request: RequestT) -> GroupT | Refusal:
        """Return the group of a heartbeat, or GROUP_ID_NOT_FOUND; a new one if the member joins."""
        if group_id in self._groups:
            return self.group(group_id)
        if request.joins:
            return self.new_group(group_id)
        name = self.kind.type_name.capitalize()
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"{name} group {group_id} not found.")

    def _take_over(
        self, classic: ClassicGroup, request: RequestT, context: Context
    ) -> GroupOutcome[ReplyT | Refusal] | None:
        """Join a member to a classic group, which becomes one of this kind; None if it does not."""
        return None

    def _leave(
        self, group_id: str, request: RequestT, context: Context
    ) -> GroupOutcome[ReplyT | Refusal]:
        group = self.group(group_id)
        if isinstance(group, Refusal):
            return Outcome(group)
        refusal = group.check_member(request)
        if refusal is not None:
            return Outcome(refusal)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            outcome = group.pause(request.member_id)
        else:
            outcome = self.remove(group, (request.member_id,), context)
        return outcome.with_reply(self.reply_type(request.member_id, request.member_epoch))

    def remove(
        self, group: GroupT, member_ids: Collection[str], context: Context
    ) -> GroupOutcome[None]:
        """Remove members that leave, or whose session or rebalance timeout has ended."""
        return group.remove(member_ids, context)

    def counted(self, outcome: GroupOutcome[R]) -> GroupOutcome[R]:
        """Count a new group epoch if the request begins one."""
        epoch_type = self.record_types[0]
        if any(type(record) is epoch_type for record in outcome.records):
            return outcome.then(partial(self._meters.began_epoch, self.kind.type_name))
        return outcome

    # Time -----------------------------------------------------------------------------------------

    def start_sessions(self, group: GroupT, now_ms: int) -> None:
        """Start the sessions of a group's members, after a restart."""
        group.start_sessions(self._settings(group.group_id), now_ms)

    def expire(
        self, group: GroupT, kind: str, member_id: str, now_ms: int, wall_ms: int
    ) -> GroupOutcome[None]:
        """Handle a timer of a group that has run out."""
        if member_id not in group.state.members or kind not in group.member_timers:
            return Outcome(None)
        return self.remove(group, (member_id,), self.context(group.group_id, now_ms, wall_ms))
