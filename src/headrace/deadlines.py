"""Deadlines that are usually postponed before they are reached, such as session timeouts.

Postponing a deadline sets a dictionary entry. The heap is updated only when its head is needed, so
deadlines in the future cost nothing.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K")

RETRY_MS = 1000
"""The time before a timeout that failed is tried again."""

_MOST_STALE = 64
"""The number of outdated entries that a heap may have beside as many as it has deadlines."""


class Deadlines(Generic[K]):
    """Keys, each with a deadline in milliseconds of one clock."""

    __slots__ = ("_due", "_heap", "_queued", "_sequence")

    def __init__(self) -> None:
        self._due: dict[K, int] = {}
        self._queued: dict[K, int] = {}  # the earliest entry of each key on the heap
        self._heap: list[tuple[int, int, K]] = []
        self._sequence = 0  # orders keys that are due at the same time

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def set(self, key: K, deadline_ms: int) -> None:
        """Set the deadline of ``key``, earlier or later than before."""
        self._due[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._push(key, deadline_ms)

    def cancel(self, key: K) -> None:
        """Remove the deadline of ``key``, if it has one."""
        self._due.pop(key, None)

    def next_ms(self) -> int | None:
        """Return the earliest deadline, None if there is none."""
        self._update_head()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> K | None:
        """Remove and return the key with the earliest deadline up to ``now_ms``; None if there is
        none.
        """
        self._update_head()
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        _, _, key = heappop(self._heap)
        del self._due[key], self._queued[key]
        return key

    def _push(self, key: K, deadline_ms: int) -> None:
        self._sequence += 1
        self._queued[key] = deadline_ms
        heappush(self._heap, (deadline_ms, self._sequence, key))
        if len(self._heap) > 2 * len(self._due) + _MOST_STALE:
            # Drop the entries of cancelled keys, and those with an earlier one of the same key.
            # Their times may be days ahead.
            self._queued = {key: at_ms for key, at_ms in self._queued.items() if key in self._due}
            self._heap = [entry for entry in self._heap if self._queued.get(entry[2]) == entry[0]]
            heapify(self._heap)

    def _update_head(self) -> None:
        """Update the head of the heap: drop cancelled keys, move postponed ones."""
        while self._heap:
            queued_ms, _, key = self._heap[0]
            if self._queued.get(key) != queued_ms:  # a newer, earlier entry of the key exists
                heappop(self._heap)
                continue
            due_ms = self._due.get(key)
            if due_ms == queued_ms:
                return
            heappop(self._heap)
            del self._queued[key]
            if due_ms is not None:
                self._push(key, due_ms)
