"""What the demo shows at its end: tables, a plot, and whether the numbers add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from rich.console import Console
from rich.table import Table

from .data import DemoError, airlines

_INK = "#1f2933"
_GRID = "#d9dee3"


@dataclass(frozen=True, slots=True)
class Result:
    """The numbers of one run.

    :param rows: rows in the Parquet files
    :param distinct_rows: the same after de-duplication by (topic, partition, offset)
    :param lag: partition -> backlog at the end
    :param drained_in_s: from the start of the query until the backlog was empty
    """

    produced: int
    accepted: int
    rejected: int
    redelivered: int
    rows: int
    distinct_rows: int
    lag: Mapping[int, int]
    drained_in_s: float


def check(result: Result) -> None:
    """Compare what went in with what came out.

    :raises DemoError: something does not add up; says what
    """
    settled = result.accepted + result.rejected
    if settled != result.produced:
        raise DemoError(
            f"accepted {result.accepted:,} + rejected {result.rejected:,} = {settled:,}, "
            f"but {result.produced:,} were produced"
        )
    if result.distinct_rows != result.accepted:
        raise DemoError(f"{result.distinct_rows:,} distinct rows in Parquet, but {result.accepted:,} were accepted")
    if not result.redelivered and result.rows != result.distinct_rows:
        raise DemoError(f"{result.rows - result.distinct_rows:,} rows are twice in Parquet without a redelivery")
    left = {partition: lag for partition, lag in result.lag.items() if lag}
    if left:
        raise DemoError(f"there is a backlog left in partitions {left}")


def show(console: Console, result: Result, delays: Sequence[Mapping[str, Any]]) -> None:
    """The tables."""
    by_carrier = Table(title="Delay by carrier, flights that departed", title_justify="left")
    by_carrier.add_column("carrier")
    for column in ("flights", "departure, min", "arrival, min"):
        by_carrier.add_column(column, justify="right")
    for row in delays:
        name = airlines().get(row["carrier"], "")
        arrival = "–" if row["arr_delay"] is None else f"{row['arr_delay']:+.1f}"
        departure = f"{row['dep_delay']:+.1f}"
        by_carrier.add_row(f"{row['carrier']}  [dim]{name}", f"{row['flights']:,}", departure, arrival)
    console.print(by_carrier)

    queue = Table(title="The queue", title_justify="left", show_header=False)
    queue.add_column()
    queue.add_column(justify="right")
    for name in ("produced", "accepted", "rejected", "redelivered"):
        queue.add_row(name, f"{getattr(result, name):,}")
    queue.add_row("rows in Parquet, each once", f"{result.distinct_rows:,}")
    console.print(queue)

    lag = Table(title="Lag per partition", title_justify="left")
    for partition in sorted(result.lag):
        lag.add_column(str(partition), justify="right")
    lag.add_row(*(f"{result.lag[partition]:,}" for partition in sorted(result.lag)))
    console.print(lag)


def plot(path: Path, samples: Sequence[tuple[float, Mapping[int, int]]], result: Result) -> None:
    """The backlog over time, partition upon partition, as a PNG."""
    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import StrMethodFormatter

    partitions = sorted(result.lag)
    times_s = [at_s for at_s, _ in samples]
    heights = [[backlog.get(partition, 0) for _, backlog in samples] for partition in partitions]
    colours = pyplot.colormaps["viridis"](
        [0.15 + 0.7 * i / max(1, len(partitions) - 1) for i in range(len(partitions))]
    )

    figure, axes = pyplot.subplots(figsize=(9, 5), dpi=150, layout="constrained")
    names = [f"partition {partition}" for partition in partitions]
    axes.stackplot(times_s, heights, labels=names, colors=colours, edgecolor="white", linewidth=0.4)
    axes.set_title(
        f"{result.produced:,} flights drained through a share group in {result.drained_in_s:.0f} s",
        loc="left",
        color=_INK,
        fontsize=13,
        pad=26,
    )
    note = f"{result.accepted:,} accepted, {result.rejected:,} rejected, {result.redelivered:,} redelivered"
    axes.text(0, 1.02, note, transform=axes.transAxes, color=_INK, fontsize=9.5, alpha=0.8)
    axes.set_xlabel("seconds since the query started", color=_INK)
    axes.set_ylabel("records not yet dealt with", color=_INK)
    axes.set_xlim(0, result.drained_in_s * 1.02)
    axes.set_ylim(0, None)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(colors=_INK, length=0)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], frameon=False, fontsize=8.5, loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(path)
    pyplot.close(figure)
