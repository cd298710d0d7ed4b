"""Members, epochs and target assignments of groups whose members send heartbeats: consumer groups,
share groups and streams groups.
"""

from __future__ import annotations

from typing import TypeVar

from headrace.errors import ErrorCode, Refusal

from .records import AssignmentEpoch

V = TypeVar("V")

FIRST_EPOCH = 1
"""The epoch of a group without an epoch record; the first member makes it 2."""

NO_TARGET = AssignmentEpoch(FIRST_EPOCH, 0)
"""The epoch of the target assignment before the first one."""


def put(mapping: dict[str, V], key: str, value: V | None) -> None:
    """Replay a record of one key; None is a tombstone."""
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value


def assignment_due(last: AssignmentEpoch, interval_ms: int, wall_ms: int) -> bool:
    """Return whether a target assignment may be computed now.

    :param interval_ms: the least time between two target assignments
    """
    age_ms = wall_ms - last.timestamp_ms
    # The wall clock may have been set back since.
    return not 0 <= age_ms < interval_ms


def group_full(kind: str, max_size: int) -> Refusal:
    """Return the error for a new member of a group that is full."""
    return Refusal(
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        f"The {kind} group has reached its maximum capacity of {max_size} members.",
    )


def unknown_member(group_id: str, member_id: str) -> Refusal:
    """Return the error for a member that the group does not have."""
    return Refusal(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}."
    )


def fenced_member(kind: str, epoch: int, current: int, more: str = "") -> Refusal:
    """Return the error for a heartbeat with a wrong member epoch.

    :param more: further reasons, for the error text
    """
    return Refusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The {kind} group member has a {'greater' if epoch > current else 'smaller'} member epoch "
        f"({epoch}) than the one known by the group coordinator ({current}){more}. The member must "
        f"abandon all its partitions and rejoin.",
    )
