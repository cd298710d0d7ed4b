"""Attempts at records, and the times before and after which none is made. Pure.

The broker counts deliveries, up to a limit after which it archives a record. So a record whose
deliveries are nearly spent is written again, with the number of the attempts before: see
:mod:`headrace.worker.copies`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

from headrace.client.records import Record
from headrace.protocol.task_headers import ATTEMPTS, DUE_MS, EXPIRES_MS

_HEADERS = (ATTEMPTS, DUE_MS, EXPIRES_MS)


class Attempt:
    """An attempt at a record that was delivered: made now, later, or not at all.

    :ivar earlier: the attempts before the record was written again
    :ivar number: of this attempt, from 1
    :ivar due_s: the time before which it is not made, in seconds since the epoch; 0 for none
    :ivar expires_s: the time after which it is not made; 0 for none
    :ivar since_s: when its function began, by ``time.time``
    :ivar slot: the asyncio task in which its function runs
    :ivar is_accepted: whether the record was accepted before: at most once
    :ivar is_given_up: whether its outcome is decided, though the function has not ended
    """

    __slots__ = (
        *("due_s", "earlier", "expires_s", "is_accepted", "is_given_up", "is_timed_out"),
        *("number", "record", "since_s", "slot"),
    )

    def __init__(self, record: Record) -> None:
        self.record = record
        numbers = {name: _number(text) for name, text in record.headers if name in _HEADERS}
        self.earlier = numbers.get(ATTEMPTS, 0)
        self.due_s, self.expires_s = (numbers.get(n, 0) / 1000 for n in (DUE_MS, EXPIRES_MS))
        self.number = self.earlier + record.delivery_count
        self.since_s = 0.0
        self.slot: asyncio.Task[Any] | None = None
        self.is_accepted = self.is_given_up = self.is_timed_out = False

    def __str__(self) -> str:
        return f"{self.record.topic}-{self.record.partition} offset {self.record.offset}"


def _number(text: bytes | None) -> int:
    """Return the number in a header; 0 if there is none: anybody may write headers."""
    return int(text) if text is not None and text.isdigit() and len(text) < 16 else 0


class Waiting:
    """Attempts that are not due yet, whose records are held.

    :ivar size_bytes: of their keys, values and headers
    """

    def __init__(self) -> None:
        self.size_bytes = 0
        self._heap: list[tuple[float, int, Attempt]] = []
        self._serial = count()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, attempt: Attempt) -> None:
        """Have an attempt wait."""
        heappush(self._heap, (attempt.due_s, next(self._serial), attempt))
        self.size_bytes += attempt.record.size_bytes

    def next_due_s(self) -> float | None:
        """Return when the first one is due; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_s: float, max_attempts: int) -> list[Attempt]:
        """Remove and return attempts that are due."""
        due: list[Attempt] = []
        while self._heap and self._heap[0][0] <= now_s and len(due) < max_attempts:
            due.append(heappop(self._heap)[2])
        self.size_bytes -= sum(attempt.record.size_bytes for attempt in due)
        return due

    def attempts(self) -> list[Attempt]:
        """Return all."""
        return [attempt for _, _, attempt in self._heap]

    def remove(self, record_ids: Container[int]) -> list[Attempt]:
        """Remove and return the attempts at records with these ``id()``."""
        removed = [a for a in self.attempts() if id(a.record) in record_ids]
        self._heap = [entry for entry in self._heap if id(entry[2].record) not in record_ids]
        heapify(self._heap)
        self.size_bytes -= sum(attempt.record.size_bytes for attempt in removed)
        return removed
