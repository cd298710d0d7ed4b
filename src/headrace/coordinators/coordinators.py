"""The coordinators of a broker, each imported and created when it is first needed.

Only the coordinators whose internal topics exist are loaded at start. This keeps the start quick,
as most of the broker's code belongs to the coordinators.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headrace.protocol.errors import StorageError
from headrace.protocol.internal_topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

from . import loader
from .environment import Environment
from .runtime import C, CoordinatorRuntime
from .timer import DeadlineTimer, Expiring

if TYPE_CHECKING:
    from headrace.groups.catalog import Topic
    from headrace.groups.coordinator import GroupCoordinator
    from headrace.share.share_state import ShareCoordinator
    from headrace.transactions.transaction import TransactionCoordinator

    from .share_partitions import SharePartitions
    from .transactions import Transactions

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
        from headrace.transactions.transaction import TransactionCoordinator, TransactionSettings

        number = self.environment.config.get_int
        settings = TransactionSettings(
            number("transaction.max.timeout.ms"),
            number("transactional.id.expiration.ms"),
            number("transaction.remove.expired.transaction.cleanup.interval.ms"),
        )
        return self._runtime(TransactionCoordinator(settings))

    @cached_property
    def transactions(self) -> Transactions:
        """The transactions, with their coordinator."""
        from .transactions import Transactions

        return Transactions(
            self.environment,
            self.transaction_runtime,
            lambda: self.group_runtime,
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
        if topic == SHARE_GROUP_STATE:
            return self.share_state_runtime
        assert topic == TRANSACTION_STATE, topic
        return self.transaction_runtime

    def load(self) -> None:
        """Replay the internal topics that exist.

        :raises CorruptLog: when a batch in the middle of a log is damaged or missing
        """
        logs = self.environment.internal_logs
        if logs.exists(CONSUMER_OFFSETS):
            from headrace.groups.offsets.commit_batches import CommitBatches

            groups = self.groups
            loader.load(
                logs, groups, groups.offsets.committed.end_transaction, CommitBatches().decode
            )
        if logs.exists(SHARE_GROUP_STATE):
            loader.load(logs, self.share_state)
        if logs.exists(TRANSACTION_STATE):
            loader.load(logs, self.transactions.coordinator)

    def topics_deleted(self, topics: Sequence[Topic]) -> Generator[None, None, None]:
        """Delete the state of deleted topics from all coordinators; yield between pieces of work.

        :raises StorageError: when some of it cannot be deleted, after all the rest; the next start
            deletes it
        """
        topic_ids = frozenset(topic.topic_id for topic in topics)
        errors: list[StorageError | None] = []
        if self.loaded_transactions is not None:
            names = frozenset(topic.name for topic in topics)
            errors.append((yield from self.loaded_transactions.topics_deleted(names)))
        if self.loaded_share is not None:
            yield from self.loaded_share.topics_deleted(topic_ids)
        if self.loaded_groups is not None:
            forgotten = self.loaded_groups.topics_deleted(topics)
            errors.append((yield from self.group_runtime.write_each(forgotten)))
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
