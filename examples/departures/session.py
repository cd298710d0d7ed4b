"""A Spark session that logs to a file, and waiting for queries so that Ctrl-C stops everything."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from .data import PipelineError

_POLL_INTERVAL_S = 0.2


@dataclass(frozen=True, slots=True)
class Job:
    """Common parameters of the pipeline's queries.

    :param folder: folder for results and checkpoints
    :param records_per_batch: limit on a micro-batch
    """

    spark: SparkSession
    bootstrap_servers: str
    folder: Path
    records_per_batch: int

    def checkpoint(self, query: str) -> str:
        """Return the checkpoint location of a query."""
        return str(self.folder / "checkpoint" / query)


@contextmanager
def spark_session(log: Path) -> Iterator[SparkSession]:
    """Run a local Spark session whose output goes to the file ``log``.

    :raises PipelineError: Spark does not start
    """
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    # py4j logs every exception of a foreachBatch function.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with log.open("ab") as file, _stderr_to(file.fileno()):
        try:
            session = (
                SparkSession.builder.master("local[*]")
                .appName("departures")
                .config("spark.ui.enabled", "false")
                .config("spark.ui.showConsoleProgress", "false")
                .config("spark.driver.bindAddress", "127.0.0.1")
                .config("spark.driver.host", "127.0.0.1")
                .config("spark.sql.shuffle.partitions", "3")
                .config("spark.sql.session.timeZone", "UTC")
                # A run is too short for the JVM's best compiler, and its heap too small for more
                # than one thread that collects garbage: they would take a core from the queries.
                .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
                .getOrCreate()
            )
        except Exception as error:
            reason = str(error).strip().splitlines()[0]
            raise PipelineError(
                f"Spark does not start (it needs Java 17): {reason}; see {log}"
            ) from None
        session.sparkContext.setLogLevel("WARN")
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def _stderr_to(descriptor: int) -> Iterator[None]:
    """Redirect stderr of this process, and of processes started meanwhile: here the JVM."""
    kept = os.dup(2)
    sys.stderr.flush()
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextmanager
def deferred_interrupts() -> Iterator[threading.Event]:
    """Let Ctrl-C and SIGTERM set an event.

    Raised inside a call to the JVM, they would break the connection to it.
    """
    interrupted = threading.Event()
    kept = {
        number: signal.signal(number, lambda *_: interrupted.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield interrupted
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def wait_until_reading(query: StreamingQuery, interrupted: threading.Event) -> None:
    """Wait until the reader of a query has been started.

    Spark gives a reader's process ten seconds to start. On a busy machine that is not enough for
    several at once.

    :raises PipelineError: the query failed
    :raises KeyboardInterrupt: the user pressed Ctrl-C
    """
    wait_until(lambda: not query.status["message"].startswith("Initializing"), [query], interrupted)


def wait_until(
    done: Callable[[], bool], queries: Sequence[StreamingQuery], interrupted: threading.Event
) -> None:
    """Wait until ``done`` returns True.

    :raises PipelineError: a query failed
    :raises KeyboardInterrupt: the user pressed Ctrl-C
    """
    while not done():
        if interrupted.wait(_POLL_INTERVAL_S):
            raise KeyboardInterrupt
        for query in queries:
            error = query.exception()
            if error is not None:
                lines = str(error).splitlines()
                reason = next((line for line in lines if "Error: " in line), lines[0])
                raise PipelineError(f"the query '{query.name}' failed: {reason.strip()}")
