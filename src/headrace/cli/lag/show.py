"""``headrace lag show``: print the progress and lag of groups of all types, once or repeatedly."""

from __future__ import annotations

import asyncio
import sys
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.cli.client_options import call_options
from headrace.cli.cluster_run import on_cluster
from headrace.cli.errors import BadUsage, Failure
from headrace.cli.groups.options import GROUP_TYPES, check_pattern, group_types
from headrace.cli.options import flag, positive_seconds, repeated_option
from headrace.cli.tables import Column, as_json, count_of, one_line, screen_table, table

if TYPE_CHECKING:
    from headrace.client import Cluster
    from headrace.client.lag.model import GroupLag, LagQuery, Snapshot

_WATCH_S = 2.0
_WARNINGS_SHOWN = 5
_LINES_AROUND = 6
"""The number of lines of a screen besides those of a table."""
_FEWEST_LINES = 3
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
    repeated_option(parser, "--topic", "TOPIC", "a topic; may be repeated")
    for name, help_text in (
        ("--groups-pattern", "groups whose whole id matches"),
        ("--exclude-groups", "without groups whose whole id matches"),
        ("--topics-pattern", "topics whose whole name matches"),
        ("--exclude-topics", "without topics whose whole name matches"),
    ):
        parser.add_argument(name, metavar="REGEX", help=help_text)
    parser.add_argument(
        "--type", metavar="TYPE,…", help=f"only groups of these types: {', '.join(GROUP_TYPES)}"
    )
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


def lag_query(options: Namespace) -> LagQuery:
    """Return the query that the options of :func:`query_options` describe.

    :raises BadUsage: they contradict each other, or a pattern is wrong
    """
    from headrace.client.lag.model import LagQuery

    groups = tuple(dict.fromkeys([*options.group, *options.groups]))
    for name, pattern, named in (
        ("groups", options.groups_pattern, groups),
        ("topics", options.topics_pattern, options.topic),
    ):
        if pattern is not None and named:
            raise BadUsage(f"name the {name} or give --{name}-pattern, not both")
        check_pattern(f"--{name}-pattern", pattern)
    check_pattern("--exclude-groups", options.exclude_groups)
    check_pattern("--exclude-topics", options.exclude_topics)
    return LagQuery(
        groups=groups,
        groups_pattern=options.groups_pattern,
        groups_excluded=options.exclude_groups,
        group_types=group_types(options.type),
        topics=tuple(options.topic),
        topics_pattern=options.topics_pattern,
        topics_excluded=options.exclude_topics,
        read_committed=options.isolation_level == "read_committed",
        time_lag=not options.no_time_lag,
    )


def run(options: Namespace) -> int:
    """Execute the command.

    :returns: the exit status
    :raises Failure: it failed, wholly or in part, or the options are wrong
    """
    query = replace(lag_query(options), held=options.partitions)
    try:
        on_cluster(options, lambda cluster: _show(cluster, query, options))
    except KeyboardInterrupt:
        if options.watch is None:
            raise
    return 0


async def _show(cluster: Cluster, query: LagQuery, options: Namespace) -> None:
    from headrace.client.lag.model import rows
    from headrace.client.lag.snapshot import snapshot

    def show(seen: Snapshot) -> View | str:
        return as_json(rows(seen)) if options.json else _view(seen, options.partitions)

    async def take() -> Snapshot:
        return await snapshot(cluster, query)

    if options.watch is not None:
        await display(repeated(take, options.watch), show)
        return
    seen = await take()
    print_view(show(seen))
    if seen.warnings:
        raise Failure("; ".join(shortened(seen.warnings)))


async def repeated(
    take: Callable[[], Awaitable[Snapshot]], every_s: float, times: int | None = None
) -> AsyncIterator[Snapshot]:
    """Yield snapshots. While the cluster does not answer, yield the last one again, with the
    reason.

    :param times: their number; None for no end
    :raises ClientError: the first one cannot be taken
    """
    from headrace.client import ClientError

    seen = await take()
    while True:
        yield seen
        if times is not None and (times := times - 1) < 1:
            return
        await asyncio.sleep(every_s)
        try:
            seen = await take()
        except ClientError as error:
            seen = replace(seen, warnings=[f"the last snapshot is shown: {error}"])


class View(NamedTuple):
    """A table, and the lines below it."""

    titles: Sequence[str]
    lines: Sequence[Sequence[object]]
    below: Sequence[str]


def print_view(view: View | str) -> None:
    """Print a table, or JSON; the lines below a table go to stderr."""
    if isinstance(view, str):
        print(view, flush=True)
    else:
        if sys.stdout.isatty():
            from rich.console import Console

            Console().print(screen_table(view.titles, view.lines))
        else:
            columns = [Column(title, len(title)) for title in view.titles]
            print(table(columns, view.lines), flush=True)
        for line in view.below:
            print(one_line(line), file=sys.stderr, flush=True)


