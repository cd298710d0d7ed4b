"""Configurations of logs: Kafka's defaults, with changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from headrace.broker.config.broker_config import Config
from headrace.log.log_config import LogConfig
from headrace.topics.catalog import Topic

_DEFAULTS = Config({}).log_config(Topic("t", UUID(int=1), 1))


def log_config(**changes: Any) -> LogConfig:
    """Return the configuration of the logs of a topic.

    :param changes: by field
    """
    return replace(_DEFAULTS, **changes)
