"""Deadlines, most of which are moved again and again before they pass.

Moving one changes a dictionary entry; the heap changes only when its head is read. So the cost of
ten thousand members is that of their heartbeats, and ten thousand idle groups cost nothing.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K")


class Deadlines(Generic[K]):
    """Keys, each with the time at which it is due, in milliseconds."""

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
        """Set or move the deadline of ``key``."""
        self._due[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._push(key, deadline_ms)

    def cancel(self, key: K) -> None:
        """Remove ``key``."""
        self._due.pop(key, None)

    def next_ms(self) -> int | None:
        """Return when the first key is due; None when there is none."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> K | None:
        """Remove and return the first key that is due at ``now_ms``; None when there is none."""
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
        """Bring the heap's head up to date: drop keys that were removed, move keys whose deadline
        has moved.
        """
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
