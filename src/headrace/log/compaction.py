"""Compaction: which records of a batch stay, and the batch without the others. Pure;
``docs/behaviour/compaction.md``.

A round has two passes. The first one notes the last offset of each key in the part of the log that
no round has cleaned yet (:class:`LatestOffsets`). The second one goes over the log from its start
to the end of that part and leaves out what is superseded (:class:`Compactor`). Offsets never
change: a batch keeps its first and its last offset, whatever it loses.

What is decided of a record or a batch is decided as in Apache Kafka, KIP-534 included: a tombstone
or a marker that stands at the end of its time is first given a *delete horizon*, and goes when that
has passed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from sys import getsizeof
from typing import NamedTuple

from headrace.log.aborted_transactions import AbortedTransaction
from headrace.log.producer_state import ProducerState
from headrace.protocol.compression import compress
from headrace.protocol.primitives import append_varint, read_varint
from headrace.protocol.record_batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptBatch,
    opened,
    seal,
)

MAX_TIMESTAMP = 2**63 - 1

_ENTRY_BYTES = 150
"""About what a key costs in memory besides its own bytes: its places in the table and its offset.
"""


class Slot(NamedTuple):
    """A record within the opened body of its batch, as far as compaction looks into it.

    :ivar start: where its length stands
    :ivar end: where the next record begins
    :ivar rest: where its offset delta stands, behind the timestamp delta
    """

    start: int
    end: int
    rest: int
    offset: int
    timestamp_delta: int
    key: bytes | None
    is_tombstone: bool


def slots(body: bytes, header: BatchHeader) -> Iterator[Slot]:
    """The records of an opened batch.

    :raises CorruptBatch: when they cannot be read
    """
    position, base_offset = 0, header.base_offset
    try:
        for _ in range(header.record_count):
            start = position
            length, position = read_varint(body, position)
            end = position + length
            timestamp_delta, rest = read_varint(body, position + 1)
            offset_delta, position = read_varint(body, rest)
            length, position = read_varint(body, position)
            key = None
            if length >= 0:
                key = body[position : position + length]
                position += length
            length, _ = read_varint(body, position)
            if position > end or end > len(body):
                raise CorruptBatch(
                    f"the record at offset {base_offset + offset_delta} is longer than it says"
                )
            yield Slot(
                start, end, rest, base_offset + offset_delta, timestamp_delta, key, length < 0
            )
            position = end
    except IndexError as error:
        raise CorruptBatch(f"cannot open the batch at offset {base_offset}: {error!r}") from error


class LatestOffsets:
    """The last offset of each key, of as many keys as fit.

    :param limit_bytes: about how much memory the keys may take (log.cleaner.dedupe.buffer.size)
    """

    __slots__ = ("_left", "offsets")

    def __init__(self, limit_bytes: int) -> None:
        self._left = limit_bytes
        self.offsets: dict[bytes, int] = {}

    @property
    def is_full(self) -> bool:
        """Whether no further batch should be noted. One that began with room left is noted
        whole."""
        return self._left <= 0

    def note(self, header: BatchHeader, batch: memoryview, from_offset: int) -> None:
        """Take in the records of a data batch, but for those before ``from_offset``.

        :raises CorruptBatch: when it cannot be read
        """
        offsets = self.offsets
        for slot in slots(opened(batch, header), header):
            key = slot.key
            if key is not None and slot.offset >= from_offset:
                if key not in offsets:
                    self._left -= getsizeof(key) + _ENTRY_BYTES
                offsets[key] = slot.offset


class AbortedLookup:
    """Which batches aborted transactions have written."""

    __slots__ = ("_of_producer",)

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._of_producer: dict[int, list[AbortedTransaction]] = {}
        for one in aborted:  # ascending by last_offset, and those of one producer do not overlap
            self._of_producer.setdefault(one.producer_id, []).append(one)

    def __contains__(self, header: BatchHeader) -> bool:
        if not header.is_transactional or header.is_control:
            return False
        own = self._of_producer.get(header.producer_id)
        if own is None:
            return False
        number = bisect_right(own, header.base_offset, key=attrgetter("last_offset"))
        return number < len(own) and own[number].first_offset <= header.base_offset


class LastOfProducer(NamedTuple):
    """The last that a live producer has written.

    :ivar last_offset: of its last data batch, which has its last sequence; None when its epoch has
        none, but a marker
    """

    last_offset: int | None
    epoch: int


def last_of_producers(producers: ProducerState) -> dict[int, LastOfProducer]:
    """What has to stay so that the state of producers can be found in the log again."""
    return {
        producer_id: LastOfProducer(
            entry.batches[-1].last_offset if entry.batches else None, entry.epoch
        )
        for producer_id, entry in producers
    }


class Compactor:
    """The second pass of one round, batch after batch from the start of the log.

    :param latest: the last offset of each key of the part that is cleaned for the first time
    :param end_offset: of that part, exclusive; batches from there on stay as they are. The batch
        that ends there stays in any case, be it empty, so that a reader gets there
    """

    __slots__ = (
        "_aborted",
        "_delete_retention_ms",
        "_end_offset",
        "_latest",
        "_now_ms",
        "_producers",
        "_with_data",
    )

    def __init__(
        self,
        latest: Mapping[bytes, int],
        end_offset: int,
        *,
        aborted: AbortedLookup,
        producers: Mapping[int, LastOfProducer],
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._latest = latest
        self._end_offset = end_offset
        self._aborted = aborted
        self._producers = producers
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._with_data: set[int] = set()
        """Producers with a transaction of which a batch was met, but not the marker yet."""

    def clean(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        """What takes the place of a batch: itself, one with fewer records, or nothing.

        :raises CorruptBatch: when it cannot be read
        """
        if header.base_offset >= self._end_offset:
            return batch
        if header.is_control:
            return self._clean_marker(header, batch)
        if header.is_transactional:
            self._with_data.add(header.producer_id)
        if header in self._aborted:
            return self._without_records(header)
        return self._clean_data(header, batch)

    def _clean_marker(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        producer_id = header.producer_id
        if (
            producer_id in self._with_data
        ):  # its transaction had data in the log when this round began
            self._with_data.discard(producer_id)
            return batch
        horizon = header.delete_horizon_ms
        if not header.record_count:  # the end of an earlier round
            return self._at_the_end(header)
        if horizon is None:
            body = opened(batch, header)
            return self._rebuilt(header, body, list(slots(body, header)), self._new_horizon())
        last = self._producers.get(producer_id)
        is_last = (
            last is not None and last.last_offset is None and last.epoch == header.producer_epoch
        )
        return batch if self._now_ms < horizon or is_last else self._at_the_end(header)

    def _clean_data(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        body = opened(batch, header)
        horizon = header.delete_horizon_ms
        tombstones_stay = horizon is None or self._now_ms < horizon
        latest = self._latest
        kept: list[Slot] = []
        has_tombstone = False
        for slot in slots(body, header):
            key = slot.key
            if key is None or slot.offset < latest.get(key, -1):
                continue
            if slot.is_tombstone:
                if not tombstones_stay:
                    continue
                has_tombstone = True
            kept.append(slot)
        if not kept:
            return self._without_records(header)
        if has_tombstone and horizon is None:
            return self._rebuilt(header, body, kept, self._new_horizon())
        if len(kept) == header.record_count:
            return batch
        return self._rebuilt(header, body, kept, None)

    def _new_horizon(self) -> int:
        return min(self._now_ms + self._delete_retention_ms, MAX_TIMESTAMP)

    def _without_records(self, header: BatchHeader) -> bytes | None:
        """An empty batch where it has the last sequence of a live producer; else nothing."""
        last = (
            self._producers.get(header.producer_id)
            if header.producer_id != NO_PRODUCER_ID
            else None
        )
        if last is not None and last.last_offset == header.last_offset:
            return empty(header)
        return self._at_the_end(header)

    def _at_the_end(self, header: BatchHeader) -> bytes | None:
        return empty(header) if header.last_offset + 1 == self._end_offset else None

    def _rebuilt(
        self, header: BatchHeader, body: bytes, kept: list[Slot], horizon: int | None
    ) -> bytes:
        """The batch with these records, and with a delete horizon if one is given."""
        base_timestamp = header.base_timestamp
        if horizon is None:
            out = b"".join([body[slot.start : slot.end] for slot in kept])
        else:
            out = _shifted(body, kept, base_timestamp - horizon)
        payload = compress(header.codec, out)
        changed = header._replace(
            batch_length=HEADER_BYTES - LENGTH_OVERHEAD + len(payload), record_count=len(kept)
        )
        if horizon is not None:
            changed = changed._replace(
                attributes=header.attributes | DELETE_HORIZON_BIT, base_timestamp=horizon
            )
        if not header.attributes & LOG_APPEND_TIME_BIT:
            changed = changed._replace(
                max_timestamp=base_timestamp + max(slot.timestamp_delta for slot in kept)
            )
        return seal(changed, payload) + payload


def _shifted(body: bytes, kept: list[Slot], by_ms: int) -> bytes:
    """The records with other timestamp deltas, since the base timestamp moves the other way."""
    out = bytearray()
    for slot in kept:
        record = bytearray(b"\0")
        append_varint(record, slot.timestamp_delta + by_ms)
        record += body[slot.rest : slot.end]
        append_varint(out, len(record))
        out += record
    return bytes(out)


def empty(header: BatchHeader) -> bytes:
    """The batch without any record: what is left of it are its offsets, its producer, epoch and
    sequences.
    """
    return seal(
        header._replace(
            batch_length=HEADER_BYTES - LENGTH_OVERHEAD,
            attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT),
            base_timestamp=NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )
