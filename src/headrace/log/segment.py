"""One segment: a file of batches, its two indexes, and the handle for both.

A segment's file is open only while it is in use, see :class:`OpenFiles`.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Sequence

from headrace.log import checksums
from headrace.log.files import fsync_path, private, remove_file, replacing
from headrace.log.index import POSITION, OffsetIndex, TimeIndex
from headrace.log.log_config import LogConfig
from headrace.log_lines import LimitedLog, get_logger
from headrace.protocol.file_range import LEAST_RANGE_BYTES, FileRange
from headrace.protocol.limits import PIECE_OF_BATCH_BYTES
from headrace.protocol.record_batch import (
    HEADER_BYTES,
    HEADERS_CHUNK_BYTES,
    LENGTH_OVERHEAD,
    NO_TIMESTAMP,
    PREFIX_BYTES,
    BatchHeader,
    has_right_crc,
    header_at,
)

logger = get_logger("headrace.log")
limited = LimitedLog("headrace.log")

Buffers = Sequence[bytes | memoryview]
Write = Callable[[int, Buffers, int], int]

pwritev: Write = os.pwritev
"""Writes batches; tests replace it by a full disk."""

RECOVERY_CHUNK_BYTES = 1 << 22
REBUILT_INDEX_INTERVAL_BYTES = 4096
"""The least distance of two entries of an index that is rebuilt."""
MAX_RELATIVE_OFFSET = 2**31 - 1
SUFFIXES = (".log", *checksums.INDEX_SUFFIXES, checksums.SUFFIX)
DELETED = ".deleted"
"""The end of the name of a file that is not used any more. A start removes what is left of them."""


class DamagedSegment(OSError):
    """A file in which a batch cannot be found, because one before it is damaged."""

    def __init__(self, path: str, position: int) -> None:
        super().__init__(errno.EIO, f"there is no whole batch at position {position}", path)


class TornTailError(OSError):
    """A write failed half-way, and the bytes written could not be cut off again."""


Scan = Generator[tuple[int, BatchHeader, memoryview], None, int]
"""Yields ``(position, header, bytes)`` of batches, and returns the position where it stops."""


def scan(fd: int, position: int, end: int, *, whole: bool = False, checked: bool = False) -> Scan:
    """Scan the batches between two positions of a file, up to the first torn one.

    :param whole: yield all bytes of each batch, not only those read along with its header
    :param checked: the same, and stop at a batch of another format or without its checksum
    """
    has_all_bytes = whole or checked
    chunk = RECOVERY_CHUNK_BYTES if has_all_bytes else HEADERS_CHUNK_BYTES
    buffer, start, needed = memoryview(b""), position, HEADER_BYTES
    while position + needed <= end:
        if position - start + needed > len(buffer):
            data = os.pread(fd, min(max(chunk, needed), end - position), position)
            buffer, start = memoryview(data), position
            if len(buffer) < needed:
                break
        header = header_at(buffer, position - start)
        size = header.size_bytes
        if header.batch_length < HEADER_BYTES - LENGTH_OVERHEAD or position + size > end:
            break
        if has_all_bytes and position - start + size > len(buffer):
            needed = size  # once more, with all of it
            continue
        batch = buffer[position - start : position - start + size]
        if checked and (header.magic != 2 or not has_right_crc(batch, header)):
            break
        yield position, header, batch
        position, needed = position + size, HEADER_BYTES
    return position


class OpenFiles:
    """The handles of recently used segments. The others are released with their indexes, so that
    thousands of partitions need few handles and little memory.

    :ivar limit: the largest number of handles. The one not used for longest is released first
        (second chance algorithm)
    :ivar deleted_count: handles of deleted segments that are still being sent to clients, at most
        half of ``limit``
    """

    def __init__(self, limit: int) -> None:
        self.limit = max(2, limit)
        self._ring: OrderedDict[Segment, None] = OrderedDict()
        self.deleted_count = 0

    def __len__(self) -> int:
        return len(self._ring)

    def open(self, segment: Segment) -> int:
        """Open the file of a segment. When the process has no handle left, the limit is lowered.

        :raises OSError: when the file cannot be opened
        """
        while True:
            while len(self._ring) > 1 and len(self._ring) + self.deleted_count >= self.limit:
                oldest, _ = self._ring.popitem(last=False)
                if oldest.used:
                    oldest.used = False
                    self._ring[oldest] = None
                else:
                    oldest.release()
            try:
                fd = private(segment.path(".log"), os.O_RDWR | os.O_CREAT)
                break
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or len(self._ring) < 2:
                    raise
                self.limit = max(2, len(self._ring) - 1)
                logger.warning(
                    "No file handle is left: from now on at most %d segments are kept open",
                    self.limit,
                )
        self._ring[segment] = None
        return fd

    def forget(self, segment: Segment) -> None:
        """Remove a segment that has closed its handle."""
        self._ring.pop(segment, None)


class Segment:
    """A run of batches beginning with ``base_offset``. Only the newest segment of a log is appended
    to.

    :ivar directory: path of the log
    :ivar size_bytes: size of the whole batches in the file
    :ivar created_ms: creation time, epoch milliseconds
    :ivar next_offset: offset after the last batch; known once the segment was opened or appended to
    :ivar is_damaged: True if some of the file could not be read when its indexes were rebuilt
    :ivar lacks_entries: True if an aborted transaction could not be written to ``.txnindex``
    :ivar reads_fail: True if the disk could not read the file once. Then a read returns a few
        batches as bytes, as a file range would fail when it is sent
    :ivar fd: handle of the ``.log`` file; -1 when closed
    :ivar offsets: the offset index
    :ivar times: the time index
    :ivar used: set by each use. When it is the segment's turn to be released, the flag is cleared
        instead
    """

    __slots__ = (
        "_ended",
        "_first_timestamp",
        "_held",
        "_loaded",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_since_index",
        "_summed_bytes",
        "base_offset",
        "created_ms",
        "directory",
        "fd",
        "files",
        "is_damaged",
        "is_staged",
        "lacks_entries",
        "next_offset",
        "offsets",
        "reads_fail",
        "size_bytes",
        "times",
        "used",
    )

    def __init__(
        self, files: OpenFiles, directory: str, base_offset: int, size_bytes: int, created_ms: int
    ) -> None:
        self.files = files
        self.directory = directory
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.created_ms = created_ms
        self.lacks_entries = False
        self.reads_fail = False
        self.is_staged = False
        self._summed_bytes = -1
        """Size of the log when the checksums of its indexes were written; -1 if they must be."""
        self.fd = -1
        self.used = True
        self._loaded = False
        self._held = 0
        """The file ranges of this segment in responses that are not sent."""
        self._ended = False
        """True when the file is deleted or replaced; ``fd`` is kept for the ranges until then."""
        self._reset()

    def _reset(self) -> None:
        self.offsets, self.times = OffsetIndex(), TimeIndex()
        self.next_offset = self.base_offset
        self._since_index = 0
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset
        self._first_timestamp = NO_TIMESTAMP
        self.is_damaged = False

    def path(self, suffix: str) -> str:
        """Return the path of the ``.log``, ``.index``, ``.timeindex`` or ``.txnindex`` file."""
        return f"{self.directory}/{self.base_offset:020d}{suffix}"

    # ------------------------------------------------------------------ opening, closing

    def open(self) -> int:
        """Return the handle. The first call reads and checks the indexes, and rebuilds them if they
        are wrong.

        :raises OSError: when the file cannot be opened or read
        """
        self.used = True
        if self.fd < 0:
            self._ended = False
            self.fd = self.files.open(self)
            if not self._loaded:
                try:
                    self._load()
                except OSError:
                    self._unload()
                    raise
        return self.fd

    def release(self) -> None:
        """Save the indexes, close the handle and free the memory. The next use opens the segment
        again.
        """
        if self.fd < 0:
            return
        self.discard_staged()
        self.save_indexes()
        self._close()
        self.offsets, self.times = OffsetIndex(), TimeIndex()

    def save_indexes(self) -> None:
        """Write the new index entries, and the checksums of the small files. If that fails the
        indexes are deleted, because a missing index is rebuilt and a short one would mislead.

        Earlier checksums may stay: they say how much of the log they are about.
        """
        if not self._loaded:
            return
        try:
            self.times.add(self._max_timestamp, self._max_timestamp_offset - self.base_offset)
            self.offsets.save(self.path(".index"))
            self.times.save(self.path(".timeindex"))
            if self._summed_bytes != self.size_bytes:
                complete = (0, self.base_offset)
                if not self.lacks_entries:
                    complete = (self.size_bytes, self.next_offset)
                checksums.write(self.path(""), *complete)
                self._summed_bytes = self.size_bytes
        except OSError as error:
            limited.warning(
                self.directory,
                "Could not save the indexes of %s, they will be rebuilt: %s",
                self.path(".log"),
                error,
            )
            self.offsets.saved_bytes = self.times.saved_bytes = 0
            for suffix in (".index", ".timeindex"):
                with contextlib.suppress(OSError):
                    os.unlink(self.path(suffix))

    def _unload(self) -> None:
        """Forget what was read of the indexes before the disk failed. The next use reads them
        again.
        """
        self._reset()
        self._loaded = False
        if self.fd >= 0:
            self._close()

    def _close(self) -> None:
        os.close(self.fd)
        self.fd = -1
        self._loaded = False
        self.files.forget(self)

    def renew_checksums(self, size_bytes: int, end_offset: int) -> None:
        """Write the checksum of ``.txnindex``, after the aborted transactions were found again in
        the batches. Those of the indexes are written with them.

        :param size_bytes: see :class:`~headrace.log.checksums.Checksums`
        :param end_offset: see :class:`~headrace.log.checksums.Checksums`
        :raises OSError: when the disk fails
        """
        remove_file(self.path(checksums.SUFFIX))
        self._summed_bytes = -1
        with contextlib.suppress(OSError):  # the next start finds them again, too
            checksums.write(self.path(""), size_bytes, end_offset, (".txnindex",))

    def abandon(self) -> None:
        """Close the handle without saving anything; the segment is not used any more.

        File ranges can still be read: the handle is kept until the last one is gone, unless too
        many handles are kept already.
        """
        self.is_staged = self._loaded = False
        files = self.files
        keeps = self._held > 0 and not self._ended and files.deleted_count < files.limit // 2
        files.deleted_count += keeps
        self._ended = self._ended or self._held > 0
        if self.fd >= 0:
            files.forget(self)
            if not keeps:
                self._close()
        elif keeps:
            try:
                self.fd = private(self.path(".log"), os.O_RDONLY)
            except OSError:  # the ranges cannot be read then
                files.deleted_count -= 1

    def hold(self) -> None:
        """Keep the batches readable for one more file range, also when the segment is deleted."""
        self._held += 1

    def let_go(self) -> None:
        """End one :meth:`hold`."""
        self._held -= 1
        if not self._held and self._ended and self.fd >= 0:
            self._close()
            self.files.deleted_count -= 1

    def retire(self) -> Callable[[], None]:
        """Rename the files, so that no start finds them. Return a function that deletes them, which
        takes long for a large file; any thread may call it.

        :raises OSError: when the file cannot be renamed; it is as it was
        """
        self.abandon()
        retired = []
        for suffix in SUFFIXES:
            path = self.path(suffix)
            with contextlib.suppress(FileNotFoundError):
                os.rename(path, path + DELETED)
                retired.append(path + DELETED)

        def delete_files() -> None:
            for path in retired:
                remove_file(path)

        return delete_files

    def _load(self) -> None:
        """Read the indexes from their files. Rebuild them unless they have their checksums, and
        whole batches follow the last indexed one up to the end of the file.
        """
        self._reset()
        self._loaded = True
        if not self.size_bytes:
            return
        try:
            with open(self.path(".index"), "rb") as file:
                self.offsets = OffsetIndex(file.read())
            with open(self.path(".timeindex"), "rb") as file:
                self.times = TimeIndex(file.read())
            sums = checksums.read(self.path(""))
        except FileNotFoundError:
            sums = None
        if (
            sums is None
            or sums.files[".index"] != checksums.checksum_of(self.offsets.data)
            or sums.files[".timeindex"] != checksums.checksum_of(self.times.data)
            or not self._read_tail()
        ):
            self._rebuild_indexes("missing or wrong")
        elif sums.size_bytes == self.size_bytes:
            self._summed_bytes = self.size_bytes

    def _read_tail(self) -> bool:
        """Read the headers from the last indexed batch on. Return False if there is anything but
        whole batches.
        """
        end = self.offsets.entry(-1)[1] if self.offsets.data else 0
        if self.times.data:  # the last entry was added when the indexes were saved
            self._max_timestamp, relative_offset = self.times.entry(-1)
            self._max_timestamp_offset = self.base_offset + relative_offset
        return self._note_from(end, self.size_bytes) == self.size_bytes

    def _rebuild_indexes(self, reason: str) -> None:
        """Rebuild the indexes from the batches, up to the first that cannot be read."""
        logger.warning("Rebuilding the indexes of %s: %s", self.path(".log"), reason)
        try:
            end = self.rebuild()
        except OSError:
            self._unload()
            raise
        if end < self.size_bytes:
            logger.error("%s cannot be read from position %d on", self.path(".log"), end)
            self.is_damaged = True

    def _is_latest(self, timestamp: int, last_offset: int) -> bool:
        """Return True if the batch that ends with an offset has this largest timestamp."""
        position = self.indexed_position(last_offset)
        for _, header, _ in scan(self.open(), position, self.size_bytes):
            if header.last_offset >= last_offset:
                return (header.max_timestamp, header.last_offset) == (timestamp, last_offset)
        return False

    def rebuild(self, on_batch: Callable[[BatchHeader, memoryview], None] | None = None) -> int:
        """Build both indexes from the batches, and return the size of the whole, valid batches.

        :param on_batch: compare checksums too, as after a crash, stop at the first wrong one, and
            call this with the header and the bytes of each valid batch
        :raises OSError: when the file cannot be read
        """
        self._loaded = True  # the indexes are rebuilt and need not be read
        self.open()
        self._reset()
        self._summed_bytes = -1
        return self._note_from(0, REBUILT_INDEX_INTERVAL_BYTES, on_batch)

    def _note_from(
        self,
        end: int,
        index_interval_bytes: int,
        on_batch: Callable[[BatchHeader, memoryview], None] | None = None,
    ) -> int:
        """Note the batches from position ``end`` on, up to the first that cannot be right. Return
        where the last right one ends.

        :param on_batch: see :meth:`rebuild`
        """
        checked = on_batch is not None
        for position, header, batch in scan(self.fd, end, self.size_bytes, checked=checked):
            if (
                header.magic != 2
                or header.base_offset < self.next_offset
                or header.last_offset_delta < 0
                or header.last_offset - self.base_offset > MAX_RELATIVE_OFFSET
            ):
                break
            self.note(position, header, header.last_offset, index_interval_bytes)
            end = position + header.size_bytes
            if on_batch:
                on_batch(header, batch)
        return end

    def truncate(self, size_bytes: int) -> None:
        """Cut the file after a rebuild. If a snapshot has a link to the file, the link keeps all of
        it.

        :raises OSError: when the disk fails
        """
        fd = self.open()
        if os.fstat(fd).st_nlink > 1:
            self.replace_by_copy(size_bytes)
        else:
            os.ftruncate(fd, size_bytes)
        self.size_bytes = size_bytes

    def replace_by_copy(self, size_bytes: int) -> None:
        """Replace the file by a copy of its first ``size_bytes`` bytes that is on disk. If that
        fails, the file stays as it was.

        :raises OSError: when the disk fails, or has no room for the copy
        """
        self.open()
        path = self.path(".log")
        with replacing(path) as copy:
            for position in range(0, size_bytes, RECOVERY_CHUNK_BYTES):
                chunk_bytes = min(RECOVERY_CHUNK_BYTES, size_bytes - position)
                copy.write(self.read(position, chunk_bytes))
        os.close(self.fd)
        self.files.forget(self)
        self.fd = self.files.open(self)

    # ------------------------------------------------------------------ appending

    def append(self, buffers: Buffers, size_bytes: int, *, staged_bytes: int = 0) -> None:
        """Write at the end of the file. If that fails the segment is as it was.

        :param staged_bytes: the end of the batch that :meth:`stage` has written; the buffers have
            what comes before. Without it, a batch that was staged is discarded
        :raises OSError: such as ENOSPC; the bytes written are cut off again
        :raises TornTailError: when they could not be cut off
        """
        fd = self.fd if self.fd >= 0 else self.open()
        self.used = True
        position = self.size_bytes
        try:
            if not staged_bytes:
                self.discard_staged()
            written = pwritev(fd, buffers, position)
            if written != size_bytes - staged_bytes:
                # A short write: the disk is filling up, and the next call succeeds or raises.
                data = memoryview(b"".join(buffers))
                while written < len(data):
                    written += self._write_piece(data[written:], written)
        except OSError:
            self._cut_tail()
            raise
        self.is_staged = False
        self.size_bytes = position + size_bytes

    def stage(self, batch: memoryview) -> Iterator[None]:
        """Write a batch where the next one will be, but for its beginning, and yield between pieces
        of it. :meth:`append` adds it. Any other use of the end of the file discards it:
        :attr:`is_staged` is False then.

        :raises OSError: as :meth:`append`
        """
        self.open()
        self.is_staged = True
        start = PREFIX_BYTES
        while self.is_staged and start < len(batch):
            self.used = True
            try:
                start += self._write_piece(batch[start : start + PIECE_OF_BATCH_BYTES], start)
            except OSError:
                self._cut_tail()
                raise
            yield

    def discard_staged(self) -> None:
        """Cut off a batch that was staged, if there is one.

        :raises TornTailError: when that fails
        """
        if self.is_staged:
            self._cut_tail()

    def _cut_tail(self) -> None:
        """Cut off what was written and not added.

        :raises TornTailError: when that fails
        """
        self.is_staged = False
        try:
            os.ftruncate(self.fd, self.size_bytes)
        except OSError as error:
            raise TornTailError(error.errno, error.strerror, self.path(".log")) from error

    def _write_piece(self, piece: memoryview, start: int) -> int:
        """Write a piece of what comes next, from its byte ``start`` on; return how much was."""
        written = pwritev(self.fd, [piece], self.size_bytes + start)
        if written <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return written

    def note(
        self, position: int, header: BatchHeader, last_offset: int, index_interval_bytes: int
    ) -> None:
        """Add a batch that was appended at ``position`` to the indexes, as often as Kafka does.

        :param last_offset: the offset with which it ends; the header may be that of its producer
        """
        # What compaction has left without records has no time.
        max_timestamp = header.max_timestamp if header.record_count else NO_TIMESTAMP
        if not position:
            self._first_timestamp = max_timestamp
        if max_timestamp > self._max_timestamp:
            self._max_timestamp, self._max_timestamp_offset = max_timestamp, last_offset
        if self._since_index > index_interval_bytes:
            self.offsets.add(last_offset - self.base_offset, position)
            self.times.add(self._max_timestamp, self._max_timestamp_offset - self.base_offset)
            self._since_index = 0
        self._since_index += header.batch_length + LENGTH_OVERHEAD
        self.next_offset = last_offset + 1

    def must_roll_for(
        self, header: BatchHeader, base_offset: int, now_ms: int, config: LogConfig
    ) -> bool:
        """Return True if a batch at an offset needs a new segment, by Kafka's rules.

        These are segment.bytes; segment.ms, counted in the records' timestamps, or since the file
        was created if they have none; full indexes (segment.index.bytes); and offsets too far from
        the base offset to be indexed.
        """
        if self.fd < 0:
            self.open()
        if not self.size_bytes:
            return False
        first_timestamp = self.first_timestamp
        age_ms = (
            header.max_timestamp - first_timestamp
            if first_timestamp >= 0
            else now_ms - self.created_ms
        )
        return (
            self.size_bytes + header.batch_length + LENGTH_OVERHEAD > config.segment_bytes
            or age_ms > config.longest_segment_ms
            or len(self.offsets.data) + 8 > config.segment_index_bytes
            or len(self.times.data) + 24 > config.segment_index_bytes
            or base_offset + header.last_offset_delta - self.base_offset > MAX_RELATIVE_OFFSET
        )

    def fsync(self, suffixes: Sequence[str]) -> None:
        """Force the files to disk. Any thread may call it.

        :raises OSError: when the disk fails
        """
        for suffix in suffixes:
            fsync_path(self.path(suffix))

    # ------------------------------------------------------------------ reading

    @property
    def first_timestamp(self) -> int:
        """Largest timestamp of the first batch; rolling by age counts from it. -1 without one."""
        if self._first_timestamp < 0 and self.size_bytes:
            self._first_timestamp = header_at(self.read(0, HEADER_BYTES)).max_timestamp
        return self._first_timestamp

    @property
    def max_timestamp(self) -> tuple[int, int]:
        """``(timestamp, last offset of the first batch that has it)``; timestamp -1 if there is
        none.
        """
        if not self._loaded and self._max_timestamp < 0 and self.size_bytes:
            self.open()
        return self._max_timestamp, self._max_timestamp_offset

    @property
    def newest_ms(self) -> int:
        """The largest timestamp; the time when the file was modified if there is none."""
        return max(self.max_timestamp[0], 0) or self.created_ms

    def locate(self, offset: int) -> int:
        """Return the position of the first batch that ends at or after ``offset``; the segment's
        size if there is none.
        """
        if offset <= self.base_offset:
            return 0
        for position, header, _ in self.batches(self.indexed_position(offset)):
            if header.last_offset >= offset:
                return position
        return self.size_bytes

    def indexed_position(self, offset: int) -> int:
        """Return the position of the last indexed batch that ends at or before ``offset``; 0 if
        there is none. A wrong entry is found, and the indexes are rebuilt.
        """
        return self._last_position(offset - self.base_offset)

    def _last_position(self, largest: int, field: int = 0) -> int:
        """Return the position in the last index entry with at most a value in a field."""
        self.open()
        entry = self.offsets.last(largest, field)
        if entry is not None and not self._is_at(*entry):
            self._rebuild_indexes("an entry of the offset index is wrong")
            entry = self.offsets.last(largest, field)
        return entry[1] if entry is not None else 0

    def _is_at(self, relative_offset: int, position: int) -> bool:
        """Return True if a batch at ``position`` ends with an offset, as an index entry says."""
        if not 0 <= position <= self.size_bytes - HEADER_BYTES:
            return False
        header = header_at(self.read(position, HEADER_BYTES))
        return header.magic == 2 and header.last_offset == self.base_offset + relative_offset

    def offset_for_timestamp(self, timestamp_ms: int) -> int:
        """Return an offset from which to search for the first record with at least a timestamp. A
        wrong entry of the time index is found, and the indexes are rebuilt.
        """
        self.open()
        entry = self.times.last(timestamp_ms)
        if entry is not None and not self._is_latest(entry[0], self.base_offset + entry[1]):
            self._rebuild_indexes("an entry of the time index is wrong")
            entry = self.times.last(timestamp_ms)
        return self.base_offset + (entry[1] if entry is not None else 0)

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return exactly ``size_bytes`` bytes.

        :raises OSError: when the file is shorter than it should be, or cannot be read
        """
        fd = self.fd if self.fd >= 0 else self.open()
        self.used = True
        try:
            data = os.pread(fd, size_bytes, position)
            if len(data) != size_bytes:
                raise self._ends_before(position + size_bytes)
        except OSError:
            self.reads_fail = True
            raise
        return data

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Read for a file range; see :class:`~headrace.protocol.file_range.RangeSource`.

        :raises OSError: when the file cannot be read, or is deleted and was not kept
        """
        if self._ended and self.fd < 0:
            raise OSError(errno.ENOENT, f"{self.path('.log')} was deleted")
        fd = self.fd if self.fd >= 0 else self.open()
        self.used = True
        try:
            return os.preadv(fd, (buffer,), position)
        except OSError:
            self.reads_fail = True
            raise

    def read_batches(
        self,
        position: int,
        limit: int,
        max_bytes: int,
        minimum_one: bool,
        held_bytes: int | None,
    ) -> bytes | FileRange:
        """Return whole batches between ``position`` and ``limit``, at most ``max_bytes``.

        :param minimum_one: return the first batch even if it is larger
        :param held_bytes: return a file range for batches larger than a page, which has their
            bytes, too, unless they are larger than this; None to return bytes in any case
        """
        if not self.reads_fail:
            try:
                size_bytes = self._size_of_batches(position, limit, max_bytes, minimum_one)
                return self._batches_at(position, size_bytes, held_bytes)
            except OSError as error:
                if isinstance(error, DamagedSegment) or self.fd < 0:  # it cannot be opened now
                    raise
                self.reads_fail = True
        few_bytes = min(max_bytes, HEADERS_CHUNK_BYTES)
        try:
            return self.read(
                position, self._size_of_batches(position, limit, few_bytes, minimum_one)
            )
        except OSError:  # the first one alone
            return self.read(position, self._size_of_batches(position, limit, 0, minimum_one))

    def _size_of_batches(self, position: int, limit: int, max_bytes: int, minimum_one: bool) -> int:
        """Return the size of what :meth:`read_batches` returns."""
        if limit - position <= max_bytes:
            return limit - position
        if max_bytes > 0:
            end = max(self._last_position(position + max_bytes, POSITION), position)
            if 2 * (end - position) < max_bytes:  # more batches are worth a look at their headers
                for start, header, _ in scan(self.open(), end, position + max_bytes):
                    end = start + header.size_bytes
            if end > position:
                return end - position
        if not minimum_one:
            return 0
        size_bytes = header_at(self.read(position, HEADER_BYTES)).size_bytes
        if not HEADER_BYTES <= size_bytes <= self.size_bytes - position:
            raise DamagedSegment(self.path(".log"), position)
        return size_bytes

    def _batches_at(
        self, position: int, size_bytes: int, held_bytes: int | None
    ) -> bytes | FileRange:
        if held_bytes is None or size_bytes < LEAST_RANGE_BYTES:
            return self.read(position, size_bytes)
        data = None
        if size_bytes <= held_bytes:
            data = self.read(position, size_bytes)
        elif os.fstat(self.open()).st_size < position + size_bytes:
            raise self._ends_before(position + size_bytes)
        return FileRange(self, position, size_bytes, data)

    def _ends_before(self, position: int) -> OSError:
        return OSError(errno.EIO, f"{self.path('.log')} ends before position {position}")

    def batches(self, position: int) -> Scan:
        """Scan the batches from ``position`` on.

        :raises DamagedSegment: where there is no whole batch, unless the file ends there
        """
        end = yield from scan(self.open(), position, self.size_bytes)
        if end < self.size_bytes:
            raise DamagedSegment(self.path(".log"), end)
        return end
