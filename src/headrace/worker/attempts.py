"""Attempts at records, the times before and after which none is made, and the copies of records
that a worker writes. Pure.

The broker counts deliveries, up to a limit after which it archives a record. So a record whose
deliveries are nearly spent is written again, with the number of the attempts before. It goes to a
topic that belongs to the group alone: other groups of the first topic do not get it. The other
copies are dead letters.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right, insort
from collections.abc import Container
from math import ceil, inf
from operator import attrgetter
from typing import Any

from headrace.client.records import Record
from headrace.log_lines import printable
from headrace.protocol import dead_letters
from headrace.protocol.task_headers import ATTEMPTS, DUE_MS, EXPIRES_MS, OF_ATTEMPTS, ORIGIN

from .child import traceback_of
from .outcomes import Outcome
from .sending import NewRecord

_HEADERS = (ATTEMPTS, DUE_MS, EXPIRES_MS)
_MAX_ORIGIN_BYTES = 300
_MAX_TEXT_CHARS = 1000
_due_s = attrgetter("due_s")


class Attempt:
    """An attempt at a record that was delivered: made now, later, or not at all.

    :ivar earlier: the attempts before the record was written again
    :ivar number: of this attempt, from 1
    :ivar due_s: the time before which it is not made, in seconds since the epoch; 0 for none
    :ivar expires_s: the time after which it is not made; 0 for none
    :ivar since_s: when its function began, by ``time.time``
    :ivar began_s: the same, by ``time.monotonic``
    :ivar slot: the asyncio task in which its function runs
    :ivar is_accepted: whether the record was accepted before: at most once
    :ivar is_given_up: whether its outcome is decided, though the function has not ended
    """

    def __init__(self, record: Record) -> None:
        self.record = record
        numbers = {name: _number(text) for name, text in record.headers if name in _HEADERS}
        self.earlier = numbers.get(ATTEMPTS, 0)
        self.due_s, self.expires_s = (numbers.get(n, 0) / 1000 for n in (DUE_MS, EXPIRES_MS))
        self.number = self.earlier + record.delivery_count
        self.since_s = self.began_s = 0.0
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


# Copies -------------------------------------------------------------------------------------------


def origin_of(record: Record, later: str) -> bytes:
    """Return the place of a record, before it was written again.

    :param later: the group's topic of later records: in others, anybody may have written the header
    """
    for name, value in record.headers if record.topic == later else ():
        if name == ORIGIN and value:
            return value[:_MAX_ORIGIN_BYTES]
    return f"{record.topic}/{record.partition}/{record.offset}".encode()


def written_again(later: str, record: Record, earlier: int, due_s: float = 0.0) -> NewRecord:
    """Return a record as it is written again.

    :param later: the group's topic of later records
    :param earlier: the attempts so far
    :param due_s: the time before which it is not processed, in seconds since the epoch
    """
    headers = [header for header in record.headers if header[0] not in OF_ATTEMPTS]
    headers.append((ORIGIN, origin_of(record, later)))
    if earlier:
        headers.append((ATTEMPTS, b"%d" % earlier))
    if due_s:
        headers.append((DUE_MS, b"%d" % ceil(due_s * 1000)))
    return NewRecord(later, record.value, record.key, headers)


def letter(
    queue: str, attempt: Attempt, outcome: Outcome, *, group: str, worker: str
) -> tuple[NewRecord, NewRecord]:
    """Return the dead letter of a record (KIP-1191's headers, and those of
    :mod:`headrace.protocol.dead_letters` that name the exception); and one without the content of
    the record, which may be too large for the queue: the topic still has it for a while.
    """
    record, error = attempt.record, outcome.error
    told: dict[str, object] = {
        dead_letters.TOPIC: record.topic,
        dead_letters.PARTITION: record.partition,
        dead_letters.OFFSET: record.offset,
        dead_letters.GROUP: group,
        dead_letters.DELIVERY_COUNT: record.delivery_count,
        dead_letters.MESSAGE: printable(outcome.reason, _MAX_TEXT_CHARS),
        dead_letters.ATTEMPT: attempt.number,
        dead_letters.WORKER: worker,
    }
    if error is not None:
        told[dead_letters.EXCEPTION] = type(error).__qualname__
        told[dead_letters.TRACEBACK] = traceback_of(error)
    headers = [(name, str(v).encode(errors="backslashreplace")) for name, v in told.items()]
    letter = NewRecord(queue, record.value, record.key, [*record.headers, *headers])
    return letter, NewRecord(queue, None, None, headers)
