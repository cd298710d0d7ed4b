"""The records that dead letters copy, read from their log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.log_lines import LimitedLog, get_logger
from headrace.protocol import record_batch
from headrace.protocol.errors import Refusal
from headrace.share.records import Archived
from headrace.share.spans import offset_count

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog

limited = LimitedLog(get_logger("headrace.dead_letters"))

COPY_READ_BYTES = 1024 * 1024
"""Bytes of a log that are read at a time to copy records to a dead-letter queue."""

COPY_OPENED_BYTES = 4 * 1024 * 1024
"""The decompressed size above which a compressed batch is not opened to copy records of it: their
dead letters have no key, value and headers.
"""

COPY_OPENED_RECORDS = 50_000
"""The number of records above which a batch is not opened to copy some of them."""

_ASSUMED_RECORD_BYTES = 4096  # to estimate how much of the log to read


class LoopBudgetExceeded(Exception):
    """A batch exceeds what may be opened in this turn of the event loop."""


@dataclass(slots=True)
class LoopBudget:
    """The work for dead letters that one turn of the event loop may still do. By default it has no
    limits, as in a thread.

    :ivar left_bytes: decompressed bytes of batches to open
    :ivar left_records: records of these batches
    """

    left_letters: int = sys.maxsize
    left_bytes: int = sys.maxsize
    left_records: int = sys.maxsize


class Originals:
    """The records of the batches that contain some runs of offsets, each batch opened once.

    Records that were deleted or cannot be read are left out, and so are all that come after
    ``max_bytes`` were opened.

    :param source: the log of the records
    :param runs: ascending
    :param max_bytes: the limit on the decompressed bytes of all batches
    :ivar records: the records that were found so far, ascending
    """

    def __init__(self, source: PartitionLog, runs: Sequence[Archived], max_bytes: int) -> None:
        self.records: list[record_batch.Record] = []
        self._source = source
        self._runs = runs
        self._left_bytes = max_bytes
        self._max_bytes = max_bytes
        self._piece_bytes = min(COPY_READ_BYTES, offset_count(runs) * _ASSUMED_RECORD_BYTES)
        self._at = 0
        """The first run that was not passed yet."""
        self._position = max(runs[0].first_offset, source.log_start_offset)
        self._end_offset = runs[-1].last_offset + 1

    def read(self) -> bytes | None:
        """Return the next batches of the log for :meth:`open`, None at the end. Belongs to the
        event loop, as the log does.
        """
        if self._position >= self._end_offset:
            return None
        data = self._source.read(self._position, self._piece_bytes)
        if isinstance(data, Refusal) or not data:
            self._give_up("cannot read %s-%d at offset %d for dead letters", self._position)
            return None
        return data

    def prepare(self) -> Callable[[record_batch.Opening], bool] | None:
        """Return the function that opens the next batches in a thread, None at the end."""
        data = self.read()
        if data is None:
            return None
        return lambda opening: self.open(data, LoopBudget(), opening.pause)

    def open(
        self,
        data: bytes,
        budget: LoopBudget,
        pause: Callable[[], object] | None = None,
    ) -> bool:
        """Take the wanted records of batches that :meth:`read` has returned.

        :param budget: reduced by what is opened
        :return: True if there may be more to read
        :raises LoopBudgetExceeded: when a batch exceeds the budget. The next read begins with it
        """
        begun, runs = self._position, self._runs
        try:
            for start, header in record_batch.headers(data):
                while self._at < len(runs) and runs[self._at].last_offset < header.base_offset:
                    self._at += 1
                if (
                    self._at < len(runs)
                    and runs[self._at].first_offset <= header.last_offset
                    and not header.is_control
                ):
                    if self._left_bytes <= 0:
                        self._give_up(
                            "dead letters of %s-%d have no records from offset %d on: more than %d "
                            "bytes of records would be read at a time",
                            header.base_offset,
                            self._max_bytes,
                        )
                        break
                    batch = memoryview(data)[start : start + header.size_bytes]
                    self._take(batch, header, budget, pause)
                self._position = header.last_offset + 1
        except record_batch.CorruptBatch as error:  # the length of a batch is damaged
            self._give_up("cannot copy further records of %s-%d: %s", error)
        if self._position <= begun:  # the offsets of a batch are damaged
            self._give_up("cannot copy records of %s-%d from offset %d on", begun)
        return self._position < self._end_offset

    def _take(
        self,
        batch: memoryview,
        header: record_batch.BatchHeader,
        budget: LoopBudget,
        pause: Callable[[], object] | None,
    ) -> None:
        """Take the wanted records of a batch. Those before the first one are passed over, unless
        compaction has removed some.

        :raises LoopBudgetExceeded: as :meth:`open`
        """
        max_bytes = min(COPY_OPENED_BYTES, self._left_bytes)
        if header.size_bytes > budget.left_bytes or header.record_count > budget.left_records:
            raise LoopBudgetExceeded
        budget.left_records -= header.record_count
        limit = min(max_bytes, budget.left_bytes)
        opening = record_batch.Opening(limit, COPY_OPENED_RECORDS, pause)
        runs, at, last = self._runs, self._at, self._end_offset - 1
        is_complete = header.record_count == header.last_offset_delta + 1
        passed = runs[at].first_offset - header.base_offset if is_complete else 0
        opened = 0
        taken: list[record_batch.Record] = []
        try:
            for index, span in enumerate(record_batch.record_spans(batch, header, opening)):
                opened += span[2] - span[1]
                if index < passed:
                    continue
                record = record_batch.decode_record(*span, header)
                while at + 1 < len(runs) and runs[at].last_offset < record.offset:
                    at += 1
                if runs[at].first_offset <= record.offset <= runs[at].last_offset:
                    taken.append(record)
                if record.offset >= last:
                    break
        except record_batch.CorruptBatch as error:
            if isinstance(error, record_batch.TooLargeToOpen):
                if limit < max_bytes:
                    budget.left_bytes = 0
                    raise LoopBudgetExceeded from error
                opened = limit
            self._complain("cannot copy records of %s-%d: %s", error)
        self.records += taken
        self._left_bytes -= opened
        budget.left_bytes -= opened

    def _give_up(self, message: str, *values: object) -> None:
        """Find no further records."""
        self._position = self._end_offset
        self._complain(message, *values)

    def _complain(self, message: str, *values: object) -> None:
        source = self._source
        limited.error(source.path, message, source.topic, source.partition, *values)
