"""A client of Spark Connect in a process of its own.

It reads commands from stdin and writes answers to stdout, a line of JSON each. No temporary
directory is left to it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace.spark
from headrace.spark import acknowledge
from tests.spark import mistakes

Options = Mapping[str, str]


def read(spark: SparkSession, source: str, options: Options) -> list[list[Any]]:
    """Return the places of a batch's records."""
    frame = spark.read.format(source).options(**options).load()
    return [[row.topic, row.partition, row.offset] for row in frame.collect()]


def run_stream(spark: SparkSession, source: str, options: Options, checkpoint: str) -> None:
    """Run a stream to its end, into nothing."""
    mistakes.run_stream(spark, source, dict(options), Path(checkpoint))


def lag(spark: SparkSession, options: Options) -> list[int]:
    """Return the lag of each partition of `kafka-lag`."""
    return [row.lag for row in spark.read.format("kafka-lag").options(**options).load().collect()]


def table(spark: SparkSession, name: str) -> list[list[Any]]:
    """Return the rows of a table, with timestamps as text."""
    spark.catalog.refreshTable(name)
    return [list(map(str, row)) for row in spark.table(name).collect()]


def work(
    spark: SparkSession, source: str, options: Options, results: str, *, acknowledges: bool = True
) -> int:
    """Drain a source with `foreachBatch`; return the number of micro-batches.

    Each writes a file of its rows' places and of what has been acknowledged. Numbers that end in 3
    are rejected, and those that end in 7 released once.
    """

    def of_batch(batch: DataFrame, number: int) -> None:
        import os
        import tempfile
        from dataclasses import asdict

        batch.persist()
        rows = batch.select("topic", "partition", "offset", "value").collect()
        done: dict[str, int] = {}
        if options.get("receiptsOverTcp") == "true":
            # Like a process that shares no files with others.
            os.environ.pop("SPARK_LOCAL_DIRS", None)
            tempfile.tempdir = "/nonexistent"
        if acknowledges:
            value = F.col("value").cast("string").cast("int")
            again = (value % 10 == 7) & (F.col("deliveryCount") == 1)
            outcome = F.when(value % 10 == 3, "reject").when(again, "release")
            outcomes = batch.withColumn("outcome", outcome.otherwise("accept"))
            done = asdict(acknowledge(outcomes))
        batch.unpersist()
        answer = {"rows": [[*row[:3], int(row[3])] for row in rows], "done": done}
        Path(results, f"{number}.json").write_text(json.dumps(answer))

    frame = spark.readStream.format(source).options(**options).load()
    query = headrace.spark.drain(
        frame.writeStream.foreachBatch(of_batch).option("checkpointLocation", f"{results}-progress")
    )
    return len(query.recentProgress)


def outcome_sink(spark: SparkSession, options: Options, checkpoint: str) -> dict[str, Any]:
    """Accept all records of a queue through the sink; return the source's last progress."""
    frame = spark.readStream.format("kafka-share").options(**options).load()
    outcome = F.lit("accept").alias("outcome")
    writer = frame.select("topic", "partition", "offset", "receipt", outcome).writeStream
    query = headrace.spark.drain(
        writer.format("kafka-share").options(**options).option("checkpointLocation", checkpoint)
    )
    return json.loads(query.lastProgress["sources"][0]["latestOffset"])


def copy(spark: SparkSession, options: Options, topic: str) -> None:
    """Write the records of a batch to another topic."""
    frame = spark.read.format("kafka-ordered").options(**options).load()
    sink = frame.write.format("kafka-produce").mode("append").option("topic", topic)
    name = "kafka.bootstrap.servers"
    sink.option(name, options[name]).save()


def main() -> None:
    """Answer commands until stdin ends."""
    tempfile.tempdir = "/nonexistent"
    spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
    commands = {
        "read": read,
        "stream": run_stream,
        "lag": lag,
        "table": table,
        "work": work,
        "sink": outcome_sink,
        "copy": copy,
    }
    for line in sys.stdin:
        name, arguments, keywords = json.loads(line)
        try:
            answer = {"result": commands[name](spark, *arguments, **keywords)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
