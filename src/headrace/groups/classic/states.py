"""The states of a classic group, and the events that lead from one to another.

Members agree on a *generation*: who is in the group, which protocol they use, and what each of them
is assigned. Forming a generation takes two rounds of requests.

1. **JoinGroup.** Every member sends one and waits (PREPARING_REBALANCE) until all members have sent
   theirs or the rebalance timeout has passed. Then all are answered at once with the number of the
   new generation, and one of them, the leader, with the subscriptions of all members.
2. **SyncGroup.** The leader sends what it has assigned to whom, the other members send theirs
   without assignments and wait for it (COMPLETING_REBALANCE). The leader's request makes the
   generation STABLE and answers all of them.

Whatever changes the membership begins a rebalance, that is, the first round::

    EMPTY ────────────────┐
    STABLE ───────────────┼─ MEMBERS_CHANGED ─> PREPARING_REBALANCE
    COMPLETING_REBALANCE ─┘

    PREPARING_REBALANCE ── JOINED ──────> COMPLETING_REBALANCE ── ASSIGNED ──> STABLE
    PREPARING_REBALANCE ── NONE_LEFT ───> EMPTY

Only generations in STABLE and EMPTY are recorded. A restart falls back to the last one of them: its
members continue or join again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto


class State(Enum):
    """The state of a classic group; the value is the name that clients are told."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class Event(Enum):
    """An event that may change the state of a classic group."""

    MEMBERS_CHANGED = auto()
    """A member joined, left, expired or changed its subscription."""
    JOINED = auto()
    """All members have sent JoinGroup, or the rebalance timeout has passed."""
    NONE_LEFT = auto()
    """The rebalance timeout has passed, or the last member has left, and no member remains."""
    ASSIGNED = auto()
    """The leader has sent the assignments."""


TRANSITIONS: Mapping[tuple[State, Event], State] = {
    (State.EMPTY, Event.MEMBERS_CHANGED): State.PREPARING_REBALANCE,
    (State.PREPARING_REBALANCE, Event.JOINED): State.COMPLETING_REBALANCE,
    (State.PREPARING_REBALANCE, Event.NONE_LEFT): State.EMPTY,
    (State.COMPLETING_REBALANCE, Event.MEMBERS_CHANGED): State.PREPARING_REBALANCE,
    (State.COMPLETING_REBALANCE, Event.ASSIGNED): State.STABLE,
    (State.STABLE, Event.MEMBERS_CHANGED): State.PREPARING_REBALANCE,
}
