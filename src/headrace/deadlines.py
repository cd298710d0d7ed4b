"""Many deadlines, most of which are put off again and again before they come.

Putting one off costs a dictionary entry; the heap is only touched when its head is asked for. So
ten thousand members that heartbeat cost their heartbeats, and ten thousand idle groups nothing.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Generic, TypeVar

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
