"""Transactions (KIP-98): decisions of the transaction coordinator, and the markers in the logs.

When the decision on a transaction is durable, its markers are appended to its partitions, and when
they are durable, the coordinator records the completion. After a crash in between, the next start
finds the decision in ``__transaction_state`` and writes the markers again. A marker for a
transaction that has ended changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from headrace.coordinators.hashing import internal_partition
from headrace.deadlines import RETRY_MS
from headrace.log.partition_log import PartitionLog
from headrace.log_lines import LimitedLog
from headrace.protocol.errors import ErrorCode, Refusal, StorageError
from headrace.protocol.internal_topics import CONSUMER_OFFSETS
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.record_batch import Marker
from headrace.transactions.producer import EPOCH_PER_TRANSACTION, NO_PRODUCER, Producer
from headrace.transactions.records import State
from headrace.transactions.transaction import (
    CONCURRENT_TRANSACTIONS,
    INVALID_PRODUCER_EPOCH,
    Reply,
    TransactionCoordinator,
)

from .environment import Environment
from .runtime import CoordinatorRuntime
from .waiting import run_to_end

if TYPE_CHECKING:
    from headrace.groups.coordinator import GroupCoordinator

log = LimitedLog("headrace.transactions")

MARKERS_AT_ONCE = 20
"""The partitions of a transaction that get their markers in one turn of the event loop. A marker
may be the first record of a partition, which creates a directory and files.
"""

COORDINATOR_EPOCH = 0
"""The only coordinator epoch: there is one node, so the coordinator never moves."""


class Transactions:
    """The transactions of a broker. Commands return errors as a :class:`Refusal`.

    :param runtime: the runtime of the transaction coordinator
    :param groups: returns the group coordinator
    :param schedule_timer: called when :meth:`next_deadline_ms` may be earlier than before
    """

    def __init__(
        self,
        environment: Environment,
        runtime: CoordinatorRuntime[TransactionCoordinator],
        groups: Callable[[], GroupCoordinator],
        schedule_timer: Callable[[], None],
    ) -> None:
        self.runtime = runtime
        self.coordinator = runtime.coordinator
        self._clock = environment.clock
        self._logs = environment.logs
        self._internal_logs = environment.internal_logs
        self._allocate_producer_id = environment.catalog.allocate_producer_id
        self._groups = groups
        self._schedule_timer = schedule_timer
        self._retry_ms: int | None = None
        # transactional id -> the partitions that have the marker of its decided transaction
        self._marked: dict[str, set[TopicPartition]] = {}
        self._completing: set[str] = set()
        self._is_closed = False

    def close(self) -> None:
        """Write no more markers; the next start continues."""
        self._is_closed = True

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: Producer
    ) -> Producer | Refusal:
        """Return the id and epoch for a producer that starts. Fence the previous producer and abort
        its open transaction.

        :raises StorageError: when the disk fails
        """
        while True:
            outcome = self.coordinator.init_producer_id(
                transactional_id, timeout_ms, expected, self._stamp(), self._allocate_producer_id
            )
            producer = self._submit(transactional_id, outcome)
            if producer != NO_PRODUCER:  # else a transaction was aborted first
                return producer

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Iterable[TopicPartition],
        client_version: int = 0,
    ) -> Refusal | None:
        """Add partitions to a transaction; return the error if they are not added."""
        outcome = self.coordinator.add_partitions(
            transactional_id, producer, partitions, self._stamp(), client_version
        )
        reply = self._submit(transactional_id, outcome)
        return reply if isinstance(reply, Refusal) else None

    def is_open(self, producer: Producer, partition_log: PartitionLog) -> bool:
        """Return whether a producer has an open transaction in a partition."""
        producers = partition_log.producers
        return (
            not self.coordinator.prepared
            and producers.epoch(producer.producer_id) == producer.producer_epoch
            and producers.open_transaction(producer.producer_id) >= 0
        )

    def may_write(
        self,
        transactional_id: str,
        producer: Producer,
        partition_log: PartitionLog,
        *,
        adds_partition: bool,
        knows_abortable: bool,
    ) -> Refusal | None:
        """Return the error for a transactional write of a producer to a partition, None if it is
        allowed.

        If the transaction :meth:`is_open` there, the coordinator is not asked, as in Kafka. So
        before its first write to a partition, a caller waits until the partition is in the
        transaction durably, and asks again: after a power cut the coordinator would not end the
        transaction there.

        :param adds_partition: True if the write adds the partition to the transaction (KIP-890)
        :param knows_abortable: the client knows TRANSACTION_ABORTABLE
        """
        if self.is_open(producer, partition_log):
            return None
        epoch = partition_log.producers.epoch(producer.producer_id)
        if epoch is not None and epoch > producer.producer_epoch:
            return INVALID_PRODUCER_EPOCH
        if not transactional_id:
            return Refusal(ErrorCode.INVALID_REQUEST)
        partition = (partition_log.topic, partition_log.partition)
        if adds_partition:
            refusal = self.add_partitions(
                transactional_id, producer, [partition], EPOCH_PER_TRANSACTION
            )
        else:
            self._check_online(transactional_id)
            refusal = self.coordinator.takes_part(transactional_id, producer, partition)
        if refusal is None:
            return None
        if refusal.code is ErrorCode.PRODUCER_FENCED:  # not an error of these writes
            return INVALID_PRODUCER_EPOCH
        if refusal.code is ErrorCode.INVALID_TXN_STATE and knows_abortable:
            return Refusal(ErrorCode.TRANSACTION_ABORTABLE)
        return refusal

    def offsets_partition(self, group_id: str) -> TopicPartition:
        """Return the partition of ``__consumer_offsets`` with the offsets of a group."""
        count = self._internal_logs.partition_count(CONSUMER_OFFSETS)
        return CONSUMER_OFFSETS, internal_partition(group_id, count)

    def end(
        self, transactional_id: str, producer: Producer, *, commit: bool, client_version: int
    ) -> Producer | Refusal:
        """Commit or abort a transaction and write its markers."""
        outcome = self.coordinator.end(
            transactional_id,
            producer,
            commit,
            self._stamp(),
            client_version,
            self._allocate_producer_id,
        )
        return self._submit(transactional_id, outcome)

    def _submit(self, transactional_id: str, outcome: Reply) -> Producer | Refusal:
        if transactional_id in self.coordinator.prepared:  # writing its markers failed so far
            return CONCURRENT_TRANSACTIONS
        self._check_online(transactional_id)  # also for an outcome without records
        reply = self.runtime.write_now(transactional_id, outcome)
        if transactional_id in self.coordinator.prepared:
            self._complete(transactional_id)
        return reply

    # Markers --------------------------------------------------------------------------------------

    def complete_prepared(self) -> None:
        """Write the markers of all decided transactions. When the disk fails, try again later."""
        self._retry_ms = None
        for transactional_id in list(self.coordinator.prepared):
            self._complete(transactional_id)

    def _complete(self, transactional_id: str) -> None:
        if transactional_id not in self._completing:
            self._completing.add(transactional_id)
            run_to_end(self._mark_and_complete(transactional_id))

    async def _mark_and_complete(self, transactional_id: str) -> None:
        """Write the markers of a decided transaction, then record that it is complete: usually at
        once.

        Each step waits until the one before is as durable as the flush settings require. Otherwise
        a power cut could leave a marker without the decision, or the completion without a marker.
        """
        try:
            await self._durable(transactional_id)
            await self._write_markers(transactional_id)
            await self._durable(transactional_id)
            completed = self.coordinator.complete(transactional_id, self._stamp())
            self.runtime.write_now(transactional_id, completed)
        except Exception as error:
            if self._is_closed:
                return
            self._completing.discard(transactional_id)
            self._retry_ms = self._clock.now_ms() + RETRY_MS
            message = "cannot complete the transaction of %s yet: %s"
            trace = None if isinstance(error, StorageError) else error
            log.error(transactional_id, message, transactional_id, error, exc_info=trace)
            self._schedule_timer()
        else:
            del self._marked[transactional_id]
            self._completing.remove(transactional_id)

    async def _durable(self, transactional_id: str) -> None:
        if (flush := self._internal_logs.pending_flush()) is not None:
            try:
                await flush
            except Exception:
                self._marked.pop(transactional_id, None)  # the markers may be lost
                raise
        self._check_open()

    def _check_open(self) -> None:
        """Write nothing once the broker has closed: the data directory may be another process's.

        :raises StorageError: it has
        """
        if self._is_closed:
            raise StorageError("the broker has closed")

    async def _write_markers(self, transactional_id: str) -> None:
        """Write the markers of a decided transaction to the partitions that do not have them yet.

        After a crash all partitions get a marker again; the second one changes nothing.

        :raises Exception: the first error, after every partition was tried
        """
        decided = self.coordinator.prepared[transactional_id]
        marked = self._marked.setdefault(transactional_id, set())
        marker = Marker(decided.state == State.PREPARE_COMMIT, COORDINATOR_EPOCH)
        self._check_online(transactional_id)
        first_error: Exception | None = None
        for number, (topic, partition) in enumerate(sorted(decided.partitions - marked)):
            if number and number % MARKERS_AT_ONCE == 0:  # let other requests be served
                await asyncio.sleep(0)
                self._check_open()
            partition_log = self._logs.partition(topic, partition)
            try:
                if partition_log is ErrorCode.KAFKA_STORAGE_ERROR:
                    raise StorageError(f"{topic}-{partition} is offline")
                if not isinstance(partition_log, ErrorCode):  # else it was deleted meanwhile
                    self.write_marker(partition_log, decided.producer, marker)
                marked.add((topic, partition))
            except Exception as error:
                first_error = first_error or error
        if first_error is not None:
            raise first_error

    def _check_online(self, transactional_id: str) -> None:
        """Answer nothing, and write no markers, from a state that may not be on disk.

        :raises StorageError: when the log with the state of an id is offline
        """
        topic = self.coordinator.topic
        if not self._internal_logs.exists(topic):
            return
        count = self._internal_logs.partition_count(topic)
        partition = internal_partition(transactional_id, count)
        if self._logs.partition(topic, partition) is ErrorCode.KAFKA_STORAGE_ERROR:
            raise StorageError(f"{topic}-{partition} is offline")

    def write_marker(self, partition_log: PartitionLog, producer: Producer, marker: Marker) -> None:
        """End a producer's transaction in one partition and wake the fetches that wait there.

        :raises StorageError: when the disk fails; the transaction is still open there
        """
        appended = partition_log.append_marker(*producer, marker, self._clock.wall_ms())
        if isinstance(appended, Refusal):
            raise StorageError(
                f"{partition_log.topic}-{partition_log.partition}: {appended.message}"
            )
        if partition_log.topic == CONSUMER_OFFSETS:
            self._groups().offsets.committed.end_transaction(
                producer.producer_id, partition_log.partition, commit=marker.commit
            )
        self._logs.appended(partition_log)

    def _stamp(self) -> int:
        """Return the wall time to store with a command, in milliseconds, and update the offset
        between the clocks.
        """
        wall_ms = self._clock.wall_ms()
        self.coordinator.wall_ahead_ms = wall_ms - self._clock.now_ms()
        return wall_ms

    # Time -----------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """Return when to retry markers that could not be written, in steady milliseconds."""
        return self._retry_ms

    def expire(self, now_ms: int) -> None:
        """Write the markers of transactions that timed out, and retry those that failed."""
        if self._retry_ms is None or self._retry_ms <= now_ms:
            self.complete_prepared()
