"""``headrace top``: a live view of the groups of a cluster: lag, rates, forecasts, members."""

from __future__ import annotations

import asyncio
import sys
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from .client_options import call_options
from .cluster_run import on_cluster
from .errors import BadUsage
from .lag.show import duration, lag_query, query_options
from .options import flag, seconds_option
from .tables import Column, json_line, one_line, table

if TYPE_CHECKING:
    from headrace.client import Cluster
    from headrace.client.lag.group_lines import GroupLine
    from headrace.client.lag.rates import LagRates
    from headrace.client.lag.rows import LagQuery
    from headrace.client.lag.summary import GroupLag

_EVERY_S = 2.0
_WINDOW_MS = 30_000
_WARNINGS_SHOWN = 3
_LINES_AROUND = 6
"""The number of lines of a screen besides those of groups."""
_FEWEST_GROUPS = 3
_NEVER = "never"
SORTS = ("lag", "time", "rate", "name")
_EPILOG = """\
examples:
  headrace top
  headrace top --groups-pattern 'team-.*' --sort time --every 5
  headrace top --json --iterations 2 | tail -n 1 | jq '.groups[0]'
"""


def declare(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = "Show the groups of a cluster, with lag and rates, until Ctrl-C."
    parser.epilog = _EPILOG
    parser.formatter_class = RawDescriptionHelpFormatter
    query_options(parser)
    seconds_option(parser, "--every", "time between two snapshots", _EVERY_S)
    parser.add_argument(
        "--iterations", type=int, metavar="N", help="end after N snapshots (default: at Ctrl-C)"
    )
    parser.add_argument(
        "--sort", choices=SORTS, default="lag", help="order of the groups (default: lag)"
    )
    flag(parser, "--json", "print a JSON object for each snapshot")
    call_options(parser)


def run(options: Namespace) -> int:
    """Execute the command.

    :returns: the exit status
    :raises Failure: no broker answers at first, or the options are wrong
    """
    query = lag_query(options)
    if options.iterations is not None and options.iterations < 1:
        raise BadUsage("--iterations takes a number above 0")
    try:
        on_cluster(options, lambda cluster: _show(cluster, query, options))
    except KeyboardInterrupt:
        if options.iterations is not None:
            raise
    return 0


def sorted_lines(groups: Mapping[str, GroupLag], rates: LagRates, sort: str) -> list[GroupLine]:
    """Return the lines of groups.

    :param sort: one of :data:`SORTS`: the largest first, or by name
    """
    from headrace.client.lag.group_lines import group_lines

    lines = group_lines(groups, rates)
    keys = {"lag": "lag", "time": "time_lag_ms", "rate": "consumed_per_s"}
    if sort in keys:
        lines.sort(
            key=lambda line: -1 if (v := getattr(line, keys[sort])) is None else v, reverse=True
        )
    return lines


async def _show(cluster: Cluster, query: LagQuery, options: Namespace) -> None:
    from headrace.client.errors import ClientError
    from headrace.client.lag.watch import LagWatch

    watch = LagWatch(cluster, query, _WINDOW_MS)
    on_terminal = sys.stdout.isatty() and not options.json
    live: Any = _live() if on_terminal else nullcontext()
    taken = 0
    lines: list[GroupLine] = []
    with live as screen:
        while options.iterations is None or taken < options.iterations:
            if taken:
                await asyncio.sleep(options.every)
            try:
                groups, warnings = await watch.snapshot()
                lines = sorted_lines(groups, watch.rates, options.sort)
            except ClientError as error:
                if not taken:
                    raise
                warnings = [f"the last snapshot is shown: {error}"]
            taken += 1
            if on_terminal:
                screen.update(_screen(lines, warnings, screen.console.size.height), refresh=True)
            elif options.json:
                print(json_line(_object(lines, warnings)), flush=True)
            else:
                print(_plain(lines, warnings), flush=True)


def _object(lines: Sequence[GroupLine], warnings: Sequence[str]) -> dict[str, Any]:
    return {
        "time_ms": time.time_ns() // 1_000_000,
        "groups": [line._asdict() for line in lines],
        "warnings": list(warnings),
    }


_TITLES = ("GROUP", "TYPE", "STATE", "MEMBERS", "LAG", "TIME-LAG", "DONE/S", "NEW/S", "ZERO-IN")


def _texts(line: GroupLine) -> list[str | None]:
    left_s = line.seconds_to_zero
    to_zero = _NEVER if left_s == -1 else duration(None if left_s is None else int(left_s * 1000))
    return [
        line.group,
        line.type,
        line.state,
        str(line.members),
        None if line.lag is None else f"{line.lag:,}",
        duration(line.time_lag_ms),
        _rate(line.consumed_per_s),
        _rate(line.produced_per_s),
        to_zero,
    ]


def _rate(per_s: float | None) -> str | None:
    return None if per_s is None else f"{per_s:,.1f}"


def _plain(lines: Sequence[GroupLine], warnings: Sequence[str]) -> str:
    columns = [Column(title, len(title)) for title in _TITLES]
    shown = table(columns, [_texts(line) for line in lines])
    return "\n".join([shown, *map(one_line, warnings[:_WARNINGS_SHOWN]), ""])


def _live() -> Any:
    from rich.live import Live

    return Live(auto_refresh=False, screen=True, vertical_overflow="crop")


def _screen(lines: Sequence[GroupLine], warnings: Sequence[str], height: int) -> Any:
    """Return the view of a terminal with ``height`` lines."""
    from rich import box
    from rich.table import Table
    from rich.text import Text  # not str: group ids may contain the brackets of markup

    room = max(_FEWEST_GROUPS, height - _LINES_AROUND - min(len(warnings), _WARNINGS_SHOWN))
    below = [f"and {len(lines) - room:,} more groups"] if len(lines) > room else []
    below += [one_line(one) for one in warnings[:_WARNINGS_SHOWN]]
    lag = sum(line.lag for line in lines if line.lag is not None)
    title = f"{time.strftime('%H:%M:%S')}   {len(lines):,} groups   lag {lag:,}"
    made = Table(
        box=box.SIMPLE_HEAD,
        title=Text(title),
        title_justify="left",
        caption=Text("\n".join(below)) if below else None,
        caption_justify="left",
    )
    for number, name in enumerate(_TITLES):
        made.add_column(name, justify="left" if number < 3 else "right", no_wrap=True)
    for line in lines[:room]:
        made.add_row(*(Text("-" if one is None else one_line(one)) for one in _texts(line)))
    return made