async def display(
    snapshots: AsyncIterator[Snapshot], show: Callable[[Snapshot], View | str]
) -> None:
    """Show snapshots; on a terminal, one in the place of the other."""
    screen: Any = None
    with ExitStack() as stack:
        async for seen in snapshots:
            view = show(seen)
            if isinstance(view, str):
                print_view(view)
            elif not sys.stdout.isatty():
                print_view(view._replace(below=[*view.below, *shortened(seen.warnings)]))
                print(flush=True)
            else:
                from rich.live import Live

                screen = screen or stack.enter_context(Live(auto_refresh=False, screen=True))
                screen.update(_fitted(view, seen, screen.console.size.height), refresh=True)


def _fitted(view: View, seen: Snapshot, height: int) -> Any:
    """Return a table for a terminal of a height."""
    below = [*view.below, *shortened(seen.warnings)]
    room = max(_FEWEST_LINES, height - _LINES_AROUND - len(below))
    if (more := len(view.lines) - room) > 0:
        below = [f"and {more:,} more lines", *below]
    time_text = time.strftime("%H:%M:%S", time.localtime(seen.at_ms / 1000))
    return screen_table(view.titles, view.lines[:room], [time_text, *below])


def shortened(warnings: Sequence[str]) -> list[str]:
    """Return the first warnings, and the number of the others."""
    more = len(warnings) - _WARNINGS_SHOWN
    return [*warnings[:_WARNINGS_SHOWN], *([f"and {more} more"] if more > 0 else [])]


def _view(seen: Snapshot, by_partition: bool) -> View:
    from headrace.client.lag.model import total

    lag = total([group.lag for group in seen.groups])
    members = sum(len(group.members) for group in seen.groups)
    below = (
        f"{count_of(len(seen.groups), 'group')}, {count_of(lag.partitions, 'partition')}, "
        f"{count_of(members, 'member')}, lag {'unknown' if lag.records is None else lag.records}"
    )
    if lag.seconds is not None:
        below += f", time lag {duration(lag.seconds)}"
    if lag.unknown:
        below += f", and {count_of(lag.unknown, 'partition')} whose lag is unknown"
    if by_partition:
        return View(
            _PARTITION_TITLES,
            [line for group in seen.groups for line in _partitions(group)],
            [below],
        )
    return View(_TOPIC_TITLES, [line for group in seen.groups for line in _topics(group)], [below])


_TOPIC_TITLES = ("GROUP", "TYPE", "STATE", "TOPIC", "PARTITIONS", "MEMBERS", "LAG", "TIME-LAG")
_PARTITION_TITLES = (
    "GROUP",
    "TYPE",
    "TOPIC",
    "PARTITION",
    "POSITION",
    "END",
    "LAG",
    "TIME-LAG",
    "HELD",
    "CLIENT-ID",
    "HOST",
)


def _topics(group: GroupLag) -> Iterator[Sequence[object]]:
    """Yield a line for each topic, and one for the members without a partition."""
    head = (group.group_id, group.type, group.state)
    for topic, lag in group.topics.items():
        members = {
            member.member_id
            for partition in group.partitions
            if partition.topic == topic
            for member in partition.members
        }
        yield *head, topic, lag.partitions, len(members), lag.records, duration(lag.seconds)
    if group.idle or not group.topics:
        yield *head, None, None, len(group.idle), None, None


def _partitions(group: GroupLag) -> Iterator[Sequence[object]]:
    """Yield a line for each partition, and for each member without one."""
    for lag in group.partitions:
        yield (
            group.group_id,
            group.type,
            lag.topic,
            lag.partition,
            lag.position,
            lag.end_offset,
            lag.records,
            duration(lag.seconds),
            lag.held,
            ",".join(member.client_id for member in lag.members) or None,
            ",".join(member.host for member in lag.members) or None,
        )
    for member in group.idle:
        yield group.group_id, group.type, *[None] * 7, member.client_id, member.host


_BY_TOPIC = "GROUP TYPE STATE TOPIC PARTITIONS MEMBERS LAG TIME-LAG", _topics
_BY_PARTITION = (
    "GROUP TYPE TOPIC PARTITION POSITION END LAG TIME-LAG HELD CLIENT-ID HOST",
    _partitions,
)


def duration(seconds: float | None) -> str | None:
    """Format a duration in its two largest units: ``3.2s``, ``5m 10s``, ``2h 03m``, ``4d 02h``."""
    if seconds is None:
        return None
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, whole_seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours:02}h"
    return f"{hours}h {minutes:02}m" if hours else f"{minutes}m {whole_seconds:02}s"
