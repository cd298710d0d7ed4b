"""The reconciliation of a member's tasks with its target assignment (KIP-1071).

A task moves as a partition of a consumer group does: its holder is asked to close it, confirms with
a heartbeat, and then the new member gets it (:mod:`headrace.groups.consumer.reconciliation`). An
active task is free when no member has it active. In addition a process has a task only once, in
any role, as its members share state directories. A task that only changes its role stays on its
member meanwhile::

    STABLE ──────────── has its target assignment ──────────────────────────────────┐
      │ a newer target                                                              │
      ▼                                                                             │
    UNREVOKED_TASKS     stays at its epoch until it has closed the revoked tasks    │
      │                                                                             │
      ▼                                                                             │
    UNRELEASED_TASKS    is at the target epoch; some tasks are not free yet ────────┘
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from headrace.groups.heartbeats.reconciliation import Difference, overlaps
from headrace.groups.records import (
    HeldTaskAssignment,
    HeldTasks,
    StreamsAssignment,
    StreamsMemberState,
    TaskAssignment,
    Tasks,
)

IsFree: TypeAlias = Callable[[str, int], bool]
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
    if was.state is StreamsMemberState.STABLE and epoch == goal.epoch:
        return was
    if was.state is StreamsMemberState.UNREVOKED_TASKS:
        if _holds_any(owned, was.pending_revocation):
            return was
        epoch += 1
    return _advance(was, goal, owned, epoch)


def holds_only(owned: TaskAssignment | None, held: HeldTaskAssignment) -> bool:
    """Return whether a member reports its tasks and all of them are in ``held``."""
    return owned is not None and (
        _contains(held.active, owned.active)
        and _contains(held.standby, owned.standby)
        and _contains(held.warmup, owned.warmup)
    )


def _contains(held: Mapping[str, Mapping[int, int]] | Tasks, tasks: Tasks) -> bool:
    return all(
        subtopology_id in held
        and all(partition in held[subtopology_id] for partition in partitions)
        for subtopology_id, partitions in tasks.items()
    )


def _holds_any(owned: TaskAssignment | None, held: HeldTaskAssignment) -> bool:
    """Return whether a member may run some of the tasks; True if it reports nothing."""
    return owned is None or (
        overlaps(owned.active, held.active)
        or overlaps(owned.standby, held.standby)
        or overlaps(owned.warmup, held.warmup)
    )


def _advance(
    was: StreamsAssignment, goal: Goal, owned: TaskAssignment | None, epoch: int
) -> StreamsAssignment:
    assigned, target = was.assigned, goal.target

    def is_free(subtopology_id: str, partition: int) -> bool:
        is_standby = partition in assigned.standby.get(subtopology_id, ())
        return goal.is_free(subtopology_id, partition) and (
            is_standby or goal.is_free_on_process(subtopology_id, partition)
        )

    def is_free_for_replica(subtopology_id: str, partition: int) -> bool:
        is_active = partition in assigned.active.get(subtopology_id, {})
        return is_active or goal.is_free_on_process(subtopology_id, partition)

    active = Difference(assigned.active, target.active, is_free, goal.epoch)
    standby = _difference(assigned.standby, target.standby, is_free_for_replica)
    warmup = _difference(assigned.warmup, target.warmup, goal.is_free_on_process)
    # A task that becomes a standby stays on the member while it closes the active one.
    for subtopology_id, partition in _each(assigned.active):
        if partition in standby.gained.get(subtopology_id, {}):
            del standby.gained[subtopology_id][partition]
            standby.kept.setdefault(subtopology_id, {})[partition] = _NO_EPOCH
    # A standby that becomes active is not closed. It stays one until the member gets it as active.
    promoted = [
        (subtopology_id, partition)
        for subtopology_id, partition in _each(assigned.standby)
        if partition in target.active.get(subtopology_id, ())
    ]
    for subtopology_id, partition in promoted:
        standby.revoked.get(subtopology_id, {}).pop(partition, None)
    revoked = HeldTaskAssignment(
        _sorted(active.revoked), _partitions(standby.revoked), _partitions(warmup.revoked)
    )
    is_blocked = bool(revoked) and _holds_any(owned, revoked)
    for subtopology_id, partition in promoted:
        if is_blocked or partition not in active.gained.get(subtopology_id, {}):
            standby.kept.setdefault(subtopology_id, {})[partition] = _NO_EPOCH
    if is_blocked:
        kept = HeldTaskAssignment(
            _sorted(active.kept), _partitions(standby.kept), _partitions(warmup.kept)
        )
        return StreamsAssignment(
            epoch, was.member_epoch, StreamsMemberState.UNREVOKED_TASKS, kept, revoked
        )
    waits = active.waits or standby.waits or warmup.waits
    return StreamsAssignment(
        goal.epoch,
        was.member_epoch,
        StreamsMemberState.UNRELEASED_TASKS if waits else StreamsMemberState.STABLE,
        HeldTaskAssignment(
            _sorted(active.assigned()),
            _partitions(standby.assigned()),
            _partitions(warmup.assigned()),
        ),
    )


def _difference(held: Tasks, target: Tasks, is_free: IsFree) -> Difference[str]:
    without_epochs = {id_: dict.fromkeys(tasks, _NO_EPOCH) for id_, tasks in held.items()}
    return Difference(without_epochs, target, is_free, _NO_EPOCH)


def _sorted(epochs: HeldTasks) -> HeldTasks:
    return dict(sorted(epochs.items()))


def _partitions(epochs: Mapping[str, Mapping[int, int]]) -> Tasks:
    return {
        subtopology_id: tuple(sorted(partitions))
        for subtopology_id, partitions in sorted(epochs.items())
        if partitions
    }


def _each(tasks: Mapping[str, Iterable[int]]) -> Iterator[tuple[str, int]]:
    for subtopology_id, partitions in tasks.items():
        for partition in partitions:
            yield subtopology_id, partition
