"""Offsets in Spark's checkpoints: those of another query are refused, and some hold progress.

From pyspark 4.2 on, Spark asks a Python source for its progress, and shows it as ``latestOffset``.
Before, all that Spark shows of a Python source is its offsets, so the progress travels in them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headrace.spark.errors import SourceError, one_line_errors

PROGRESS = "#progress"
"""The field of an offset with the progress. No topic has such a name."""


def with_progress(offset: Mapping[str, Any], progress: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return an offset with the progress of its source, if there is any."""
    return {**offset, PROGRESS: dict(progress)} if progress else dict(offset)


def without_progress(offset: Mapping[str, Any]) -> dict[str, Any]:
    """Return an offset as the source made it."""
    return {name: value for name, value in offset.items() if name != PROGRESS}


_MAX_OFFSET_CHARS = 200


def check_offset(source: str, offset: object, like: Mapping[str, Any]) -> None:
    """Check that an offset in Spark's checkpoint is one of this source.

    :param source: the format's name
    :param like: an offset of the source: the same fields, with values of the same types
    :raises SourceError: the checkpoint is one of another query
    """
    is_own = (
        isinstance(offset, Mapping)
        and without_progress(offset).keys() == like.keys()
        and all(isinstance(offset[name], type(value)) for name, value in like.items())
    )
    if not is_own:
        refuse_checkpoint(source, offset)


def refuse_checkpoint(source: str, offset: object) -> None:
    """Fail because a checkpoint is one of another query.

    :raises SourceError: always
    """
    text = json.dumps(offset)
    if len(text) > _MAX_OFFSET_CHARS:
        text = f"{text[:_MAX_OFFSET_CHARS]}…"
    with one_line_errors():
        raise SourceError(
            f"the checkpoint is one of another query, because {source} has no offsets such as "
            f"{text}: set checkpointLocation to a folder of this query alone"
        )
