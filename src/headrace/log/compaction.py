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

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from sys import getsizeof
from typing import NamedTuple

from headrace.log.aborted_transactions import AbortedLookup
from headrace.log.producer_state import ProducerState
from headrace.protocol.compression import compressor
from headrace.protocol.primitives import MAX_INT64, MIN_INT64, append_varint, read_varint
from headrace.protocol.record_batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    OPEN_ANY,
    BatchHeader,
    CorruptBatch,
    Opening,
    record_spans,
    seal,
)

_SHORT_KEY_BYTES = 32
_DIGEST_BYTES = 33

_ENTRY_BYTES = 150
"""Approximate memory for a key besides its own bytes: its places in the table and its offset."""


class Slot(NamedTuple):
    """A record of an opened batch.

    :ivar data: bytes that contain the record
    :ivar start: position in ``data`` of its first byte after its length
    :ivar rest: position of its offset delta, after the timestamp delta
    :ivar end: position after it
    :ivar key: None if the record has no key
    """

    data: bytes
    start: int
    rest: int
    end: int
    offset: int
    timestamp_delta: int
    key: bytes | None
    is_tombstone: bool


def slots(batch: bytes | memoryview, header: BatchHeader, opening: Opening) -> Iterator[Slot]:
    """Yield the records of a whole batch. Only one of them is in memory at a time.

    :raises CorruptBatch: when they cannot be read, or exceed the limits on opening
    """
    base_offset, last_offset = header.base_offset, header.last_offset
    try:
        for data, start, end in record_spans(batch, header, opening):
            timestamp_delta, rest = read_varint(data, start + 1)
            offset_delta, position = read_varint(data, rest)
            length, position = read_varint(data, position)
            key = None
            if length >= 0:
                key = data[position : position + length]
                position += length
            length, _ = read_varint(data, position)
            offset = base_offset + offset_delta
            if position > end:
                raise CorruptBatch(f"the record at offset {offset} is longer than it says")
            if not base_offset <= offset <= last_offset:
                raise CorruptBatch(
                    f"a record at offset {offset} in the batch of {base_offset} to {last_offset}"
                )
            yield Slot(data, start, rest, end, offset, timestamp_delta, key, length < 0)
    except CorruptBatch:
        raise
    except (IndexError, ValueError) as error:
        raise CorruptBatch(f"cannot open the batch at offset {base_offset}: {error!r}") from error


def _short(key: bytes) -> bytes:
    """Return a key, or the digest of a long one, so that the memory for keys depends on their
    number. A digest is longer than any key that is kept as it is.
    """
    return key if len(key) <= _SHORT_KEY_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()


class LatestOffsets:
    """The last offset of each key, for as many keys as fit.

    :param limit_bytes: approximate memory for the keys (log.cleaner.dedupe.buffer.size)
    """

    def __init__(self, limit_bytes: int, opening: Opening = OPEN_ANY) -> None:
        self._left = limit_bytes
        self._offsets: dict[bytes, int] = {}
        self._opening = opening

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        """True if no further key fits."""
        return self._left <= 0

    def get(self, key: bytes, default: int) -> int:
        """Return the last offset of a key, or ``default`` if it is not known."""
        return self._offsets.get(_short(key), default)

    def note(self, header: BatchHeader, batch: memoryview, from_offset: int) -> int | None:
        """Add the records of a data batch, except those before ``from_offset``.

        :returns: None if all were added; otherwise the offset of the first one that did not fit
        :raises CorruptBatch: when the batch cannot be read
        """
        offsets = self._offsets
        for slot in slots(batch, header, self._opening):
            if slot.key is None or slot.offset < from_offset:
                continue
            key = _short(slot.key)
            if key not in offsets:
                if self._left <= 0:
                    return slot.offset
                self._left -= getsizeof(key) + _ENTRY_BYTES
            offsets[key] = slot.offset
        return None


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


