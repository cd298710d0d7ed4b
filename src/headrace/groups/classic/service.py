"""Commands to classic groups."""

from __future__ import annotations

from functools import partial

from headrace.groups.records import Generation, GroupMetadata, GroupOutcome
from headrace.groups.service import GroupService

from .group import ClassicGroup
from .member import JoinReply, JoinRequest


class ClassicGroupService(GroupService[ClassicGroup]):
    """Commands to classic groups."""

    kind = ClassicGroup
    record_types = (GroupMetadata,)

    def new_group(self, group_id: str) -> ClassicGroup:
        """Return a group without members, which is not registered."""
        return ClassicGroup(group_id, self._timers, self._config)

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

    def start_sessions(self, group: ClassicGroup, now_ms: int) -> None:
        """Start the sessions of a group's members, after a restart."""
        group.start_sessions(now_ms)

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
