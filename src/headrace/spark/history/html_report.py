"""The report of a history as one HTML file, with plots as SVG inside."""

from __future__ import annotations

import html
import io
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from .advice import GONE, NO_PROGRESS, SILENT
from .query import Period
from .results import GroupHistory, Plots, Report

_LAG, _CONSUMED, _PRODUCED, _TIME_LAG = "#2563c9", "#1f8a4c", "#8a8f98", "#8b4fc3"
_STALLED = {SILENT: "#d9372c", NO_PROGRESS: "#e39a1d", GONE: "#6b7280"}
_PLOT_INCHES = (4.6, 3.3)
_MOST_ROWS = 100
_STYLE = """
:root { --ink: #1d2430; --soft: #667085; --line: #e3e7ee; --bad: #d9372c; --good: #1f8a4c }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink);
margin: 2rem auto; max-width: 90rem; padding: 0 1.5rem }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.1rem; margin: 2.2rem 0 .7rem }
.soft { color: var(--soft) }
.tiles { display: flex; flex-wrap: wrap; gap: 1rem; margin: 1.3rem 0 }
.tile { border: 1px solid var(--line); border-radius: .6rem; padding: .7rem 1.1rem;
min-width: 8rem }
.tile b { display: block; font-size: 1.6rem; font-weight: 600; line-height: 1.2 }
.bad { color: var(--bad) }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(24rem, 1fr)); gap: 1rem }
.plots figure { margin: 0; border: 1px solid var(--line); border-radius: .6rem; padding: .7rem }
figcaption { font-weight: 600; overflow-wrap: anywhere } figcaption span { font-weight: 400 }
svg { width: 100%; height: auto }
.wide { overflow-x: auto } table { border-collapse: collapse; width: 100% }
td.name { overflow-wrap: anywhere }
th, td { text-align: right; padding: .32rem .5rem; border-bottom: 1px solid var(--line);
white-space: nowrap }
th { color: var(--soft); font-weight: 500 }
th:first-child, td:first-child, td.text, th.text { text-align: left }
td.name { white-space: normal; min-width: 12rem }
.key i { display: inline-block; width: .8rem; height: .8rem;
border-radius: .15rem; margin: 0 .35rem 0 1rem; vertical-align: -.1rem }
.pill { border-radius: 1rem; padding: .05rem .6rem; background: #eef2f8 }
.pill.act { background: #fde8e6; color: var(--bad); font-weight: 600 }
"""


def page(report: Report) -> str:
    """Return the file's text."""
    period = report.period
    charted = [group for group in report.groups if group.plots is not None]
    title = f"Lag on {report.bootstrap_servers}"
    interval = seconds(period.step_ms / 1000)
    span = f"{_when(period.times_ms[0])} to {_when(period.until_ms)}, a point every {interval}"
    drain = seconds(report.target.drain_s)
    uncharted = sum(1 for group in report.groups if group.partitions) - len(charted)
    return "\n".join(
        (
            "<!doctype html><html lang=en><meta charset=utf-8>",
            "<meta name=viewport content='width=device-width'>",
            f"<title>{html.escape(title)}</title><style>{_STYLE}</style>",
            f"<h1>{html.escape(title)}</h1><div class=soft>{span}</div>",
            _tiles(report),
            "<h2>Over time</h2>",
            _legend(),
            "<div class=plots>",
            *(_figure(group, period) for group in charted),
            "</div>",
            _left_out(uncharted),
            "<h2>What to do</h2>",
            f"<div class=soft>Consumers that clear the lag within {drain}.</div>",
            _advice_table(report.groups),
            _left_out(len(report.groups) - _MOST_ROWS),
            "</html>\n",
        )
    )


def _tiles(report: Report) -> str:
    groups = report.groups
    lag = sum(group.lag or 0 for group in groups)
    time_lag_s = max((group.time_lag_s or 0 for group in groups), default=0)
    stalled = sum(bool(group.stalls) for group in groups)
    consumed_per_s = sum(group.consumed_per_s for group in groups)
    tiles = [
        (f"{len(groups):,}", "groups", False),
        (short(lag), "records of lag", False),
        (seconds(time_lag_s), "furthest behind", False),
        (f"{stalled:,}", "groups that stalled", stalled > 0),
        (short(consumed_per_s), "records/s consumed", False),
        (short(report.records), "coordinator records read", False),
    ]
    if report.unreadable:
        tiles.append((short(report.unreadable), "of unknown kinds", False))
    cells = (
        f"<div class=tile><b{' class=bad' if is_bad else ''}>{number}</b>{name}</div>"
        for number, name, is_bad in tiles
    )
    return f"<div class=tiles>{''.join(cells)}</div>"


def _advice_table(groups: Sequence[GroupHistory]) -> str:
    heads = "".join(
        f"<th{' class=text' if left else ''}>{name}</th>"
        for name, left in (
            ("group", True),
            ("type", True),
            ("members", False),
            ("partitions", False),
            ("lag", False),
            ("time lag", False),
            ("consumed/s", False),
            ("produced/s", False),
            ("zero in", False),
            ("consumers", False),
            ("stalls", True),
        )
    )
    rows = "".join(_advice_row(group) for group in groups[:_MOST_ROWS])
    return f"<div class=wide><table><tr>{heads}</tr>{rows}</table></div>"


