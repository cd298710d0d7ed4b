"""Commands to groups of one kind: to classic groups, and to those whose members send heartbeats."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any, Generic, TypeVar

from headrace.deadlines import Deadlines
from headrace.outcome import Outcome
from headrace.protocol.configuration import Configuration
from headrace.protocol.errors import ErrorCode, Refusal

from .catalog import TopicCatalog
from .classic.group import ClassicGroup
from .classic.member import JoinReply, JoinRequest
from .deadlines import TimerKey
from .heartbeats.group import Context, HeartbeatGroup, ReplyT, RequestT
from .heartbeats.member import STATIC_LEAVE_EPOCH, HeartbeatReply
from .meters import GroupMeters
from .records import Generation, GroupMetadata, GroupOutcome, GroupRecord

Group = ClassicGroup | HeartbeatGroup[Any, Any, Any]
GroupT = TypeVar("GroupT", bound=Group)
HeartbeatGroupT = TypeVar("HeartbeatGroupT", bound=HeartbeatGroup[Any, Any, Any])
R = TypeVar("R")


class GroupService(Generic[GroupT]):
    """Commands to the groups of one kind. They decide; only replaying records changes groups.

    ``now_ms`` is the steady time of timers, ``wall_ms`` the epoch time of records.

    :param groups: all groups by id
    :cvar kind: the kind of groups
    :cvar record_types: the types of their records; the tombstone of the first one deletes a group
    """

    kind: type[GroupT]
    record_types: tuple[Any, ...]

    def __init__(
        self,
        groups: dict[str, Group],
        config: Configuration,
        catalog: TopicCatalog,
        timers: Deadlines[TimerKey],
        meters: GroupMeters,
    ) -> None:
        self._groups, self._config, self.catalog = groups, config, catalog
        self._timers, self._meters = timers, meters

    def group(self, group_id: str) -> GroupT | Refusal:
        """Return a group of this kind, or GROUP_ID_NOT_FOUND."""
        group = self._groups.get(group_id)
        if isinstance(group, self.kind):
            return group
        message = f"Group {group_id} not found."
        if group is not None:
            message = f"Group {group_id} is not a {self.kind.type_name} group."
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, message)

    def new_group(self, group_id: str) -> GroupT:
        """Return a group without members, which is not registered."""
        return self.kind(group_id, self._timers, self._config)

    def replay(self, record: Any) -> None:
        """Apply a durable record of a group of this kind."""
        group_id, is_tombstone = record.group_id, record.value is None
        group = self._groups.get(group_id)
        if not isinstance(group, self.kind):
            if is_tombstone:
                return
            self._groups[group_id] = group = self.new_group(group_id)
        if is_tombstone and type(record) is self.record_types[0]:
            del self._groups[group_id]
        else:
            group.replay(record)


class ClassicGroupService(GroupService[ClassicGroup]):
    """Commands to classic groups."""

    kind = ClassicGroup
    record_types = (GroupMetadata,)

    def join_new(
        self, group_id: str, request: JoinRequest, ticket: int, now_ms: int, wall_ms: int
    ) -> GroupOutcome[JoinReply | None]:
        """Join the first member of a group that is new, or has been empty and of another kind."""
        former = self._groups.get(group_id)
        tombstones = () if former is None else former.tombstones()
        group = self.new_group(group_id)
        first = GroupMetadata(group_id, Generation("", 0, None, None, wall_ms))
        group.replay(first)
        outcome = group.join(request, ticket, now_ms, wall_ms)
        records = (*tombstones, first, *outcome.records)
        register = partial(self._groups.__setitem__, group_id, group)
        return outcome._replace(records=records).then(register)

    def expire(
        self, group: ClassicGroup, kind: str, member_id: str, now_ms: int, wall_ms: int
    ) -> GroupOutcome[None]:
        """Handle a timer of a group that has run out."""
        return group.expire(kind, member_id, now_ms, wall_ms)

    def replay(self, record: GroupMetadata) -> None:
        """Apply a durable generation of a group; its tombstone deletes the group."""
        group, generation = self._groups.get(record.group_id), record.value
        recorded = group.recorded if isinstance(group, ClassicGroup) else None
        before = -1 if recorded is None else recorded.generation
        if generation is not None and generation.members and generation.generation > before:
            self._meters.completed_rebalances += 1
        super().replay(record)


class HeartbeatService(GroupService[HeartbeatGroupT], Generic[HeartbeatGroupT, RequestT, ReplyT]):
    """Commands to the groups of one kind.

    :cvar reply_type: the answer to a heartbeat
    """

    reply_type: Any = HeartbeatReply

    # Commands -------------------------------------------------------------------------------------

    def heartbeat(
        self, group_id: str, request: RequestT, now_ms: int, wall_ms: int
    ) -> GroupOutcome[ReplyT | Refusal]:
        """Join, keep or remove a member."""
        group = self._groups.get(group_id)
        if isinstance(group, self.kind) and (
            repeated := group.repeat(request, self.catalog.version, now_ms)
        ):
            return repeated
        context = Context(self.catalog, now_ms, wall_ms)
        if refusal := request.check(group_id, self._config):
            return Outcome(refusal)
        if request.leaves:
            return self._leave(group_id, request, context)
        return self.counted(self._join_or_stay(group_id, request, context))

    def _join_or_stay(
        self, group_id: str, request: RequestT, context: Context
    ) -> GroupOutcome[ReplyT | Refusal]:
        former = self._groups.get(group_id)
        if request.joins and isinstance(former, ClassicGroup):
            converted = self._converted(former)
            if isinstance(converted, Refusal):
                return Outcome(converted)
            if converted is not None:
                new_group = self.new_group(group_id)
                new_group.state = new_group.state.after(converted)
                outcome = new_group.heartbeat(request, context)
                if isinstance(outcome.reply, Refusal):
                    return outcome
                records = (*former.tombstones(), *converted, *outcome.records)
                return outcome._replace(records=records)
        group = self.member_group(group_id, request)
        return Outcome(group) if isinstance(group, Refusal) else group.heartbeat(request, context)

    def member_group(self, group_id: str, request: RequestT) -> HeartbeatGroupT | Refusal:
        """Return the group of a heartbeat, or GROUP_ID_NOT_FOUND; a new one if the member joins."""
        if group_id in self._groups:
            return self.group(group_id)
        if request.joins:
            return self.new_group(group_id)
        name = self.kind.type_name.capitalize()
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"{name} group {group_id} not found.")

    def _converted(self, classic: ClassicGroup) -> tuple[GroupRecord, ...] | Refusal | None:
        """Return the records of the group of this kind that a classic group becomes when a member
        joins; None if it does not become one.
        """
        return None

    def _leave(
        self, group_id: str, request: RequestT, context: Context
    ) -> GroupOutcome[ReplyT | Refusal]:
        group = self.group(group_id)
        if isinstance(group, Refusal):
            return Outcome(group)
        if refusal := group.check_member(request.member_id, request.instance_id):
            return Outcome(refusal)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            outcome = group.pause(request.member_id)
        else:
            outcome = self.remove(group, (request.member_id,), context)
        return outcome.with_reply(self.reply_type(request.member_id, request.member_epoch))

    def remove(
        self, group: HeartbeatGroupT, member_ids: Collection[str], context: Context
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

    def expire(
        self, group: HeartbeatGroupT, kind: str, member_id: str, now_ms: int, wall_ms: int
    ) -> GroupOutcome[None]:
        """Handle a timer of a group that has run out."""
        if member_id not in group.state.members or kind not in group.member_timers:
            return Outcome(None)
        return self.remove(group, (member_id,), Context(self.catalog, now_ms, wall_ms))
