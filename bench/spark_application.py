"""What the benchmarks on Spark have in common: an application of its own, and what its queries show."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.spark.application import application
from tests.support import HeadraceProcess

MIB = 1 << 20


def spark_application(module: str, *arguments: object) -> dict[str, float]:
    """Run ``python -m module arguments…`` in a process of its own; its last line is a JSON object of numbers."""
    done = subprocess.run([sys.executable, "-m", module, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{module} {arguments}: {done.stderr[-4000:]}")
    numbers: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return numbers


def print_measured(
    measure: Callable[[str, int, int], dict[str, float]], records: str, cores: str, bootstrap_servers: str = ""
) -> None:
    """What a module does with its arguments: measure so many records, on a headrace of its own if none is named."""
    if bootstrap_servers:
        print(json.dumps(measure(bootstrap_servers, int(records), int(cores))))
        return
    with tempfile.TemporaryDirectory() as directory, HeadraceProcess(Path(directory) / "data", {}) as broker:
        print(json.dumps(measure(broker.bootstrap_servers, int(records), int(cores))))


def session(cores: int) -> SparkSession:
    """A Spark application on ``local[cores]`` that finds this checkout, and tells of every trigger."""
    configs = {
        "spark.log.level": "ERROR",
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        "spark.sql.streaming.noDataProgressEventInterval": "0",
    }
    return application(cores, configs)


def start(
    spark: SparkSession, source: str, checkpoint: Path, options: Mapping[str, str], **trigger: Any
) -> StreamingQuery:
    """A query into the sink ``noop``."""
    frame = spark.readStream.format(source).options(**options).load()
    stream = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    return stream.trigger(**trigger).start()


def drained(query: StreamingQuery, warm_up: int, watch: Callable[[], None] = lambda: None) -> tuple[float, float]:
    """Wait for a query that ends by itself: (records/s after the first micro-batches, median ms of a micro-batch)."""
    while not query.awaitTermination(0.2):
        watch()
    batches = [progress for progress in query.recentProgress if progress.numInputRows]
    batches = batches[min(warm_up, len(batches) - 1) :]
    times_ms = [progress.durationMs["triggerExecution"] for progress in batches]
    return 1000 * sum(progress.numInputRows for progress in batches) / sum(times_ms), statistics.median(times_ms)


def idle_trigger_ms(query: StreamingQuery, triggers: int) -> float:
    """The median of what triggers take that find nothing; the query is stopped."""

    def idle() -> list[float]:
        return [p.durationMs["triggerExecution"] for p in query.recentProgress if not p.numInputRows]

    try:
        while len(idle()) <= triggers:
            query.awaitTermination(0.2)
    finally:
        query.stop()
    return statistics.median(idle()[1:])


def reader_mib() -> float:
    """Resident memory of the process of a stream's reader below this one; of the largest where there are several."""
    sizes = [0.0]
    for process in psutil.Process().children(recursive=True):
        try:
            if any("python_streaming_source_runner" in argument for argument in process.cmdline()):
                sizes.append(float(process.memory_info().rss) / MIB)
        except psutil.Error:
            continue
    return max(sizes)
