"""Attempts at records, and the times before and after which none is made. Pure.

The broker counts deliveries, up to a limit after which it archives a record. So a record whose
deliveries are nearly spent is written again, with the number of the attempts before: see
:mod:`headrace.worker.copies`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right, insort
from collections.abc import Container
from math import inf
from operator import attrgetter
from typing import Any

from headrace.client.records import Record
from headrace.protocol.task_headers import ATTEMPTS, DUE_MS, EXPIRES_MS

_HEADERS = (ATTEMPTS, DUE_MS, EXPIRES_MS)
_due_s = attrgetter("due_s")


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

    :ivar attempts: the first one to be due first; changed by the methods only
    :ivar size_bytes: of their keys, values and headers
    """

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.size_bytes = 0

    def add(self, attempt: Attempt) -> None:
        """Have an attempt wait."""
        insort(self.attempts, attempt, key=_due_s)
        self.size_bytes += attempt.record.size_bytes

    def next_due_s(self) -> float:
        """Return when the first one is due; infinity if there is none."""
        return self.attempts[0].due_s if self.attempts else inf

    def take_due(self, now_s: float, max_attempts: int) -> list[Attempt]:
        """Remove and return attempts that are due."""
        due = self.attempts[: bisect_right(self.attempts, now_s, key=_due_s)][:max_attempts]
        del self.attempts[: len(due)]
        self.size_bytes -= sum(attempt.record.size_bytes for attempt in due)
        return due

    def remove(self, record_ids: Container[int]) -> list[Attempt]:
        """Remove and return the attempts at records with these ``id()``."""
        removed = [attempt for attempt in self.attempts if id(attempt.record) in record_ids]
        self.attempts = [a for a in self.attempts if id(a.record) not in record_ids]
        self.size_bytes -= sum(attempt.record.size_bytes for attempt in removed)
        return removed
