"""What a broker is made of, as the calls of its clients see it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncio import Lock
    from pathlib import Path

    from headrace.coordinators.clock import Clock
    from headrace.coordinators.coordinators import Coordinators
    from headrace.coordinators.runtime import CoordinatorRuntime
    from headrace.coordinators.share_partitions import SharePartitions
    from headrace.coordinators.transactions import Transactions
    from headrace.groups.coordinator import GroupCoordinator
    from headrace.protocol.api import DescribeConfigsResponse, IncrementalAlterConfigsRequest
    from headrace.protocol.errors import Refusal
    from headrace.protocol.time_slices import TimeSlices
    from headrace.share.share_state import ShareCoordinator
    from headrace.topics.batch_opener import BatchOpener
    from headrace.topics.catalog import Catalog, Topic
    from headrace.topics.features import Features
    from headrace.topics.fetch_sessions import FetchSessions
    from headrace.topics.long_polls import LongPolls
    from headrace.topics.regex_matcher import RegexMatcher
    from headrace.topics.settings import Settings
    from headrace.topics.timestamp_searches import TimestampSearches
    from headrace.topics.topic_deletions import TopicDeletions
    from headrace.topics.topic_logs import TopicLogs

    from .access_control import AccessControl
    from .client_quotas import Quotas
    from .listeners import Listener
    from .metrics import Metrics

    DescribedConfigs = Iterable[DescribeConfigsResponse.DescribeConfigsResourceResult]


class Configs(Protocol):
    """What administrators ask of configs."""

    def alter(
        self,
        resources: Sequence[IncrementalAlterConfigsRequest.AlterConfigsResource],
        *,
        replaces: bool,
        validate_only: bool,
    ) -> Generator[None, None, list[Refusal | None]]:
        """Alter configs; yield between resources, and return the error of each, None for success.

        :param replaces: the changes are all configs that a resource is to have
        """

    def describe_topic(self, topic: Topic, *, all_synonyms: bool = False) -> DescribedConfigs:
        """Describe the configs of a topic.

        :param all_synonyms: with those in other units that have no effect
        """

    def describe(
        self, resource_type: int, name: str, facts: Mapping[str, str]
    ) -> DescribedConfigs | Refusal:
        """Describe the configs of a resource, or return its error.

        :param facts: configs of this broker that hold whatever was configured
        """


class Services:
    """The parts of a broker that serve its clients.

    :ivar data_dir: the data directory
    :ivar clock: the steady and the wall time
    :ivar config: the configuration of the broker, its topics and groups
    :ivar listeners: those that clients can connect to
    :ivar catalog: the topics, and what is configured
    :ivar access_control: the ACLs; None without an authorizer
    :ivar fetch_max_bytes: the most bytes of records in a response
    :ivar long_polls: the requests that wait for changes
    :ivar topic_deletions: deletes topics from catalog, logs and coordinators
    :ivar opener: the thread that opens large batches
    :ivar staging: held while a large batch of a client is written, one at a time
    :ivar timestamp_searches: looks up offsets by time
    :ivar coordinators: all coordinators, for changes that several of them take part in
    :ivar slices: the slices of time of all long work, which take turns
    :ivar disconnected: forgets a closed connection by its number: ends its share sessions and
        releases their records
    """

    __slots__ = ()

    node_id: int
    data_dir: Path
    clock: Clock
    config: Settings
    listeners: Sequence[Listener]
    catalog: Catalog
    access_control: AccessControl | None
    quotas: Quotas
    features: Features
    metrics: Metrics
    fetch_max_bytes: int
    fetch_sessions: FetchSessions
    long_polls: LongPolls
    topic_logs: TopicLogs
    topic_deletions: TopicDeletions
    opener: BatchOpener
    staging: Lock
    timestamp_searches: TimestampSearches
    coordinators: Coordinators
    slices: TimeSlices
    disconnected: Callable[[int], None]

    @property
    def configs(self) -> Configs:
        """What administrators ask of configs."""
        raise NotImplementedError

    @property
    def regex_matcher(self) -> RegexMatcher:
        """The regular expressions of clients."""
        raise NotImplementedError

    @property
    def group_runtime(self) -> CoordinatorRuntime[GroupCoordinator]:
        """The runtime of the group coordinator, for groups and committed offsets."""
        return self.coordinators.group_runtime

    @property
    def groups(self) -> GroupCoordinator:
        """The group coordinator: it decides, and its runtime writes."""
        return self.coordinators.group_runtime.coordinator

    @property
    def share_state_runtime(self) -> CoordinatorRuntime[ShareCoordinator]:
        """The runtime of the share coordinator."""
        return self.coordinators.share_state_runtime

    @property
    def share(self) -> SharePartitions:
        """The share-partitions."""
        return self.coordinators.share

    @property
    def transactions(self) -> Transactions:
        """The transactions, with their coordinator."""
        return self.coordinators.transactions
