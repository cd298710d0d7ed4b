"""The command ``python -m examples.departures [--rows N] [--out DIR]``, run by ``make demo``."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

import headrace

from . import data, desk, enrich, report
from .backlog import Backlog, BacklogWatch
from .data import AIRPORTS, PipelineError
from .page import keep, page
from .session import (
    Job,
    deferred_interrupts,
    spark_session,
    wait_until,
    wait_until_reading,
)

_PLOT = "backlog.png"
_PARQUET = "departures.parquet"
_SPARK_LOG = "spark.log"
_DEPARTURES_PARTITIONS = 16
"""Locks are limited for each partition, so the number of partitions limits the micro-batches."""
_BATCHES = 5
"""Number of micro-batches of a run. Each costs seconds, whatever its size."""
_LEAST_BATCH_RECORDS = 1000


@dataclass(frozen=True, slots=True)
class Names:
    """The topics and groups of one run."""

    weather: str
    flights: str
    departures: str
    enrich: str
    desk: str

    @classmethod
    def ending_in(cls, suffix: str) -> Names:
        """Return the usual names with a suffix."""
        return cls(
            *(
                name + suffix
                for name in ("weather", "flights", "departures", "weather-desk", "flight-desk")
            )
        )


def main() -> int:
    """Run the pipeline.

    :returns: the exit status: 0; 1 after a failure or a difference; 130 after Ctrl-C
    """
    arguments = _arguments()
    out: Path = arguments.out
    console = Console()
    signal.signal(signal.SIGTERM, _interrupt)
    unfinished = out.with_name(f"{out.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        with (
            _broker(arguments.bootstrap) as (bootstrap_servers, suffix),
            page(bootstrap_servers) as address,
        ):
            names = Names.ending_in(suffix)
            _run(bootstrap_servers, names, arguments.rows, unfinished, console)
            _publish(unfinished, out)
            for name, file in (("plot", _PLOT), ("Parquet", _PARQUET), ("log", _SPARK_LOG)):
                console.print(f"{name:8} {out / file}", highlight=False)
            keep(address, console)
    except PipelineError as error:
        console.print(f"[red]the pipeline failed:[/] {error}", highlight=False)
        log = unfinished / _SPARK_LOG
        if log.exists():
            console.print(f"Spark's log: {log.rename(out.with_name(f'{out.name}.{_SPARK_LOG}'))}")
        return 1
    except KeyboardInterrupt:
        console.print("[yellow]interrupted:[/] no result was kept")
        return 130
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return 0


def _run(
    bootstrap_servers: str, names: Names, rows: int | None, folder: Path, console: Console
) -> None:
    with deferred_interrupts() as interrupted:  # pandas would make a ParserError of one
        flights = data.flights(rows)
        weather = data.weather(flights["time"].iloc[-1])
    if interrupted.is_set():
        raise KeyboardInterrupt
    with _progress(console) as progress:
        for topic, frame in ((names.weather, weather), (names.flights, flights)):
            data.create_topic(bootstrap_servers, topic, len(AIRPORTS))
            data.produce(bootstrap_servers, topic, data.records(frame), progress)
        data.create_topic(bootstrap_servers, names.departures, _DEPARTURES_PARTITIONS)
        starting = progress.add_task("starting Spark", total=1)
        with spark_session(folder / _SPARK_LOG) as spark:
            progress.update(starting, completed=1)
            inputs = len(flights) + len(weather)
            per_batch = max(_LEAST_BATCH_RECORDS, inputs // _BATCHES)
            job = Job(spark, bootstrap_servers, folder, per_batch)
            totals, watch = _run_queries(job, names, len(flights), inputs, progress)
    outcome = report.Result(
        produced=len(flights),
        observations=len(weather),
        accepted=totals["accepted"],
        rejected=totals["rejected"],
        redelivered=totals["redelivered"],
        samples=watch.samples,
        groups={
            names.enrich: "weather and flights, in order",
            names.desk: "departures, as a queue",
        },
    )
    table = report.read(folder / _PARQUET)
    report.show(console, outcome, table)
    report.plot(folder / _PLOT, outcome)
    report.check(outcome, table, flights, weather)
    console.print(
        f"[green]✓[/] {len(table):,} departures, each equal to that of a batch join with pandas",
        highlight=False,
    )


def _run_queries(
    job: Job, names: Names, flights: int, inputs: int, progress: Progress
) -> tuple[Counter[str], BacklogWatch]:
    """Run the three queries until every departure is finished.

    :param flights: number of flights
    :param inputs: number of flights and observations
    :returns: numbers of records by the desk's outcomes, and the backlog over time
    """
    totals: Counter[str] = Counter()
    watch = BacklogWatch({names.enrich: inputs, names.desk: 0})
    joined = progress.add_task("joining in order", total=inputs)
    worked = progress.add_task("working the queue", total=flights)

    def add(batch: desk.BatchResult) -> None:
        totals.update(
            accepted=batch.acknowledged.accepted,
            rejected=batch.acknowledged.rejected,
            redelivered=batch.redelivered,
        )
        progress.update(worked, completed=totals["accepted"] + totals["rejected"])

    def show(backlog: Backlog) -> None:
        progress.update(joined, completed=inputs - backlog[names.enrich])

    with deferred_interrupts() as interrupted, ExitStack() as running:
        joining = enrich.start(job, names.weather, names.flights, names.enrich, names.departures)
        running.callback(joining.stop)
        wait_until_reading(joining, interrupted)
        working = desk.start(job, names.departures, names.desk, job.folder / _PARQUET, add)
        running.callback(working.stop)
        wait_until_reading(working, interrupted)
        backlog = watch.start(job, [names.enrich, names.desk], show)
        running.callback(backlog.stop)
        queries = (joining, working, backlog)
        wait_until(lambda: totals["accepted"] + totals["rejected"] >= flights, queries, interrupted)
        wait_until(lambda: watch.is_drained(names.enrich, names.desk), queries, interrupted)
    return totals, watch


@contextmanager
def _broker(bootstrap_servers: str | None) -> Iterator[tuple[str, str]]:
    """Provide an embedded broker, or the given cluster.

    :returns: bootstrap servers, and a suffix that makes names of topics and groups unique
    """
    if bootstrap_servers is not None:
        yield bootstrap_servers, f"-{time.time_ns() // 1_000_000:x}"
        return
    with headrace.Broker() as broker:
        yield broker.bootstrap_servers, ""


def _publish(unfinished: Path, out: Path) -> None:
    """Replace an earlier result with the finished one."""
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
        prog="python -m examples.departures",
        description="Join 336,776 real flights in timestamp order with the weather known when "
        "each departed, and work them as a queue on Spark. Print counts and a table, draw the "
        "backlog, and compare the result with pandas.",
    )
    parser.add_argument(
        "--rows", type=_count, metavar="N", help="only the first N flights (default: all)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("out/demo"), metavar="DIR", help="default: out/demo"
    )
    parser.add_argument(
        "--bootstrap",
        metavar="HOST:PORT",
        help="an Apache Kafka 4.2+ or headrace broker to use (default: start one)",
    )
    return parser.parse_args()


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 1")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
