"""``headrace lag history``: report past rates, lag and stalls of groups, and the consumers they
need. A Spark job over the internal topics writes tables and plots.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.cli.client_options import client_config, client_options, must_answer
from headrace.cli.errors import BadUsage, Failure
from headrace.cli.groups.options import check_pattern, date_and_time, duration
from headrace.cli.options import flag, number_option
from headrace.cli.tables import Column, as_json, table
from headrace.epoch import since_epoch_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.spark.history.results import GroupHistory, Report

POINTS = 60
"""The number of points of a series without ``--step``."""
MOST_POINTS = 2_000
_STALL_STEPS = 3
_LEAST_STALL_S = 30.0
_SHORT = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|m|min|h|d)")
_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_REPORT = "report.html"
_PARTS = {_REPORT, "events", "groups", "series", "stalls"}
_POLL_S = 0.2
_SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Leave out the second compiler and the threads of the other collector: a report takes seconds."""

_EPILOG = """\
examples:
  headrace lag history --out lag
  headrace lag history --out lag --since 6h --step 5m --groups 'billing-.*' \\
      --target-drain 10m --max-consumers 12
  headrace lag history --out lag --since 2026-11-20T08:00 --until 2026-11-20T20:00 --json
"""


def declare(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = (
        "Report past rates, lag and stalls of groups, and the consumers they need, from the\n"
        "internal topics. Write Parquet tables and report.html."
    )
    parser.epilog = _EPILOG
    parser.formatter_class = RawDescriptionHelpFormatter
    client_options(parser)
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="DIR",
        help="output directory; a former report is replaced",
    )
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
        help="time in which the advised consumers clear the lag (default: 10m)",
    )
    number_option(parser, "--min-consumers", "minimum of the advice", 1)
    number_option(parser, "--max-consumers", "maximum of the advice")
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
    if options.max_consumers is not None and options.max_consumers < options.min_consumers:
        raise BadUsage("--max-consumers is less than --min-consumers")
    check_pattern("--groups", options.groups)
    _check_out(options.out)
    must_answer(config)
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        raise Failure("Java is not installed: Spark needs a Java 17 runtime")
    try:
        import matplotlib  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise Failure(f"{error.name} is not installed: pip install 'headrace[spark]'") from None
    report = _make(options, config, period)
    groups = report.groups
    if options.json:
        print(as_json(group.as_row() for group in groups))
    else:
        print(table(_COLUMNS, [_row(group) for group in groups]))
    print(
        f"{len(groups)} group{'' if len(groups) == 1 else 's'}; see {options.out / _REPORT}",
        file=sys.stderr,
    )
    return 0


def _make(options: Namespace, config: dict[str, str], period: tuple[int, int, int, int]) -> Report:
    from headrace.spark.errors import SourceError
    from headrace.spark.history.advice import Bounds, Target
    from headrace.spark.history.html_report import page
    from headrace.spark.history.query import HistoryQuery, Period
    from headrace.spark.history.run import write_history
    from headrace.spark.option_parsing import KafkaOptions

    servers = config.pop("bootstrap.servers")
    kafka = KafkaOptions(servers, config)
    bounds = Bounds(options.min_consumers, options.max_consumers)
    target = Target(options.target_drain.total_seconds(), bounds)
    query = HistoryQuery(Period(*period), target, options.groups)
    out = options.out.resolve()  # a link is kept
    out.parent.mkdir(parents=True, exist_ok=True)
    # Rename at the end, so that --out never has a part of a report.
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as folder:
        made = Path(folder) / "made"
        with (
            _session(options.master, Path(folder) / "spark.log") as spark,
            _progress(spark) as begin,
        ):
            try:
                _ = kafka.security
                report = write_history(spark, kafka, query, made, begin=begin)
            except SourceError as error:
                raise Failure(str(error)) from None
            except Exception as error:
                raise _failure(error) from error
            begin("drawing")
            made.mkdir(exist_ok=True)
            (made / _REPORT).write_text(page(report), encoding="utf-8")
        if out.exists():
            shutil.rmtree(out)
        made.rename(out)
    return report


def _failure(error: Exception) -> Failure:
    """Return the failure of a Spark job with the one line that matters."""
    said = re.findall(r"SourceError: (.+)", str(error))
    return Failure(said[-1] if said else " ".join(str(error).split())[:500])


@contextmanager
def _session(master: str, log: Path) -> Iterator[SparkSession]:
    """Yield a Spark session whose JVM writes its stderr to ``log``.

    :raises Failure: Spark does not start
    """
    from pyspark.sql import SparkSession

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
        # Hadoop has an umask of its own.
        "spark.hadoop.fs.permissions.umask-mode": "077",
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


@contextmanager
def _progress(spark: SparkSession) -> Iterator[Any]:
    """Yield a function that shows the current phase; a bar shows Spark's tasks.

    Shows nothing unless stderr is a terminal.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    tracker = spark.sparkContext.statusTracker()
    over = threading.Event()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def watch() -> None:
            while not over.wait(_POLL_S):
                stages = filter(None, map(tracker.getStageInfo, tracker.getActiveStageIds()))
                counts = [(stage.numCompletedTasks, stage.numTasks) for stage in stages]
                done, total = (
                    (sum(column) for column in zip(*counts, strict=True)) if counts else (0, None)
                )
                bar.update(task, completed=done, total=total)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield lambda what: bar.update(task, description=what)
        finally:
            over.set()
            watcher.join()


_COLUMNS = (
    Column("GROUP", 20),
    Column("TYPE", 8),
    Column("MEMBERS", 7),
    Column("PARTITIONS", 10),
    Column("LAG", 8),
    Column("TIME-LAG", 8),
    Column("CONSUMED/S", 10),
    Column("PRODUCED/S", 10),
    Column("ZERO-IN", 8),
    Column("CONSUMERS", 9),
    Column("STALLS", None),
)


def _row(group: GroupHistory) -> tuple[object, ...]:
    from headrace.spark.history.html_report import eta, seconds, short, stall_summary

    advice = group.advice
    limited = f" ({advice.limited_by}; {advice.wanted} wanted)" if advice.limited_by else ""
    return (
        group.group_id,
        "gone" if group.gone else group.group_type,
        group.members,
        group.partitions,
        None if group.lag is None else int(group.lag),
        None if group.time_lag_s is None else seconds(group.time_lag_s),
        short(group.consumed_per_s),
        short(group.produced_per_s),
        eta(group).replace("–", "-"),
        None if advice.consumers is None else f"{advice.consumers}{limited}",
        stall_summary(group) or "-",
    )


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


def _check_out(out: Path) -> None:
    if out.resolve() == Path.cwd():  # to replace it would leave the shell in a deleted directory
        raise BadUsage("--out is the current directory: name another --out")
    if not out.exists():
        return
    parts = {path.name for path in out.iterdir()} if out.is_dir() else {""}
    if parts and not {_REPORT} <= parts <= _PARTS:
        raise BadUsage(f"{out} exists and is not a report: name another --out")


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
