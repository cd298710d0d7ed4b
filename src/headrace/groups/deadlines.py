"""What members of groups are waited for, and how long: the groups' part of
:mod:`headrace.deadlines`.
"""

from __future__ import annotations

from typing import TypeAlias

from headrace.deadlines import Deadlines

TimerKey: TypeAlias = tuple[str, str, str]
"""Group id, what for, member id."""

SESSION, PENDING, JOIN, SYNC = "session", "pending", "join", "sync"
REVOKE, REJOIN, RESYNC = "revoke", "rejoin", "resync"
"""Of a consumer group's member: to give partitions up, and of a classic one to join again and to
sync.
"""

OFFSETS: TimerKey = ("", "offsets", "")
"""The next look at committed offsets, of all groups."""


class GroupDeadlines:
    """One group's part of the deadlines of all groups: by what for and, where it is about one, the
    member's id.
    """

    __slots__ = ("_deadlines", "_group_id")

    def __init__(self, deadlines: Deadlines[TimerKey], group_id: str) -> None:
        self._deadlines, self._group_id = deadlines, group_id

    def set(self, kind: str, member_id: str, deadline_ms: int) -> None:
        """Have :meth:`Deadlines.pop_due` tell of it at ``deadline_ms``."""
        self._deadlines.set((self._group_id, kind, member_id), deadline_ms)

    def cancel(self, kind: str, member_id: str = "") -> None:
        """Forget it."""
        self._deadlines.cancel((self._group_id, kind, member_id))

    def has(self, kind: str, member_id: str = "") -> bool:
        """Whether it is still to come."""
        return (self._group_id, kind, member_id) in self._deadlines
