"""The search for the timestamps of records at positions of a partition, with few bytes. No I/O.

The record of a position is the first one at or after it, without transaction markers, and with
read_committed without aborted records. The header of a batch has the timestamp of its first record,
and with LogAppendTime of all records. A batch is opened only if a position lies in its middle.
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
    record_spans,
)

FIRST_BYTES = 4 * 1024
"""The size of a first request: the header of a batch, or a whole small one."""
MOST_BYTES = 1024 * 1024
"""The limit of a request for several positions; a single batch may need more."""
_LARGEST_BATCH_BYTES = 1 << 30
_GROWTH = 4
_MAX_IDLE_RESPONSES = 12
"""The number of consecutive responses without a result after which the search ends: 9 MiB of small
batches. They occur in long runs of aborted transactions.
"""

AbortedTransaction = tuple[int, int]
"""``(producer id, first offset)``"""


class PartitionSearch:
    """The search in one partition: fetch up to :attr:`max_bytes` from :attr:`offset`, and pass the
    response to :meth:`feed`, until :attr:`done`.

    :param positions: the offsets whose records to find
    :param end_offset: the exclusive end of the search
    :ivar held_back: True if the last response was empty, as from a broker that sends only whole
        batches
    :ivar found: position → timestamp in ms; None if no record follows; :data:`NO_TIMESTAMP` if its
        record has none, or is beyond the limit of the search. Missing positions were not searched
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
        """True once the search has ended."""
        return not self._pending

    def give_up(self) -> None:
        """End the search; the positions without a result stay unknown."""
        self._pending.clear()

    def start_at(self, log_start_offset: int) -> None:
        """Continue at the log start offset, which is after :attr:`offset`."""
        if log_start_offset <= self.offset:
            self.give_up()  # the fetch failed for another reason
        self.offset = log_start_offset
        self._stop_at_end()

    def feed(self, data: bytes, aborted: Sequence[AbortedTransaction] = ()) -> None:
        """Search a response for the fetch from :attr:`offset`.

        :param data: record batches; the last one may be incomplete
        :param aborted: the aborted transactions in it, with read_committed
        """
        self.held_back = not data
        before, open_before = self.offset, len(self._pending)
        wanted_bytes = self._scan(data, aborted)
        resolved = open_before - len(self._pending)
        self._idle = 0 if resolved else self._idle + 1
        if self._idle > _MAX_IDLE_RESPONSES:
            self.found.update(dict.fromkeys(self._pending, NO_TIMESTAMP))
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
        """Set the timestamp of the positions up to ``offset``."""
        while self._pending and self._pending[0] <= offset:
            self.found[self._pending.popleft()] = timestamp

    def _scan(self, data: bytes, aborted: Sequence[AbortedTransaction]) -> int:
        """Search the batches.

        :returns: the size of a batch that must be read whole, or 0
        """
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
        """Search a batch; return False if that requires the whole batch."""
        complete = header.record_count == header.last_offset_delta + 1  # not compacted
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
        except (IndexError, ValueError):  # CorruptBatch, too
            self._resolve(header.last_offset, NO_TIMESTAMP)
        return True

    def _open(self, header: BatchHeader, batch: memoryview, complete: bool) -> None:
        wanted = max(self._pending[0], self.offset) - header.base_offset
        by_broker = header.attributes & LOG_APPEND_TIME_BIT
        for offset_delta, (data, start, _) in enumerate(record_spans(batch, header)):
            if not complete or offset_delta >= wanted:
                delta_ms, after = read_varint(data, start + 1)
                if not complete:
                    offset_delta, _ = read_varint(data, after)
                if offset_delta >= wanted:
                    timestamp = (
                        header.max_timestamp if by_broker else header.base_timestamp + delta_ms
                    )
                    self._resolve(header.base_offset + offset_delta, timestamp)
                    if not self._pending or self._pending[0] > header.last_offset:
                        return
                    wanted = self._pending[0] - header.base_offset


def _is_abort(batch: memoryview, header: BatchHeader) -> bool:
    try:
        marker = marker_in(batch) if len(batch) == header.size_bytes else None
    except CorruptBatch:
        return False
    return marker is not None and not marker.commit
