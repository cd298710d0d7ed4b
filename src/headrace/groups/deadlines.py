"""Many deadlines, most of which are put off again and again before they come.

Putting one off costs a dictionary entry; the heap is only touched when its head is asked for. So ten thousand members
that heartbeat cost their heartbeats, and ten thousand idle groups nothing.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Generic, TypeAlias, TypeVar

K = TypeVar("K")


class Deadlines(Generic[K]):
    """Keys with the time, in epoch milliseconds, at which each is due."""

    __slots__ = ("_due", "_heap", "_queued", "_sequence")

    def __init__(self) -> None:
        self._due: dict[K, int] = {}
        self._queued: dict[K, int] = {}  # the earliest entry of each key on the heap
        self._heap: list[tuple[int, int, K]] = []
        self._sequence = 0  # keys that are due together come in the order in which they were queued

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def set(self, key: K, deadline_ms: int) -> None:
        """Have ``key`` due at ``deadline_ms``, whatever it was before."""
        self._due[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._push(key, deadline_ms)

    def cancel(self, key: K) -> None:
        """Forget ``key``."""
        self._due.pop(key, None)

    def next_ms(self) -> int | None:
        """When the first is due; None when there is none."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> K | None:
        """The first key that is due at ``now_ms``, forgotten with this; None when there is none."""
        self._settle()
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        _, _, key = heappop(self._heap)
        del self._due[key], self._queued[key]
        return key

    def _push(self, key: K, deadline_ms: int) -> None:
        self._sequence += 1
        self._queued[key] = deadline_ms
        heappush(self._heap, (deadline_ms, self._sequence, key))

    def _settle(self) -> None:
        """Bring the heap's head up to date: drop what was cancelled, move what was put off."""
        while self._heap:
            queued_ms, _, key = self._heap[0]
            if self._queued.get(key) != queued_ms:  # an earlier entry of this key came since
                heappop(self._heap)
                continue
            due_ms = self._due.get(key)
            if due_ms == queued_ms:
                return
            heappop(self._heap)
            del self._queued[key]
            if due_ms is not None:
                self._push(key, due_ms)


TimerKey: TypeAlias = tuple[str, str, str]
"""Group id, what for, member id."""

SESSION, PENDING, JOIN, SYNC = "session", "pending", "join", "sync"
REVOKE, REJOIN, RESYNC = "revoke", "rejoin", "resync"
"""Of a consumer group's member: to give partitions up, and of a classic one to join again and to sync."""

OFFSETS: TimerKey = ("", "offsets", "")
"""The next look at committed offsets, of all groups."""


class GroupDeadlines:
    """One group's part of the deadlines of all groups: by what for and, where it is about one, the member's id."""

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
