"""Commands to streams groups (KIP-1071)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.deadlines import Deadlines
from headrace.errors import ErrorCode, Refusal
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.deadlines import TimerKey
from headrace.groups.kinds import Group, group_of_kind, wrong_kind
from headrace.groups.meters import GroupMeters
from headrace.groups.records import GroupMetadata, GroupRecord, StreamsGroupMetadata
from headrace.groups.settings import Configuration, StreamsSettings, TopicCatalog
from headrace.outcome import Outcome

from .group import StreamsGroup
from .member import StreamsHeartbeat, StreamsHeartbeatReply


class StreamsGroupService:
    """Commands to streams groups. They decide; the coordinator replays their records.

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

    def settings(self, group_id: str) -> StreamsSettings:
        """Return the settings of a group, as configured now."""
        return StreamsSettings.of(self._config, group_id)

    def heartbeat(
        self, group_id: str, request: StreamsHeartbeat, now_ms: int, wall_ms: int
    ) -> Outcome[GroupRecord, StreamsHeartbeatReply | Refusal]:
        """Join, keep or remove a member (StreamsGroupHeartbeat)."""
        group = self._groups.get(group_id)
        if isinstance(group, StreamsGroup):
            repeated = group.steady.repeat(request, self._catalog.version, now_ms)
            if repeated is not None:
                return repeated
        refusal = request.check(group_id)
        if refusal is not None:
            return Outcome(refusal)
        if request.leaves:
            left = self.group(group_id)
            return Outcome(left) if isinstance(left, Refusal) else left.leave(request)
        converted: tuple[GroupRecord, ...] = ()
        if group is None and not request.joins:
            return Outcome(
                Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {group_id} not found.")
            )
        if request.joins and isinstance(group, ClassicGroup) and group.is_empty:
            converted, group = (GroupMetadata(group_id, None),), None
        is_new = group is None
        if group is None:
            group = StreamsGroup(group_id, self._timers)
        if not isinstance(group, StreamsGroup):
            return Outcome(wrong_kind(group_id, "streams"))
        outcome = group.heartbeat(request, self._catalog, self.settings(group_id), now_ms, wall_ms)
        reply = outcome.reply
        if isinstance(reply, Refusal):
            return outcome
        if any(isinstance(record, StreamsGroupMetadata) for record in outcome.records):
            outcome = outcome.then(self._meters.began_streams_epoch)
        if converted:
            return outcome._replace(records=(*converted, *outcome.records))
        if is_new:
            # The endpoints of a new group have no epoch yet.
            return outcome._replace(reply=replace(reply, endpoint_epoch=0))
        return outcome

    def group(self, group_id: str) -> StreamsGroup | Refusal:
        """Return a streams group, or GROUP_ID_NOT_FOUND."""
        return group_of_kind(self._groups, group_id, StreamsGroup)

    def expire(
        self, group: StreamsGroup, kind: str, member_id: str, wall_ms: int
    ) -> Outcome[GroupRecord, None]:
        """Handle a timer of a group that has run out."""
        return group.expire(kind, member_id, self.settings(group.group_id), wall_ms)
