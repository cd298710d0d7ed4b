"""Log lines of the broker: safe to print, short, and few.

Clients choose client ids, group ids, topic names and the bytes that error texts quote. A logger of
:func:`get_logger` escapes and shortens every value of a line, and never writes bytes. Lines that a
client can cause again and again go through :class:`LimitedLog`: one line per kind, peer and second.
"""

from __future__ import annotations

import asyncio
import codecs
import logging
import math
import re
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from traceback import format_tb
from typing import Any

MAX_VALUE_CHARS = 500
"""The longest value in a log line. Topic names have up to 249 characters, client ids 32,767."""

MAX_MESSAGE_CHARS = 4000
"""The longest message that is logged without values."""

MAX_TRACEBACK_FRAMES = 40
"""The last frames of an exception that are logged."""

MAX_TRACEBACK_CAUSES = 5
"""The exceptions of a chain of causes that are logged."""

LIMITED_LINE_INTERVAL_S = 1.0
"""The time in which one line of a kind and a peer is logged."""

MAX_LIMITED_PEERS = 200
"""The pairs of kind and peer that are remembered for an interval. Further peers share one entry for
each kind: not many more lines than this are logged in an interval, from however many peers.
"""

# Python loads a codec from a file with its first use, when there may be no file descriptor for it.
codecs.lookup("unicode_escape")

_OTHER_PEERS = "other peers"
_PLACEHOLDER = re.compile(r"%[a-z]")
_BYTES = re.compile(
    r"""(?<![\w'"\\])b(?:'(?:[^'\\]|\\.)*(?:'|\\?\Z)|"(?:[^"\\]|\\.)*(?:"|\\?\Z))""", re.DOTALL
)
"""The text of a bytes object, also one that was cut."""


# Values -------------------------------------------------------------------------------------------


def shown(value: object, max_chars: int = MAX_VALUE_CHARS) -> str:
    """Return the text of a value as it may be logged.

    Characters that are not printable (line breaks, terminal escapes, marks of text direction) are
    escaped, bytes are replaced by their number, and a long text is cut.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"<{len(value)} bytes>"
    try:
        text = str(value)
    except Exception as error:  # the text of an exception may fail, too
        text = f"<{type(value).__name__} without text: {type(error).__name__}>"
    return _line(_BYTES.sub("<bytes>", text[:max_chars]), len(text) - max_chars)


def printable(text: str, max_chars: int = MAX_VALUE_CHARS) -> str:
    """Return a text with escapes for characters that are not printable, cut if it is long."""
    return _line(text[:max_chars], len(text) - max_chars)


def _line(text: str, cut_chars: int) -> str:
    if not text.isprintable():
        text = "".join(
            character
            if character.isprintable()
            else character.encode("unicode_escape").decode("ascii")
            for character in text
        )
    return f"{text}... and {cut_chars} more characters" if cut_chars > 0 else text


# Lines --------------------------------------------------------------------------------------------


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a name, whose lines are made safe, whichever handler writes them."""
    logger = logging.getLogger(name)
    logger.addFilter(make_safe)
    return logger


def make_safe(record: logging.LogRecord) -> bool:
    """Escape and shorten the values of a log record and the texts of its exceptions. This is a
    filter of loggers and handlers that lets every record pass.
    """
    if not getattr(record, "is_safe", False):
        record.is_safe = True
        if isinstance(record.args, Mapping):
            record.args = {name: _safe(value) for name, value in record.args.items()}
        elif record.args:
            record.args = tuple(map(_safe, record.args))
        else:
            record.msg = shown(record.msg, MAX_MESSAGE_CHARS)
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text = "\n".join(_traceback_lines(record.exc_info[1]))
    return True


def _safe(value: object) -> object:
    return value if value is None or isinstance(value, (int, float)) else shown(value)


def _traceback_lines(error: BaseException) -> Iterator[str]:
    """Yield the lines of a traceback, the first cause first. Only the texts of exceptions can be
    from a client.
    """
    chain = [error]
    while len(chain) < MAX_TRACEBACK_CAUSES:
        last = chain[-1]
        cause = last.__cause__ or (None if last.__suppress_context__ else last.__context__)
        if cause is None or cause in chain:
            break
        chain.append(cause)
    for cause in reversed(chain):
        yield "Traceback (most recent call last):"
        for frame in format_tb(cause.__traceback__)[-MAX_TRACEBACK_FRAMES:]:
            yield frame.rstrip("\n")
        yield f"{type(cause).__name__}: {shown(cause)}"


