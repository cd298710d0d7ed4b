"""Timers of groups and their members, on top of :mod:`headrace.deadlines`."""

from __future__ import annotations

from headrace.deadlines import Deadlines

TimerKey = tuple[str, str, str]
"""Group id, kind of timer, member id ("" for a timer of the group)."""

SESSION, PENDING, JOIN, SYNC = "session", "pending", "join", "sync"
"""A member's session; the time for a new member to rejoin with its id; the end of the JoinGroup and
SyncGroup phases of a classic group's rebalance.
"""

REVOKE, REJOIN, RESYNC = "revoke", "rejoin", "resync"
"""The times for a consumer group's member to revoke partitions, and for a classic member of it to
send JoinGroup, then SyncGroup.
"""

ASSIGN = "assign"
"""The initial rebalance delay of a streams group."""

OFFSETS: TimerKey = ("", "offsets", "")
"""The next check of committed offsets, of all groups."""


TimerChanges = dict[tuple[str, str], int | None]
"""Deadlines to set, None for those to cancel, by kind of timer and member id. They are made when a
decision is applied.
"""


class GroupDeadlines:
    """The timers of one group, by kind and, where the timer belongs to a member, member id."""

    __slots__ = ("_deadlines", "_group_id")

    def __init__(self, deadlines: Deadlines[TimerKey], group_id: str) -> None:
        self._deadlines, self._group_id = deadlines, group_id

    def set(self, kind: str, member_id: str, deadline_ms: int) -> None:
        """Set or reset a timer."""
        self._deadlines.set((self._group_id, kind, member_id), deadline_ms)

    def has(self, kind: str, member_id: str = "") -> bool:
        """Return whether a timer is set."""
        return (self._group_id, kind, member_id) in self._deadlines

    def apply(self, changes: TimerChanges) -> None:
        """Set and cancel timers."""
        for (kind, member_id), deadline_ms in changes.items():
            if deadline_ms is None:
                self._deadlines.cancel((self._group_id, kind, member_id))
            else:
                self.set(kind, member_id, deadline_ms)
