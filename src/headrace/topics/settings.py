"""The configuration of a broker, as the packages below it see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from headrace.log.log_config import LogConfig
from headrace.protocol.configuration import Configuration, Value
from headrace.protocol.errors import Refusal

from .catalog import Topic


class Settings(Configuration, Protocol):
    """The values of configs also of topics and listeners, and checks of new ones."""

    def check(self, kind: str, configs: Mapping[str, str]) -> Refusal | None: ...
    def topic_value(self, topic: Topic, name: str) -> str | None: ...
    def log_config(self, topic: Topic) -> LogConfig: ...
    def internal_topic(self, name: str) -> tuple[int, dict[str, str]]: ...
    def listener_text(
        self, listener: str, name: str, mechanism: str | None = None
    ) -> str | None: ...
    def listener_value(
        self, listener: str, name: str, mechanism: str | None = None
    ) -> Value | None: ...
    def listener_int(self, listener: str, name: str) -> int: ...
    def with_changes(self, changes: Mapping[str, str | None]) -> Settings: ...
