"""Progress of headrace's sources, read from the progress of a query."""

from __future__ import annotations

import json
from ast import literal_eval
from collections.abc import Mapping, Sequence
from typing import Any

from .spark_offsets import PROGRESS, without_progress

_SHARE_OFFSET, _LAG_OFFSET = {"session", "batch"}, {"snapshot"}


def source_progress(source: Any) -> dict[str, Any] | None:
    """Return what a source of this package reports, with any version of pyspark.

    :param source: an element of ``query.lastProgress.sources``
    :returns: the fields that ``docs/spark.md`` names for the source; None if it reports nothing
    """
    reported, end = _parsed(source.latestOffset), _parsed(source.endOffset)
    if reported != end:
        return reported
    # Before pyspark 4.2 it is an offset, see headrace.spark.spark_offsets.
    return None if end is None else _mapping(end.get(PROGRESS))


def source_names(sources: Sequence[Any]) -> list[str]:
    """Return a name for each source of a query: its format, or its place if that is unknown.

    Spark does not tell the format of a Python source, but each reports and stores its own fields. A
    second source of the same format has its place in the name.
    """
    names: list[str] = []
    for place, source in enumerate(sources):
        name = _format(source) or str(place)
        names.append(f"{name}-{place}" if name in names else name)
    return names


def _format(source: Any) -> str | None:
    offset = without_progress(_parsed(source.endOffset) or {})
    if offset.keys() == _SHARE_OFFSET:
        return "kafka-share"
    if offset.keys() == _LAG_OFFSET:
        return "kafka-lag"
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
