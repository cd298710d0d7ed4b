"""Compaction: which records of a batch stay, and the batch without the others. Pure;
``docs/behaviour/compaction.md``.

A round has two passes. The first one collects the last offset of each key in the part of the log
that no round has cleaned yet (:class:`LatestOffsets`). The second one reads the log from its start
to the end of that part and removes records that a later one replaces (:class:`Compactor`). Offsets
never change: a batch keeps its first and its last offset even if it loses records.

The decisions are Apache Kafka's, KIP-534 included: a tombstone or marker that is no longer needed
first gets a *delete horizon*, and is removed when that time has passed.
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
"""Approximate memory for a key besides its own bytes: its places in the table and its offset."""


class Slot(NamedTuple):
    """A record within the decompressed body of its batch.

    :ivar start: position of its length
    :ivar end: position after it
    :ivar rest: position of its offset delta, after the timestamp delta
    :ivar key: None if the record has no key
    """

    start: int
    end: int
    rest: int
    offset: int
    timestamp_delta: int
    key: bytes | None
    is_tombstone: bool


def slots(body: bytes, header: BatchHeader) -> Iterator[Slot]:
    """Yield the records of a decompressed batch.

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
    """The last offset of each key, for as many keys as fit.

    :param limit_bytes: approximate memory for the keys (log.cleaner.dedupe.buffer.size)
    :ivar offsets: key -> last offset
    """

    __slots__ = ("_left", "offsets")

    def __init__(self, limit_bytes: int) -> None:
        self._left = limit_bytes
        self.offsets: dict[bytes, int] = {}

    @property
    def is_full(self) -> bool:
        """True if no further batch may be added. A batch that begins with memory left is added
        whole.
        """
        return self._left <= 0

    def note(self, header: BatchHeader, batch: memoryview, from_offset: int) -> None:
        """Add the records of a data batch, except those before ``from_offset``.

        :raises CorruptBatch: when the batch cannot be read
        """
        offsets = self.offsets
        for slot in slots(opened(batch, header), header):
            key = slot.key
            if key is not None and slot.offset >= from_offset:
                if key not in offsets:
                    self._left -= getsizeof(key) + _ENTRY_BYTES
                offsets[key] = slot.offset


class AbortedLookup:
    """The batches of aborted transactions, as a container of their headers."""

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
    """The last write of a producer that is still known.

    :ivar last_offset: last offset of its last data batch; None if it has written only a marker in
        its epoch
    """

    last_offset: int | None
    epoch: int


def last_of_producers(producers: ProducerState) -> dict[int, LastOfProducer]:
    """Return the batches that compaction must keep, so that the state of producers can be rebuilt
    from the log.
    """
    return {
        producer_id: LastOfProducer(
            entry.batches[-1].last_offset if entry.batches else None, entry.epoch
        )
        for producer_id, entry in producers
    }


class Compactor:
    """The second pass of one round; it is given the batches from the start of the log.

    :param latest: key -> last offset in the part that is cleaned for the first time
    :param end_offset: end of that part, exclusive; later batches stay as they are. The batch that
        ends there is kept even without records, so that readers get to that offset
    :param aborted: the aborted transactions of the log
    :param producers: producer id -> its last write
    :param delete_retention_ms: time from when a tombstone or marker is no longer needed to its
        removal
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
        """Producers with data batches of a transaction whose marker was not read yet."""

    def clean(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        """Return the replacement of a batch: itself, a batch with fewer records, or None.

        :raises CorruptBatch: when the batch cannot be read
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
        if producer_id in self._with_data:  # the transaction has data in the log
            self._with_data.discard(producer_id)
            return batch
        horizon = header.delete_horizon_ms
        if not header.record_count:  # left empty by an earlier round
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
        """Return an empty batch if it has the last sequence of a known producer; else None."""
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
        """Return the batch with only the records ``kept``, and with a delete horizon if one is
        given.
        """
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
    """Return the records with other timestamp deltas, because the base timestamp changes by
    ``-by_ms``.
    """
    out = bytearray()
    for slot in kept:
        record = bytearray(b"\0")
        append_varint(record, slot.timestamp_delta + by_ms)
        record += body[slot.rest : slot.end]
        append_varint(out, len(record))
        out += record
    return bytes(out)


def empty(header: BatchHeader) -> bytes:
    """Return the batch without records: its offsets, producer, epoch and sequences are kept."""
    return seal(
        header._replace(
            batch_length=HEADER_BYTES - LENGTH_OVERHEAD,
            attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT),
            base_timestamp=NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )
