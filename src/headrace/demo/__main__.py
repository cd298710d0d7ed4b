"""``python -m headrace.demo [--rows N] [--out DIR]``: what ``make demo`` runs."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

import headrace

from . import pipeline, report
from .backlog import BacklogWatch
from .data import DemoError, check_reachable, flights, partition_sizes, produce, weather

_PLOT = "backlog.png"
_PARQUET = "flights.parquet"
_SPARK_LOG = "spark.log"
# Enough to see the backlog fall.
_BATCHES = 20


def main() -> int:
    """Run the demo. Returns its exit status: 0, 1 when something failed or does not add up, 130 after Ctrl-C."""
    arguments = _arguments()
    out: Path = arguments.out
    console = Console()
    signal.signal(signal.SIGTERM, _interrupt)
    unfinished = out.with_name(f"{out.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        with _broker(arguments.bootstrap) as (bootstrap_servers, suffix):
            _run(bootstrap_servers, suffix, arguments.rows, unfinished, console)
        _put(unfinished, out)
    except DemoError as error:
        console.print(f"[red]the demo failed:[/] {error}", highlight=False)
        log = unfinished / _SPARK_LOG
        if log.exists():
            console.print(f"Spark's log: {log.rename(out.with_name(f'{out.name}.{_SPARK_LOG}'))}")
        return 1
    except KeyboardInterrupt:
        console.print("[yellow]interrupted:[/] nothing was kept")
        return 130
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    console.print(f"plot     {out / _PLOT}\nParquet  {out / _PARQUET}\nlog      {out / _SPARK_LOG}", highlight=False)
    return 0


def _run(bootstrap_servers: str, suffix: str, rows: int | None, folder: Path, console: Console) -> None:
    flight_data, weather_data = flights(rows, f"flights{suffix}"), weather(rows, f"weather{suffix}")
    group_id = f"flight-desk{suffix}"
    totals: Counter[str] = Counter()
    parquet = folder / _PARQUET
    with _progress(console) as progress:
        for dataset in (flight_data, weather_data):
            produce(bootstrap_servers, dataset, progress)
        starting = progress.add_task("starting Spark", total=1)
        with pipeline.spark_session(folder / _SPARK_LOG) as spark:
            progress.update(starting, completed=1)
            draining = progress.add_task(f"draining {flight_data.topic}", total=len(flight_data.lines))

            def report_batch(batch: pipeline.BatchResult) -> None:
                totals.update(
                    accepted=batch.acknowledged.accepted,
                    rejected=batch.acknowledged.rejected,
                    redelivered=batch.redelivered,
                )
                progress.update(draining, completed=totals["accepted"] + totals["rejected"])

            sizes = partition_sizes(bootstrap_servers, flight_data.topic)
            with BacklogWatch(bootstrap_servers, group_id, flight_data.topic, sizes) as watch:
                pipeline.drain(
                    spark,
                    bootstrap_servers,
                    flight_data.topic,
                    group_id,
                    parquet,
                    folder / "checkpoint",
                    report_batch,
                    records_per_batch=max(1000, len(flight_data.lines) // _BATCHES),
                )
            rows_written, distinct_rows = pipeline.written(spark, parquet)
            delays = pipeline.delay_by_carrier(spark, parquet)
    result = report.Result(
        produced=len(flight_data.lines),
        accepted=totals["accepted"],
        rejected=totals["rejected"],
        redelivered=totals["redelivered"],
        rows=rows_written,
        distinct_rows=distinct_rows,
        lag=watch.samples[-1][1],
        drained_in_s=watch.drained_after_s(),
    )
    report.show(console, result, delays)
    report.plot(folder / _PLOT, watch.samples, result)
    report.check(result)


@contextmanager
def _broker(bootstrap_servers: str | None) -> Iterator[tuple[str, str]]:
    """(bootstrap servers, what to end names with so that they are new) of an embedded broker, or of a given cluster."""
    if bootstrap_servers is not None:
        check_reachable(bootstrap_servers)
        yield bootstrap_servers, f"-{time.time_ns() // 1_000_000:x}"
        return
    with headrace.Broker() as broker:
        yield broker.bootstrap_servers, ""


def _put(unfinished: Path, out: Path) -> None:
    """Make what was written the result, in place of an earlier one."""
    shutil.rmtree(unfinished / "checkpoint", ignore_errors=True)
    earlier = out.with_name(f"{out.name}.earlier")
    shutil.rmtree(earlier, ignore_errors=True)
    if out.exists():
        out.rename(earlier)
    unfinished.rename(out)
    shutil.rmtree(earlier, ignore_errors=True)


def _progress(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(finished_text="[green]✓"),
        TextColumn("{task.description:<18}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m headrace.demo",
        description="336,776 real flights through a share group on Spark, into Parquet: counts, a table and a plot.",
    )
    parser.add_argument("--rows", type=_count, metavar="N", help="only the first N flights (default: all)")
    parser.add_argument("--out", type=Path, default=Path("out/demo"), metavar="DIR", help="default: out/demo")
    parser.add_argument(
        "--bootstrap",
        metavar="HOST:PORT",
        help="an Apache Kafka 4.2+ or headrace to use (default: one started for this)",
    )
    return parser.parse_args()


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 1")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
