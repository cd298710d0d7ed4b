"""The modes and columns that a format has not, and threads other than the main one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import headrace.spark
from headrace.spark.errors import SourceError, one_line_errors
from tests.spark.conftest import Queue, finish
from tests.spark.mistakes import problem
from tests.support import unique

pytestmark = pytest.mark.spark

MakeQueue = Callable[..., Queue]
COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)


@pytest.fixture(scope="module")
def read(spark: SparkSession, bootstrap_servers: str) -> Callable[..., Any]:
    """Return read(format, topic, group, stream=False): a reader with all options."""

    def read_format(format_name: str, topic: str, group: str, *, stream: bool = False) -> Any:
        reader: Any = (spark.readStream if stream else spark.read).format(format_name)
        reader = reader.option("kafka.bootstrap.servers", bootstrap_servers)
        if format_name in ("kafka-share", "kafka-ordered"):
            reader = reader.option("subscribe", topic)
        return reader.option("kafka.group.id", group) if format_name == "kafka-share" else reader

    return read_format


def write(frame: DataFrame, format_name: str, servers: str, topic: str) -> None:
    options = {"kafka.bootstrap.servers": servers, "topic": topic}
    frame.write.format(format_name).mode("append").options(**options).save()


def test_a_mode_that_a_format_has_not_is_refused_in_one_line(
    spark: SparkSession, queue: MakeQueue, read: Callable[..., Any], tmp_path: Path
) -> None:
    topic, rows = queue(1).topic, spark.range(1).selectExpr("'a' value")
    servers = queue(0).bootstrap_servers

    def start(format_name: str, *, to: str = "noop") -> None:
        frame = read(format_name, topic, unique("g"), stream=True).load()
        writer = frame.writeStream.format(to).trigger(availableNow=True)
        writer = writer.option("kafka.bootstrap.servers", servers)
        finish(writer.option("checkpointLocation", str(tmp_path / unique("c"))).start())

    refused: dict[str, Callable[[], Any]] = {
        "kafka-share cannot be read as a batch: use spark.readStream": lambda: (
            read("kafka-share", topic, unique("g")).load().collect()
        ),
        "kafka-group-history cannot be read as a stream: use spark.read": lambda: start(
            "kafka-group-history"
        ),
        "kafka-produce cannot be read: read with kafka-ordered or kafka-share": lambda: read(
            "kafka-produce", topic, unique("g")
        ).load(),
        "kafka-ordered does not take rows of a stream": lambda: start(
            "kafka-lag", to="kafka-ordered"
        ),
    }
    for format_name in ("kafka-share", "kafka-ordered", "kafka-lag", "kafka-group-history"):
        refused[f"{format_name} does not take rows of a batch: kafka-produce writes records"] = (
            lambda format_name=format_name: write(rows, format_name, servers, topic)
        )
    for text, call in refused.items():
        with pytest.raises(Exception) as failed:
            call()
        assert text in problem(failed.value)


def test_columns_of_the_user_are_refused_in_one_line(
    queue: MakeQueue, read: Callable[..., Any]
) -> None:
    topic = queue(1, partitions=1).topic
    for columns in (
        "value string",
        COLUMNS.replace("binary", "string"),
        COLUMNS.replace("key binary, value binary", "value binary, key binary"),
        f"{COLUMNS}, extra string",
    ):
        with pytest.raises(Exception) as failed:
            read("kafka-ordered", topic, "").schema(columns).load().collect()
        assert "kafka-ordered has columns of its own: remove schema()" in problem(failed.value)
    (row,) = read("kafka-ordered", topic, "").schema(COLUMNS).load().collect()
    assert row.value == b"0"


def test_a_table_is_refused_in_one_line(
    spark: SparkSession, queue: MakeQueue, tmp_path: Path
) -> None:
    """Spark's catalog does not pass the options of a table to a Python source."""
    target = queue(1)
    of_target = f"OPTIONS (topic '{target.topic}', `kafka.bootstrap.servers` 'x:1')"
    table = unique("t").replace("-", "_")
    spark.sql(f"CREATE TABLE {table} (value STRING) USING `kafka-produce` {of_target}")
    try:
        for statement in (
            f"INSERT INTO {table} VALUES ('a')",
            f"CREATE TABLE {table}_2 USING `kafka-ordered` {of_target}",
        ):
            with pytest.raises(Exception) as failed:
                spark.sql(statement).collect()
            assert "use CREATE TEMPORARY VIEW … USING to read" in problem(failed.value)
    finally:
        spark.sql(f"DROP TABLE {table}")


def in_thread(call: Callable[[], Any]) -> None:
    """Run a call in a new thread, to its end."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(call).result()


def test_a_registered_thread_finds_the_sinks(
    spark: SparkSession, queue: MakeQueue, read: Callable[..., Any], tmp_path: Path
) -> None:
    source, target = queue(3, partitions=1), queue(0, partitions=1)
    rows = spark.range(3).selectExpr("cast(id as string) value")
    servers, topic = target.bootstrap_servers, target.topic
    in_thread(
        lambda: (headrace.spark.register(spark), write(rows, "kafka-produce", servers, topic))
    )

    def in_pool(batch: DataFrame, _: int) -> None:
        session = batch.sparkSession
        with ThreadPoolExecutor(
            2, initializer=headrace.spark.register, initargs=(session,)
        ) as pool:
            frame = batch.select("value")
            for done in [
                pool.submit(write, frame, "kafka-produce", servers, topic) for _ in range(2)
            ]:
                done.result()

    def run_query() -> None:
        headrace.spark.register(spark)
        frame = spark.readStream.format("kafka-ordered").options(
            **{"kafka.bootstrap.servers": servers, "subscribe": source.topic},
            startingOffsets="earliest",
        )
        for number, writer in enumerate(
            (
                frame.load().writeStream.foreachBatch(in_pool),
                frame.load()
                .select("value")
                .writeStream.format("kafka-produce")
                .options(**{"kafka.bootstrap.servers": servers, "topic": topic}),
            )
        ):
            checkpoint = str(tmp_path / str(number))
            headrace.spark.drain(writer.option("checkpointLocation", checkpoint))

    in_thread(run_query)
    assert read("kafka-ordered", topic, "").load().count() == 3 + 2 * 3 + 3


def test_a_process_without_memory_says_what_to_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.tracebacklimit", 1000, raising=False)
    advice = r"raise spark\.executor\.pyspark\.memory \(1g for each of spark\.executor\.cores"
    for error in (MemoryError(), RuntimeError("can't start new thread")):
        with pytest.raises(SourceError, match=advice), one_line_errors():
            raise error
    with pytest.raises(RuntimeError, match="another"), one_line_errors():
        raise RuntimeError("another")
