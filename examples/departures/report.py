"""The pipeline's output: tables, a plot, and a comparison with a batch join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import pandas as pd
from rich.console import Console
from rich.table import Table

from .backlog import Backlog
from .data import WEATHER, PipelineError, airlines

_INK = "#1f2933"
_GRID = "#d9dee3"
_COLOURS = ("#2b6cb0", "#dd6b20")
# A flight is identified by carrier and number at one airport and scheduled hour.
_FLIGHT = ["carrier", "flight", "origin", "time_hour"]


@dataclass(frozen=True, slots=True)
class Result:
    """The numbers of one run.

    :param produced: number of flights
    :param observations: number of weather observations
    :param samples: pairs of seconds since the queries started and the backlog of each group then
    :param groups: group → a description of its work
    """

    produced: int
    observations: int
    accepted: int
    rejected: int
    redelivered: int
    samples: Sequence[tuple[float, Backlog]]
    groups: Mapping[str, str]


def read(parquet: Path) -> pd.DataFrame:
    """Return the departures in the table, each once.

    A record that was delivered twice, or produced twice, is one departure.
    """
    rows = pd.read_parquet(parquet).drop(columns="batch")
    rows = rows.drop_duplicates(["topic", "partition", "offset"])
    rows = rows.drop_duplicates("source")
    return rows.drop(columns=["topic", "partition", "offset", "source"])


def expected(flights: pd.DataFrame, weather: pd.DataFrame) -> pd.DataFrame:
    """Return the same from a batch join: flights that departed, with their last observation."""
    departed = flights[flights["dep_time"].notna()]
    observed = weather[["origin", "time", *WEATHER]]
    return pd.merge_asof(departed, observed, on="time", by="origin").drop(columns="time")


def check(
    result: Result, table: pd.DataFrame, flights: pd.DataFrame, weather: pd.DataFrame
) -> None:
    """Compare the result with what was produced and with a batch join.

    :raises PipelineError: there is a difference
    """
    settled = result.accepted + result.rejected
    if settled != result.produced and not result.redelivered:
        raise PipelineError(
            f"accepted {result.accepted:,} + rejected {result.rejected:,} = {settled:,}, "
            f"but {result.produced:,} were produced"
        )
    left = {group: lag for group, lag in result.samples[-1][1].items() if lag}
    if left:
        raise PipelineError(f"a backlog is left: {left}")
    wanted = expected(flights, weather).set_index(_FLIGHT).sort_index()
    found = table.set_index(_FLIGHT).sort_index()[wanted.columns].astype(wanted.dtypes.to_dict())
    if not wanted.index.equals(found.index):
        missing = wanted.index.difference(found.index)
        surplus = found.index.difference(wanted.index)
        raise PipelineError(
            f"{len(missing):,} departures are missing and {len(surplus):,} are too many"
        )
    differences = wanted.compare(found)
    if len(differences):
        raise PipelineError(
            f"{len(differences):,} departures differ from a batch join, "
            f"the first is {differences.index[0]}"
        )


def show(console: Console, result: Result, table: pd.DataFrame) -> None:
    """Print tables of delays and of the run."""
    by_carrier = Table(
        title="Mean delay in minutes by carrier, flights that departed", title_justify="left"
    )
    by_carrier.add_column("carrier", no_wrap=True)
    for column in ("flights", "departure", "arrival", "departure in rain"):
        by_carrier.add_column(column, justify="right")
    wet = table.assign(in_rain=table["dep_delay"].where(table["precip"] > 0))
    means = wet.groupby("carrier")[["dep_delay", "arr_delay", "in_rain"]].mean()
    counts = wet["carrier"].value_counts()
    for carrier, row in means.sort_values("dep_delay", ascending=False).iterrows():
        delays = ("–" if pd.isna(delay) else f"{delay:+.1f}" for delay in row)
        name = airlines().get(str(carrier), "")
        by_carrier.add_row(f"{carrier}  [dim]{name}", f"{counts[carrier]:,}", *delays)
    console.print(by_carrier)

    queue = Table(title="The pipeline", title_justify="left", show_header=False)
    queue.add_column()
    queue.add_column(justify="right")
    for name, count in (
        ("observations produced", result.observations),
        ("flights produced", result.produced),
        ("departures accepted", result.accepted),
        ("cancelled, rejected", result.rejected),
        ("redelivered", result.redelivered),
        ("rows in Parquet, each once", len(table)),
    ):
        queue.add_row(name, f"{count:,}")
    for group, lag in sorted(result.samples[-1][1].items()):
        queue.add_row(f"lag of {group}", f"{lag:,}")
    console.print(queue)


def plot(path: Path, result: Result) -> None:
    """Draw the backlog of both groups over time into a PNG file."""
    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import StrMethodFormatter

    figure, axes = pyplot.subplots(figsize=(9, 5), dpi=150, layout="constrained")
    for (group, what), colour in zip(result.groups.items(), _COLOURS, strict=True):
        times_s = [at_s for at_s, _ in result.samples]
        lags = [backlog[group] for _, backlog in result.samples]
        axes.plot(times_s, lags, color=colour, linewidth=2, label=f"{group}: {what}")
        axes.fill_between(times_s, lags, color=colour, alpha=0.12, linewidth=0)
    took_s = result.samples[-1][0]
    title = (
        f"{result.produced:,} flights were joined with their weather and worked as a queue in "
        f"{took_s:.0f} s"
    )
    axes.set_title(title, loc="left", color=_INK, fontsize=13, pad=26)
    note = (
        f"{result.accepted:,} accepted, {result.rejected:,} rejected, "
        f"{result.redelivered:,} redelivered"
    )
    axes.text(0, 1.02, note, transform=axes.transAxes, color=_INK, fontsize=9.5, alpha=0.8)
    axes.set_xlabel("seconds since the queries started", color=_INK)
    axes.set_ylabel("unfinished records", color=_INK)
    axes.set_xlim(0, took_s * 1.02)
    axes.set_ylim(0, None)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(colors=_INK, length=0)
    axes.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)
    figure.savefig(path)
    pyplot.close(figure)
