"""What the group machines ask of the configuration, by Kafka's own names, at the moment they need
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol
from uuid import UUID


class Configuration(Protocol):
    """Where configuration values come from."""

    def get_int(self, name: str) -> int:
        """A broker configuration."""

    def get_str(self, name: str) -> str | None:
        """A broker configuration as text."""

    def get_list(self, name: str) -> tuple[str, ...]:
        """A broker configuration that is a list."""

    def group_int(self, group_id: str, name: str) -> int:
        """A group configuration, as set for the group or else for the broker."""


class Topic(Protocol):
    """What the group machines know of a topic."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> UUID: ...
    @property
    def partitions(self) -> int: ...


Topics = Mapping[str, Topic]
"""All topics by name."""


class ClassicSettings(NamedTuple):
    """Limits and times of classic groups; the defaults are Kafka's."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1

    @classmethod
    def of(cls, config: Configuration) -> ClassicSettings:
        """As configured now."""
        return cls(
            config.get_int("group.min.session.timeout.ms"),
            config.get_int("group.max.session.timeout.ms"),
            config.get_int("group.initial.rebalance.delay.ms"),
            config.get_int("group.max.size"),
        )


class OffsetSettings(NamedTuple):
    """How long committed offsets are kept, and how often that is looked at; the defaults are
    Kafka's.
    """

    retention_ms: int = 7 * 24 * 3_600_000
    check_interval_ms: int = 600_000

    @classmethod
    def of(cls, config: Configuration) -> OffsetSettings:
        """As configured now."""
        return cls(
            config.get_int("offsets.retention.minutes") * 60_000,
            config.get_int("offsets.retention.check.interval.ms"),
        )


class ShareGroupSettings(NamedTuple):
    """Times of one share group; the defaults are Kafka's.

    :param assignment_interval_ms: target assignments are computed at most this often; 0 for with
        every change
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000

    @classmethod
    def of(cls, config: Configuration, group_id: str) -> ShareGroupSettings:
        """As configured now for a group."""
        return cls(
            config.group_int(group_id, "share.session.timeout.ms"),
            config.group_int(group_id, "share.heartbeat.interval.ms"),
            config.group_int(group_id, "share.assignment.interval.ms"),
        )


class TopicCatalog(Protocol):
    """Where the group machines look topics up.

    :ivar version: another number after each change
    """

    @property
    def topics(self) -> Topics: ...
    @property
    def topics_by_id(self) -> Mapping[UUID, Topic]: ...
    @property
    def version(self) -> int: ...


class NoTopics:
    """A catalog without topics."""

    def __init__(self) -> None:
        self.topics: Topics = {}
        self.topics_by_id: Mapping[UUID, Topic] = {}
        self.version = 0


class ConsumerSettings(NamedTuple):
    """Limits and times of one consumer group; the defaults are Kafka's.

    :param assignment_interval_ms: target assignments are computed at most this often; 0 for with
        every change
    :param assignors: the names of those that may be asked for; the first is the default
    :param upgrade: whether a group of classic members becomes one when a member of the consumer
        protocol joins
    :param downgrade: whether it becomes classic when the last such member goes
    :param mixed: whether classic members may join members of the consumer protocol
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    max_size: int = 2**31 - 1
    classic_max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    upgrade: bool = True
    downgrade: bool = True
    mixed: bool = True

    @classmethod
    def of(cls, config: Configuration, group_id: str) -> ConsumerSettings:
        """As configured now for a group."""
        policy = (config.get_str("group.consumer.migration.policy") or "").lower()
        return cls(
            config.group_int(group_id, "consumer.session.timeout.ms"),
            config.group_int(group_id, "consumer.heartbeat.interval.ms"),
            config.group_int(group_id, "consumer.assignment.interval.ms"),
            config.get_int("group.consumer.max.size"),
            config.get_int("group.max.size"),
            _assignors(config.get_list("group.consumer.assignors")),
            policy in ("upgrade", "bidirectional"),
            policy in ("downgrade", "bidirectional"),
            policy != "disabled",
        )


def _assignors(configured: tuple[str, ...]) -> tuple[str, ...]:
    """Those that there are, by name; Kafka names its own by their classes too. All when there is
    none of them.
    """
    known = ConsumerSettings().assignors
    names = (name.rpartition(".")[2].removesuffix("Assignor").lower() for name in configured)
    return tuple(name for name in names if name in known) or known
