"""The reconciliation of a member's assignment with its target assignment (KIP-848).

A partition moves in three steps, so that no two members read it at the same time: the coordinator
requests its revocation, the member confirms with a heartbeat, and then the new member gets it::

    STABLE ──────────────── has its target assignment ────────────────────────────────────┐
      │ a newer target                                                                    │
      ▼                                                                                   │
    UNREVOKED               stays at its epoch until it has confirmed the revocation      │
      │                                                                                   │
      ▼                                                                                   │
    UNRELEASED              is at the target epoch; other members still hold partitions ──┘
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from uuid import UUID

from headrace.groups.heartbeats.reconciliation import Difference, overlaps
from headrace.groups.records import (
    Assignment,
    ConsumerAssignment,
    HeldPartitions,
    MemberState,
    each,
)

Owned = Mapping[UUID, AbstractSet[int]]
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
    if was.state is MemberState.UNREVOKED:
        stays = overlaps(owned, was.pending_revocation)
    else:
        stays = was.state is MemberState.STABLE and was.member_epoch == goal.epoch
    if not stays:
        return _advance(was, goal, owned)
    return _unsubscribed(was, goal, owned) if resubscribed else was


def holds_only(owned: Owned | None, partitions: HeldPartitions) -> bool:
    """Return whether a member reports its partitions and all of them are in ``partitions``."""
    if owned is None:
        return False
    return all(number in partitions.get(topic_id, ()) for topic_id, number in each(owned))


def _unsubscribed(was: ConsumerAssignment, goal: Goal, owned: Owned | None) -> ConsumerAssignment:
    subscribed, pending = {}, dict(was.pending_revocation)
    for topic_id, held in was.assigned.items():
        if topic_id in goal.topic_ids:
            subscribed[topic_id] = held
        else:
            pending[topic_id] = {**pending.get(topic_id, {}), **held}
    if len(subscribed) == len(was.assigned):
        return was
    at_its_epoch = replace(was, previous_member_epoch=was.member_epoch, assigned=subscribed)
    if overlaps(owned, pending):
        return replace(at_its_epoch, state=MemberState.UNREVOKED, pending_revocation=pending)
    return at_its_epoch


def _advance(was: ConsumerAssignment, goal: Goal, owned: Owned | None) -> ConsumerAssignment:
    def is_free(topic_id: UUID, number: int) -> bool:
        is_giving_up = number in was.pending_revocation.get(topic_id, {})
        return is_giving_up or goal.is_free(topic_id, number)

    target = {
        topic_id: numbers if topic_id in goal.topic_ids else ()
        for topic_id, numbers in goal.target.items()
    }
    difference = Difference(was.assigned, target, is_free, goal.epoch)
    if difference.revoked and overlaps(owned, difference.revoked):
        return ConsumerAssignment(
            was.member_epoch,
            was.member_epoch,
            MemberState.UNREVOKED,
            difference.kept,
            difference.revoked,
        )
    state = MemberState.UNRELEASED if difference.waits else MemberState.STABLE
    return ConsumerAssignment(goal.epoch, was.member_epoch, state, difference.assigned())
