"""Copies of records that a worker writes: dead letters, and records for later attempts. Pure.

A record for a later attempt goes to a topic that belongs to the group alone: other groups of the
first topic do not get it.
"""

from __future__ import annotations

from math import ceil

from headrace.client.records import Record
from headrace.log_lines import printable
from headrace.protocol import dead_letters
from headrace.protocol.task_headers import ATTEMPTS, DUE_MS, OF_ATTEMPTS, ORIGIN

from .attempts import Attempt
from .child import traceback_of
from .outcomes import Outcome
from .sending import NewRecord

_MAX_ORIGIN_BYTES = 300
_MAX_TEXT_CHARS = 1000


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
    headers: list[tuple[str, bytes | None]] = [
        (dead_letters.TOPIC, record.topic.encode()),
        (dead_letters.PARTITION, b"%d" % record.partition),
        (dead_letters.OFFSET, b"%d" % record.offset),
        (dead_letters.GROUP, group.encode()),
        (dead_letters.DELIVERY_COUNT, b"%d" % record.delivery_count),
        (dead_letters.MESSAGE, printable(outcome.reason, _MAX_TEXT_CHARS).encode()),
        (dead_letters.ATTEMPT, b"%d" % attempt.number),
        (dead_letters.WORKER, worker.encode()),
    ]
    if error is not None:
        headers += [
            (dead_letters.EXCEPTION, type(error).__qualname__.encode(errors="backslashreplace")),
            (dead_letters.TRACEBACK, traceback_of(error).encode(errors="backslashreplace")),
        ]
    letter = NewRecord(queue, record.value, record.key, [*record.headers, *headers])
    return letter, NewRecord(queue, None, None, headers)
