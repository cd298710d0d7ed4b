"""What a broker is made of, as the calls of its clients see it."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
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
    from headrace.topics.catalog import Catalog
    from headrace.topics.features import Features
    from headrace.topics.fetch_sessions import FetchSessions
    from headrace.topics.long_polls import LongPolls
    from headrace.topics.regex_matcher import RegexMatcher
    from headrace.topics.settings import ConfiguredTopic, Settings
    from headrace.topics.timestamp_searches import TimestampSearches
    from headrace.topics.topic_deletions import TopicDeletions
    from headrace.topics.topic_logs import TopicLogs

    from .access_control import AccessControl
    from .client_quotas import Quotas
    from .listeners import Listener
    from .metrics import Metrics

    DescribedConfigs = list[DescribeConfigsResponse.DescribeConfigsResourceResult]


class Configs(Protocol):
    """What administrators ask of configs."""

    def alter(
        self,
        resources: Sequence[IncrementalAlterConfigsRequest.AlterConfigsResource],
        *,
        replaces: bool,
        validate_only: bool,
    ) -> Generator[None, None, list[Refusal]]:
        """Alter configs; yield between resources, and return the outcome of each.

        :param replaces: the changes are all configs that a resource is to have
        """

    def of_new_topic(self, topic: ConfiguredTopic) -> DescribedConfigs:
        """Describe the configs of a topic with all their synonyms."""

    def describe(
        self, resource_type: int, name: str, facts: Mapping[str, str]
    ) -> DescribedConfigs | Refusal:
        """Describe the configs of a resource, or return its error.

        :param facts: configs of this broker that hold whatever was configured
        """


class Services(Protocol):
    """The parts of a broker.

    :ivar slices: the slices of time of all long work, which take turns
    :ivar staging: held while a large batch of a client is written, one at a time
    """

    node_id: int
    data_dir: Path
    clock: Clock
    catalog: Catalog
    access_control: AccessControl | None
    quotas: Quotas
    features: Features
    fetch_max_bytes: int
    metrics: Metrics
    long_polls: LongPolls
    fetch_sessions: FetchSessions
    topic_logs: TopicLogs
    opener: BatchOpener
    timestamp_searches: TimestampSearches
    coordinators: Coordinators
    slices: TimeSlices
    staging: Lock
    topic_deletions: TopicDeletions

    @property
    def config(self) -> Settings: ...
    @property
    def listeners(self) -> Sequence[Listener]: ...
    @property
    def configs(self) -> Configs: ...
    @property
    def group_runtime(self) -> CoordinatorRuntime[GroupCoordinator]: ...
    @property
    def share_state_runtime(self) -> CoordinatorRuntime[ShareCoordinator]: ...
    @property
    def share(self) -> SharePartitions: ...
    @property
    def transactions(self) -> Transactions: ...
    @property
    def regex_matcher(self) -> RegexMatcher: ...

    def disconnected(self, connection_id: int) -> None:
        """Forget a closed connection: end its share sessions and release their records."""
