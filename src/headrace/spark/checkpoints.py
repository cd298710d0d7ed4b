"""Recognition of offsets that another query has left in a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .errors import SourceError, one_line_errors
from .progress.in_offsets import without_progress

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
