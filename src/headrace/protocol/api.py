"""The classes of all requests and responses of :mod:`.schema`, by name: ``from
headrace.protocol.api import HeartbeatRequest``. Their structures are attributes of theirs.
``api.pyi`` states every field for type checkers; ``scripts/schemas.py`` writes it.
"""

from __future__ import annotations

from typing import Any

from .schema import message_type


def __getattr__(name: str) -> Any:
    return message_type(name, "request", "response")
