"""Offsets in Spark's checkpoints, and the progress of sources, which some of them hold.

From pyspark 4.2 on, Spark asks a Python source for its progress, and shows it as ``latestOffset``.
Before, all that Spark shows of a Python source is its offsets, so the progress travels in them.
"""

from __future__ import annotations

import json
from ast import literal_eval
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.log_lines import printable
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


FIRST_OFFSETS: Mapping[str, Mapping[str, Any]] = {
    "kafka-share": {"session": "", "batch": 0, "records": 0, "spans": {}, "alone": []},
    "kafka-lag": {"snapshot": 0},
}
"""Format → the offset of a new query. Later ones have the same fields, with values of the same
types."""


def check_offsets(source: str, *offsets: object) -> None:
    """Check that offsets in Spark's checkpoint are of this source.

    :param source: the format's name
    :raises SourceError: the checkpoint is one of another query
    """
    like = FIRST_OFFSETS[source]
    for offset in offsets:
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
    text = printable(json.dumps(offset), _MAX_OFFSET_CHARS)
    with one_line_errors():
        raise SourceError(
            f"the checkpoint is one of another query, because {source} has no offsets such as "
            f"{text}: set checkpointLocation to a folder of this query alone"
        )


# -- the progress of a query


def source_progress(source: Any) -> dict[str, Any] | None:
    """Return what a source of this package reports, with any version of pyspark.

    :param source: an element of ``query.lastProgress.sources``
    :returns: the fields that the page of the source names; None if it reports nothing
    """
    reported, end = _parsed(source.latestOffset), _parsed(source.endOffset)
    if reported != end:
        return reported
    # Before pyspark 4.2 it is an offset, with the progress in it.
    return None if end is None else _mapping(end.get(PROGRESS))


def by_name(sources: Sequence[Any]) -> dict[str, Any]:
    """Return the sources of a query by name: its format, or its place if that is unknown.

    Spark does not tell the format of a Python source, but each reports and stores its own fields. A
    second source of the same format has its place in the name.
    """
    named: dict[str, Any] = {}
    for place, source in enumerate(sources):
        name = _format(source) or str(place)
        named[f"{name}-{place}" if name in named else name] = source
    return named


def _format(source: Any) -> str | None:
    offset = without_progress(_parsed(source.endOffset) or {})
    for name, first in FIRST_OFFSETS.items():
        if offset.keys() == first.keys():
            return name
    return "kafka-ordered" if "enforcedProcessing" in (source_progress(source) or {}) else None


def lag_by_topic(progress: Mapping[str, Any]) -> dict[str, int]:
    """Return the lag of each topic in the progress of a source."""
    lags = _mapping(progress.get("lag")) or {}
    return {
        topic: sum(lag for lag in by_partition.values() if isinstance(lag, int))
        for topic, by_partition in lags.items()
        if isinstance(by_partition, Mapping)
    }


def _parsed(text: Any) -> dict[str, Any] | None:
    """Return an offset: JSON in events of listeners, Python's form in ``lastProgress``."""
    if not isinstance(text, str):
        return _mapping(text)
    for parse in (json.loads, literal_eval):
        try:
            return _mapping(parse(text))
        except (ValueError, SyntaxError):
            continue
    return None


def _mapping(value: Any) -> dict[str, Any] | None:
    return dict(value) if isinstance(value, Mapping) else None
