"""The states of a classic group, and the events that change them.

A *generation* is an agreed set of members, protocol and assignments. It takes two rounds of
requests.

1. **JoinGroup.** Every member sends one and waits (PREPARING_REBALANCE) until all members have sent
   theirs or the rebalance timeout has passed. Then all responses are sent at once, with the new
   generation id. The leader's response also has the subscriptions of all members.
2. **SyncGroup.** The leader sends the assignments of all members. The others send no assignments
   and wait for the leader (COMPLETING_REBALANCE). The leader's request makes the group STABLE and
   completes all waiting requests.

Any change of the members begins a rebalance, with the first round::

    EMPTY ────────────────┐
    STABLE ───────────────┼─ MEMBERS_CHANGED ─> PREPARING_REBALANCE
    COMPLETING_REBALANCE ─┘

    PREPARING_REBALANCE ── JOINED ──────> COMPLETING_REBALANCE ── ASSIGNED ──> STABLE
    PREPARING_REBALANCE ── NONE_LEFT ───> EMPTY

Only STABLE and EMPTY generations are recorded. After a restart the group is in the last recorded
one, and its members continue or rejoin.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto


class State(Enum):
    """The state of a classic group; the value is the name in responses."""

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
