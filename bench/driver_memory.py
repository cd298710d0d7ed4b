"""The memory of a Spark application's driver, by process and without its executors."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

from bench.spark_application import MIB

PARTS = ("heap", "jvm", "python", "reader")
"""The JVM's heap after a garbage collection; its resident memory afterwards; that of the driver in
Python; and the peak of the largest Python process that Spark starts in the driver, such as the
reader of a stream.
"""
_PAUSE_S = 1.0


class Driver:
    """The processes of an application's driver."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._this = psutil.Process()
        self._java = psutil.Process(self._jvm.java.lang.ProcessHandle.current().pid())

    @contextlib.contextmanager
    def watched(self) -> Iterator[dict[str, float]]:
        """Yield a mapping of part → peak MiB, filled while the block runs."""
        most = dict.fromkeys(PARTS, 0.0)
        done = threading.Event()

        def watch() -> None:
            while True:
                for part, mib in self._sizes().items():
                    most[part] = max(most[part], mib)
                if done.wait(_PAUSE_S):
                    return

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield most
        finally:
            done.set()
            thread.join()

    def _sizes(self) -> dict[str, float]:
        self._jvm.java.lang.System.gc()
        heap = (
            self._jvm.java.lang.management.ManagementFactory.getMemoryMXBean()
            .getHeapMemoryUsage()
            .getUsed()
        )
        started = max(map(_peak, self._started()), default=0)
        sizes = (heap, self._java.memory_info().rss, self._this.memory_info().rss, started)
        return {part: size / MIB for part, size in zip(PARTS, sizes, strict=True)}

    def _started(self) -> Iterator[psutil.Process]:
        """Return the processes below the JVM, without the executor and its children."""
        for child in self._java.children():
            with contextlib.suppress(psutil.Error):
                if not any(
                    "CoarseGrainedExecutorBackend" in argument for argument in child.cmdline()
                ):
                    yield from (child, *child.children(recursive=True))


def _peak(process: psutil.Process) -> int:
    """Return the peak of resident bytes; 0 if the process has just ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
