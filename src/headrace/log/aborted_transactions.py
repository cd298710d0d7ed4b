"""Aborted transactions: the ranges of a log that a read_committed reader skips (KIP-98).

A log has few of them, so all are in memory, ordered by their markers' offsets. On disk each is in
the ``.txnindex`` file of the segment that has its marker, in Kafka's format.

At a start the batches after the newest snapshot of producers are replayed, which finds again the
entries whose markers are there; see :mod:`headrace.log.recovery`. Entries with markers before the
snapshot are believed only if the segment's checksums say that they are intact, and that the file
had all of them. If the checksums are missing, damaged, or older than the snapshot, the entries are
found again in the batches, too. So no snapshot depends on these files: they may reach the disk in
any order, or not at all, and a failed write needs no attention.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from struct import Struct
from typing import NamedTuple

from headrace.log import checksums
from headrace.log.files import FILE_MODE, replace_file
from headrace.log_lines import get_logger
from headrace.protocol.record_batch import BatchHeader

logger = get_logger("headrace.log")

_ENTRY = Struct(">hqqqq")
_VERSION = 0
SUFFIX = ".txnindex"


class AbortedTransaction(NamedTuple):
    """An aborted transaction; offsets are inclusive.

    :ivar first_offset: offset of its first record in this log
    :ivar last_offset: offset of its marker
    :ivar last_stable_offset: last stable offset of the log after the marker: no later entry has a
        record before it
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedTransactions:
    """The aborted transactions of one log, ordered by ``last_offset``."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[AbortedTransaction] = ()) -> None:
        self._entries = list(entries)

    def __len__(self) -> int:
        return len(self._entries)

    def replay(self, aborted: AbortedTransaction) -> None:
        """Add a transaction whose marker was read from the log."""
        self._entries.append(aborted)

    def add(self, aborted: AbortedTransaction, path: str) -> bool:
        """Add a transaction whose marker was just appended, and write it to ``path``, the file of
        the marker's segment. Return False if the file does not have it, because the disk fails.
        """
        self.replay(aborted)
        try:
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            try:
                written_bytes = os.write(fd, _ENTRY.pack(_VERSION, *aborted))
            finally:
                os.close(fd)
            if written_bytes < _ENTRY.size:
                raise OSError(errno.ENOSPC, f"wrote {written_bytes} of {_ENTRY.size} bytes")
        except OSError as error:
            logger.error(
                "Cannot write an aborted transaction to %s, the next start will: %s", path, error
            )
            return False
        return True

    def overlapping(self, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the transactions that have records in ``first_offset <= offset < end_offset``."""
        transactions = []
        start = bisect_left(self._entries, first_offset, key=attrgetter("last_offset"))
        for aborted in self._entries[start:]:
            if aborted.first_offset < end_offset:
                transactions.append(aborted)
            if aborted.last_stable_offset >= end_offset:
                break
        return transactions

    def drop_below(self, log_start_offset: int) -> None:
        """Remove the transactions that lie wholly before the log start offset."""
        end = bisect_left(self._entries, log_start_offset, key=attrgetter("last_offset"))
        del self._entries[:end]

    def drop_between(self, first_offset: int, end_offset: int) -> None:
        """Remove the transactions whose marker is in ``first_offset <= offset < end_offset``, after
        their records were deleted.
        """
        key = attrgetter("last_offset")
        i, j = (
            bisect_left(self._entries, offset, key=key) for offset in (first_offset, end_offset)
        )
        del self._entries[i:j]

    def in_segment(self, base_offset: int, end_offset: int | None) -> list[AbortedTransaction]:
        """Return the transactions whose marker is in the segment from ``base_offset`` to
        ``end_offset`` (exclusive; None for the last segment).
        """
        key = attrgetter("last_offset")
        i = bisect_left(self._entries, base_offset, key=key)
        j = (
            len(self._entries)
            if end_offset is None
            else bisect_right(self._entries, end_offset - 1, key=key)
        )
        return self._entries[i:j]


def aborted_ranges(
    batches: Iterable[BatchHeader], aborted: Sequence[AbortedTransaction]
) -> list[tuple[int, int]]:
    """Return (first, last offset) of the batches that belong to aborted transactions, without their
    markers.
    """
    if not aborted:
        return []
    of_producer: dict[int, list[AbortedTransaction]] = {}
    for transaction in aborted:
        of_producer.setdefault(transaction.producer_id, []).append(transaction)
    return [
        (header.base_offset, header.last_offset)
        for header in batches
        if header.is_transactional
        and not header.is_control
        and any(
            transaction.first_offset <= header.base_offset < transaction.last_offset
            for transaction in of_producer.get(header.producer_id, ())
        )
    ]


def read(stem: str, size_bytes: int, point: int) -> list[AbortedTransaction] | None:
    """Return the entries in the ``.txnindex`` file of a segment whose markers are before ``point``.
    Return None if they are in doubt: the segment's checksums do not vouch for all of them.

    :param stem: path of the segment's files without a suffix
    :param size_bytes: size of the segment's log
    :raises OSError: when the disk fails
    """
    sums = checksums.read(stem)
    if sums is None or not sums.are_of_all(size_bytes, point):
        return None
    data = _content(stem)
    covered = sums.files[SUFFIX]
    if not covered.covers(data) or covered.size_bytes % _ENTRY.size:
        return None
    entries = [
        AbortedTransaction(*fields)
        for version, *fields in _ENTRY.iter_unpack(data[: covered.size_bytes])
        if version == _VERSION
    ]
    return [entry for entry in entries if entry.last_offset < point]


def _content(stem: str) -> bytes:
    try:
        with open(stem + SUFFIX, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def write(path: str, entries: Sequence[AbortedTransaction]) -> None:
    """Replace the ``.txnindex`` file of a segment, unless it has these entries; without entries,
    remove it.

    A power cut leaves the old file or the new one.

    :raises OSError: when the disk fails
    """
    data = b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)
    try:
        with open(path, "rb") as file:
            if data and file.read() == data:
                return
    except FileNotFoundError:
        if not data:
            return
    if data:
        replace_file(path, data)
    else:
        os.unlink(path)
