"""Columns of the sink ``kafka-produce``: which are accepted, and the records of rows."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.spark.errors import SourceError
from headrace.spark.produce.options import ProduceOptions
from headrace.spark.produce.records import Record, check_columns, parts, records
from headrace.spark.produce.sink import ProduceDataSource

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)


def schema(**columns: object) -> StructType:
    return StructType([StructField(name, of_type) for name, of_type in columns.items()])


def test_columns_of_the_sources_may_be_written_back() -> None:
    columns = {"key": BinaryType(), "value": StringType(), "topic": StringType()}
    more = {"partition": IntegerType(), "timestamp": TimestampType(), "headers": HEADERS}
    of_sources = {"offset": IntegerType(), "timestampType": IntegerType()}
    of_shares = {"deliveryCount": IntegerType(), "receipt": StringType()}
    check_columns(schema(**columns, **more, **of_sources, **of_shares), None)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"key": StringType()}, "the column value is missing: add it, as string or binary"),
        ({"value": StringType()}, "no topic: set the option topic, or add a column topic"),
        (
            {"value": IntegerType(), "topic": StringType()},
            "column value is int: cast it to string or binary",
        ),
        (
            {"value": BinaryType(), "topic": StringType(), "headesr": HEADERS},
            "unknown column 'headesr': kafka-produce writes key, value, topic, partition, "
            "timestamp, headers; rename or drop it",
        ),
        (
            {"value": BinaryType(), "topic": StringType(), "headers": ArrayType(StringType())},
            "column headers is array<string>: cast it to array<struct<key string, value binary>>",
        ),
        (
            {"value": BinaryType(), "topic": StringType(), "timestamp": IntegerType()},
            "column timestamp is int: cast it to timestamp",
        ),
    ],
)
def test_wrong_columns(columns: dict[str, object], text: str) -> None:
    with pytest.raises(SourceError) as raised:
        check_columns(schema(**columns), None)
    assert str(raised.value) == text


def test_records() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "offset": [0, 1],
            "value": pa.array([b"v", None], pa.binary()),
            "key": pa.array(["k", None], pa.string()),
            "topic": ["a", "b"],
            "partition": pa.array([3, None], pa.int32()),
            "timestamp": pa.array([1_700_000_000_123_456, None], pa.timestamp("us", "UTC")),
            "headers": pa.array(
                [[("h", b"1"), ("h", None)], None],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
        }
    )
    assert list(records(batch, None)) == [
        Record("a", "k", b"v", 3, 1_700_000_000_123, [("h", b"1"), ("h", None)]),
        Record("b", None, None, -1, 0, None),
    ]
    assert [record.topic for record in records(batch, "all")] == ["all", "all"]


def test_rows_of_the_value_alone() -> None:
    batch = pa.RecordBatch.from_pydict({"value": ["x", "y"]})
    assert list(records(batch, "t")) == [
        Record("t", None, "x", -1, 0, None),
        Record("t", None, "y", -1, 0, None),
    ]


@pytest.mark.parametrize(
    ("moment_us", "timestamp_ms"),
    [
        (1_999, 1),
        (1_000, 1),
        (-1_000, -1),
        (-1_001, -2),
        (-1_999, -2),
        (-86_400_000_000, -86_400_000),
    ],
)
def test_timestamps_are_rounded_down(moment_us: int, timestamp_ms: int) -> None:
    moments = pa.array([moment_us], pa.timestamp("us", "UTC"))
    batch = pa.record_batch({"value": pa.array([b"1"]), "timestamp": moments})
    (record,) = records(batch, "t")
    assert record.timestamp_ms == timestamp_ms


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "+05:30", "UTC"])
def test_timestamps_when_the_clock_changes(zone: str) -> None:
    """The hours that clocks in Berlin and New York show twice, and the hour that Berlin's leaves
    out.
    """
    hours_ms = [1_729_990_800_000, 1_730_611_800_000, 1_711_848_600_000]
    moments_ms = [ms + minutes * 60_000 for ms in hours_ms for minutes in range(-120, 121, 30)]
    moments = pa.array([ms * 1000 + 123 for ms in moments_ms], pa.timestamp("us", zone))
    batch = pa.record_batch({"value": pa.array([b"1"] * len(moments)), "timestamp": moments})
    assert [record.timestamp_ms for record in records(batch, "t")] == moments_ms


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (None, "column headers has a null in the place of a header"),
        ({"key": None, "value": b"1"}, "column headers has a header without a key"),
        ({"key": "a\0b", "value": b"1"}, "column headers has the key 'a\\\\x00b'"),
    ],
)
def test_headers_that_cannot_be_written(header: object, text: str) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.record_batch(
        {"value": pa.array([b"1"]), "headers": pa.array([[header]], kind)},
    )
    with pytest.raises(SourceError, match=text):
        list(records(batch, "t"))


def test_parts_of_a_batch_are_small() -> None:
    sizes = [1, 3 << 20, 5, 9 << 20, 2 << 20, 2 << 20, *[10] * 1000]
    batch = pa.record_batch({"value": [b"x" * size for size in sizes]})
    rows = [part.column("value").to_pylist() for part in parts(batch)]
    assert [len(value) for part in rows for value in part] == sizes
    assert all(len(part) == 1 or sum(map(len, part)) < 4 << 20 for part in rows)
    assert len(rows) < 15
    assert [part.num_rows for part in parts(batch.slice(6))] == [1000]


@pytest.mark.parametrize(
    ("given", "kbytes"),
    [
        ({}, 65_536),
        ({"kafka.message.max.bytes": "1000000"}, 65_536),
        ({"kafka.max.request.size": "100000000"}, 97_657),
        ({"kafka.queue.buffering.max.kbytes": "1000"}, "1000"),
    ],
)
def test_the_queue_of_a_producer_is_small(given: dict[str, str], kbytes: object) -> None:
    config = ProduceOptions.parse({**SERVERS, **given}).producer_config()
    assert config["queue.buffering.max.kbytes"] == kbytes


def test_a_client_of_the_sink() -> None:
    given = {
        **SERVERS,
        "topic": "t",
        "kafka.linger.ms": "20",
        "transactionalIdPrefix": "orders",
        "kafka.sasl.jaas.config": 'x required username="ann" password="pw";',
    }
    options = ProduceOptions.parse(given)
    config = options.producer_config("orders-1")
    assert (options.topic, options.prefix) == ("t", "orders")
    assert config["linger.ms"] == "20"
    assert config["sasl.username"] == "ann"
    assert config["transactional.id"] == "orders-1"
    assert config["partitioner"] == "murmur2_random"
    assert config["enable.idempotence"] is True
    assert "transactional.id" not in options.producer_config()


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("kafka.transactional.id", "x", "set transactionalIdPrefix, because each task"),
        ("kafka.enable.idempotence", "false", "the sink always writes idempotently"),
        ("lostTransactions", "ignore", "use fail, resend"),
        ("topics", "t", "did you mean topic?"),
    ],
)
def test_wrong_options(name: str, value: str, text: str) -> None:
    with pytest.raises(SourceError, match=text.replace("?", r"\?")):
        ProduceOptions.parse({**SERVERS, name: value})


def test_a_setting_that_no_producer_has() -> None:
    source = ProduceDataSource({**SERVERS, "topic": "t", "kafka.key.serializer": "x"})
    with pytest.raises(SourceError, match="librdkafka does not accept an option kafka"):
        source.streamWriter(schema(value=StringType()), overwrite=False)
