"""The configuration and topics that groups use. Configs are read by name whenever needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, Protocol
from uuid import UUID

from headrace.protocol.configuration import Configuration

from .consumer.assignors import ASSIGNORS


class Topic(Protocol):
    """A topic, as groups see it."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> UUID: ...
    @property
    def partitions(self) -> int: ...


Topics = Mapping[str, Topic]
"""All topics by name."""


class OffsetSettings(NamedTuple):
    """The retention of committed offsets and the interval of its checks."""

    retention_ms: int
    check_interval_ms: int

    @classmethod
    def of(cls, config: Configuration) -> OffsetSettings:
        """Return the settings, as configured now."""
        return cls(
            config.get_int("offsets.retention.minutes") * 60_000,
            config.get_int("offsets.retention.check.interval.ms"),
        )


class ShareGroupSettings(NamedTuple):
    """Limits and times of one share group.

    :param assignment_interval_ms: the least time between two target assignments; 0 for one with
        every change
    """

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    max_size: int

    @classmethod
    def of(cls, config: Configuration, group_id: str) -> ShareGroupSettings:
        """Return the settings of a group, as configured now."""
        number = partial(config.group_int, group_id)
        return cls(
            number("share.session.timeout.ms"),
            number("share.heartbeat.interval.ms"),
            number("share.assignment.interval.ms"),
            config.get_int("group.share.max.size"),
        )


MaySee = Callable[[str], bool]
"""Returns whether a client may see a topic."""


class TopicCatalog(Protocol):
    """The source of topics.

    :ivar version: a number that changes with each change of topics or configs
    """

    @property
    def topics(self) -> Topics: ...
    @property
    def topics_by_id(self) -> Mapping[UUID, Topic]: ...
    @property
    def version(self) -> int: ...


class ConsumerSettings(NamedTuple):
    """Limits and times of one consumer group.

    :param assignment_interval_ms: the least time between two target assignments; 0 for one with
        every change
    :param assignors: the names of the assignors that members may ask for; the first is the default
    :param upgrade: a classic group becomes a consumer group when a member of the consumer protocol
        joins
    :param downgrade: a consumer group becomes classic when the last member of the consumer protocol
        leaves
    :param mixed: classic members may join a group with members of the consumer protocol
    """

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    max_size: int
    classic_max_size: int
    assignors: tuple[str, ...]
    upgrade: bool
    downgrade: bool
    mixed: bool

    @classmethod
    def of(cls, config: Configuration, group_id: str) -> ConsumerSettings:
        """Return the settings of a group, as configured now."""
        number = partial(config.group_int, group_id)
        policy = (config.get_str("group.consumer.migration.policy") or "").lower()
        return cls(
            number("consumer.session.timeout.ms"),
            number("consumer.heartbeat.interval.ms"),
            number("consumer.assignment.interval.ms"),
            config.get_int("group.consumer.max.size"),
            config.get_int("group.max.size"),
            _assignors(config.get_list("group.consumer.assignors")),
            policy in ("upgrade", "bidirectional"),
            policy in ("downgrade", "bidirectional"),
            policy != "disabled",
        )


class StreamsSettings(NamedTuple):
    """Limits and times of one streams group.

    :param assignment_interval_ms: the least time between two target assignments; 0 for one with
        every change
    :param initial_rebalance_delay_ms: the time that an empty group waits for further members before
        it assigns tasks
    :param standby_replicas: the replicas of each stateful task
    :param task_offset_interval_ms: how often members tell the changelog offsets of their tasks
    :param acceptable_recovery_lag: told to members, as a warm-up task would end with it
    :param rack_tags: the client tags that members should have
    """

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    initial_rebalance_delay_ms: int
    standby_replicas: int
    max_size: int
    task_offset_interval_ms: int
    acceptable_recovery_lag: int
    rack_tags: tuple[str, ...]

    @property
    def assignment_configs(self) -> tuple[tuple[str, str], ...]:
        """The configs that begin a new group epoch when they change, names and values."""
        configs = {"num.standby.replicas": str(self.standby_replicas)}
        if self.rack_tags:
            configs["rack.aware.assignment.tags"] = ",".join(self.rack_tags)
        return tuple(configs.items())

    @classmethod
    def of(cls, config: Configuration, group_id: str) -> StreamsSettings:
        """Return the settings of a group, as configured now."""
        number = partial(config.group_int, group_id)
        return cls(
            number("streams.session.timeout.ms"),
            number("streams.heartbeat.interval.ms"),
            number("streams.assignment.interval.ms"),
            number("streams.initial.rebalance.delay.ms"),
            number("streams.num.standby.replicas"),
            config.get_int("group.streams.max.size"),
            number("streams.task.offset.interval.ms"),
            number("streams.acceptable.recovery.lag"),
            config.group_list(group_id, "streams.rack.aware.assignment.tags"),
        )


def _assignors(configured: tuple[str, ...]) -> tuple[str, ...]:
    """Return the configured assignors that exist, by name or Kafka's class name; all assignors if
    none exists.
    """
    names = (name.rpartition(".")[2].removesuffix("Assignor").lower() for name in configured)
    return tuple(name for name in names if name in ASSIGNORS) or tuple(ASSIGNORS)
