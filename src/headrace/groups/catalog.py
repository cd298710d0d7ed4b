"""The topics that groups use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol
from uuid import UUID


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
