"""The transaction coordinator: the producer of each transactional id, and its transaction.

::

    EMPTY ──> ONGOING ──> PREPARE_COMMIT ──> COMPLETE_COMMIT ──> ONGOING …
                 └──────> PREPARE_ABORT ───> COMPLETE_ABORT  ──> ONGOING …

The PREPARE record decides a transaction. Then the owner of this machine writes markers to the
partitions of each transaction in :attr:`TransactionCoordinator.prepared`, also after a crash, and
calls :meth:`TransactionCoordinator.complete`.

The epoch tells a producer apart from its zombies. A producer gets a new epoch when it initialises,
when its transaction times out and, with clients that support KIP-890, after each transaction.

Commands only decide, :meth:`TransactionCoordinator.replay` mutates. Source: KIP-98, KIP-360,
KIP-890; ``docs/behaviour/transactions.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator
from dataclasses import replace

from headrace.deadlines import RETRY_MS, Deadlines
from headrace.outcome import NOWHERE, Outcome, Position
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.internal_topics import TRANSACTION_STATE
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from headrace.transactions.producer import EPOCH_PER_TRANSACTION, NO_PRODUCER, Producer
from headrace.transactions.records import State, Transaction, TransactionRecord

from . import records

MAX_EPOCH = 2**15 - 1

TRANSACTIONS_AT_ONCE = 20
"""The timeouts that are handled before other requests are served. Each may write markers to 20
partitions. Thousands of ids may expire together.
"""

PREPARED = {State.PREPARE_COMMIT: State.COMPLETE_COMMIT, State.PREPARE_ABORT: State.COMPLETE_ABORT}
_IDLE = frozenset((State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT))

INVALID_PRODUCER_ID_MAPPING = Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
INVALID_TXN_STATE = Refusal(ErrorCode.INVALID_TXN_STATE)
CONCURRENT_TRANSACTIONS = Refusal(ErrorCode.CONCURRENT_TRANSACTIONS)
PRODUCER_FENCED = Refusal(ErrorCode.PRODUCER_FENCED)
INVALID_PRODUCER_EPOCH = Refusal(ErrorCode.INVALID_PRODUCER_EPOCH)
INVALID_TIMEOUT = Refusal(ErrorCode.INVALID_TRANSACTION_TIMEOUT)


Reply = Outcome[TransactionRecord, Producer | Refusal]


class TransactionCoordinator:
    """All transactional ids.

    :param max_timeout_ms: ``transaction.max.timeout.ms``
    :param expiration_ms: ``transactional.id.expiration.ms``: the time after which an unused id is
        deleted
    :param expiration_check_ms: ``transaction.remove.expired.transaction.cleanup.interval.ms``: the
        interval between checks, so that ids that expire one after the other are deleted together
    """

    topic = TRANSACTION_STATE

    def __init__(
        self,
        max_timeout_ms: int = 900_000,
        expiration_ms: int = 604_800_000,
        expiration_check_ms: int = 3_600_000,
    ) -> None:
        self._max_timeout_ms = max_timeout_ms
        self._expiration_ms = expiration_ms
        self._expiration_check_ms = expiration_check_ms
        self.transactions: dict[str, Transaction] = {}
        self.prepared: dict[str, Transaction] = {}
        """Transactions that are decided and not complete: their markers must be written."""
        # see TransactionRecord.epoch_before; forgotten by a restart
        self._last_epochs: dict[str, int] = {}
        self._deadlines: Deadlines[str] = Deadlines()
        self.wall_ahead_ms = 0
        """The wall time minus the steady time: records have the wall time, and deadlines the steady
        time. Set it before each command."""

    # --- producers ---

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Producer,
        wall_ms: int,
        allocate_producer_id: Callable[[], int],
    ) -> Reply:
        """Assign an epoch to a producer that initialises, which fences earlier producers with its
        transactional id. If one of them has left a transaction open, abort that, and fence it.

        :param expected: the id and epoch that the producer had before; :data:`NO_PRODUCER` if
            unknown (KIP-360)
        :returns: the producer; :data:`NO_PRODUCER` if a transaction is aborted, after which the
            producer asks again; INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED,
            CONCURRENT_TRANSACTIONS
        """
        if not 0 < timeout_ms <= self._max_timeout_ms:
            return Outcome(INVALID_TIMEOUT)
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            new = Transaction(allocate_producer_id(), 0, timeout_ms, State.EMPTY, wall_ms)
            return self._to(transactional_id, new)
        may_return = expected.producer_id == transaction.producer_id or (
            expected.producer_id == transaction.previous_producer_id
            and _exhausted(expected.producer_epoch)
        )
        if expected != NO_PRODUCER and not may_return:
            return Outcome(PRODUCER_FENCED)
        if transaction.is_ongoing:
            return Outcome(NO_PRODUCER, (_fenced(transactional_id, transaction, wall_ms),))
        if transaction.state not in _IDLE:
            return Outcome(CONCURRENT_TRANSACTIONS)
        is_latest = expected in (NO_PRODUCER, transaction.producer)
        is_retry = expected.producer_id == transaction.previous_producer_id or (
            expected.producer_epoch == self._last_epochs.get(transactional_id)
        )
        if not is_latest and not is_retry:
            return Outcome(PRODUCER_FENCED)
        idle = replace(
            transaction,
            timeout_ms=timeout_ms,
            state=State.EMPTY,
            last_update_ms=wall_ms,
            start_ms=NO_TIMESTAMP,
        )
        if not is_latest and transaction.producer_epoch < MAX_EPOCH:
            # the answer to the first request was lost
            return self._to(transactional_id, idle, expected.producer_epoch)
        if _exhausted(transaction.producer_epoch):
            rotated = replace(
                idle,
                producer_id=allocate_producer_id(),
                producer_epoch=0,
                previous_producer_id=transaction.producer_id
                if expected != NO_PRODUCER
                else NO_PRODUCER_ID,
            )
            return self._to(transactional_id, rotated)
        return self._to(transactional_id, _with_new_epoch(idle), expected.producer_epoch)

    # --- partitions ---

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Iterable[TopicPartition],
        wall_ms: int,
        client_version: int = 0,
    ) -> Reply:
        """Add partitions to the transaction; the first one begins it.

        :returns: the producer; INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
            CONCURRENT_TRANSACTIONS
        """
        transaction = self._owned(transactional_id, producer)
        if isinstance(transaction, Refusal):
            return Outcome(transaction)
        if transaction.state in PREPARED:
            return Outcome(CONCURRENT_TRANSACTIONS)
        added = frozenset(partitions)
        if transaction.is_ongoing:
            if added <= transaction.partitions:
                return Outcome(producer)
            added |= transaction.partitions
        begun = replace(
            transaction,
            state=State.ONGOING,
            partitions=added,
            start_ms=transaction.start_ms if transaction.is_ongoing else wall_ms,
            last_update_ms=wall_ms,
            client_version=client_version,
        )
        return self._to(transactional_id, begun)

    def takes_part(
        self, transactional_id: str, producer: Producer, partition: TopicPartition
    ) -> Refusal | None:
        """Return the error of a write to ``partition`` in the producer's transaction; None when it
        is allowed (KIP-890).
        """
        transaction = self._owned(transactional_id, producer)
        if isinstance(transaction, Refusal):
            return transaction
        if transaction.state in PREPARED:
            return CONCURRENT_TRANSACTIONS
        takes_part = transaction.is_ongoing and partition in transaction.partitions
        return None if takes_part else INVALID_TXN_STATE

    def _owned(self, transactional_id: str, producer: Producer) -> Transaction | Refusal:
        """Return the transaction of a producer, or the error if it does not own the id."""
        transaction = self.transactions.get(transactional_id)
        if transaction is None or transaction.producer_id != producer.producer_id:
            return INVALID_PRODUCER_ID_MAPPING
        return transaction if transaction.producer == producer else PRODUCER_FENCED

    # --- end ---

    def end(
        self,
        transactional_id: str,
        producer: Producer,
        commit: bool,
        wall_ms: int,
        client_version: int,
        allocate_producer_id: Callable[[], int],
    ) -> Reply:
        """Decide the transaction: its markers may be written from now on.

        :param client_version: 2 when the producer continues with the id and epoch of the answer
        :returns: the producer to continue with; INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
            INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS
        """
        per_transaction = client_version >= EPOCH_PER_TRANSACTION
        before = self.transactions.get(transactional_id)
        if before is not None and per_transaction and self._is_retry(before, producer):
            return Outcome(self._ended(before, commit))
        transaction = self._owned(transactional_id, producer)
        if isinstance(transaction, Refusal):
            return Outcome(transaction)
        if not transaction.is_ongoing:
            if not per_transaction or transaction.state not in _IDLE:
                return Outcome(self._ended(transaction, commit))
            if commit:
                return Outcome(INVALID_TXN_STATE)  # nothing was written with this epoch
        decided = replace(
            transaction,
            state=State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
            last_update_ms=wall_ms,
            start_ms=transaction.start_ms if transaction.is_ongoing else wall_ms,
            client_version=client_version,
        )
        if not per_transaction:
            return self._to(transactional_id, decided)
        if _exhausted(transaction.producer_epoch):
            next_id = allocate_producer_id()
            decided = replace(decided, producer_epoch=MAX_EPOCH, next_producer_id=next_id)
            return Outcome(Producer(next_id, 0), (TransactionRecord(transactional_id, decided),))
        return self._to(transactional_id, _with_new_epoch(decided), transaction.producer_epoch)

    def _is_retry(self, transaction: Transaction, producer: Producer) -> bool:
        """Return True if the producer retries a request that has ended the transaction already."""
        if producer.producer_id == transaction.previous_producer_id:
            return _exhausted(producer.producer_epoch) and not transaction.is_ongoing
        is_before = producer == (transaction.producer_id, transaction.producer_epoch - 1)
        return is_before and transaction.state not in (State.ONGOING, State.EMPTY)

    def _ended(self, transaction: Transaction, commit: bool) -> Producer | Refusal:
        """Return the answer for a transaction that is not open: success if it has ended in the same
        way, otherwise an error.
        """
        decided = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
        if transaction.state == PREPARED[decided]:
            return transaction.producer
        return CONCURRENT_TRANSACTIONS if transaction.state == decided else INVALID_TXN_STATE

    def complete(self, transactional_id: str, wall_ms: int) -> Reply:
        """Complete a decided transaction whose markers are all written."""
        transaction = self.prepared[transactional_id]
        ended = replace(
            transaction,
            state=PREPARED[transaction.state],
            partitions=frozenset(),
            last_update_ms=wall_ms,
        )
        if transaction.next_producer_id != NO_PRODUCER_ID:
            ended = replace(
                ended,
                producer_id=transaction.next_producer_id,
                producer_epoch=0,
                previous_producer_id=transaction.producer_id,
                next_producer_id=NO_PRODUCER_ID,
            )
        return self._to(transactional_id, ended)

    def forget_partitions(
        self, topics: Collection[str], present: Container[str]
    ) -> Iterator[tuple[str, Reply]]:
        """Remove the partitions of deleted topics from open transactions. Apply each outcome before
        requesting the next; other commands may come in between.

        :param present: the topics that exist, live. A partition of a new topic of the same name may
            be in the transaction, so its name stays
        """
        for transactional_id in list(self.transactions):
            transaction = self.transactions.get(transactional_id)
            if transaction is None:
                continue
            remaining = frozenset(
                partition
                for partition in transaction.partitions
                if partition[0] in present or partition[0] not in topics
            )
            if remaining != transaction.partitions:
                changed = replace(transaction, partitions=remaining)
                yield transactional_id, self._to(transactional_id, changed)

    # --- time ---

    def next_deadline_ms(self) -> int | None:
        """Return when the first transaction times out or the first id expires."""
        return self._deadlines.next_ms()

    def expire(
        self, now_ms: int, wall_ms: int
    ) -> Iterable[tuple[str, Outcome[TransactionRecord, None]]]:
        """Abort some transactions that have timed out, and delete some expired transactional ids.
        Further ones stay due; one that is not applied is due again after :data:`RETRY_MS`.
        """
        self.wall_ahead_ms = wall_ms - now_ms
        for _ in range(TRANSACTIONS_AT_ONCE):
            transactional_id = self._deadlines.pop_due(now_ms)
            if transactional_id is None:
                return
            # replaying the record sets the next deadline
            self._deadlines.set(transactional_id, now_ms + RETRY_MS)
            transaction = self.transactions[transactional_id]
            record = TransactionRecord(transactional_id, None)
            if transaction.is_ongoing:
                record = _fenced(transactional_id, transaction, wall_ms)
            yield transactional_id, Outcome(None, (record,))

    def _deadline_ms(self, transaction: Transaction) -> int | None:
        """Return when a transaction times out or its id expires, in steady milliseconds."""
        if transaction.is_ongoing:
            return transaction.start_ms + transaction.timeout_ms - self.wall_ahead_ms
        if transaction.state not in _IDLE:
            return None
        expires_ms = transaction.last_update_ms + self._expiration_ms
        check_ms = self._expiration_check_ms
        return -(-expires_ms // check_ms) * check_ms - self.wall_ahead_ms

    # --- the coordinator's side of recovery, see headrace.outcome.Coordinator ---

    encode = staticmethod(records.encode)
    decode = staticmethod(records.decode)

    def replay(self, record: TransactionRecord, at: Position = NOWHERE) -> None:
        """Apply one durable record."""
        transactional_id, value = record.transactional_id, record.value
        before = self.transactions.get(transactional_id)
        self.prepared.pop(transactional_id, None)
        if value is None:
            self.transactions.pop(transactional_id, None)
            self._last_epochs.pop(transactional_id, None)
            self._deadlines.cancel(transactional_id)
            return
        if before is not None and before.producer_epoch != value.producer_epoch:
            self._last_epochs.pop(transactional_id, None)
        if record.epoch_before != NO_PRODUCER_EPOCH:
            self._last_epochs[transactional_id] = record.epoch_before
        self.transactions[transactional_id] = value
        if value.state in PREPARED:
            self.prepared[transactional_id] = value
        deadline_ms = self._deadline_ms(value)
        if before is not None and self._deadline_ms(before) == deadline_ms:
            return  # keep the deadline, even if the wall clock was changed
        if deadline_ms is None:
            self._deadlines.cancel(transactional_id)
        else:
            self._deadlines.set(transactional_id, deadline_ms)

    def _to(
        self, transactional_id: str, value: Transaction, epoch_before: int = NO_PRODUCER_EPOCH
    ) -> Reply:
        record = TransactionRecord(transactional_id, value, epoch_before)
        return Outcome(value.producer, (record,))


def _exhausted(epoch: int) -> bool:
    """Return True if no epoch is left for a producer; the last one is reserved for fencing it."""
    return epoch >= MAX_EPOCH - 1


def _fenced(transactional_id: str, transaction: Transaction, wall_ms: int) -> TransactionRecord:
    """Return the record that aborts a transaction, with a new epoch that fences its producer."""
    aborted = replace(
        _with_new_epoch(transaction), state=State.PREPARE_ABORT, last_update_ms=wall_ms
    )
    return TransactionRecord(transactional_id, aborted, transaction.producer_epoch)


def _with_new_epoch(transaction: Transaction) -> Transaction:
    """Return a transaction with the next epoch, which fences its producer."""
    epoch = min(transaction.producer_epoch + 1, MAX_EPOCH)
    return replace(transaction, producer_epoch=epoch, previous_producer_id=NO_PRODUCER_ID)
