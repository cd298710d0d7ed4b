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
from headrace.log.files import opened, read_file, remove_file, replace_file
from headrace.log_lines import get_logger
from headrace.protocol.record_batch import BatchHeader

logger = get_logger("headrace.log")

_ENTRY = Struct(">hqqqq")
_VERSION = 0
_LAST_OFFSET = attrgetter("last_offset")
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
            with opened(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as fd:
                written_bytes = os.write(fd, _ENTRY.pack(_VERSION, *aborted))
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
        for aborted in self._entries[self._first_ended(first_offset) :]:
            if aborted.first_offset < end_offset:
                transactions.append(aborted)
            if aborted.last_stable_offset >= end_offset:
                break
        return transactions

    def drop(self, first_offset: int, end_offset: int) -> None:
        """Remove the transactions whose marker is in ``first_offset <= offset < end_offset``, after
        their records were deleted.
        """
        del self._entries[self._ended_in(first_offset, end_offset)]

    def in_segment(self, base_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the transactions whose marker is in the segment from ``base_offset`` to
        ``end_offset``, exclusive.
        """
        return self._entries[self._ended_in(base_offset, end_offset)]

    def _ended_in(self, first_offset: int, end_offset: int) -> slice:
        return slice(self._first_ended(first_offset), self._first_ended(end_offset))

    def _first_ended(self, offset: int) -> int:
        """Return the index of the first transaction whose marker is at or after an offset."""
        return bisect_left(self._entries, offset, key=_LAST_OFFSET)


class AbortedLookup:
    """The batches of aborted transactions, as a container of their headers.

    :param aborted: ascending by ``last_offset``; those of one producer do not overlap
    """

    __slots__ = ("_of_producer",)

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._of_producer: dict[int, list[AbortedTransaction]] = {}
        for transaction in aborted:
            self._of_producer.setdefault(transaction.producer_id, []).append(transaction)

    def __contains__(self, header: BatchHeader) -> bool:
        if not header.is_transactional or header.is_control:
            return False
        own = self._of_producer.get(header.producer_id)
        if own is None:
            return False
        number = bisect_right(own, header.base_offset, key=_LAST_OFFSET)
        return number < len(own) and own[number].first_offset <= header.base_offset


def read(stem: str, size_bytes: int, point: int) -> list[AbortedTransaction] | None:
    """Return the entries in the ``.txnindex`` file of a segment whose markers are before ``point``.
    Return None if they are in doubt: the segment's checksums do not vouch for all of them.

    :param stem: path of the segment's files without a suffix
    :param size_bytes: size of the segment's log
    :raises OSError: when the disk fails
    """
    sums = checksums.read(stem)
    if sums is None or (size_bytes != sums.size_bytes and point > sums.end_offset):
        return None
    covered = sums.files[SUFFIX]
    data = read_file(stem + SUFFIX)[: covered.size_bytes]  # entries were added since
    if checksums.checksum_of(data) != covered or len(data) % _ENTRY.size:
        return None
    entries = [
        AbortedTransaction(*fields)
        for version, *fields in _ENTRY.iter_unpack(data)
        if version == _VERSION
    ]
    return [entry for entry in entries if entry.last_offset < point]


def write(path: str, entries: Sequence[AbortedTransaction]) -> None:
    """Replace the ``.txnindex`` file of a segment, unless it has these entries; without entries,
    remove it.

    A power cut leaves the old file or the new one.

    :raises OSError: when the disk fails
    """
    if not entries:
        remove_file(path)
        return
    data = b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)
    if read_file(path) != data:
        replace_file(path, data)
