"""The reconciliation of a member's assignment with its target assignment (KIP-848).

A partition moves in three steps, so that no two members read it at the same time: the coordinator
requests its revocation, the member confirms with a heartbeat, and then the new member gets it::

    STABLE ──────────────── has its target assignment ────────────────────────────────────┐
      │ a newer target                                                                    │
      ▼                                                                                   │
    UNREVOKED_PARTITIONS    stays at its epoch until it has confirmed the revocation      │
      │                                                                                   │
      ▼                                                                                   │
    UNRELEASED_PARTITIONS   is at the target epoch; other members still hold partitions ──┘
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TypeAlias
from uuid import UUID

from headrace.groups.records import Assignment, ConsumerAssignment, HeldPartitions, MemberState

Owned: TypeAlias = Mapping[UUID, AbstractSet[int]]
"""The partitions that a member reports as its own, by topic id."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The target of a member's reconciliation.

    :param topic_ids: the existing topics to which the member is now subscribed
    :param is_free: returns whether no other member holds a partition
    """

    epoch: int
    target: Assignment
    topic_ids: Collection[UUID]
    is_free: Callable[[UUID, int], bool]


def reconcile(
    was: ConsumerAssignment, goal: Goal, owned: Owned | None, *, resubscribed: bool
) -> ConsumerAssignment:
    """Return the member's next assignment; ``was`` itself if the member has to wait.

    :param owned: the partitions that the member reports; None when it reports none
    :param resubscribed: the subscription has changed; partitions of unsubscribed topics are revoked
        at once
    """
    if was.state is MemberState.UNREVOKED_PARTITIONS and _holds_any(owned, was.pending_revocation):
        return _unsubscribed(was, goal, owned) if resubscribed else was
    if was.state is MemberState.STABLE and was.member_epoch == goal.epoch:
        return _unsubscribed(was, goal, owned) if resubscribed else was
    return _advance(was, goal, owned)


def holds_only(owned: Owned | None, partitions: HeldPartitions) -> bool:
    """Return whether a member reports its partitions and all of them are in ``partitions``."""
    if owned is None:
        return False
    return all(
        number in partitions.get(topic_id, ())
        for topic_id, numbers in owned.items()
        for number in numbers
    )


def _holds_any(owned: Owned | None, partitions: HeldPartitions) -> bool:
    """Return whether a member may hold some of the partitions; True if it reports nothing."""
    if owned is None:
        return True
    return any(
        number in partitions.get(topic_id, ())
        for topic_id, numbers in owned.items()
        for number in numbers
    )


def _unsubscribed(was: ConsumerAssignment, goal: Goal, owned: Owned | None) -> ConsumerAssignment:
    kept = {topic_id: held for topic_id, held in was.assigned.items() if topic_id in goal.topic_ids}
    if len(kept) == len(was.assigned):
        return was
    pending = dict(was.pending_revocation)
    for topic_id, held in was.assigned.items():
        if topic_id not in kept:
            pending[topic_id] = {**pending.get(topic_id, {}), **held}
    at_its_epoch = replace(was, previous_member_epoch=was.member_epoch, assigned=kept)
    if _holds_any(owned, pending):
        return replace(
            at_its_epoch, state=MemberState.UNREVOKED_PARTITIONS, pending_revocation=pending
        )
    return at_its_epoch


def _advance(was: ConsumerAssignment, goal: Goal, owned: Owned | None) -> ConsumerAssignment:
    kept: dict[UUID, dict[int, int]] = {}
    revoked: dict[UUID, dict[int, int]] = {}
    gained: dict[UUID, dict[int, int]] = {}
    waits = False
    for topic_id in dict.fromkeys((*goal.target, *was.assigned)):
        wanted = set(goal.target.get(topic_id, ())) if topic_id in goal.topic_ids else set()
        held = was.assigned.get(topic_id, {})
        giving_up = was.pending_revocation.get(topic_id, {})
        for number, epoch in held.items():
            (kept if number in wanted else revoked).setdefault(topic_id, {})[number] = epoch
        for number in wanted.difference(held):
            if number in giving_up or goal.is_free(topic_id, number):
                gained.setdefault(topic_id, {})[number] = goal.epoch
            else:
                waits = True
    if revoked and _holds_any(owned, revoked):
        return ConsumerAssignment(
            was.member_epoch,
            was.member_epoch,
            MemberState.UNREVOKED_PARTITIONS,
            _ordered(kept),
            _ordered(revoked),
        )
    for topic_id, numbers in gained.items():
        kept.setdefault(topic_id, {}).update(numbers)
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return ConsumerAssignment(goal.epoch, was.member_epoch, state, _ordered(kept))


def _ordered(held: HeldPartitions) -> HeldPartitions:
    return {topic_id: dict(sorted(numbers.items())) for topic_id, numbers in held.items()}
