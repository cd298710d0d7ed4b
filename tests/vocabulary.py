"""The names of JSON fields (docs/command-line.md): a plural noun is a list, and no number."""

from __future__ import annotations

import re
from collections.abc import Mapping

_PLURAL = re.compile(r"(?!seconds|.*_(ms|s|bytes)$).*[^s]s")
_OF_WORKERS = {"slots", "dead_letters"}
"""Numbers that a worker tells of its tasks, by the names of its metrics."""


def misnamed(fields: Mapping[str, object]) -> list[str]:
    """Return the fields of an object, and of those in it, whose names promise another type."""
    wrong = []
    for name, value in fields.items():
        if isinstance(value, list):
            wrong += [name] * name.endswith("_count")
            for item in value:
                wrong += misnamed(item) if isinstance(item, dict) else []
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            wrong += [name] * bool(_PLURAL.fullmatch(name) and name not in _OF_WORKERS)
    return wrong
