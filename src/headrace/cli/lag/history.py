"""``headrace lag history``: report past rates, lag and stalls of groups, and the consumers they
need. A Spark job over the internal topics.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import tempfile
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.cli.client_options import client_config, client_options, must_answer
from headrace.cli.errors import BadUsage, Failure
from headrace.cli.groups.options import check_pattern, date_and_time, duration
from headrace.cli.options import flag
from headrace.cli.tables import Column, as_json, table
from headrace.epoch import since_epoch_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.spark.history.groups import GroupHistory

POINTS = 60
"""The number of points of a series without ``--step``."""
MOST_POINTS = 2_000
_STALL_STEPS = 3
_LEAST_STALL_S = 30.0
_SHORT = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|m|min|h|d)")
_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Leave out the second compiler and the threads of the other collector: a report takes seconds."""

_EPILOG = """\
examples:
  headrace lag history
  headrace lag history --since 6h --step 5m --groups 'billing-.*' --target-drain 10m
  headrace lag history --since 2026-11-20T08:00 --until 2026-11-20T20:00 --json
"""


def declare(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = (
        "Report past rates, lag and stalls of groups, and the consumers they need, from the\n"
        "internal topics, with Spark."
    )
    parser.epilog = _EPILOG
    parser.formatter_class = RawDescriptionHelpFormatter
    client_options(parser)
    parser.add_argument(
        "--since",
        type=_moment,
        default="1h",
        metavar="TIME",
        help="start: a duration before now such as 2d, or a time (default: 1h)",
    )
    parser.add_argument(
        "--until", type=_moment, default="0s", metavar="TIME", help="end, likewise (default: now)"
    )
    parser.add_argument(
        "--step",
        type=_length,
        metavar="DURATION",
        help=f"interval between points (default: {POINTS} points)",
    )
    parser.add_argument("--groups", metavar="REGEX", help="only groups whose whole id matches")
    parser.add_argument(
        "--target-drain",
        type=_length,
        default="10m",
        metavar="DURATION",
        help="time in which the consumers that a group needs clear its lag (default: 10m)",
    )
    parser.add_argument(
        "--stall-after",
        type=_length,
        metavar="DURATION",
        help=(
            f"minimum duration of a stall (default: {_STALL_STEPS} steps, at least "
            f"{_LEAST_STALL_S:.0f} s)"
        ),
    )
    parser.add_argument("--master", default="local[*]", help="the Spark master (default: local[*])")
    flag(parser, "--json", "print JSON instead of a table")


def run(options: Namespace) -> int:
    """Execute the command.

    :returns: the exit status
    :raises Failure: it failed, or the options are wrong
    """
    config = client_config(options)
    period = _period(options)
    check_pattern("--groups", options.groups)
    must_answer(config)
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        raise Failure("Java is not installed: Spark needs a Java 17 runtime")
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise Failure(f"{error.name} is not installed: pip install 'headrace[spark]'") from None
    groups = _read(options, config, period)
    if options.json:
        print(as_json(map(_fields, groups)))
    else:
        print(table(_COLUMNS, [_row(group) for group in groups]))
    return 0


def _read(
    options: Namespace, config: dict[str, str], period: tuple[int, int, int, int]
) -> list[GroupHistory]:
    """Return the histories of groups; the group with the most lag first."""
    from headrace.spark.errors import SourceError
    from headrace.spark.history.group_records import UNREADABLE
    from headrace.spark.history.groups import Period, group_histories
    from headrace.spark.history.source import history
    from headrace.spark.option_parsing import KafkaOptions

    kafka = KafkaOptions(config.pop("bootstrap.servers"), config)
    drain_s = options.target_drain.total_seconds()
    with tempfile.TemporaryDirectory() as folder, _session(options.master, Path(folder)) as spark:
        from pyspark import StorageLevel

        try:
            _ = kafka.security
            events = history(spark, kafka, options.groups).persist(StorageLevel.DISK_ONLY)
            groups = list(group_histories(events, kafka, Period(*period), drain_s))
            unreadable = events.where(events["event"] == UNREADABLE).count()
        except SourceError as error:
            raise Failure(str(error)) from None
        except Exception as error:
            raise _failure(error) from error
    if unreadable:
        print(f"{unreadable} records of unknown types or versions are left out", file=sys.stderr)
    groups.sort(key=lambda group: (-(group.lag or 0), -(group.time_lag_s or 0), group.group_id))
    return groups


def _failure(error: Exception) -> Failure:
    """Return the failure of a Spark job with the one line that matters."""
    said = re.findall(r"SourceError: (.+)", str(error))
    return Failure(said[-1] if said else " ".join(str(error).split())[:500])


@contextmanager
def _session(master: str, folder: Path) -> Iterator[SparkSession]:
    """Yield a Spark session whose JVM writes its stderr to a file in ``folder``.

    :raises Failure: Spark does not start
    """
    from pyspark.sql import SparkSession

    log = folder / "spark.log"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    logging.disable()  # py4j logs long traces of calls that Ctrl-C ended
    builder = SparkSession.builder.master(master).appName("headrace lag history")
    if master.startswith("local"):  # the default of 200 is for clusters
        builder = builder.config("spark.sql.shuffle.partitions", str(2 * (os.cpu_count() or 1)))
        os.environ.setdefault("SPARK_SUBMIT_OPTS", _SHORT_LIVED_JVM)
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(folder),
    }.items():
        builder = builder.config(name, value)
    sys.stderr.flush()
    stderr = os.dup(2)
    with log.open("wb") as target:
        os.dup2(target.fileno(), 2)  # the JVM inherits it
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise Failure(
            f"Spark does not start with --master {master}: {_last_line(log, error)}"
        ) from None
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


