"""The numbers in requests about configs: types of resources, sources of values, operations."""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .api import IncrementalAlterConfigsRequest


class ConfigType(IntEnum):
    """The type of a resource with configs."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    @property
    def kind(self) -> str:
        """The name of the type where it is not a number: ``client-metrics``."""
        return self.name.lower().replace("_", "-")


class ConfigSource(IntEnum):
    """The place from which a config has its value."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigOperation(IntEnum):
    """An operation on a config; APPEND and SUBTRACT are for lists (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def why_malformed(
    changes: Collection[IncrementalAlterConfigsRequest.AlterableConfig],
) -> str | None:
    """Return the reason why no resource can be changed like this, None if one may be."""
    unknown = [
        change.config_operation
        for change in changes
        if change.config_operation not in list(ConfigOperation)
    ]
    without_value = [
        change.name
        for change in changes
        if change.value is None and change.config_operation != ConfigOperation.DELETE
    ]
    if len({change.name for change in changes}) < len(changes):
        return "Error due to duplicate config keys"
    if unknown:
        return f"Unknown config operation {unknown[0]}"
    if without_value:
        return f"Null value not supported for : {', '.join(without_value)}"
    return None
