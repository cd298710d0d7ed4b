"""The sink ``kafka-produce``: batches, streams, transactions, and errors of the executors."""

from __future__ import annotations

import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.streaming import DataStreamWriter
from pyspark.sql.types import StructType

import headrace.spark
from headrace.client.transactions import ONGOING, transactional_ids
from headrace.spark import ProduceDataSource
from headrace.spark.produce.commits import Decision, KafkaCommitLog
from headrace.spark.produce.sink import StreamProduceWriter
from tests.spark.conftest import Queue
from tests.support import unique, wait_until

pytestmark = pytest.mark.spark

MakeQueue = Callable[..., Queue]


def consume(servers: str, topic: str, partitions: int, count: int) -> list[Any]:
    """Return the committed records of a topic, by partition; at least ``count``."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": unique("reader"),
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[Any] = []
    at_end: set[int] = set()
    while len(at_end) < partitions or len(found) < count:
        for message in consumer.consume(1000, 10):
            if message.error() is None:
                found.append(message)
            else:
                at_end.add(message.partition())
    consumer.close()
    return found


def values(messages: list[Any]) -> list[bytes]:
    return sorted(message.value() for message in messages)


def test_a_batch_with_all_columns(spark: SparkSession, queue: MakeQueue) -> None:
    target = queue(0, partitions=3)
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    rows = spark.range(30, numPartitions=2).select(
        F.format_string("k%d", F.col("id")).alias("key"),
        F.when(F.col("id") > 0, F.encode(F.col("id").cast("string"), "utf-8")).alias("value"),
        F.array(
            F.struct(F.lit("h").alias("key"), F.lit(b"1").alias("value")),
            F.struct(F.lit("h").alias("key"), F.lit(None).cast("binary").alias("value")),
        ).alias("headers"),
        F.lit(moment).alias("timestamp"),
        (F.col("id") % 3).cast("int").alias("partition"),
        F.lit(target.topic).alias("topic"),
    )
    options = {"kafka.bootstrap.servers": target.bootstrap_servers}
    rows.write.format("kafka-produce").mode("append").options(**options).save()
    found = {message.key(): message for message in consume(*where(target), count=30)}
    assert len(found) == 30
    for number in range(30):
        message = found[b"k%d" % number]
        assert message.value() == (b"%d" % number if number else None)
        assert message.partition() == number % 3
        assert message.headers() == [("h", b"1"), ("h", None)]
        assert message.timestamp()[1] == int(moment.timestamp() * 1000)


def where(target: Queue) -> tuple[str, str, int]:
    return target.bootstrap_servers, target.topic, target.partitions


def test_a_failed_batch_in_transactions_leaves_nothing(
    spark: SparkSession, queue: MakeQueue
) -> None:
    """Readers with ``read_committed`` see a batch whole, or nothing of it."""
    target = queue(0, partitions=2)
    options = {
        "kafka.bootstrap.servers": target.bootstrap_servers,
        "transactionalIdPrefix": unique("batch"),
        "topic": target.topic,
    }

    def save(partition: Any) -> None:
        rows = spark.range(20, numPartitions=2).select(
            F.col("id").cast("string").alias("value"), partition.cast("int").alias("partition")
        )
        rows.write.format("kafka-produce").mode("append").options(**options).save()

    with pytest.raises(Exception, match=re.escape(f"writing to {target.topic}-9: ")):
        save(F.when(F.col("id") == 15, 9).otherwise(0))
    save(F.lit(1))
    found = consume(*where(target), count=20)
    assert values(found) == sorted(b"%d" % number for number in range(20))
    assert {message.partition() for message in found} == {1}


class KilledSink(ProduceDataSource):
    """The sink, whose commit kills its process after the decision, once for each file."""

    @classmethod
    def name(cls) -> str:
        return "killed-produce"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        decide, kills = KafkaCommitLog.decide, file_of(self.options["commitTopic"])

        def decide_and_die(log: KafkaCommitLog, decision: Decision) -> None:
            decide(log, decision)
            if kills.exists():
                kills.unlink()
                os.kill(os.getpid(), signal.SIGKILL)

        KafkaCommitLog.decide = decide_and_die  # type: ignore[method-assign]
        return super().streamWriter(schema, overwrite)


def file_of(commit_topic: str) -> Path:
    return Path(tempfile.gettempdir()) / commit_topic


def copying(
    spark: SparkSession,
    source: Queue,
    target: Queue,
    sink: str,
    folder: Path,
    commit_topic: str,
    **limits: str,
) -> DataStreamWriter:
    """Return a stream, not started, from a topic to another, in transactions."""
    frame = spark.readStream.format("kafka-ordered").options(
        **{
            "kafka.bootstrap.servers": source.bootstrap_servers,
            "subscribe": source.topic,
            "startingOffsets": "earliest",
            **limits,
        }
    )
    writer = frame.load().select("key", "value").writeStream.format(sink)
    return writer.options(
        **{
            "kafka.bootstrap.servers": target.bootstrap_servers,
            "transactionalIdPrefix": target.group_id,
            "topic": target.topic,
            "checkpointLocation": str(folder / "checkpoint"),
            "commitTopic": commit_topic,
        }
    )


def test_a_stream_in_transactions_survives_a_kill_and_goes_on(
    spark: SparkSession, queue: MakeQueue, tmp_path: Path
) -> None:
    """Spark aborts the micro-batch after the failed commit, and replays it when it is restarted."""
    source, target = queue(100, partitions=2), queue(0, partitions=2)
    commit_topic = unique("commits")
    spark.dataSource.register(KilledSink)

    def run() -> None:
        writer = copying(spark, source, target, "killed-produce", tmp_path, commit_topic)
        headrace.spark.drain(writer)

    file_of(commit_topic).touch()
    with pytest.raises(StreamingQueryException):
        run()
    assert not file_of(commit_topic).exists()
    run()
    assert values(consume(*where(target), count=100)) == sorted(b"%d" % n for n in range(100))
    source.produce(50, start=100)
    run()
    assert values(consume(*where(target), count=150)) == sorted(b"%d" % n for n in range(150))


class StalledSink(ProduceDataSource):
    """The sink, whose tasks stall with their transactions open while a file exists."""

    @classmethod
    def name(cls) -> str:
        return "stalled-produce"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return StalledWriter(self._checked(schema, overwrite), schema)


class StalledWriter(StreamProduceWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return super().write(chain(iterator, self._stall()))

    def _stall(self) -> Iterator[pa.RecordBatch]:
        if file_of(self._options.commit_topic).exists():
            time.sleep(600)
        yield from ()


def test_a_stream_in_transactions_that_is_stopped_while_tasks_write(
    spark: SparkSession, queue: MakeQueue, tmp_path: Path
) -> None:
    """What is written is whole micro-batches. A restart ends the transactions that it finds."""
    source, target = queue(20, partitions=2), queue(0, partitions=2)
    commit_topic = unique("commits")
    spark.dataSource.register(StalledSink)
    writer = copying(
        spark, source, target, "stalled-produce", tmp_path, commit_topic, maxOffsetsPerTrigger="20"
    )

    def open_transactions() -> int:
        prefix = f"{target.group_id}-"
        return len(target.ask(lambda cluster: transactional_ids(cluster, prefix, (ONGOING,))))

    headrace.spark.drain(writer)
    source.produce(40, start=20)
    file_of(commit_topic).touch()
    query = writer.start()
    wait_until(lambda: open_transactions() == 2, 60, "both tasks to write")
    query.stop()
    file_of(commit_topic).unlink()
    assert values(consume(*where(target), count=20)) == sorted(b"%d" % n for n in range(20))
    headrace.spark.drain(writer)
    assert values(consume(*where(target), count=60)) == sorted(b"%d" % n for n in range(60))
    assert open_transactions() == 0


def one_row(spark: SparkSession, **columns: Any) -> DataFrame:
    return spark.range(1).select(*(value.alias(name) for name, value in columns.items()))


@pytest.mark.parametrize("mistake", ["column", "topic", "mode"])
def test_mistakes_are_named_when_the_query_is_planned(
    spark: SparkSession, queue: MakeQueue, mistake: str
) -> None:
    target = queue(0, partitions=1)
    topic, mode, columns = target.topic, "append", {"value": F.lit("x")}
    if mistake == "column":
        columns, text = {"value": F.lit(1)}, "column value is int: cast it to string or binary"
    elif mistake == "topic":
        topic, text = "missing", "topic 'missing' does not exist: create it first, or correct"
    else:
        mode, text = "overwrite", "records of a topic cannot be overwritten: use mode('append')"
    options = {"kafka.bootstrap.servers": target.bootstrap_servers, "topic": topic}
    writer = one_row(spark, **columns).write.format("kafka-produce").mode(mode).options(**options)
    with pytest.raises(Exception, match=re.escape(text)) as raised:
        writer.save()
    assert "Traceback" not in str(raised.value)


def test_a_record_that_is_too_large_is_named_with_its_partition(
    spark: SparkSession, queue: MakeQueue
) -> None:
    target = queue(0, partitions=1)
    rows = one_row(spark, value=F.repeat(F.lit("x"), 3_000_000), partition=F.lit(0))
    options = {"kafka.bootstrap.servers": target.bootstrap_servers, "topic": target.topic}
    with pytest.raises(Exception, match=re.escape(f"writing to {target.topic}-0: ")) as raised:
        rows.write.format("kafka-produce").mode("append").options(**options).save()
    assert "raise max.message.bytes of the topic" in str(raised.value)
