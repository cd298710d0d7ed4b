"""Columns of the sink: their check when a query is planned, and their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from headrace.spark.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_TEXT = ("string", "varchar", "char")
_BYTES = (*_TEXT, "binary")
_TYPES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "key": (_BYTES, "string or binary"),
    "value": (_BYTES, "string or binary"),
    "topic": (_TEXT, "string"),
    "partition": (("integer",), "int"),
    "timestamp": (("timestamp",), "timestamp"),
    "headers": (("array",), "array<struct<key string, value binary>>"),
}
"""Column → accepted names of types, and what to cast to."""

_OF_SOURCES = frozenset({"offset", "timestampType", "deliveryCount", "receipt"})
"""Columns of the sources that only a stored record has; the sink ignores them."""

_UNASSIGNED = -1
"""librdkafka's number for a partition that the partitioner chooses."""
_NOW = 0
"""librdkafka's timestamp for the time of writing."""


class Record(NamedTuple):
    """A record to write, as librdkafka takes it."""

    topic: str | None
    key: str | bytes | None
    value: str | bytes | None
    partition: int
    timestamp_ms: int
    headers: list[tuple[str, str | bytes | None]] | None


def check_columns(schema: StructType, topic: str | None) -> None:
    """Check the columns of the rows to write.

    :param topic: the option of this name
    :raises SourceError: a column is missing, unknown, or of a wrong type
    """
    for column in schema.fields:
        if column.name in _OF_SOURCES:
            continue
        if column.name not in _TYPES:
            raise SourceError(
                f"unknown column '{column.name}': kafka-produce writes {', '.join(_TYPES)}; rename "
                "or drop it"
            )
        accepted, wanted = _TYPES[column.name]
        if column.dataType.typeName() not in accepted or not _has_headers(column.dataType):
            raise SourceError(
                f"column {column.name} is {column.dataType.simpleString()}: cast it to {wanted}"
            )
    names = schema.fieldNames()
    if "value" not in names:
        raise SourceError("the column value is missing: add it, as string or binary")
    if topic is None and "topic" not in names:
        raise SourceError("no topic: set the option topic, or add a column topic")


def _has_headers(data_type: DataType) -> bool:
    """Return False for an array that does not have headers as its elements."""
    if data_type.typeName() != "array":
        return True
    element = data_type.elementType
    if element.typeName() != "struct" or element.fieldNames() != ["key", "value"]:
        return False
    key, value = (field.dataType.typeName() for field in element.fields)
    return key in _TEXT and value in _BYTES


def records(batch: pa.RecordBatch, topic: str | None) -> Iterator[Record]:
    """Yield the rows of an Arrow batch as records.

    :param topic: the topic of all records; None to take the column
    """
    names = batch.schema.names

    def column(name: str) -> Any:
        return batch.column(names.index(name)).to_pylist() if name in names else repeat(None)

    topics = repeat(topic) if topic is not None else column("topic")
    partitions: Any = repeat(_UNASSIGNED)
    if "partition" in names:
        partitions = _filled(batch.column(names.index("partition")), _UNASSIGNED)
    timestamps_ms: Any = repeat(_NOW)
    if "timestamp" in names:
        import pyarrow.compute as pc  # 50 ms, which other Python processes of Spark save

        # In UTC, because Arrow rounds by the clock of the column's zone, which shows an hour twice.
        moments = batch.column(names.index("timestamp")).cast(pa.timestamp("us", "UTC"))
        milliseconds = pc.floor_temporal(moments, unit="millisecond").cast(
            pa.timestamp("ms", "UTC")
        )
        timestamps_ms = _filled(milliseconds.cast(pa.int64()), _NOW)
    headers: Any = repeat(None)
    if "headers" in names:
        headers = map(_header_pairs, column("headers"))
    rows = zip(
        topics, column("key"), column("value"), partitions, timestamps_ms, headers, strict=False
    )
    for _, row in zip(range(batch.num_rows), rows, strict=False):
        yield Record(*row)


def _filled(column: pa.Array, default: int) -> list[int]:
    return column.fill_null(default).to_pylist() if column.null_count else column.to_pylist()


def _header_pairs(
    headers: list[dict[str, Any]] | None,
) -> list[tuple[str, str | bytes | None]] | None:
    if not headers:
        return None
    for one in headers:
        _check_header(one)
    return [(one["key"], one["value"]) for one in headers]


def _check_header(header: dict[str, Any] | None) -> None:
    """Check a header of a row.

    :raises SourceError: librdkafka cannot write it
    """
    if header is None:
        raise SourceError("column headers has a null in the place of a header: remove it")
    if header["key"] is None:
        raise SourceError("column headers has a header without a key: give it one")
    if "\0" in header["key"]:
        raise SourceError(
            f"column headers has the key {header['key']!r}: librdkafka would cut it at its NUL"
        )
