"""Records, and their decoding from the batches that a share consumer has acquired."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from operator import itemgetter, lt
from typing import Any, NamedTuple
from uuid import UUID

from headrace.protocol import record_batch
from headrace.protocol.limits import MAX_OPENED_BYTES
from headrace.protocol.record_batch import BatchHeader, CorruptBatch, Header

from .errors import ClientError
from .share.types import AcquiredRange

_OPENING = record_batch.Opening(max_record_bytes=MAX_OPENED_BYTES)
"""All records of an answer are in memory in any case, so that a large one is no worse than many."""

_offset_of = itemgetter(0)


class Record(NamedTuple):
    """A record that a member of a share group has acquired. It is immutable.

    :ivar topic: the name of its topic
    :ivar partition: the number of its partition
    :ivar offset: its place in the partition
    :ivar key: bytes or None
    :ivar value: bytes or None; with a deserializer, what that has returned
    :ivar headers: names and values; a name may occur several times
    :ivar timestamp_ms: milliseconds since the epoch; -1 for none
    :ivar timestamp_type: ``CreateTime``, or ``LogAppendTime`` if the broker has set it
    :ivar delivery_count: number of deliveries, including this one (KIP-932)
    :ivar topic_id: the id of the topic, which another topic of the same name does not have. It does
        not count when records are compared
    :ivar size_bytes: the size of key, value and headers as bytes; it does not count, either
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: Any
    headers: tuple[Header, ...]
    timestamp_ms: int
    timestamp_type: str
    delivery_count: int
    topic_id: UUID | None = None
    size_bytes: int = 0

    def __repr__(self) -> str:
        fields = ", ".join(
            f"{name}={value!r}" for name, value in zip(self._fields[:-2], self, strict=False)
        )
        return f"Record({fields})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self[:-2] == other[:-2]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:3])


class UnreadableBatch(ClientError):
    """Acquired records of a partition cannot be read: a batch has the wrong checksum, cannot be
    decompressed, has records that claim more than there is, or did not come.

    :ivar topic: the name of the topic
    :ivar partition: the number of the partition
    :ivar offset: the first acquired offset that cannot be read
    :ivar last_offset: the last one of the same batch. Records after it may be readable:
        :func:`decode` the rest of the ranges
    :ivar records: the acquired records before ``offset``
    """

    def __init__(self, run: AcquiredRange, offset: int, last_offset: int, reason: object) -> None:
        self.topic = run.topic
        self.partition = run.partition
        self.offset = offset
        self.last_offset = last_offset
        self.records: list[Record] = []
        super().__init__(
            f"{run.topic}-{run.partition} cannot be read from offset {offset} to {last_offset}: "
            f"{reason}"
        )


def decode(data: bytes, ranges: Sequence[AcquiredRange]) -> list[Record]:
    """Return the acquired records of one partition, in the order of their offsets.

    Transaction markers and offsets that compaction has emptied have no record: acknowledge them as
    ``GAP``.

    :param data: record batches, in the order of their offsets for each broker that has sent some
    :param ranges: of this partition, in any order
    :raises UnreadableBatch: a batch cannot be read, or none came for the last range. Do not accept
        what was not read
    """
    records: list[Record] = []
    for some in decode_lists(data, ranges):
        if isinstance(some, UnreadableBatch):
            some.records = records
            raise some
        records += some
    return records


def decode_lists(
    data: bytes, ranges: Sequence[AcquiredRange]
) -> Iterator[list[Record] | UnreadableBatch]:
    """Yield what :func:`decode` returns, a few hundred records at a time, and what it raises, with
    the records after it: batches are decompressed as far as it is asked for.
    """
    runs = _without_overlaps(ranges)
    if not runs:
        return
    last_offsets = [run.last_offset for run in runs]
    next_offset = runs[0].first_offset
    batches: list[tuple[int, BatchHeader]] = []
    reason = "its records did not come"
    try:
        batches.extend(record_batch.headers(data))
    except CorruptBatch as error:
        reason = str(error)
    is_cut = sum(header.size_bytes for _, header in batches) < len(data)
    # Two brokers have sent batches if the leader has moved, perhaps the same ones.
    batches.sort(key=lambda batch: batch[1].base_offset)
    for position, header in batches:
        end = max(header.last_offset, header.base_offset)
        at = bisect_left(last_offsets, max(next_offset, header.base_offset))
        if end >= next_offset and at < len(runs) and runs[at].first_offset <= end:
            next_offset = max(next_offset, runs[at].first_offset, header.base_offset)
            batch = memoryview(data)[position : position + header.size_bytes]
            try:
                for some in _acquired(batch, header, runs, at, next_offset):
                    next_offset = some[-1].offset + 1
                    yield some
            except CorruptBatch as error:
                last_offset = min(end, last_offsets[-1])
                yield UnreadableBatch(runs[at], next_offset, last_offset, error)
        next_offset = max(next_offset, end + 1)
    # A broker acquires offsets up to its limit, which may be in a gap after the last batch that it
    # sends. But nobody may acknowledge a run of which nothing came, or whose batches are cut off.
    if next_offset <= last_offsets[-1] and (is_cut or next_offset <= runs[-1].first_offset):
        yield UnreadableBatch(runs[-1], next_offset, last_offsets[-1], reason)


