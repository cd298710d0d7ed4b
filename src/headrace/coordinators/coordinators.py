"""The coordinators of a broker, each imported and created when it is first needed.

Only the coordinators whose internal topics exist are loaded at start. This keeps the start quick,
as most of the broker's code belongs to the coordinators.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

from headrace.deadlines import RETRY_MS
from headrace.log.partition_log import FoundBatch
from headrace.log_lines import LimitedLog, get_logger
from headrace.outcome import Coordinator, Position, make
from headrace.protocol import record_batch
from headrace.protocol.errors import StorageError
from headrace.protocol.internal_topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

from .environment import Environment, InternalLogs
from .runtime import C, CoordinatorRuntime

if TYPE_CHECKING:
    from headrace.groups.catalog import Topic
    from headrace.groups.coordinator import GroupCoordinator
    from headrace.groups.offsets.committed import CommittedOffsets
    from headrace.share.share_state import ShareCoordinator
    from headrace.transactions.transaction import TransactionCoordinator

    from .share_partitions import SharePartitions
    from .transactions import Transactions

log = get_logger("headrace.coordinators")
limited = LimitedLog("headrace.coordinators")


class Expiring(Protocol):
    """An object with deadlines."""

    def next_deadline_ms(self) -> int | None:
        """Return when :meth:`expire` is due, in steady milliseconds; None without a deadline."""

    def expire(self, now_ms: int) -> None:
        """Act on every deadline up to ``now_ms``.

        :raises Exception: when an action failed; it stays due
        """


class DeadlineTimer:
    """Calls :meth:`Expiring.expire` at the earliest deadline.

    :param now_ms: the steady clock
    :param timed: returns the objects with deadlines, in the order in which to expire them
    """

    def __init__(self, now_ms: Callable[[], int], timed: Callable[[], Iterable[Expiring]]) -> None:
        self._now_ms = now_ms
        self._timed = timed
        self._handle: asyncio.TimerHandle | None = None
        self._deadline_ms: int | None = None
        self._paused: dict[Expiring, int] = {}  # those that failed, and until when

    def schedule(self) -> None:
        """Set the timer to the earliest deadline."""
        deadlines = [
            max(due_ms, self._paused.get(timed, due_ms))
            for timed in self._timed()
            if (due_ms := timed.next_deadline_ms()) is not None
        ]
        deadline_ms = min(deadlines, default=None)
        if deadline_ms != self._deadline_ms:
            self._set(deadline_ms)

    def close(self) -> None:
        """Stop the timer."""
        self._set(None)

    def _set(self, deadline_ms: int | None) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._deadline_ms, self._handle = deadline_ms, None
        if deadline_ms is not None:
            delay_ms = max(deadline_ms - self._now_ms(), 0)
            loop = asyncio.get_running_loop()
            self._handle = loop.call_later(delay_ms / 1000, self.expire)

    def expire(self) -> None:
        """Act on every deadline that is due, and schedule the next one."""
        self._set(None)
        now_ms = self._now_ms()
        for timed in self._timed():
            if self._paused.get(timed, 0) > now_ms:
                continue
            self._paused.pop(timed, None)
            try:
                timed.expire(now_ms)
            except Exception as error:
                # It is still due: without a pause it would keep the event loop busy.
                self._paused[timed] = now_ms + RETRY_MS
                log.error(
                    "cannot act on a timeout: %s; trying again in %d ms",
                    error,
                    RETRY_MS,
                    exc_info=None if isinstance(error, StorageError) else error,
                )
        self.schedule()


_TIMED = "group_runtime", "share_state_runtime", "transaction_runtime", "share", "transactions"
"""What has deadlines, in the order in which to expire it."""


class Coordinators:
    """All coordinators, their runtimes, and the services that tie them to logs. A cached property
    is created on first use; ``loaded_`` ones are None before that.

    :ivar timer: expires what is due in all loaded coordinators
    """

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.timer = DeadlineTimer(environment.clock.now_ms, self._timed)

    # Groups ---------------------------------------------------------------------------------------

    @cached_property
    def group_runtime(self) -> CoordinatorRuntime[GroupCoordinator]:
        """The runtime of the group coordinator, for groups and committed offsets."""
        from headrace.groups.coordinator import GroupCoordinator

        groups = GroupCoordinator(self.environment.config, self.environment.catalog)
        groups.loaded(self.environment.clock.now_ms())
        return self._runtime(groups)

    @property
    def groups(self) -> GroupCoordinator:
        """The group coordinator."""
        return self.group_runtime.coordinator

    @property
    def loaded_groups(self) -> GroupCoordinator | None:
        """The group coordinator, None before its first use."""
        return self.groups if "group_runtime" in self.__dict__ else None

    # Share groups ---------------------------------------------------------------------------------

    @cached_property
    def share_state_runtime(self) -> CoordinatorRuntime[ShareCoordinator]:
        """The runtime of the share coordinator."""
        from headrace.share.share_state import ShareCoordinator

        number = self.environment.config.get_int
        return self._runtime(
            ShareCoordinator(
                self.environment.catalog,
                number("share.coordinator.snapshot.update.records.per.snapshot"),
                number("share.coordinator.cold.partition.snapshot.interval.ms"),
                number("share.coordinator.state.topic.prune.interval.ms"),
            )
        )

    @property
    def share_state(self) -> ShareCoordinator:
        """The share coordinator."""
        return self.share_state_runtime.coordinator

    @property
    def loaded_share_state(self) -> ShareCoordinator | None:
        """The share coordinator, None before its first use."""
        return self.share_state if "share_state_runtime" in self.__dict__ else None

    @cached_property
    def share(self) -> SharePartitions:
        """The share-partitions."""
        from .share_partitions import SharePartitions

        return SharePartitions(self.environment, self.share_state_runtime, self.timer.schedule)

    @property
    def loaded_share(self) -> SharePartitions | None:
        """The share-partitions, None before their first use."""
        return self.__dict__.get("share")

    # Transactions ---------------------------------------------------------------------------------

    @cached_property
    def transaction_runtime(self) -> CoordinatorRuntime[TransactionCoordinator]:
        """The runtime of the transaction coordinator."""
        from headrace.transactions.transaction import TransactionCoordinator

        number = self.environment.config.get_int
        return self._runtime(
            TransactionCoordinator(
                number("transaction.max.timeout.ms"),
                number("transactional.id.expiration.ms"),
                number("transaction.remove.expired.transaction.cleanup.interval.ms"),
            )
        )

    @cached_property
    def transactions(self) -> Transactions:
        """The transactions, with their coordinator."""
        from .transactions import Transactions

        return Transactions(
            self.environment,
            self.transaction_runtime,
            lambda: self.groups,
            self.timer.schedule,
        )

    @property
    def loaded_transactions(self) -> Transactions | None:
        """The transactions, None before their first use."""
        return self.__dict__.get("transactions")

    # All of them ----------------------------------------------------------------------------------

    def runtime_of(self, topic: str) -> CoordinatorRuntime[Any]:
        """Return the runtime of the coordinator that stores its state in an internal topic."""
        if topic == CONSUMER_OFFSETS:
            return self.group_runtime
        return self.share_state_runtime if topic == SHARE_GROUP_STATE else self.transaction_runtime

    def load(self) -> None:
        """Replay the internal topics that exist.

        :raises CorruptLog: when a batch in the middle of a log is damaged or missing
        """
        logs = self.environment.internal_logs
        if logs.exists(CONSUMER_OFFSETS):
            from headrace.groups.offsets.commit_batches import CommitBatches

            groups = self.groups
            load(logs, groups, groups.offsets.committed, CommitBatches().decode)
        if logs.exists(SHARE_GROUP_STATE):
            load(logs, self.share_state)
        if logs.exists(TRANSACTION_STATE):
            load(logs, self.transactions.coordinator)

    def topics_deleted(self, topics: Sequence[Topic]) -> Generator[None, None, None]:
        """Delete the state of deleted topics from all coordinators; yield between pieces of work.

        :raises StorageError: when some of it cannot be deleted, after all the rest; the next start
            deletes it
        """
        topic_ids = frozenset(topic.topic_id for topic in topics)
        errors: list[StorageError | None] = []
        if self.loaded_transactions is not None:
            transactions = self.transaction_runtime
            names = frozenset(topic.name for topic in topics)
            present = self.environment.catalog.topics
            forgotten = transactions.coordinator.forget_partitions(names, present)
            errors.append((yield from transactions.write_each(forgotten)))
        if self.loaded_share is not None:
            yield from self.loaded_share.topics_deleted(topic_ids)
        if self.loaded_groups is not None:
            deleted = self.loaded_groups.topics_deleted(topics)
            errors.append((yield from self.group_runtime.write_each(deleted)))
        if self.loaded_share_state is not None:
            for topic_id in topic_ids:
                tombstones = self.loaded_share_state.topic_deleted(topic_id)
                errors.append((yield from self.share_state_runtime.write_each(tombstones)))
        for error in errors:
            if error is not None:
                raise error

    def close(self) -> None:
        """Stop the timer and release acquired records, as locks do not survive a restart.

        :raises StorageError: when the disk fails
        """
        if self.loaded_transactions is not None:
            self.loaded_transactions.close()
        try:
            if self.loaded_share is not None:
                self.loaded_share.close()
        finally:
            self.timer.close()  # at the end, as each write schedules it

    def _runtime(self, coordinator: C) -> CoordinatorRuntime[C]:
        environment = self.environment
        return CoordinatorRuntime(
            coordinator,
            environment.internal_logs,
            environment.clock,
            environment.meters.coordinators[coordinator.topic],
            self.timer.schedule,
        )

    def _timed(self) -> Sequence[Expiring]:
        """Return what has deadlines."""
        loaded = self.__dict__
        return [loaded[name] for name in _TIMED if name in loaded]


DecodeBatch = Callable[[memoryview, record_batch.BatchHeader], Sequence[tuple[int, Any]] | None]
"""Returns offset and record of each record of a batch; None for one that it does not decode."""


def load(
    logs: InternalLogs,
    coordinator: Coordinator[Any],
    offsets: CommittedOffsets | None = None,
    decode_batch: DecodeBatch = lambda data, header: None,
) -> None:
    """Replay the records of a coordinator's internal topic.

    A record that cannot be decoded or replayed is skipped with a warning, so that the broker can
    start.

    :param offsets: those that transaction markers commit or abort
    :param decode_batch: a decoder for the most frequent batches, faster than that of the
        coordinator
    :raises CorruptLog: when a batch in the middle of a log is damaged or missing
    """
    replay = coordinator.replay
    for partition, batch in logs.batches(coordinator.topic):
        header = batch.header
        producer_id = header.producer_id if header.is_transactional else record_batch.NO_PRODUCER_ID
        if header.is_control:
            try:
                marker = record_batch.marker_in(batch.data)
                if marker is not None and offsets is not None:
                    offsets.end_transaction(producer_id, partition, commit=marker.commit)
            except Exception as error:
                _skipped(batch, header.base_offset, b"", error)
            continue
        decoded = decode_batch(batch.data, header)
        for offset, record in _decoded(coordinator, batch) if decoded is None else decoded:
            try:
                replay(record, make(Position, (partition, offset, producer_id)))
            except Exception as error:
                _skipped(batch, offset, coordinator.encode(record)[0], error)


def _decoded(coordinator: Coordinator[Any], batch: FoundBatch) -> Iterator[tuple[int, Any]]:
    """Yield offset and record of each record of a batch that can be decoded, up to the first one
    that cannot be read.
    """
    following = batch.header.base_offset
    try:
        for offset, _, key, value, _ in chain.from_iterable(
            record_batch.record_lists(batch.data, batch.header)
        ):
            following = offset + 1
            if key is None:
                continue
            try:
                record = coordinator.decode(key, value)
            except Exception as error:
                _skipped(batch, offset, key, error)
            else:
                if record is not None:  # else a record type that this version does not know
                    yield offset, record
    except record_batch.CorruptBatch as error:
        message = "skipped the records of %s from offset %d on: %s"
        limited.warning(batch.path, message, batch.path, following, error)


def _skipped(batch: FoundBatch, offset: int, key: bytes, error: Exception) -> None:
    limited.warning(
        batch.path,
        "skipped the record at offset %d of %s, with the key %s: %s",
        offset,
        batch.path,
        key.hex(),
        error if isinstance(error, ValueError) else repr(error),
    )
