"""Finding the timestamps of the records at some positions of a partition, from as few bytes as
possible. No I/O.

A position's record is the first one at or after it that counts: markers of transactions do not,
nor, for readers of committed records, do records of aborted transactions. A batch's header tells
the time of its first record, and with LogAppendTime of them all; it is opened only where a position
lies in its middle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from headrace.protocol.primitives import read_varint
from headrace.protocol.record_batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptBatch,
    header_at,
    marker_in,
    opened,
)

FIRST_BYTES = 4 * 1024
"""What is asked for at first: the header of a batch, or all of a small one."""
MOST_BYTES = 1024 * 1024
"""What is asked for at most to find several positions at once; a single batch may be larger."""
_LARGEST_BATCH_BYTES = 1 << 30
_GROWTH = 4
_PATIENCE = 32
"""So many answers without a record found, and the search is given up: a long run of aborted
transactions.
"""

AbortedTransaction = tuple[int, int]
"""``(producer id, first offset)``"""


class PartitionSearch:
    """The search in one partition. Fetch from :attr:`offset`, :attr:`max_bytes` at most, and
    :meth:`feed` the answer.

    :param positions: where consumers stand
    :param end_offset: nothing from there on is looked at
    :ivar held_back: the last answer was empty, as of a broker that sends whole batches only
    :ivar found: position → timestamp of its record; None where no record from there on counts. What
        is missing at the end is unknown
    """

    def __init__(self, positions: Iterable[int], end_offset: int) -> None:
        self._pending = deque(sorted(set(positions)))
        self._end_offset = end_offset
        self.found: dict[int, int | None] = {}
        self.offset = self._pending[0] if self._pending else end_offset
        self.max_bytes = min(FIRST_BYTES * max(1, len(self._pending)), MOST_BYTES // _GROWTH)
        self.held_back = False
        self._idle = 0
        self._stop_at_end()

    @property
    def done(self) -> bool:
        """Whether nothing is left to look for."""
        return not self._pending

    def give_up(self) -> None:
        """Leave what has not been found unknown."""
        self._pending.clear()

    def start_at(self, log_start_offset: int) -> None:
        """The log does not reach back to :attr:`offset`: what stands before its start stands at its
        start.
        """
        if log_start_offset <= self.offset:
            self.give_up()  # it is not that, then
        self.offset = log_start_offset
        self._stop_at_end()

    def feed(self, data: bytes, aborted: Sequence[AbortedTransaction] = ()) -> None:
        """Look at what was read from :attr:`offset` on; the last batch may be cut short.

        :param aborted: the aborted transactions in it, when only committed records count
        """
        self.held_back = not data
        before, open_before = self.offset, len(self._pending)
        wanted_bytes = self._look(data, aborted)
        resolved = open_before - len(self._pending)
        self._idle = 0 if resolved else self._idle + 1
        if self._idle > _PATIENCE:
            self.give_up()
        if wanted_bytes:
            self.max_bytes = max(wanted_bytes, FIRST_BYTES)
        elif resolved > 1 or (not resolved and self.offset > before):
            self.max_bytes = max(FIRST_BYTES, min(self.max_bytes * _GROWTH, MOST_BYTES))
        elif resolved:
            self.max_bytes = FIRST_BYTES
        else:
            self.max_bytes = min(self.max_bytes * _GROWTH, _LARGEST_BATCH_BYTES)
        if self._pending and self._pending[0] > self.offset:
            self.offset = self._pending[0]
        self._stop_at_end()

    def _stop_at_end(self) -> None:
        while self._pending and max(self._pending[0], self.offset) >= self._end_offset:
            self.found[self._pending.popleft()] = None

    def _resolve(self, offset: int, timestamp: int) -> None:
        """The first record that counts from :attr:`offset` on and before the next batch is at
        ``offset``.
        """
        while self._pending and self._pending[0] <= offset:
            if timestamp != NO_TIMESTAMP:
                self.found[self._pending[0]] = timestamp
            self._pending.popleft()

    def _look(self, data: bytes, aborted: Sequence[AbortedTransaction]) -> int:
        """Go through the batches; returns the size of one that must be read whole, or 0."""
        begun = deque(sorted(aborted, key=lambda one: one[1]))
        dropping: set[int] = set()
        at = 0
        while self._pending and at + HEADER_BYTES <= len(data):
            header = header_at(data, at)
            if header.magic != 2 or header.size_bytes < HEADER_BYTES:
                self.give_up()  # a format from before Kafka 0.11
                break
            if header.base_offset >= self._end_offset:
                self.offset = self._end_offset
                break
            batch = memoryview(data)[at : at + header.size_bytes]
            while begun and begun[0][1] <= header.last_offset:
                dropping.add(begun.popleft()[0])
            if header.is_control:
                if aborted and _is_abort(batch, header):
                    dropping.discard(header.producer_id)
            elif header.is_transactional and header.producer_id in dropping:
                pass
            elif not self._take(header, batch):
                return header.size_bytes
            at += header.size_bytes
            self.offset = max(self.offset, header.last_offset + 1)
        return 0

    def _take(self, header: BatchHeader, batch: memoryview) -> bool:
        """Find the positions whose record is in a batch that counts; False when it must be read
        whole for that.
        """
        complete = header.record_count == header.last_offset_delta + 1  # nothing was compacted away
        if complete and header.attributes & LOG_APPEND_TIME_BIT:
            self._resolve(header.last_offset, header.max_timestamp)
        elif complete and self.offset <= header.base_offset and header.delete_horizon_ms is None:
            self._resolve(header.base_offset, header.base_timestamp)
        if not self._pending or self._pending[0] > header.last_offset or not header.record_count:
            return True
        if len(batch) < header.size_bytes:
            return False
        try:
            self._open(header, batch, complete)
        except (CorruptBatch, IndexError):
            self._resolve(header.last_offset, NO_TIMESTAMP)
        return True

    def _open(self, header: BatchHeader, batch: memoryview, complete: bool) -> None:
        body, position = opened(batch, header), 0
        wanted = max(self._pending[0], self.offset) - header.base_offset
        for offset_delta in range(header.record_count):
            length, position = read_varint(body, position)
            if not complete or offset_delta >= wanted:
                delta_ms, after = read_varint(body, position + 1)
                if not complete:
                    offset_delta, _ = read_varint(body, after)
                if offset_delta >= wanted:
                    by_broker = header.attributes & LOG_APPEND_TIME_BIT
                    timestamp = (
                        header.max_timestamp if by_broker else header.base_timestamp + delta_ms
                    )
                    self._resolve(header.base_offset + offset_delta, timestamp)
                    if not self._pending or self._pending[0] > header.last_offset:
                        return
                    wanted = self._pending[0] - header.base_offset
            position += length


def _is_abort(batch: memoryview, header: BatchHeader) -> bool:
    try:
        marker = marker_in(batch) if len(batch) == header.size_bytes else None
    except CorruptBatch:
        return False
    return marker is not None and not marker.commit
