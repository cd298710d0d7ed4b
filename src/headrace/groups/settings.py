"""The configuration and topics that groups use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol
from uuid import UUID

from headrace.protocol.configuration import Configuration


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


class Settings(NamedTuple):
    """The configs of one group, which are read whenever they are needed.

    :param kind: the kind of the group, as in the names of its configs
    """

    config: Configuration
    kind: str
    group_id: str

    def number(self, name: str) -> int:
        """Return a config of the group by its name without the kind: ``session.timeout.ms``."""
        return self.config.group_int(self.group_id, f"{self.kind}.{name}")
