"""What a log remembers of idempotent producers, so that a batch sent again is not written again (KIP-98).

Of each producer id: its epoch, and the sequence ranges of its last five batches, as many as a client keeps in flight.
A snapshot file keeps this over restarts, in Apache Kafka's format. Where Kafka stores the last batch of a producer, we
store one entry for each of the five, in order; a reader that knows of one keeps the last, which is right.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from headrace.errors import ErrorCode, Refusal
from headrace.log.batch import NO_PRODUCER_ID, BatchHeader

BATCHES_KEPT = 5
MAX_SEQUENCE = 2**31 - 1

_SNAPSHOT_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_SNAPSHOT_VERSION = 1


class AppendedBatch(NamedTuple):
    """A batch that is in the log; offsets and sequences are inclusive."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry:
    """One producer id."""

    __slots__ = ("batches", "epoch")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: list[AppendedBatch] = []

    def add(self, epoch: int, batch: AppendedBatch) -> None:
        """A batch that was written; the first of a new epoch forgets those of the old one."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
        self.batches.append(batch)
        if len(self.batches) > BATCHES_KEPT:
            del self.batches[0]


class ProducerState:
    """The producers of one partition. ``check`` decides, ``replay`` mutates."""

    __slots__ = ("_producers",)

    def __init__(self) -> None:
        self._producers: dict[int, ProducerEntry] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, header: BatchHeader) -> AppendedBatch | Refusal | None:
        """Whether a producer's batch may be appended: None for yes, the earlier batch when this one is a duplicate.

        Errors: INVALID_PRODUCER_EPOCH for an epoch older than the last seen, OUT_OF_ORDER_SEQUENCE_NUMBER for a gap.
        A producer id that is not known (new, expired, or its records deleted) may start with any sequence.
        """
        entry = self._producers.get(header.producer_id)
        if entry is None:
            return None
        first, epoch = header.base_sequence, header.producer_epoch
        if epoch == entry.epoch and entry.batches:
            last = entry.batches[-1].last_sequence
            if first == (last + 1 if last < MAX_SEQUENCE else 0):
                return None
            sequences = (first, header.last_sequence)
            for batch in entry.batches:
                if batch[:2] == sequences:
                    return batch
            return Refusal(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {header.producer_id}: {first} (incoming seq. number), "
                f"{last} (current end sequence number)",
            )
        if epoch < entry.epoch:
            return Refusal(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {header.producer_id} is {epoch}, which is smaller than the last seen epoch "
                f"{entry.epoch}",
            )
        if epoch > entry.epoch and first:
            return Refusal(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Invalid sequence number for new epoch of producer {header.producer_id}: {epoch} (request epoch), "
                f"{first} (seq. number), {entry.epoch} (current producer epoch)",
            )
        return None

    def replay(self, header: BatchHeader, base_offset: int) -> None:
        """Take in a batch that stands in the log at ``base_offset``; those without a producer id change nothing."""
        if header.producer_id == NO_PRODUCER_ID or header.is_control:
            return
        entry = self._producers.get(header.producer_id)
        if entry is None:
            entry = self._producers[header.producer_id] = ProducerEntry(header.producer_epoch)
        entry.add(
            header.producer_epoch,
            AppendedBatch(
                header.base_sequence,
                header.last_sequence,
                base_offset,
                base_offset + header.last_offset_delta,
                header.max_timestamp,
            ),
        )

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers whose last batch is at least ``expiration_ms`` old (producer.id.expiration.ms)."""
        expired = [
            producer_id
            for producer_id, entry in self._producers.items()
            if now_ms - entry.batches[-1].timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self._producers[producer_id]

    # ------------------------------------------------------------------ snapshots

    def _entries(self) -> Iterator[bytes]:
        for producer_id, entry in self._producers.items():
            for batch in entry.batches:
                yield _SNAPSHOT_ENTRY.pack(
                    producer_id, entry.epoch, batch.last_sequence, batch.last_offset,
                    batch.last_offset - batch.first_offset, batch.timestamp, -1, -1,
                )  # fmt: skip

    def snapshot(self) -> bytes:
        """Everything, in the format of Kafka's ``.snapshot`` files, version 1."""
        entries = list(self._entries())
        body = _COUNT.pack(len(entries)) + b"".join(entries)
        return _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, crc32c(body)) + body

    @classmethod
    def from_snapshot(cls, data: bytes) -> ProducerState | None:
        """The inverse of :meth:`snapshot`; None when the bytes are torn or of another format."""
        if len(data) < _SNAPSHOT_HEAD.size + _COUNT.size:
            return None
        version, crc = _SNAPSHOT_HEAD.unpack_from(data)
        body = memoryview(data)[_SNAPSHOT_HEAD.size :]
        entries = body[_COUNT.size :]
        count = _COUNT.unpack_from(body)[0]
        if version != _SNAPSHOT_VERSION or crc != crc32c(body) or len(entries) != count * _SNAPSHOT_ENTRY.size:
            return None
        state = cls()
        for producer_id, epoch, last_sequence, last_offset, delta, timestamp, _, _ in _SNAPSHOT_ENTRY.iter_unpack(
            entries
        ):
            entry = state._producers.setdefault(producer_id, ProducerEntry(epoch))
            first_sequence = (last_sequence - delta) & MAX_SEQUENCE
            entry.add(epoch, AppendedBatch(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp))
        return state
