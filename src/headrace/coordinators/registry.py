"""The machines of a broker, each imported and made when it is first needed.

Most of the code that a broker can need is theirs, and no start needs all of it: a machine whose
internal topic does not exist yet has nothing to remember. What has an internal topic is loaded at
start.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from headrace.internal_topics import INTERNAL_TOPICS
from headrace.outcome import Coordinator

from . import loader as internal_logs
from .commit_batcher import Together

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.groups.coordinator import GroupCoordinator
    from headrace.share.share_state import ShareCoordinator

    from .share_partitions import SharePartitions
    from .transactions import Transactions

M = TypeVar("M")


class HasDeadline(Protocol):
    """What acts when a time has come."""

    def next_deadline_ms(self) -> int | None:
        """When, in epoch milliseconds; None when nothing is waiting."""


class Machines:
    """What a :class:`~headrace.broker.broker.Broker` has of machines, under the names that it has
    them by.
    """

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}
        self.coordinators: list[Coordinator[Any]] = []
        """Those that have been needed, in the order in which they are loaded."""
        self.timed: list[HasDeadline] = []
        """Of what has been needed, whatever acts when a time has come."""

    @property
    def _broker(self) -> Broker:
        return cast("Broker", self)

    def _make(self, name: str, machine: M) -> M:
        made = self._made
        made[name] = machine
        self.coordinators = [
            getattr(made[one], "coordinator", made[one])
            for one in (topic.coordinator for topic in INTERNAL_TOPICS.values())
            if one in made
        ]
        self.timed = [
            *self.coordinators,
            *(made[one] for one in ("share", "transactions") if one in made),
        ]
        return machine

    # What there is --------------------------------------------------------------------------------

    @cached_property
    def groups(self) -> GroupCoordinator:
        """The group coordinator."""
        from headrace.groups.coordinator import GroupCoordinator

        broker = self._broker
        groups = self._make("groups", GroupCoordinator(broker.config, broker.catalog))
        groups.loaded(broker.now_ms())
        return groups

    @cached_property
    def commits(self) -> Together:
        """Commits of offsets, of all groups."""
        return Together(self._broker, self.groups)

    @cached_property
    def share_state(self) -> ShareCoordinator:
        """The share coordinator."""
        from headrace.share.share_state import ShareCoordinator

        number = self._broker.config.get_int
        coordinator = ShareCoordinator(
            number("share.coordinator.snapshot.update.records.per.snapshot"),
            number("share.coordinator.cold.partition.snapshot.interval.ms"),
            number("share.coordinator.state.topic.prune.interval.ms"),
        )
        return self._make("share_state", coordinator)

    @cached_property
    def transactions(self) -> Transactions:
        """The transactions, with their coordinator."""
        from .transactions import Transactions

        return self._make("transactions", Transactions(self._broker))

    @cached_property
    def share(self) -> SharePartitions:
        """The share-partitions."""
        from .share_partitions import SharePartitions

        return self._make("share", SharePartitions(self._broker))

    # What was needed so far -----------------------------------------------------------------------

    def is_made(self, name: str) -> bool:
        """Whether the machine of that name has been needed."""
        return name in self._made

    def coordinator_of(self, topic: str) -> Coordinator[Any]:
        """Return the coordinator whose state is in the internal topic of this name."""
        service = getattr(self, INTERNAL_TOPICS[topic].coordinator)
        coordinator: Coordinator[Any] = getattr(service, "coordinator", service)
        return coordinator

    def load(self) -> None:
        """Bring each machine that has an internal topic to where it was.

        :raises CorruptLog: when its state cannot be read
        """
        for topic in INTERNAL_TOPICS.values():
            if topic.name in self._broker.catalog.topics:
                getattr(self, topic.coordinator)
        for coordinator in self.coordinators:
            internal_logs.load(self._broker, coordinator)
