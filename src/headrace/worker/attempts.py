"""Attempts, and the times of records: what their headers say, and how they are written again. Pure.

The broker counts deliveries, up to a limit after which it archives a record. So a record whose
deliveries are nearly spent is written again, into the topic of the group for later records, with
the number of the attempts before; and so is one that waits longer than it should be held. That
topic belongs to the group alone: other groups of the first topic do not get its records.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from math import ceil
from typing import NamedTuple

from headrace.client.records import Record
from headrace.protocol.task_headers import ATTEMPTS, DUE_MS, EXPIRES_MS, OF_ATTEMPTS, ORIGIN

from .sending import NewRecord

_MAX_ORIGIN_BYTES = 300
_HEADERS = (ATTEMPTS, DUE_MS, EXPIRES_MS)


class Terms(NamedTuple):
    """What the headers of a record say.

    :param earlier: the attempts before it was written again
    :param due_s: the time before which it is not processed, in seconds since the epoch; 0 for none
    :param expires_s: the time after which it is not processed; 0 for none
    """

    earlier: int = 0
    due_s: float = 0.0
    expires_s: float = 0.0


_NO_TERMS = Terms()


def terms_of(record: Record) -> Terms:
    """Return what the headers of a record say; nothing where they make no sense."""
    numbers = {name: _number(value) for name, value in record.headers if name in _HEADERS}
    if not numbers:
        return _NO_TERMS
    due_ms, expires_ms = numbers.get(DUE_MS, 0), numbers.get(EXPIRES_MS, 0)
    return Terms(numbers.get(ATTEMPTS, 0), due_ms / 1000, expires_ms / 1000)


def attempt_of(record: Record) -> int:
    """Return the number of the attempt that a delivery is, from 1."""
    return terms_of(record).earlier + record.delivery_count


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


def _number(text: bytes | None) -> int:
    """Return the number in a header; 0 if there is none: anybody may write headers."""
    return int(text) if text is not None and text.isdigit() and len(text) < 16 else 0


class Waiting:
    """Held records that are not due yet.

    :ivar size_bytes: of their keys and values
    """

    def __init__(self) -> None:
        self.size_bytes = 0
        self._heap: list[tuple[float, int, Record]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, record: Record, due_s: float) -> None:
        """Have a record wait."""
        self._serial += 1
        heappush(self._heap, (due_s, self._serial, record))
        self.size_bytes += _size(record)

    def next_due_s(self) -> float | None:
        """Return when the first record is due; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_s: float, max_records: int) -> list[Record]:
        """Remove and return records that are due."""
        due: list[Record] = []
        while self._heap and self._heap[0][0] <= now_s and len(due) < max_records:
            due.append(heappop(self._heap)[2])
        self.size_bytes -= sum(map(_size, due))
        return due

    def items(self) -> list[tuple[float, Record]]:
        """Return (due time, record) of all."""
        return [(due_s, record) for due_s, _, record in self._heap]

    def remove(self, records: Iterable[Record]) -> list[Record]:
        """Remove and return records, as far as they wait."""
        chosen = set(map(id, records))
        removed = [record for _, _, record in self._heap if id(record) in chosen]
        self._heap = [entry for entry in self._heap if id(entry[2]) not in chosen]
        heapify(self._heap)
        self.size_bytes = sum(_size(record) for _, _, record in self._heap)
        return removed

    def clear(self) -> list[Record]:
        """Remove and return all."""
        records = [record for _, _, record in self._heap]
        self._heap.clear()
        self.size_bytes = 0
        return records


def _size(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"")
