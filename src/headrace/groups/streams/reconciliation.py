"""The reconciliation of a member's tasks with its target assignment (KIP-1071).

A task moves as a partition of a consumer group does: its holder is asked to close it, confirms with
a heartbeat, and then the new member gets it (:mod:`headrace.groups.consumer.reconciliation`). An
active task is free when no member has it active. In addition a process has a task only once, in
any role, as its members share state directories. A task that only changes its role stays on its
member meanwhile::

    STABLE ──────────── has its target assignment ──────────────────────────────────┐
      │ a newer target                                                              │
      ▼                                                                             │
    UNREVOKED           stays at its epoch until it has closed the revoked tasks    │
      │                                                                             │
      ▼                                                                             │
    UNRELEASED          is at the target epoch; some tasks are not free yet ────────┘
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.groups.heartbeats.reconciliation import Difference, overlaps
from headrace.groups.records import (
    ByRole,
    HeldTaskAssignment,
    HeldTasks,
    MemberState,
    StreamsAssignment,
    TaskAssignment,
    Tasks,
    each,
)

IsFree = Callable[[str, int], bool]
"""Takes a subtopology id and a partition; returns whether the member may get the task."""

_NO_EPOCH = 0
"""Only active tasks have epochs."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The target of a member's reconciliation.

    :param is_free: returns whether no member has a task active
    :param is_free_on_process: returns whether the member's process does not have a task
    """

    epoch: int
    target: TaskAssignment
    is_free: IsFree
    is_free_on_process: IsFree


def reconcile(
    was: StreamsAssignment, goal: Goal, owned: TaskAssignment | None
) -> StreamsAssignment:
    """Return the member's next assignment; ``was`` itself if the member has to wait.

    :param owned: the tasks that the member reports; None when it reports none
    """
    epoch = was.member_epoch
    if was.state is MemberState.STABLE and epoch == goal.epoch:
        return was
    if was.state is MemberState.UNREVOKED:
        if _holds_any(owned, was.pending_revocation):
            return was
        epoch += 1
    return _advance(was, goal, owned, epoch)


def holds_only(owned: TaskAssignment | None, held: HeldTaskAssignment) -> bool:
    """Return whether a member reports its tasks and all of them are in ``held``."""
    return owned is not None and all(map(_contains, held, owned))


def _contains(held: HeldTasks, tasks: Tasks) -> bool:
    return all(
        subtopology_id in held and held[subtopology_id].keys() >= set(partitions)
        for subtopology_id, partitions in tasks.items()
    )


def _holds_any(owned: TaskAssignment | None, held: HeldTaskAssignment) -> bool:
    """Return whether a member may run some of the tasks; True if it reports nothing."""
    return owned is None or any(map(overlaps, owned, held))


def _advance(
    was: StreamsAssignment, goal: Goal, owned: TaskAssignment | None, epoch: int
) -> StreamsAssignment:
    assigned, target = was.assigned, goal.target

    def is_free(subtopology_id: str, partition: int) -> bool:
        is_standby = partition in assigned.standby.get(subtopology_id, {})
        return goal.is_free(subtopology_id, partition) and (
            is_standby or goal.is_free_on_process(subtopology_id, partition)
        )

    def is_free_for_replica(subtopology_id: str, partition: int) -> bool:
        is_active = partition in assigned.active.get(subtopology_id, {})
        return is_active or goal.is_free_on_process(subtopology_id, partition)

    active = Difference(assigned.active, target.active, is_free, goal.epoch)
    standby = Difference(assigned.standby, target.standby, is_free_for_replica, _NO_EPOCH)
    warmup = Difference(assigned.warmup, target.warmup, goal.is_free_on_process, _NO_EPOCH)
    # A task that becomes a standby stays on the member while it closes the active one.
    for subtopology_id, partition in each(assigned.active):
        if partition in standby.gained.get(subtopology_id, {}):
            del standby.gained[subtopology_id][partition]
            standby.kept.setdefault(subtopology_id, {})[partition] = _NO_EPOCH
    # A standby that becomes active is not closed. It stays one until the member gets it as active.
    promoted = [
        (subtopology_id, partition)
        for subtopology_id, partition in each(assigned.standby)
        if partition in target.active.get(subtopology_id, ())
    ]
    for subtopology_id, partition in promoted:
        standby.revoked.get(subtopology_id, {}).pop(partition, None)
    roles = active, standby, warmup
    revoked = ByRole(*(_in_order(role.revoked) for role in roles))
    is_blocked = any(revoked) and _holds_any(owned, revoked)
    for subtopology_id, partition in promoted:
        if is_blocked or partition not in active.gained.get(subtopology_id, {}):
            standby.kept.setdefault(subtopology_id, {})[partition] = _NO_EPOCH
    if is_blocked:
        held = ByRole(*(_in_order(role.kept) for role in roles))
        return StreamsAssignment(epoch, was.member_epoch, MemberState.UNREVOKED, held, revoked)
    waits = any(role.waits for role in roles)
    return StreamsAssignment(
        goal.epoch,
        was.member_epoch,
        MemberState.UNRELEASED if waits else MemberState.STABLE,
        ByRole(*(_in_order(role.assigned()) for role in roles)),
    )


def _in_order(tasks: HeldTasks) -> HeldTasks:
    return {
        subtopology_id: dict(sorted(epochs.items()))
        for subtopology_id, epochs in sorted(tasks.items())
        if epochs
    }
