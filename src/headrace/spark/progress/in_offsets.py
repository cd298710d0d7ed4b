"""Progress of a source within its offsets, for versions of pyspark that do not ask for it.

From pyspark 4.2 on, Spark asks a Python source for its progress, and shows it as ``latestOffset``.
Before, all that Spark shows of a Python source is its offsets, so the progress travels in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PROGRESS = "#progress"
"""The field of an offset with the progress. No topic has such a name."""


def with_progress(offset: Mapping[str, Any], progress: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return an offset with the progress of its source, if there is any."""
    return {**offset, PROGRESS: dict(progress)} if progress else dict(offset)


def without_progress(offset: Mapping[str, Any]) -> dict[str, Any]:
    """Return an offset as the source made it."""
    return {name: value for name, value in offset.items() if name != PROGRESS}