_COLUMNS = (
    Column("GROUP", 20),
    Column("TYPE", 8),
    Column("MEMBERS", 7),
    Column("PARTITIONS", 10),
    Column("LAG", 8),
    Column("TIME-LAG", 8),
    Column("DONE/S", 10),
    Column("PRODUCED/S", 10),
    Column("ZERO-IN", 8),
    Column("CONSUMERS", 9),
    Column("STALLS", None),
)


def _row(group: GroupHistory) -> tuple[object, ...]:
    needed = group.consumers_needed
    is_too_many = needed and group.group_type != "share" and needed > group.partitions
    left_s = group.seconds_to_zero
    longest_s: dict[str, float] = {}
    for stall in group.stalls:
        length_s = (stall.last_ms - stall.first_ms) / 1000
        longest_s[stall.kind] = max(longest_s.get(stall.kind, 0.0), length_s)
    stalls = (f"{kind} for {_seconds(length_s)}" for kind, length_s in longest_s.items())
    return (
        group.group_id,
        "gone" if group.gone else group.group_type,
        group.members,
        group.partitions,
        group.lag,
        None if group.time_lag_s is None else _seconds(group.time_lag_s),
        f"{group.done_per_s:,.1f}",
        f"{group.produced_per_s:,.1f}",
        "never" if left_s == -1 else None if left_s is None else _seconds(left_s),
        f"{needed} (more than partitions)" if is_too_many else needed,
        ", ".join(stalls) or None,
    )


def _seconds(number: float) -> str:
    """Return a duration as text, as in ``"40 s"``, ``"12 min"``, ``"3.5 h"`` or ``"2 d"``."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if number >= 2 * size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g} s"


def _fields(group: GroupHistory) -> dict[str, Any]:
    """Return the JSON of a group, in the words of ``headrace lag show``."""
    fields = asdict(group)
    time_lag_s = fields.pop("time_lag_s")
    return fields | {"time_lag_ms": None if time_lag_s is None else round(time_lag_s * 1000)}


def _period(options: Namespace) -> tuple[int, int, int, int]:
    now_ms = int(time.time() * 1000)
    since_ms = options.since(now_ms)
    until_ms = min(now_ms, options.until(now_ms))
    if since_ms >= until_ms:
        raise BadUsage("--since is not before --until")
    if options.step is None:
        step_ms = max(1_000, -(-(until_ms - since_ms) // POINTS))
    else:
        step_ms = max(1, round(options.step.total_seconds() * 1000))
    points = (until_ms - since_ms) // step_ms + 1
    if points > MOST_POINTS:
        raise BadUsage(
            f"--step makes {points} points of this period, but the limit is {MOST_POINTS}: give a "
            f"longer --step or a later --since"
        )
    if options.stall_after is None:
        stall_ms = max(_STALL_STEPS * step_ms, int(_LEAST_STALL_S * 1000))
    else:
        stall_ms = round(options.stall_after.total_seconds() * 1000)
    return since_ms, until_ms, step_ms, stall_ms


def _length(text: str) -> timedelta:
    """Parse a duration above 0: ``90s``, ``10m``, ``6h``, ``2d``, or ISO 8601 as in ``PT10M``.

    :raises ArgumentTypeError: it is neither
    """
    found = _SHORT.fullmatch(text.strip().lower())
    try:
        if found:
            length = timedelta(seconds=float(found["number"]) * _UNITS_S[found["unit"]])
        else:
            length = duration(text.upper())
    except (ArgumentTypeError, OverflowError):
        length = timedelta(0)
    if length <= timedelta(0):
        raise ArgumentTypeError(f"'{text}' is not a duration, such as 10m, 6h or 2d")
    return length


def _moment(text: str) -> Any:
    """Parse a time, or a duration before now; ``0s`` is now.

    :returns: a function from now to the time, both in ms since the epoch
    """
    if text == "0s":
        return lambda now_ms: now_ms
    try:
        ago_ms = round(_length(text).total_seconds() * 1000)
    except ArgumentTypeError:
        at_ms = since_epoch_ms(date_and_time(text))
        return lambda _: at_ms
    return lambda now_ms: now_ms - ago_ms
