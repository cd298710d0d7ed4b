"""Work queues and visible progress for Kafka-protocol streams.

``with headrace.Broker() as broker:`` starts a broker inside this process; ``headrace serve`` starts
one from the command line; ``headrace.spark`` has the PySpark sources; ``headrace.client`` an
asyncio share-group client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Broker", "ConfigError", "CorruptLog", "DirectoryInUse", "__version__"]

if TYPE_CHECKING:
    from .broker.config.broker_config import ConfigError
    from .broker.embedded import EmbeddedBroker as Broker
    from .log.log_directory import DirectoryInUse
    from .log.recovery import CorruptLog

_HOMES = {
    "Broker": ("headrace.broker.embedded", "EmbeddedBroker"),
    "ConfigError": ("headrace.broker.config.broker_config", "ConfigError"),
    "CorruptLog": ("headrace.log.recovery", "CorruptLog"),
    "DirectoryInUse": ("headrace.log.log_directory", "DirectoryInUse"),
}


def __getattr__(name: str) -> Any:
    # Importing the package must stay cheap for those who only want the Spark sources or the client.
    if name in _HOMES:
        from importlib import import_module

        module, attribute = _HOMES[name]
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
