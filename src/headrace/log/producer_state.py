"""The state of the producers of a partition, for recognizing duplicates and for transactions
(KIP-98).

For each producer id: its epoch, the sequences of its last five batches (a client has at most five
in flight), and the first offset of its open transaction. A snapshot file keeps the state over
restarts, in Apache Kafka's format. Kafka stores one entry for each producer, for its last batch;
headrace stores one for each of the five, in order. Kafka's tools use the last entry of a producer,
which is the same as Kafka's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from headrace.log.aborted_transactions import AbortedTransaction
from headrace.protocol.checksum import crc32c
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.record_batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    Marker,
)

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


_NO_BATCH = AppendedBatch(NO_SEQUENCE, NO_SEQUENCE, -1, -1, -1)


@dataclass(slots=True)
class ProducerEntry:
    """The state of one producer id.

    :ivar epoch: epoch of its last batch or marker
    :ivar timestamp: timestamp of its last batch or marker in milliseconds, -1 if unknown
    :ivar coordinator_epoch: epoch in its last marker, -1 before the first one
    :ivar batches: its last batches in that epoch, oldest first
    """

    epoch: int
    timestamp: int = -1
    coordinator_epoch: int = -1
    batches: list[AppendedBatch] = field(default_factory=list)


def _stale(header: BatchHeader, last_epoch: int) -> Refusal:
    return Refusal(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Epoch of producer {header.producer_id} is {header.producer_epoch}, which is "
        f"smaller than the last seen epoch {last_epoch}",
    )


class ProducerState:
    """The producers of one partition.

    :meth:`check` decides and changes nothing; :meth:`replay` and :meth:`complete` apply what was
    appended.
    """

    __slots__ = ("_open", "_producers")

    def __init__(self) -> None:
        self._producers: dict[int, ProducerEntry] = {}
        self._open: dict[int, int] = {}
        """Producer id -> first offset of its open transaction, oldest first."""

    def __iter__(self) -> Iterator[tuple[int, ProducerEntry]]:
        return iter(self._producers.items())

    def __contains__(self, producer_id: int) -> bool:
        """Return whether a producer id is known."""
        return producer_id in self._producers

    @property
    def first_open_offset(self) -> int | None:
        """First offset of the oldest open transaction; None if none is open."""
        return next(iter(self._open.values()), None)

    def epoch(self, producer_id: int) -> int | None:
        """Return the epoch in which a producer wrote last; None if it is not known."""
        entry = self._producers.get(producer_id)
        return None if entry is None else entry.epoch

    def open_transaction(self, producer_id: int) -> int:
        """Return the first offset of a producer's open transaction; -1 if it has none."""
        return self._open.get(producer_id, -1)

    def check(self, header: BatchHeader) -> AppendedBatch | Refusal | None:
        """Check whether a producer's batch may be appended.

        An unknown producer id (new, expired, or its records deleted) may begin with any sequence.

        :return: None if it may; the earlier batch if this one is a duplicate;
            INVALID_PRODUCER_EPOCH for an epoch older than the last one,
            OUT_OF_ORDER_SEQUENCE_NUMBER for a gap, INVALID_TXN_STATE for a batch outside of the
            open transaction
        """
        entry = self._producers.get(header.producer_id)
        first, epoch = header.base_sequence, header.producer_epoch
        if entry is None:
            return None if epoch >= NO_PRODUCER_EPOCH else _stale(header, NO_PRODUCER_EPOCH)
        if epoch == entry.epoch:
            last = entry.batches[-1].last_sequence if entry.batches else NO_SEQUENCE
            if first != (last + 1 if last < MAX_SEQUENCE else 0):
                sequences = (first, header.last_sequence)
                for batch in entry.batches:
                    if batch[:2] == sequences:
                        return batch
                return Refusal(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Out of order sequence number for producer {header.producer_id}: {first} "
                    f"(incoming seq. number), {last} (current end sequence number)",
                )
        elif epoch < entry.epoch:
            return _stale(header, entry.epoch)
        elif first and entry.epoch != NO_PRODUCER_EPOCH:
            return Refusal(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Invalid sequence number for new epoch of producer {header.producer_id}: "
                f"{epoch} (request epoch), {first} (seq. number), "
                f"{entry.epoch} (current producer epoch)",
            )
        if header.producer_id in self._open and not header.is_transactional:
            return Refusal(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {header.producer_id}",
            )
        return None

    def check_marker(
        self, producer_id: int, producer_epoch: int, marker: Marker, *, new_epoch: bool
    ) -> ErrorCode:
        """Check whether a client's marker may be appended.

        :param new_epoch: the marker of an open transaction must have a later epoch than its
            batches, which is the case if each transaction has a new epoch (KIP-890)
        :return: NONE if it may; INVALID_PRODUCER_EPOCH for an older epoch;
            TRANSACTION_COORDINATOR_FENCED for a marker of an earlier coordinator than the last one
        """
        entry = self._producers.get(producer_id)
        last_epoch = NO_PRODUCER_EPOCH if entry is None else entry.epoch
        if producer_epoch < last_epoch + (new_epoch and producer_id in self._open):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if entry is not None and marker.coordinator_epoch < entry.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return ErrorCode.NONE

    def replay(self, header: BatchHeader, base_offset: int) -> None:
        """Apply a batch that is in the log at ``base_offset``. Batches without a producer id, and
        markers, change nothing; :meth:`complete` applies markers.
        """
        if header.producer_id == NO_PRODUCER_ID or header.is_control:
            return
        if header.is_transactional and header.producer_id not in self._open:
            self._open[header.producer_id] = base_offset
        batches = self._enter(header).batches
        batches.append(
            AppendedBatch(
                header.base_sequence,
                header.last_sequence,
                base_offset,
                base_offset + header.last_offset_delta,
                header.max_timestamp,
            )
        )
        if len(batches) > BATCHES_KEPT:
            del batches[0]

    def _enter(self, header: BatchHeader) -> ProducerEntry:
        """Return the entry of a producer whose batch was appended. A new epoch has no batches."""
        entry = self._producers.get(header.producer_id)
        if entry is None:
            entry = self._producers[header.producer_id] = ProducerEntry(header.producer_epoch)
        elif entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.timestamp = header.max_timestamp
        return entry

    def complete(self, header: BatchHeader, marker: Marker) -> AbortedTransaction | None:
        """Apply a marker, which ends the producer's transaction.

        :param header: the marker's header with its offset in the log
        :return: the aborted transaction; None after a commit, or if no transaction was open
        """
        self._enter(header).coordinator_epoch = marker.coordinator_epoch
        first_offset = self._open.pop(header.producer_id, None)
        if first_offset is None or marker.commit:
            return None
        still_open = self.first_open_offset
        last_stable_offset = header.last_offset + 1 if still_open is None else still_open
        return AbortedTransaction(
            header.producer_id, first_offset, header.last_offset, last_stable_offset
        )

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Remove the producers whose last batch is at least ``expiration_ms`` old
        (producer.id.expiration.ms), unless they have an open transaction.
        """
        expired = [
            producer_id
            for producer_id, entry in self._producers.items()
            if now_ms - entry.timestamp >= expiration_ms and producer_id not in self._open
        ]
        for producer_id in expired:
            del self._producers[producer_id]

    # ------------------------------------------------------------------ snapshots

    def snapshot(self) -> bytes:
        """Return the state in the format of Kafka's ``.snapshot`` files, version 1."""
        entries = [
            _SNAPSHOT_ENTRY.pack(
                producer_id,
                entry.epoch,
                batch.last_sequence,
                batch.last_offset,
                batch.last_offset - batch.first_offset,
                batch.timestamp,
                entry.coordinator_epoch,
                self.open_transaction(producer_id),
            )
            for producer_id, entry in self._producers.items()
            for batch in entry.batches or [_NO_BATCH._replace(timestamp=entry.timestamp)]
        ]
        body = _COUNT.pack(len(entries)) + b"".join(entries)
        return _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, crc32c(body)) + body

    @classmethod
    def from_snapshot(cls, data: bytes) -> ProducerState | None:
        """Read a snapshot; None if the bytes are torn or have another format."""
        if len(data) < _SNAPSHOT_HEAD.size + _COUNT.size:
            return None
        version, crc = _SNAPSHOT_HEAD.unpack_from(data)
        body = memoryview(data)[_SNAPSHOT_HEAD.size :]
        entries = body[_COUNT.size :]
        count = _COUNT.unpack_from(body)[0]
        if (
            version != _SNAPSHOT_VERSION
            or crc != crc32c(body)
            or len(entries) != count * _SNAPSHOT_ENTRY.size
        ):
            return None
        state = cls()
        for (
            producer_id,
            epoch,
            last_sequence,
            last_offset,
            delta,
            timestamp,
            coordinator_epoch,
            first_open,
        ) in _SNAPSHOT_ENTRY.iter_unpack(entries):
            entry = ProducerEntry(epoch, timestamp, coordinator_epoch)
            entry = state._producers.setdefault(producer_id, entry)
            entry.timestamp = timestamp
            if first_open >= 0:
                state._open[producer_id] = first_open
            if last_offset >= 0:
                first_sequence = (last_sequence - delta) & MAX_SEQUENCE
                entry.batches.append(
                    AppendedBatch(
                        first_sequence, last_sequence, last_offset - delta, last_offset, timestamp
                    )
                )
        state._open = dict(sorted(state._open.items(), key=itemgetter(1)))
        return state
