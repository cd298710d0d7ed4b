"""Commands to streams groups (KIP-1071)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from headrace.groups.classic.group import ClassicGroup
from headrace.groups.deadlines import ASSIGN
from headrace.groups.heartbeats.service import HeartbeatService
from headrace.groups.heartbeats.transition import Context
from headrace.groups.records import GroupMetadata, GroupOutcome
from headrace.groups.settings import StreamsSettings
from headrace.protocol.errors import Refusal

from .group import StreamsGroup
from .member import StreamsHeartbeat, StreamsHeartbeatReply

HeartbeatOutcome = GroupOutcome[StreamsHeartbeatReply | Refusal]


class StreamsGroupService(
    HeartbeatService[StreamsGroup, StreamsHeartbeat, StreamsHeartbeatReply, StreamsSettings]
):
    """Commands to streams groups."""

    kind = StreamsGroup
    settings_type = StreamsSettings
    reply_type = StreamsHeartbeatReply

    def _join_or_stay(
        self, group_id: str, request: StreamsHeartbeat, context: Context[StreamsSettings]
    ) -> HeartbeatOutcome:
        outcome = super()._join_or_stay(group_id, request, context)
        if isinstance(outcome.reply, Refusal) or group_id in self._groups:
            return outcome
        # The endpoints of a new group have no epoch yet.
        return outcome.with_reply(replace(outcome.reply, endpoint_epoch=0))

    def _take_over(
        self, classic: ClassicGroup, request: StreamsHeartbeat, context: Context[StreamsSettings]
    ) -> HeartbeatOutcome | None:
        """Join the first member of a streams group that replaces an empty classic group."""
        if not classic.is_empty:
            return None
        group_id = classic.group_id
        outcome = StreamsGroup(group_id, self._timers).heartbeat(request, context)
        if isinstance(outcome.reply, Refusal):
            return outcome
        return outcome._replace(records=(GroupMetadata(group_id, None), *outcome.records))

    def _leave(
        self, group_id: str, request: StreamsHeartbeat, context: Context[StreamsSettings]
    ) -> HeartbeatOutcome:
        outcome = super()._leave(group_id, request, context)
        group = self.group(group_id)
        if request.shutdown_application and isinstance(group, StreamsGroup):
            return outcome.then(partial(group.shut_down, request.member_id))
        return outcome

    def expire(
        self, group: StreamsGroup, kind: str, member_id: str, now_ms: int, wall_ms: int
    ) -> GroupOutcome[None]:
        """Handle a timer of a group that has run out: of a member, or the initial rebalance
        delay.
        """
        if kind == ASSIGN:
            return group.assign(self.context(group.group_id, now_ms, wall_ms))
        return super().expire(group, kind, member_id, now_ms, wall_ms)
