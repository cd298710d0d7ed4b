"""The kinds of groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar

from headrace.errors import ErrorCode, Refusal

from .classic.group import ClassicGroup
from .heartbeats.group import HeartbeatGroup

Group: TypeAlias = ClassicGroup | HeartbeatGroup[Any, Any, Any, Any, Any]
G = TypeVar("G", bound=Group)


def group_of_kind(groups: Mapping[str, Group], group_id: str, kind: type[G]) -> G | Refusal:
    """Return a group of a kind, or GROUP_ID_NOT_FOUND."""
    group = groups.get(group_id)
    if group is None:
        return group_not_found(group_id)
    return group if isinstance(group, kind) else wrong_kind(group_id, kind.type_name)


def group_not_found(group_id: str) -> Refusal:
    """Return the answer to a request about a group that does not exist."""
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")


def wrong_kind(group_id: str, kind: str) -> Refusal:
    """Return the answer to a request for a group that is not of this kind."""
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {kind} group.")
