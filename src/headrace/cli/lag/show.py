"""``headrace lag show``: print the progress and lag of groups of all types, once or repeatedly."""

from __future__ import annotations

import asyncio
import sys
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from headrace.cli.client_options import call_options
from headrace.cli.cluster_run import on_cluster
from headrace.cli.errors import BadUsage, Failure
from headrace.cli.groups.options import GROUP_TYPES, check_pattern, group_types
from headrace.cli.options import flag, positive_seconds, repeated_option
from headrace.cli.tables import Column, as_json, one_line, table

if TYPE_CHECKING:
    from headrace.client import Cluster
    from headrace.client.lag.rows import LagPart, LagQuery, LagRow

_WATCH_S = 2.0
_WARNINGS_SHOWN = 5
_EPILOG = """\
examples:
  headrace lag show
  headrace lag show billing packers --partitions
  headrace lag show --groups-pattern 'team-.*' --type share --watch
  headrace lag show --json | jq 'map(select(.time_lag_ms > 60000))'
"""


def declare(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = "Print the progress and lag of all groups of a cluster, or of some."
    parser.epilog = _EPILOG
    parser.formatter_class = RawDescriptionHelpFormatter
    query_options(parser)
    flag(parser, "--partitions", "print a line for each partition instead of each topic")
    parser.add_argument(
        "--watch",
        nargs="?",
        type=positive_seconds,
        const=_WATCH_S,
        metavar="SECONDS",
        help=f"repeat until Ctrl-C (default: every {_WATCH_S:g} s)",
    )
    flag(parser, "--json", "print JSON, an object for each partition")
    call_options(parser)


def query_options(parser: ArgumentParser) -> None:
    """Declare the options that :func:`lag_query` reads."""
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="groups to show (default: all)")
    repeated_option(parser, "--group", "GROUP", "a group; may be repeated")
    parser.add_argument("--groups-pattern", metavar="REGEX", help="groups whose whole id matches")
    parser.add_argument(
        "--type", metavar="TYPE,…", help=f"only groups of these types: {', '.join(GROUP_TYPES)}"
    )
    repeated_option(parser, "--topic", "TOPIC", "a topic; may be repeated")
    parser.add_argument("--topics-pattern", metavar="REGEX", help="topics whose whole name matches")
    parser.add_argument(
        "--isolation-level",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help=(
            "with read_committed the lag ends at the last stable offset (default: read_uncommitted)"
        ),
    )
    flag(
        parser,
        "--no-time-lag",
        "read no records: without timestamps; transaction markers count as lag",
    )


def run(options: Namespace) -> int:
    """Execute the command.

    :returns: the exit status
    :raises Failure: it failed, wholly or in part, or the options are wrong
    """
    query = lag_query(options)
    try:
        on_cluster(options, lambda cluster: _show(cluster, query, options))
    except KeyboardInterrupt:
        if options.watch is None:
            raise
    return 0


def lag_query(options: Namespace) -> LagQuery:
    """Return the query that the options of :func:`query_options` describe.

    :raises BadUsage: they contradict each other, or a pattern is wrong
    """
    from headrace.client.lag.rows import LagQuery

    groups = tuple(dict.fromkeys([*options.group, *options.groups]))
    for name, pattern, named in (
        ("groups", options.groups_pattern, groups),
        ("topics", options.topics_pattern, options.topic),
    ):
        if pattern is not None and named:
            raise BadUsage(f"name the {name} or give --{name}-pattern, not both")
        check_pattern(f"--{name}-pattern", pattern)
    return LagQuery(
        groups=groups,
        groups_pattern=options.groups_pattern,
        group_types=group_types(options.type),
        topics=tuple(options.topic),
        topics_pattern=options.topics_pattern,
        read_committed=options.isolation_level == "read_committed",
        time_lag=not options.no_time_lag,
    )


async def _show(cluster: Cluster, query: LagQuery, options: Namespace) -> None:
    on_terminal = sys.stdout.isatty() and not options.json
    if options.watch is None:
        with _spinner() if sys.stderr.isatty() else nullcontext():
            part = await _snapshot(cluster, query)
        _print(part, options, on_terminal)
        if part.warnings:
            more = len(part.warnings) - _WARNINGS_SHOWN
            shown = [
                *part.warnings[:_WARNINGS_SHOWN],
                *([f"and {more} more"] if more > 0 else []),
            ]
            raise Failure("; ".join(shown))
    elif on_terminal:
        await _watch(cluster, query, options)
    else:
        async for part in _snapshots(cluster, query, options.watch):
            _print(part, options, on_terminal)
            print(flush=True)
            for one in part.warnings[:_WARNINGS_SHOWN]:
                print(f"headrace lag show: {one_line(one)}", file=sys.stderr)


