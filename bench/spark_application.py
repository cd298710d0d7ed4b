"""The Spark application of a benchmark, and the progress of its queries."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.peer import jars
from tests.spark.application import application
from tests.support import HeadraceProcess

MIB = 1 << 20


def spark_application(module: str, *arguments: object) -> Any:
    """Run ``python -m module arguments…`` in a process of its own; return the JSON of its last
    line.
    """
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{module} {arguments}: {done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def print_measured(
    measure: Callable[[str, int, int], dict[str, float]],
    records: str,
    cores: str,
    bootstrap_servers: str = "",
    *,
    configs: Mapping[str, str] | None = None,
) -> None:
    """Run the measurement that a module's arguments describe, on a new headrace unless a broker is
    named.

    :param configs: of the new broker
    """
    if bootstrap_servers:
        print(json.dumps(measure(bootstrap_servers, int(records), int(cores))))
        return
    with (
        tempfile.TemporaryDirectory() as directory,
        HeadraceProcess(Path(directory) / "data", configs or {}) as broker,
    ):
        print(json.dumps(measure(broker.bootstrap_servers, int(records), int(cores))))


def session(cores: int, configs: Mapping[str, str] | None = None) -> SparkSession:
    """Return a Spark application that imports this checkout, and reports every trigger.

    :param configs: further Spark configs; without ``spark.master`` it runs on ``local[cores]``
    """
    defaults = {
        "spark.log.level": "ERROR",
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        "spark.sql.streaming.noDataProgressEventInterval": "0",
    }
    return application(cores, {**defaults, **(configs or {})})


def own_source() -> dict[str, str]:
    """Return the Spark configs with which Spark's own Kafka source and sink are there."""
    return {"spark.jars": ",".join(map(str, sorted(jars("spark-jars").glob("*.jar"))))}


def start(
    spark: SparkSession, source: str, checkpoint: Path, options: Mapping[str, str], **trigger: Any
) -> StreamingQuery:
    """Start a query into the sink ``noop``."""
    frame = spark.readStream.format(source).options(**options).load()
    stream = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    return stream.trigger(**trigger).start()


def drained(query: StreamingQuery, warm_up: int) -> float:
    """Wait for the end of a query; return records/s after the first micro-batches."""
    query.awaitTermination()
    batches = [progress for progress in query.recentProgress if progress.numInputRows]
    batches = batches[min(warm_up, len(batches) - 1) :]
    times_ms = [progress.durationMs["triggerExecution"] for progress in batches]
    return 1000 * sum(progress.numInputRows for progress in batches) / sum(times_ms)


def idle_trigger_ms(query: StreamingQuery, triggers: int) -> float:
    """Return the median duration of triggers without records, and stop the query."""

    def idle() -> list[float]:
        return [
            p.durationMs["triggerExecution"] for p in query.recentProgress if not p.numInputRows
        ]

    try:
        while len(idle()) <= triggers:
            query.awaitTermination(0.2)
    finally:
        query.stop()
    return statistics.median(idle()[1:])
