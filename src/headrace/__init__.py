"""Work queues and visible progress for Kafka-protocol streams.

``headrace.App`` makes workers of decorated functions. ``with headrace.Broker() as broker:`` runs a
broker inside this process, ``headrace serve`` runs one from the command line.
``headrace.ShareConsumer`` takes records from topics as from a queue, on asyncio;
``headrace.blocking`` has it without. ``headrace.spark`` has the PySpark sources,
``headrace.admin`` an admin client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .imports import on_use

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

# Import the broker only on use: the Spark sources and the client do not need it.
__getattr__ = on_use(
    __name__,
    """
    client.records Record
    client.share.consumer ShareConsumer
    embedded Broker
    log.directory_format UnusableDirectory
    log.directory_lock DirectoryInUse
    log.recovery CorruptLog
    protocol.errors ConfigError
    worker.app App
    worker.outcomes Reject Retry
    worker.payload Delivery
    """,
)