def _advice_row(group: GroupHistory) -> str:
    cells = [
        f"<td class=name>{html.escape(group.group_id)}</td>",
        f"<td class=text>{group.group_type}{' (gone)' if group.gone else ''}</td>",
        *(f"<td>{value}</td>" for value in (group.members, group.partitions)),
        f"<td>{'–' if group.lag is None else short(group.lag)}</td>",
        f"<td>{'–' if group.time_lag_s is None else seconds(group.time_lag_s)}</td>",
        f"<td>{short(group.consumed_per_s)}</td><td>{short(group.produced_per_s)}</td>",
        f"<td>{eta(group)}</td>",
        f"<td>{_consumers(group)}</td>",
        f"<td class=text>{html.escape(stall_summary(group))}</td>",
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _consumers(group: GroupHistory) -> str:
    advice = group.advice
    if advice.consumers is None:
        return "–"
    limited = (
        f" <span class=soft>of {advice.wanted} ({advice.limited_by})</span>"
        if advice.limited_by
        else ""
    )
    act = " act" if advice.consumers > group.members else ""
    return f"<span class='pill{act}'>{advice.consumers}</span>{limited}"


def _legend() -> str:
    keys = [
        (_LAG, "lag"),
        (_CONSUMED, "consumed/s"),
        (_PRODUCED, "produced/s"),
        (_TIME_LAG, "time lag"),
        *((color, f"stall: {kind}") for kind, color in _STALLED.items()),
    ]
    return (
        "<p class='key soft'>"
        + "".join(f"<i style='background:{color}'></i>{html.escape(name)}" for color, name in keys)
        + "</p>"
    )


def _left_out(groups: int) -> str:
    if groups <= 0:
        return ""
    return f"<p class=soft>{groups:,} more groups have less lag than these.</p>"


def _figure(group: GroupHistory, period: Period) -> str:
    assert group.plots is not None
    lag = "unknown" if group.lag is None else short(group.lag)
    caption = f"{html.escape(group.group_id)} <span class=soft>{group.group_type}, lag {lag}</span>"
    return (
        f"<figure><figcaption>{caption}</figcaption>{plot_svg(group, group.plots, period)}</figure>"
    )


def plot_svg(group: GroupHistory, plots: Plots, period: Period) -> str:
    """Return an ``<svg>`` element: lag, rates and time lag of a group over time, with stalls."""
    times = [datetime.fromtimestamp(time_ms / 1000, UTC) for time_ms in period.times_ms]
    settings = {
        "svg.fonttype": "none",
        "svg.hashsalt": group.group_id,
        "font.size": 8,
        "axes.linewidth": 0.6,
    }
    with rc_context(settings):
        figure = Figure(figsize=_PLOT_INCHES, layout="constrained")
        lag, rate, time_lag = figure.subplots(3, 1, sharex=True, height_ratios=(3, 2, 1.4))
        lag.fill_between(times, plots.lag, color=_LAG, alpha=0.22, linewidth=0)
        lag.plot(times, plots.lag, color=_LAG, linewidth=1.4)
        rate.plot(times, plots.produced_per_s, color=_PRODUCED, linewidth=1.2)
        rate.plot(times, plots.consumed_per_s, color=_CONSUMED, linewidth=1.4)
        time_lag.plot(times, plots.time_lag_s, color=_TIME_LAG, linewidth=1.2)
        for axes, label, as_text in (
            (lag, "lag", short),
            (rate, "records/s", short),
            (time_lag, "behind", seconds),
        ):
            _format_axes(axes, label, as_text)
            for stall in group.stalls:
                axes.axvspan(
                    stall.first, stall.last, color=_STALLED[stall.kind], alpha=0.16, linewidth=0
                )
        locator = AutoDateLocator(maxticks=6)
        time_lag.xaxis.set_major_locator(locator)
        time_lag.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))
        time_lag.set_xlim(times[0], times[-1])
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :]


def _format_axes(axes: Any, label: str, as_text: Callable[[float], str]) -> None:
    axes.set_ylim(bottom=0, top=None if np.any(axes.dataLim.height > 0) else 1)
    axes.set_ylabel(label)
    axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: as_text(value)))
    axes.grid(axis="y", linewidth=0.4, alpha=0.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def short(number: float) -> str:
    """Return a number as text, as in ``"950"``, ``"12.3k"`` or ``"4.1M"``."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= limit:
            return f"{number / (1e3 if unit == 'k' else limit):.3g}{unit}"
    return f"{number:,.0f}" if number == int(number) or abs(number) >= 100 else f"{number:.1f}"


def seconds(number: float) -> str:
    """Return a duration as text, as in ``"40 s"``, ``"12 min"``, ``"3.5 h"`` or ``"2 d"``."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if number >= 2 * size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g} s"


def eta(group: GroupHistory) -> str:
    """Return as text when the lag of a group will be zero; a dash if its lag is unknown."""
    if group.lag is None:
        return "–"
    if group.eta_s is None:
        return "never"
    return "now" if group.eta_s <= 0 else seconds(math.ceil(group.eta_s))


def stall_summary(group: GroupHistory) -> str:
    """Return as text the kinds of stalls of a group, each with its longest duration."""
    longest: dict[str, float] = {}
    for stall in group.stalls:
        duration_s = (stall.last - stall.first).total_seconds()
        longest[stall.kind] = max(longest.get(stall.kind, 0.0), duration_s)
    return ", ".join(
        f"{kind} for {seconds(duration_s)}" if duration_s else kind
        for kind, duration_s in longest.items()
    )


def _when(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