def _acquired(
    batch: memoryview,
    header: BatchHeader,
    runs: Sequence[AcquiredRange],
    at: int,
    first_offset: int,
) -> Iterator[list[Record]]:
    """Yield the acquired records of a batch.

    :param at: index of the first run that ends in the batch or after it
    :param first_offset: the records before it are left out
    :raises CorruptBatch: the batch cannot be read
    """
    lists = opened(batch, header, _OPENING, first_offset, whole=True)
    if header.is_control:
        return
    before = header.base_offset - 1
    timestamp_type, last_offset, new = header.timestamp_type, header.last_offset, tuple.__new__
    for plain in lists:
        offsets = list(map(_offset_of, plain))
        if (
            not before < offsets[0]
            or offsets[-1] > last_offset
            or not all(map(lt, offsets, islice(offsets, 1, None)))
        ):
            raise CorruptBatch(
                f"the batch at offset {header.base_offset} has records with wrong offsets"
            )
        before, end = offsets[-1], 0
        while at < len(runs) and runs[at].first_offset <= before:
            run = runs[at]
            topic, partition, topic_id = run.topic, run.partition, run.topic_id
            delivery_count = run.delivery_count
            begin = bisect_left(offsets, max(first_offset, run.first_offset), end)
            end = bisect_right(offsets, run.last_offset, begin)
            if begin < end:
                # The constructor would double the time.
                yield [
                    new(
                        Record,
                        (
                            topic,
                            partition,
                            offset,
                            key,
                            value,
                            headers,
                            timestamp_ms,
                            timestamp_type,
                            delivery_count,
                            topic_id,
                            (len(value) if value else 0)
                            + (len(key) if key else 0)
                            + (_headers_bytes(headers) if headers else 0),
                        ),
                    )
                    for offset, timestamp_ms, key, value, headers in plain[begin:end]
                ]
            if run.last_offset > before:
                break  # it goes on in the next list
            at += 1
        if at == len(runs) or runs[at].first_offset > last_offset:
            return


def _headers_bytes(headers: tuple[Header, ...]) -> int:
    return sum(len(name) + len(value or b"") for name, value in headers)


def opened(
    batch: memoryview,
    header: BatchHeader,
    opening: record_batch.Opening,
    first_offset: int,
    *,
    whole: bool = False,
) -> Iterator[list[record_batch.Record]]:
    """Check a batch, and return what yields its records like :func:`record_batch.record_lists`.

    :param first_offset: records before it may be left out
    :raises CorruptBatch: the header or the checksum is wrong
    """
    reason = None
    if header.magic != 2:
        reason = f"has the magic {header.magic}, not 2"
    elif not record_batch.has_right_crc(batch, header):
        reason = "has the wrong checksum"
    elif not 0 <= header.record_count <= header.last_offset_delta + 1:
        reason = f"claims {header.record_count} records for {header.last_offset_delta + 1} offsets"
    if reason is not None:
        raise CorruptBatch(f"the batch at offset {header.base_offset} {reason}")
    is_complete = header.record_count == header.last_offset_delta + 1  # not compacted
    skip = max(0, first_offset - header.base_offset) if is_complete else 0
    return record_batch.record_lists(batch, header, opening, skip=skip, whole=whole)


def _without_overlaps(ranges: Sequence[AcquiredRange]) -> list[AcquiredRange]:
    """Return the runs in ascending order, each offset once."""
    runs: list[AcquiredRange] = []
    next_offset = 0
    for run in sorted(ranges, key=lambda run: run.first_offset):
        if run.first_offset < next_offset:
            run = replace(run, first_offset=next_offset)
        if run.first_offset <= run.last_offset:
            runs.append(run)
            next_offset = run.last_offset + 1
    return runs