async def _snapshot(cluster: Cluster, query: LagQuery) -> LagPart:
    from headrace.client.lag.rows import LagPart
    from headrace.client.lag.snapshot import lag_snapshot, wanted_groups

    groups, warnings = await wanted_groups(cluster, query)
    rows: list[LagRow] = []
    async for part in lag_snapshot(cluster, groups, query, time.time_ns() // 1_000_000):
        rows += part.rows
        warnings += part.warnings
    return LagPart(
        sorted(rows, key=lambda row: (row.group_id, row.topic or "", row.partition or 0)), warnings
    )


async def _snapshots(cluster: Cluster, query: LagQuery, every_s: float) -> AsyncIterator[LagPart]:
    """Yield snapshots without end. While the cluster does not answer, yield the last one again,
    with the reason.

    :raises ClientError: the first one cannot be taken
    """
    from headrace.client import ClientError
    from headrace.client.lag.rows import LagPart

    part = await _snapshot(cluster, query)
    while True:
        yield part
        await asyncio.sleep(every_s)
        try:
            part = await _snapshot(cluster, query)
        except ClientError as error:
            part = LagPart(part.rows, [f"the last snapshot is shown: {error}"])


def _spinner() -> Any:
    from rich.console import Console

    return Console(stderr=True).status("asking the brokers")


async def _watch(cluster: Cluster, query: LagQuery, options: Namespace) -> None:
    from rich.live import Live

    with Live(auto_refresh=False, vertical_overflow="crop") as live:
        async for part in _snapshots(cluster, query, options.watch):
            title = time.strftime("%H:%M:%S") + "".join(
                f"\n{one_line(one)}" for one in part.warnings[:_WARNINGS_SHOWN]
            )
            live.update(_rich(part.rows, options, title), refresh=True)


def _print(part: LagPart, options: Namespace, on_terminal: bool) -> None:
    if options.json:
        print(as_json(row._asdict() for row in part.rows))
    elif on_terminal:
        from rich.console import Console

        Console().print(_rich(part.rows, options, None))
    else:
        columns, lines = _lines(part.rows, options.partitions)
        print(
            table(
                [Column(title, len(title)) for title in columns],
                [*lines, _total(part.rows, columns)],
            )
        )
        if unknown := _unknown(part.rows):
            print(unknown)


def _rich(rows: Sequence[LagRow], options: Namespace, title: str | None) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text  # not str: group ids may contain the brackets of markup

    def text(value: object, missing: str) -> Text:
        return Text(missing if value is None else one_line(str(value)))

    columns, lines = _lines(rows, options.partitions)
    total = _total(rows, columns)
    below = "\n".join(line for line in (_unknown(rows), title) if line)
    made = Table(
        box=box.SIMPLE_HEAD,
        show_footer=True,
        caption=Text(below) if below else None,
        caption_justify="left",
    )
    for column, sum_ in zip(columns, total, strict=True):
        right = column in (
            "PARTITION",
            "PARTITIONS",
            "MEMBERS",
            "POSITION",
            "END",
            "LAG",
            "TIME-LAG",
        )
        made.add_column(
            column, footer=text(sum_, ""), justify="right" if right else "left", overflow="fold"
        )
    for line in lines:
        made.add_row(*(text(value, "-") for value in line))
    return made


def _lines(rows: Sequence[LagRow], by_partition: bool) -> tuple[list[str], list[list[object]]]:
    """Return the titles of the columns, and the lines; None stands for unknown."""
    if by_partition:
        columns = [
            "GROUP",
            "TYPE",
            "TOPIC",
            "PARTITION",
            "POSITION",
            "END",
            "LAG",
            "TIME-LAG",
            "CLIENT-ID",
            "HOST",
        ]
        return columns, [
            [
                row.group_id,
                row.group_type,
                row.topic,
                row.partition,
                row.start_offset if row.committed_offset is None else row.committed_offset,
                row.end_offset,
                row.lag,
                duration(row.time_lag_ms),
                row.client_id,
                row.host,
            ]
            for row in rows
        ]
    together: dict[tuple[str, str | None], list[LagRow]] = {}
    for row in rows:
        together.setdefault((row.group_id, row.topic), []).append(row)
    columns = ["GROUP", "TYPE", "STATE", "TOPIC", "PARTITIONS", "MEMBERS", "LAG", "TIME-LAG"]
    lines: list[list[object]] = []
    for (group_id, topic), some in together.items():
        partitions = None if topic is None else len(some)
        lag, time_lag = _sums(some)
        head = (group_id, some[0].group_type, some[0].group_state, topic)
        lines.append([*head, partitions, _members(some), lag, duration(time_lag)])
    return columns, lines


def _members(rows: Iterable[LagRow]) -> int:
    return len(
        {one for row in rows if row.member_id is not None for one in row.member_id.split(",")}
    )


def _sums(rows: Sequence[LagRow]) -> tuple[int | None, int | None]:
    """Return the sum of the known lags and the largest known time lag; None if unknown."""
    from headrace.client.lag.rows import known_sum

    lag = known_sum(row.lag for row in rows if row.topic is not None)
    times = [row.time_lag_ms for row in rows if row.time_lag_ms is not None]
    return lag, None if lag is None else max(times, default=None)


def _total(rows: Sequence[LagRow], columns: Sequence[str]) -> list[object]:
    lag, time_lag = _sums(rows)
    groups = len({row.group_id for row in rows})
    partitions = sum(row.topic is not None for row in rows)
    values = {
        "GROUP": f"{groups:,} group{'' if groups == 1 else 's'}",
        "PARTITION": partitions,
        "PARTITIONS": partitions,
        "MEMBERS": _members(rows),
        "LAG": lag,
        "TIME-LAG": duration(time_lag),
    }
    return [values.get(column) for column in columns]


def _unknown(rows: Sequence[LagRow]) -> str | None:
    """Return a line about the partitions that the totals leave out; None if there are none."""
    unknown = sum(row.lag is None for row in rows if row.topic is not None)
    if not unknown:
        return None
    return f"and {unknown:,} partition{'' if unknown == 1 else 's'} whose lag is unknown"


def duration(milliseconds: int | None) -> str | None:
    """Format a duration in its two largest units: ``3.2s``, ``5m 10s``, ``2h 03m``, ``4d 02h``."""
    if milliseconds is None:
        return None
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f}s"
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours:02}h"
    return f"{hours}h {minutes:02}m" if hours else f"{minutes}m {seconds:02}s"
