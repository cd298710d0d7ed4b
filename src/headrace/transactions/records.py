"""The records of ``__transaction_state``, exactly as Apache Kafka writes them: one value per
transactional id.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from headrace.protocol.coordinator_records import RecordTypes
from headrace.protocol.partitions import TopicPartition, by_topic
from headrace.protocol.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from headrace.protocol.stored import TransactionLogValue
from headrace.transactions.producer import Producer


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
    def producer(self) -> Producer:
        """The producer that may go on with the transactional id."""
        return Producer(self.producer_id, self.producer_epoch)

    @property
    def is_ongoing(self) -> bool:
        """True if a transaction has begun and is not decided."""
        return self.state == State.ONGOING


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """The new state of a transactional id; a ``value`` of None deletes it.

    :param epoch_before: the earlier epoch with which the producer may retry the request of this
        record; -1 when all earlier epochs are fenced. Not written: a restart fences them.
    """

    transactional_id: str
    value: Transaction | None
    epoch_before: int = NO_PRODUCER_EPOCH


_TYPES = RecordTypes("record of a transaction", {"TransactionLog": 1})
_TYPE = _TYPES["TransactionLog"]


def encode(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Return the key and value bytes of a record; the value of a tombstone is None."""
    key = _TYPE.encode_key(record.transactional_id)
    return key, None if record.value is None else _TYPE.encode_value(_message(record.value))


def decode(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """Return the record of these bytes; None for a record type that is not kept here.

    :raises ValueError: when the bytes are not such a record
    """
    raw = _TYPES.decode(key, value)
    if raw is None:
        return None
    (transactional_id,) = raw.key
    transaction = None if raw.value is None else _transaction(raw.value)
    return TransactionRecord(transactional_id, transaction)


def _message(transaction: Transaction) -> TransactionLogValue:
    topics = tuple(
        TransactionLogValue.PartitionsSchema(topic, tuple(numbers))
        for topic, numbers in by_topic(sorted(transaction.partitions)).items()
    )
    return TransactionLogValue(
        transaction.producer_id,
        transaction.previous_producer_id,
        transaction.next_producer_id,
        transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=topics if topics or transaction.state != State.EMPTY else None,
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
    )


def _transaction(message: TransactionLogValue) -> Transaction:
    return Transaction(
        message.producer_id,
        message.producer_epoch,
        message.transaction_timeout_ms,
        State(message.transaction_status),
        message.transaction_last_update_timestamp_ms,
        frozenset(
            (topic.topic, number)
            for topic in message.transaction_partitions or ()
            for number in topic.partition_ids
        ),
        message.transaction_start_timestamp_ms,
        message.previous_producer_id,
        message.next_producer_id,
        message.client_transaction_version,
    )
