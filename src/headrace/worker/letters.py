"""Dead letters that a worker writes: a copy of the record, and why it could not be processed."""

from __future__ import annotations

from traceback import format_exception

from headrace.client.records import Record
from headrace.log_lines import printable, shown
from headrace.protocol import dead_letters

from .sending import NewRecord

_MAX_TEXT_CHARS = 1000
_MAX_TRACEBACK_CHARS = 8000
_MAX_FRAMES = 20


def letter(
    queue: str,
    record: Record,
    *,
    group: str,
    worker: str,
    attempt: int,
    reason: str,
    error: BaseException | None,
) -> NewRecord:
    """Return the dead letter of a record (KIP-1191's headers, and those of
    :mod:`headrace.protocol.dead_letters` that name the exception).
    """
    headers: list[tuple[str, bytes | None]] = [
        *record.headers,
        (dead_letters.TOPIC, record.topic.encode()),
        (dead_letters.PARTITION, b"%d" % record.partition),
        (dead_letters.OFFSET, b"%d" % record.offset),
        (dead_letters.GROUP, group.encode()),
        (dead_letters.DELIVERY_COUNT, b"%d" % record.delivery_count),
        (dead_letters.MESSAGE, _text(reason, _MAX_TEXT_CHARS)),
        (dead_letters.ATTEMPT, b"%d" % attempt),
        (dead_letters.WORKER, worker.encode()),
    ]
    if error is not None:
        headers += [
            (dead_letters.EXCEPTION, type(error).__qualname__.encode(errors="backslashreplace")),
            (dead_letters.TRACEBACK, _tail(_traceback(error), _MAX_TRACEBACK_CHARS)),
        ]
    return NewRecord(queue, record.value, record.key, headers)


def without_content(copy: NewRecord, record: Record) -> NewRecord:
    """Return a dead letter without the content of its record, which may be too large for the queue.
    The topic still has it for a while.
    """
    return NewRecord(copy.topic, None, None, copy.headers[len(record.headers) :])


def _traceback(error: BaseException) -> str:
    try:
        return "".join(format_exception(error, limit=-_MAX_FRAMES))
    except Exception as failure:  # an exception may have attributes of any kind
        return f"the traceback of {type(error).__name__} cannot be told: {shown(failure)}"


def _text(text: str, max_chars: int) -> bytes:
    return printable(text, max_chars).encode()


def _tail(text: str, max_chars: int) -> bytes:
    """The end of a traceback names the failure."""
    return text[-max_chars:].encode(errors="backslashreplace")
