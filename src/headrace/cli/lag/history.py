"""``headrace lag history``: report past rates and lag of groups, and the consumers they need.

A Spark job over the internal topics.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.cli.client_options import client_config, client_options
from headrace.cli.errors import BadUsage, Failure
from headrace.cli.nouns import command
from headrace.cli.options import arg
from headrace.cli.output import Output, output_option
from headrace.cli.tables import tell
from headrace.imports import require
from headrace.times import time_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.spark.history.groups import GroupHistory

POINTS = 60
"""The points in time at which lags are computed."""
_SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Leave out the second compiler and the threads of the other collector: a report takes seconds."""


@command(
    "report past rates and lag of groups, and the consumers they need, from the internal topics, "
    "with Spark",
    client_options,
    arg("--since", "TIME", "start, such as 2d or 2026-11-20T08:00 (default: 1h ago)", default="1h"),
    arg("--until", "TIME", "end (default: now)", default="now"),
    arg(
        "--target-drain",
        "DURATION",
        "time in which the consumers that a group needs clear its lag (default: 10m)",
        default="10m",
    ),
    arg("--groups", "REGEX", "only groups whose whole id matches"),
    output_option,
    examples="headrace lag history\n"
    "headrace lag history --since 6h --groups 'billing-.*' --target-drain 10m\n"
    "headrace lag history --since 2026-11-20T08:00 --until 2026-11-20T20:00 -o json",
)
def run(options: Namespace) -> None:
    """Execute the command.

    :raises Failure: it failed, or the options are wrong
    :raises ClientError: no broker answers
    """
    from headrace.client.config import check_access, read_config

    config = client_config(options)
    times_ms = _points(options)
    asyncio.run(check_access(read_config(config)))
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        raise Failure("Java is not installed: Spark needs a Java 17 runtime")
    require("pyspark", "spark")
    groups = _read(options, config, times_ms)
    Output(options.output).rows(map(_fields, groups), nothing="no group was active")


def _read(options: Namespace, config: dict[str, Any], times_ms: range) -> list[GroupHistory]:
    """Return the histories of groups; the group with the most lag first."""
    from headrace.spark.errors import SourceError
    from headrace.spark.history.group_records import UNREADABLE
    from headrace.spark.history.groups import group_histories
    from headrace.spark.history.source import history
    from headrace.spark.option_parsing import KafkaOptions

    kafka = KafkaOptions(config.pop("bootstrap.servers"), config)
    drain_s = options.target_drain / 1000
    with tempfile.TemporaryDirectory() as folder, _session(Path(folder)) as spark:
        from pyspark import StorageLevel

        try:
            kafka.connections()  # fails if a setting is wrong
            events = history(spark, kafka, options.groups).persist(StorageLevel.DISK_ONLY)
            groups = list(group_histories(events, kafka, times_ms, drain_s))
            unreadable = events.where(events["event"] == UNREADABLE).count()
        except SourceError as error:
            raise Failure(str(error)) from None
        except Exception as error:
            raise _failure(error) from error
    if unreadable:
        tell(f"{unreadable} records of unknown types or versions are left out")
    groups.sort(key=lambda group: (-(group.lag or 0), -(group.time_lag_ms or 0), group.group_id))
    return groups


def _failure(error: Exception) -> Failure:
    """Return the failure of a Spark job with the one line that matters."""
    said = re.findall(r"SourceError: (.+)", str(error))
    return Failure(said[-1] if said else " ".join(str(error).split())[:500])


@contextmanager
def _session(folder: Path) -> Iterator[SparkSession]:
    """Yield a Spark session whose JVM writes its stderr to a file in ``folder``.

    :raises Failure: Spark does not start
    """
    from pyspark.sql import SparkSession

    log = folder / "spark.log"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    logging.disable()  # py4j logs long traces of calls that Ctrl-C ended
    os.environ.setdefault("SPARK_SUBMIT_OPTS", _SHORT_LIVED_JVM)
    configs = {
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),  # 200 are for clusters
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(folder),
    }
    builder = SparkSession.builder.master("local[*]").appName("headrace lag history")
    sys.stderr.flush()
    stderr = os.dup(2)
    with log.open("wb") as target:
        os.dup2(target.fileno(), 2)  # the JVM inherits it
    try:
        session = builder.config(map=configs).getOrCreate()
    except Exception as error:
        raise Failure(f"Spark does not start: {_last_line(log, error)}") from None
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
    try:
        yield session
    finally:
        with suppress(Exception):  # fails if the JVM has exited
            session.stop()
        logging.disable(logging.NOTSET)


def _last_line(log: Path, error: Exception) -> str:
    lines = [
        line
        for line in log.read_text(errors="replace").splitlines()
        if "Exception" in line or "rror" in line
    ]
    return (lines or str(error).splitlines() or [type(error).__name__])[-1].strip()


def _fields(group: GroupHistory) -> dict[str, object]:
    return {
        name: round(value, 1) if isinstance(value, float) else value
        for name, value in asdict(group).items()
    }


def _points(options: Namespace) -> range:
    """Return the points in time, in milliseconds; the first is at or before ``--since``."""
    until_ms = min(options.until, time_ms("now"))
    length_ms = until_ms - options.since
    if length_ms <= 0:
        raise BadUsage("--since is not before --until")
    step_ms = max(1_000, -(-length_ms // POINTS))
    steps = -(-length_ms // step_ms)
    return range(until_ms - steps * step_ms, until_ms + 1, step_ms)
