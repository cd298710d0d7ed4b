"""Work queues and visible progress for Kafka-protocol streams.

``headrace.App`` makes workers of decorated functions. ``with headrace.Broker() as broker:`` runs a
broker inside this process, ``headrace serve`` runs one from the command line.
``headrace.ShareConsumer`` takes records from topics as from a queue, on asyncio;
``headrace.blocking`` has it without. ``headrace.spark`` has the PySpark sources,
``headrace.admin`` an admin client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "App",
    "Broker",
    "ConfigError",
    "CorruptLog",
    "Delivery",
    "DirectoryInUse",
    "Record",
    "Reject",
    "Retry",
    "ShareConsumer",
    "UnusableDirectory",
    "__version__",
]

if TYPE_CHECKING:
    from .client.records import Record
    from .client.share.consumer import ShareConsumer
    from .embedded import Broker
    from .log.directory_format import UnusableDirectory
    from .log.directory_lock import DirectoryInUse
    from .log.recovery import CorruptLog
    from .protocol.errors import ConfigError
    from .worker.app import App
    from .worker.outcomes import Reject, Retry
    from .worker.payload import Delivery

_HOMES = {
    "App": "worker.app",
    "Broker": "embedded",
    "ConfigError": "protocol.errors",
    "CorruptLog": "log.recovery",
    "Delivery": "worker.payload",
    "DirectoryInUse": "log.directory_lock",
    "Record": "client.records",
    "Reject": "worker.outcomes",
    "Retry": "worker.outcomes",
    "ShareConsumer": "client.share.consumer",
    "UnusableDirectory": "log.directory_format",
}


def __getattr__(name: str) -> Any:
    # Import the broker only on use: the Spark sources and the client do not need it.
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
