"""The interfaces of the broker that the coordinators use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import UUID

from headrace.coordinators.clock import Clock

from .logs import InternalLogs, TopicLogs
from .runtime import WriteMeter

if TYPE_CHECKING:
    from headrace.groups.settings import Topic
    from headrace.protocol.record_batch import Opening
    from headrace.share.records import SharePartitionKey

T = TypeVar("T")


class Configuration(Protocol):
    """Current configuration values by Kafka's names."""

    def get_int(self, name: str) -> int:
        """Return a broker configuration."""

    def get_bool(self, name: str) -> bool:
        """Return a broker configuration that is true or false."""

    def get_str(self, name: str) -> str | None:
        """Return a broker configuration as text."""

    def get_list(self, name: str) -> tuple[str, ...]:
        """Return a broker configuration that is a list."""

    def group_int(self, group_id: str, name: str) -> int:
        """Return a group configuration, as set for the group or else for the broker."""

    def group_list(self, group_id: str, name: str) -> tuple[str, ...]:
        """Return a group configuration that is a list, of the group or else of the broker."""

    def group_value(self, group_id: str, name: str) -> str:
        """Return a group configuration as text, as set for the group or else for the broker."""


class Catalog(Protocol):
    """The topics, group configs and producer ids."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """All topics by name, live."""

    @property
    def topics_by_id(self) -> Mapping[UUID, Topic]:
        """All topics by id, live."""

    @property
    def version(self) -> int:
        """The version of the topics; every change of a topic increases it."""

    def configs(self, kind: str, name: str) -> Mapping[str, str]:
        """Return the configs that were set for a resource."""

    def allocate_producer_id(self) -> int:
        """Return a producer id that was never returned before.

        :raises StorageError: when it cannot be stored
        """


class Observer(Protocol):
    """A histogram."""

    def observe(self, value: float) -> None:
        """Count a value."""


class ShareMeters(Protocol):
    """The counters of share-partitions."""

    session_evictions: int

    @property
    def partition_load_ms(self) -> Observer: ...
    def locks_timed_out(self, key: SharePartitionKey, records: int) -> None: ...
    def archived(self, key: SharePartitionKey, records: int) -> None: ...
    def late(self, key: SharePartitionKey, records: int) -> None: ...
    def late_total(self, group_id: str) -> int: ...
    def group_deleted(self, group_id: str) -> None: ...
    def topics_deleted(self, topic_ids: Collection[UUID]) -> Iterator[None]: ...


class Meters(Protocol):
    """The counters of a broker."""

    @property
    def coordinators(self) -> Mapping[str, WriteMeter]:
        """One meter for each internal topic, by the topic's name."""

    @property
    def share(self) -> ShareMeters: ...


class BatchOpener(Protocol):
    """The thread that opens large batches, one after the other."""

    async def run(self, prepare: Callable[[], Callable[[Opening], T] | None]) -> T | None:
        """Wait for the turn of this call, prepare it on the loop, and run it in the thread.

        :param prepare: returns the function to run, or None if nothing is left to do
        :returns: the result of the function, or None
        """


@dataclass(frozen=True, slots=True)
class Environment:
    """The parts of the broker that the coordinators use.

    :ivar internal_logs: the logs of the internal topics
    :ivar logs: the logs of all topics
    :ivar notify: wakes the requests that wait for a key, see
        :class:`~headrace.topics.long_polls.LongPolls`
    :ivar serves_dead_letters: returns whether ``share.version`` is at a level with dead letters
    """

    clock: Clock
    config: Configuration
    catalog: Catalog
    internal_logs: InternalLogs
    logs: TopicLogs
    meters: Meters
    notify: Callable[[Hashable], object]
    opener: BatchOpener
    serves_dead_letters: Callable[[], bool] = lambda: True
