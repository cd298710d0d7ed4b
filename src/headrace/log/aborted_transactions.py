"""Aborted transactions: which ranges of a log a read_committed reader has to pass over (KIP-98).

A log has few of them, so they are all in memory, in the order in which they ended. On disk each
stands in the ``.txnindex`` file of the segment that holds its marker, in Kafka's format. What a
crash may have kept from a file is found again when the batches since the last snapshot are
replayed; see :mod:`headrace.log.recovery`.
"""

from __future__ import annotations

import contextlib
import logging
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from struct import Struct
from typing import NamedTuple

from headrace.protocol.record_batch import headers

logger = logging.getLogger("headrace.log")

_ENTRY = Struct(">hqqqq")
_VERSION = 0
SUFFIX = ".txnindex"


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted; offsets are inclusive.

    :param last_offset: of its marker
    :param last_stable_offset: the log's when it ended: no later entry has a record before that
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedTransactions:
    """Those of one log, ascending by ``last_offset``.

    :ivar saved: whether the files have them all. If not, no snapshot may be taken any more, so that
        a start replays the batches that tell of them.
    """

    __slots__ = ("_entries", "saved")

    def __init__(self, entries: Iterable[AbortedTransaction] = ()) -> None:
        self._entries = list(entries)
        self.saved = True

    def __len__(self) -> int:
        return len(self._entries)

    def replay(self, aborted: AbortedTransaction) -> None:
        """Take in one whose marker was found in the log."""
        self._entries.append(aborted)

    def add(self, aborted: AbortedTransaction, path: str) -> None:
        """Note one whose marker was just appended, also in the file of its segment."""
        self.replay(aborted)
        try:
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.write(fd, _ENTRY.pack(_VERSION, *aborted))
            finally:
                os.close(fd)
        except OSError as error:
            self.saved = False
            logger.error(
                "Cannot note an aborted transaction in %s, the next start will: %s", path, error
            )

    def overlapping(self, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Those with records in ``first_offset <= offset < end_offset``."""
        found = []
        for aborted in self._entries[
            bisect_left(self._entries, first_offset, key=attrgetter("last_offset")) :
        ]:
            if aborted.first_offset < end_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= end_offset:
                break
        return found

    def drop_below(self, log_start_offset: int) -> None:
        """Forget those that lie wholly before the log's start."""
        del self._entries[
            : bisect_left(self._entries, log_start_offset, key=attrgetter("last_offset"))
        ]

    def drop_between(self, first_offset: int, end_offset: int) -> None:
        """Forget those whose marker is at ``first_offset <= offset < end_offset``: their records
        are gone.
        """
        key = attrgetter("last_offset")
        i, j = (
            bisect_left(self._entries, offset, key=key) for offset in (first_offset, end_offset)
        )
        del self._entries[i:j]

    def in_segment(self, base_offset: int, end_offset: int | None) -> list[AbortedTransaction]:
        """Those whose marker is in a segment; None for the last one's end."""
        key = attrgetter("last_offset")
        i = bisect_left(self._entries, base_offset, key=key)
        j = (
            len(self._entries)
            if end_offset is None
            else bisect_right(self._entries, end_offset - 1, key=key)
        )
        return self._entries[i:j]


def aborted_ranges(
    data: bytes | memoryview, aborted: Sequence[AbortedTransaction]
) -> list[tuple[int, int]]:
    """(first, last offset) of the batches in ``data`` that aborted transactions wrote, without
    their markers.
    """
    if not aborted:
        return []
    of_producer: dict[int, list[AbortedTransaction]] = {}
    for one in aborted:
        of_producer.setdefault(one.producer_id, []).append(one)
    return [
        (header.base_offset, header.last_offset)
        for _, header in headers(data)
        if header.is_transactional
        and not header.is_control
        and any(
            one.first_offset <= header.base_offset < one.last_offset
            for one in of_producer.get(header.producer_id, ())
        )
    ]


def read(paths: Sequence[str], before_offset: int) -> AbortedTransactions:
    """What the ``.txnindex`` files of a log's segments hold of transactions that ended before an
    offset.
    """
    entries: list[AbortedTransaction] = []
    for path in paths:
        try:
            with open(path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            continue
        whole = len(data) - len(data) % _ENTRY.size
        for version, *fields in _ENTRY.iter_unpack(data[:whole]):
            aborted = AbortedTransaction(*fields)
            if version == _VERSION and aborted.last_offset < before_offset:
                entries.append(aborted)
    return AbortedTransactions(sorted(entries, key=attrgetter("last_offset")))


def write(path: str, entries: Sequence[AbortedTransaction]) -> None:
    """Make a segment's file say exactly this; without any there is no file.

    :raises OSError: when the disk fails
    """
    if not entries:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        return
    with open(path, "wb") as file:
        file.write(b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries))