# Few lines ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Entry:
    """The lines of one kind that one peer has caused in an interval.

    :ivar since_s: when the interval began, by ``time.monotonic``
    :ivar logged: the lines that were logged since then
    :ivar left_out: those that were not
    """

    logger: logging.Logger
    level: int
    since_s: float
    logged: int = 0
    left_out: int = 0


class Limiter:
    """The memory of the lines that were logged, for all loggers of a process.

    It says how many lines were left out: with the next line, whatever its kind, that comes after
    the interval, or when it is asked.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], _Entry] = {}
        """By kind and peer of a line, the oldest first."""
        self._lock = threading.Lock()  # the log also works in threads

    def __len__(self) -> int:
        return len(self._entries)

    def admit(
        self, logger: logging.Logger, level: int, kind: str, peer: str, limit: int = 1
    ) -> int | None:
        """Count a line.

        :param limit: of the lines in an interval
        :returns: None if it is not logged; otherwise the number of lines that were left out before
            it
        """
        key, now_s = (kind, peer), time.monotonic()
        with self._lock:
            ended = self._forget(now_s - LIMITED_LINE_INTERVAL_S)
            before = ended.pop(key, None)
            if key not in self._entries and len(self._entries) >= MAX_LIMITED_PEERS:
                key = kind, _OTHER_PEERS
            entry = self._entries.setdefault(key, _Entry(logger, level, now_s))
            is_logged = entry.logged < limit
            entry.logged += is_logged
            entry.left_out += not is_logged
        _tell(ended)
        if not is_logged:
            return None
        return 0 if before is None else before.left_out

    def clear(self) -> None:
        """Forget all lines."""
        with self._lock:
            self._entries.clear()

    def report(self) -> None:
        """Log how many lines were left out."""
        with self._lock:
            ended = self._forget(math.inf)
        _tell(ended)

    def _forget(self, until_s: float) -> dict[tuple[str, str], _Entry]:
        """Remove and return the entries whose intervals began until then."""
        ended = dict(takewhile(lambda item: item[1].since_s <= until_s, self._entries.items()))
        for key in ended:
            del self._entries[key]
        return ended


def _tell(ended: Mapping[tuple[str, str], _Entry]) -> None:
    for (kind, peer), entry in ended.items():
        if entry.left_out:
            cause = f" because of {peer}" if peer else ""
            message = "%d more lines%s are left out: %s"
            kind = _PLACEHOLDER.sub("...", kind)
            entry.logger.log(entry.level, message, entry.left_out, cause, kind)


LIMITER = Limiter()
"""The limiter of this process."""


class LimitedLog:
    """The lines of a logger that clients can cause: one per kind, peer and second.

    The kind of a line is its message without values. ``peer`` is the host of the client, or the
    object that the line is about where no client is known.

    :param name: of the logger
    :param limit: of the lines of a kind and a peer in a second
    """

    def __init__(self, name: str, limiter: Limiter = LIMITER, *, limit: int = 1) -> None:
        self._logger = get_logger(name)
        self._limiter = limiter
        self._limit = limit

    def info(self, peer: str, message: str, *values: object) -> None:
        """Log a line for information."""
        self._log(logging.INFO, peer, message, *values)

    def warning(self, peer: str, message: str, *values: object) -> None:
        """Log a warning."""
        self._log(logging.WARNING, peer, message, *values)

    def error(
        self, peer: str, message: str, *values: object, exc_info: BaseException | None = None
    ) -> None:
        """Log an error, with the traceback of ``exc_info``."""
        self._log(logging.ERROR, peer, message, *values, exc_info=exc_info)

    def _log(
        self,
        level: int,
        peer: str,
        message: str,
        *values: object,
        exc_info: BaseException | None = None,
    ) -> None:
        if not self._logger.isEnabledFor(level):
            return
        left_out = self._limiter.admit(self._logger, level, message, shown(peer), self._limit)
        if left_out is None:
            return
        if left_out:
            message, values = f"{message} (%d more like this are left out)", (*values, left_out)
        self._logger.log(level, message, *values, exc_info=exc_info)


_unhandled = LimitedLog("headrace")


def log_unhandled(loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    """Log an error that nobody handles: the exception handler of a broker's event loop. The default
    handler writes whole objects, and each time.
    """
    message, error = context.get("message"), context.get("exception")
    _unhandled.error("event loop", "unhandled error: %s", message, exc_info=error)
