"""The classes of what is stored in logs, by name: the keys and values of coordinator records, and
the data in them, as ``from headrace.protocol.stored import GroupMetadataValue``. Their structures
are attributes of theirs. ``stored.pyi`` states every field for type checkers;
``scripts/schemas.py`` writes it.
"""

from __future__ import annotations

from typing import Any

from .schema import message_type


def __getattr__(name: str) -> Any:
    return message_type(name, "coordinator-key", "coordinator-value", "data")
