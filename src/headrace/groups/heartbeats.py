"""Members, epochs and target assignments of groups whose members send heartbeats: consumer groups,
share groups and streams groups.
"""

from __future__ import annotations

from collections.abc import Mapping
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


def check_instance(
    static_members: Mapping[str, str], member_id: str, instance_id: str
) -> Refusal | None:
    """Return the error if a member does not own its instance id.

    :param static_members: member ids by instance id
    """
    owner = static_members.get(instance_id)
    if owner is None:
        return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if owner != member_id:
        return Refusal(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{owner}.",
        )
    return None


def unreleased_instance(member_id: str, instance_id: str, owner: str) -> Refusal:
    """Return the error for a member that joins while another one has its instance id."""
    return Refusal(
        ErrorCode.UNRELEASED_INSTANCE_ID,
        f"Static member {member_id} with instance id {instance_id} cannot join the group because "
        f"the instance id is owned by {owner} member.",
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
