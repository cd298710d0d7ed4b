"""Commands to groups of one kind: what those of all kinds have in common."""

from __future__ import annotations

from typing import Any, Generic, TypeAlias, TypeVar

from headrace.deadlines import Deadlines
from headrace.protocol.configuration import Configuration
from headrace.protocol.errors import ErrorCode, Refusal

from .classic.group import ClassicGroup
from .deadlines import TimerKey
from .heartbeats.group import HeartbeatGroup
from .meters import GroupMeters
from .settings import TopicCatalog

Group: TypeAlias = ClassicGroup | HeartbeatGroup[Any, Any, Any]
GroupT = TypeVar("GroupT", bound=Group)


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
        raise NotImplementedError

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