@dataclass(slots=True)
class Compactor:
    """The second pass of one round; it is given the batches from the start of the log.

    :ivar latest: last offsets of the keys in the part that is cleaned for the first time
    :ivar end_offset: end of that part, exclusive; later batches stay as they are. The batch that
        ends there is kept even without records, so that readers get to that offset
    :ivar aborted: the aborted transactions of the log
    :ivar producers: producer id -> its last write
    :ivar delete_retention_ms: time from when a tombstone or marker is no longer needed to its
        removal
    :ivar opening: the limits on opening batches
    """

    latest: Mapping[bytes, int] | LatestOffsets
    end_offset: int
    aborted: AbortedLookup
    producers: Mapping[int, LastOfProducer]
    now_ms: int
    delete_retention_ms: int
    opening: Opening = OPEN_ANY
    _with_data: set[int] = field(default_factory=set)
    """Producers with data batches of a transaction whose marker was not read yet."""

    def clean(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        """Return the replacement of a batch: itself, a batch with fewer records, or None.

        :raises CorruptBatch: when the batch cannot be read
        """
        if header.base_offset >= self.end_offset:
            return batch
        if header.is_control:
            return self._clean_marker(header, batch)
        if header.is_transactional:
            self._with_data.add(header.producer_id)
        if header in self.aborted:
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
            choices = bytearray(b"\1") * header.record_count
            return self._rebuilt(header, batch, choices, gets_horizon=True)
        is_last = self.producers.get(producer_id) == (None, header.producer_epoch)
        return batch if self.now_ms < horizon or is_last else self._at_the_end(header)

    def _clean_data(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        horizon = header.delete_horizon_ms
        tombstones_stay = horizon is None or self.now_ms < horizon
        last_offset_of, end_offset = self.latest.get, self.end_offset
        choices = bytearray()
        has_tombstone = False
        for slot in slots(batch, header, self.opening):
            key = slot.key
            stays = slot.offset >= end_offset or (
                key is not None
                and slot.offset >= last_offset_of(key, -1)
                and (tombstones_stay or not slot.is_tombstone)
            )
            has_tombstone = has_tombstone or (stays and slot.is_tombstone)
            choices.append(stays)
        if not any(choices):
            return self._without_records(header)
        gets_horizon = has_tombstone and horizon is None
        if all(choices) and not gets_horizon:
            return batch
        return self._rebuilt(header, batch, choices, gets_horizon=gets_horizon)

    def _without_records(self, header: BatchHeader) -> bytes | None:
        """Return an empty batch if it has the last sequence of a known producer; else None."""
        last = self.producers.get(header.producer_id)
        if last is not None and last.last_offset == header.last_offset:
            return empty(header)
        return self._at_the_end(header)

    def _at_the_end(self, header: BatchHeader) -> bytes | None:
        return empty(header) if header.last_offset + 1 == self.end_offset else None

    def _rebuilt(
        self, header: BatchHeader, batch: memoryview, choices: bytearray, *, gets_horizon: bool
    ) -> bytes:
        """Return the batch with only the chosen records.

        The records are read a second time, and compressed one by one.

        :param choices: 1 for each record that stays, 0 for each other one
        :param gets_horizon: set a delete horizon, which takes the place of the base timestamp
        """
        base_timestamp = header.base_timestamp
        horizon = min(self.now_ms + self.delete_retention_ms, MAX_INT64)
        by_ms = base_timestamp - horizon if gets_horizon else 0
        stream = compressor(header.codec)
        pieces: list[bytes] = []
        largest_delta = MIN_INT64
        for slot, stays in zip(slots(batch, header, self.opening), choices, strict=True):
            if stays:
                largest_delta = max(largest_delta, slot.timestamp_delta)
                pieces.append(stream.compress(_shifted(slot, by_ms)))
        pieces.append(stream.flush())
        payload = b"".join(pieces)
        changed = header._replace(
            batch_length=HEADER_BYTES - LENGTH_OVERHEAD + len(payload), record_count=sum(choices)
        )
        if gets_horizon:
            changed = changed._replace(
                attributes=header.attributes | DELETE_HORIZON_BIT, base_timestamp=horizon
            )
        if not header.attributes & LOG_APPEND_TIME_BIT:
            changed = changed._replace(max_timestamp=base_timestamp + largest_delta)
        return seal(changed, payload) + payload


def _shifted(slot: Slot, by_ms: int) -> bytes:
    """Return a record with its length, and with another timestamp delta if the base timestamp
    changes by ``-by_ms``.
    """
    out = bytearray()
    if by_ms:
        record = bytearray(b"\0")
        append_varint(record, slot.timestamp_delta + by_ms)
        append_varint(out, len(record) + slot.end - slot.rest)
        out += record
        start = slot.rest
    else:
        append_varint(out, slot.end - slot.start)
        start = slot.start
    out += memoryview(slot.data)[start : slot.end]
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
