"""The records of ``__transaction_state``, exactly as Apache Kafka writes them: one value per
transactional id.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby
from operator import itemgetter

from headrace.protocol.partitions import TopicPartition
from headrace.protocol.primitives import (
    NO_TAGS,
    Reader,
    compact_array,
    compact_string,
    i8,
    i16,
    i32,
    i64,
    string,
    tagged_fields,
)

from .producer import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

NO_TIMESTAMP = -1

_KEY_TYPE, _VALUE_VERSION = 0, 1
_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_VERSION, _NEXT_PRODUCER_EPOCH = range(4)
"""Tags of the value."""


class State(IntEnum):
    """The state of a transactional id, by the numbers of the records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """Its name in Kafka's tools, for example ``PrepareCommit`` for PREPARE_COMMIT."""
        return self.name.title().replace("_", "")


_OPEN = frozenset((State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT))


@dataclass(frozen=True, slots=True)
class Transaction:
    """The state of one transactional id and of its latest transaction.

    :param producer_epoch: -1 before the first InitProducerId
    :param previous_producer_id: the previous producer id, whose epochs were used up, for retries
        with it; -1 for none
    :param next_producer_id: the producer id after the transaction, when the epochs of this one are
        used up; -1 for none
    :param partitions: the partitions of the transaction; those of ``__consumer_offsets`` stand for
        groups
    :param start_ms: when the latest transaction began, in epoch milliseconds; -1 when there was
        none
    :param client_version: 2 if each transaction has a new epoch (KIP-890), otherwise 0
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: State
    last_update_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0

    @property
    def is_open(self) -> bool:
        """True if a transaction has begun and is not complete."""
        return self.state in _OPEN


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """The new state of a transactional id; a ``value`` of None deletes it.

    :param epoch_before: the earlier epoch with which the producer may retry the request of this
        record; -1 when all earlier epochs are fenced. Not written: a restart fences them.
    """

    transactional_id: str
    value: Transaction | None
    epoch_before: int = NO_PRODUCER_EPOCH


def encode(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Return the key and value bytes of a record; the value of a tombstone is None."""
    key = i16(_KEY_TYPE) + string(record.transactional_id)
    return key, None if record.value is None else _write(record.value)


def decode(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """Return the record of these bytes; None for a record type that is not kept here.

    :raises ValueError: when the bytes are not such a record
    """
    try:
        reader = Reader(key)
        if reader.i16() != _KEY_TYPE:
            return None
        return TransactionRecord(reader.string(), None if value is None else _read(Reader(value)))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"not a record of a transaction: {error}") from error


def _write(value: Transaction) -> bytes:
    topics = [
        compact_string(topic)
        + compact_array(i32(partition) for _, partition in partitions)
        + NO_TAGS
        for topic, partitions in groupby(sorted(value.partitions), key=itemgetter(0))
    ]
    tags = [
        (tag, data)
        for tag, data in (
            (_PREVIOUS_PRODUCER_ID, _unless(value.previous_producer_id, NO_PRODUCER_ID, i64)),
            (_NEXT_PRODUCER_ID, _unless(value.next_producer_id, NO_PRODUCER_ID, i64)),
            (_CLIENT_VERSION, _unless(value.client_version, 0, i16)),
        )
        if data
    ]
    return b"".join(
        (
            i16(_VALUE_VERSION),
            i64(value.producer_id),
            i16(value.producer_epoch),
            i32(value.timeout_ms),
            i8(value.state),
            compact_array(topics) if value.partitions or value.state != State.EMPTY else b"\0",
            i64(value.last_update_ms),
            i64(value.start_ms),
            tagged_fields(*tags),
        )
    )


def _unless(value: int, default: int, pack: Callable[[int], bytes]) -> bytes:
    return b"" if value == default else pack(value)


def _read(reader: Reader) -> Transaction:
    version = reader.i16()
    if version not in (0, 1):
        raise ValueError(f"version {version} of the value is not known")
    reader.flexible = version == 1

    def partitions_of_topic(reader: Reader) -> list[TopicPartition]:
        topic = reader.string()
        partitions = reader.array(Reader.i32)
        reader.tagged_fields()
        return [(topic, partition) for partition in partitions]

    producer_id, producer_epoch, timeout_ms, state = (
        reader.i64(),
        reader.i16(),
        reader.i32(),
        State(reader.i8()),
    )
    partitions = frozenset(one for topic in reader.array(partitions_of_topic) for one in topic)
    last_update_ms, start_ms = reader.i64(), reader.i64()
    tags = reader.tagged_fields()
    return Transaction(
        producer_id,
        producer_epoch,
        timeout_ms,
        state,
        last_update_ms,
        partitions,
        start_ms,
        _tag(tags, _PREVIOUS_PRODUCER_ID, ">q", NO_PRODUCER_ID),
        _tag(tags, _NEXT_PRODUCER_ID, ">q", NO_PRODUCER_ID),
        _tag(tags, _CLIENT_VERSION, ">h", 0),
    )


def _tag(tags: dict[int, bytes], tag: int, layout: str, default: int) -> int:
    return int(struct.unpack(layout, tags[tag])[0]) if tag in tags else default
