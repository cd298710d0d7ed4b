"""The classes of all messages of :mod:`.schema`, by name: ``from headrace.protocol.api import
HeartbeatRequest``. Their structures are attributes of theirs. ``api.pyi`` states every field for
type checkers; ``scripts/schemas.py`` writes it.
"""

from __future__ import annotations

from typing import Any

from .schema import schema


def __getattr__(name: str) -> Any:
    try:
        return schema(name).message_type
    except KeyError:
        raise AttributeError(name) from None
