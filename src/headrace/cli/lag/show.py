"""``headrace lag show``: print the progress and lag of groups of all types, once or repeatedly."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.amounts import count_of, duration
from headrace.cli.client_options import call_options
from headrace.cli.cluster_run import on_cluster
from headrace.cli.errors import BadUsage, Failure
from headrace.cli.nouns import arg, command, repeatable, switch
from headrace.cli.options import GROUP_TYPES, group_types, pattern, positive_seconds
from headrace.cli.output import Output, Row, output_option
from headrace.cli.tables import one_line

if TYPE_CHECKING:
    from headrace.client import Cluster
    from headrace.client.lag.model import GroupLag, LagQuery, Snapshot

_WATCH_S = 2.0
_WARNINGS_SHOWN = 5
_LINES_AROUND = 3
"""The number of lines of a screen besides those of a table, and those below it."""
_FEWEST_LINES = 3

QUERY_OPTIONS = (
    arg("groups", nargs="*", metavar="GROUP", help="groups to show (default: all)"),
    repeatable("--topic", "TOPIC", "a topic"),
    *(
        arg(name, type=pattern, metavar="REGEX", help=help_text)
        for name, help_text in (
            ("--groups-pattern", "groups whose whole id matches"),
            ("--exclude-groups", "without groups whose whole id matches"),
            ("--topics-pattern", "topics whose whole name matches"),
            ("--exclude-topics", "without topics whose whole name matches"),
        )
    ),
    arg(
        "--type",
        type=group_types,
        default=GROUP_TYPES,
        metavar="TYPE,…",
        help=f"only groups of these types: {', '.join(GROUP_TYPES)}",
    ),
    arg(
        "--isolation-level",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="with read_committed the lag ends at the last stable offset (default: "
        "read_uncommitted)",
    ),
    switch(
        "--no-time-lag", "read no records: without timestamps; transaction markers count as lag"
    ),
)
"""The options that :func:`lag_query` reads."""


def lag_query(options: Namespace) -> LagQuery:
    """Return the query that :data:`QUERY_OPTIONS` describe.

    :raises BadUsage: they contradict each other
    """
    from headrace.client.lag.model import LagQuery

    for name in ("groups", "topics"):
        named = options.groups if name == "groups" else options.topic
        if named and getattr(options, f"{name}_pattern") is not None:
            raise BadUsage(f"name the {name} or give --{name}-pattern, not both")
    return LagQuery(
        groups=tuple(dict.fromkeys(options.groups)),
        groups_pattern=options.groups_pattern,
        groups_excluded=options.exclude_groups,
        group_types=options.type,
        topics=tuple(options.topic),
        topics_pattern=options.topics_pattern,
        topics_excluded=options.exclude_topics,
        read_committed=options.isolation_level == "read_committed",
        time_lag=not options.no_time_lag,
    )


@command(
    "print the progress and lag of all groups of a cluster, or of some",
    *QUERY_OPTIONS,
    switch("--partitions", "a row for each partition, not for each topic; so has JSON always"),
    arg(
        "--watch",
        nargs="?",
        type=positive_seconds,
        const=_WATCH_S,
        metavar="SECONDS",
        help=f"repeat until Ctrl-C (default: every {_WATCH_S:g} s)",
    ),
    output_option,
    call_options,
    examples="headrace lag show\n"
    "headrace lag show billing packers --partitions -o wide\n"
    "headrace lag show --groups-pattern 'team-.*' --type share --watch\n"
    "headrace lag show -o json | jq 'map(select(.time_lag_ms > 60000))'",
)
def run(options: Namespace) -> None:
    """Execute the command.

    :raises Failure: it failed in part, or the options are wrong
    :raises ClientError: it failed
    """
    query = replace(lag_query(options), held=options.partitions)
    on_cluster(options, lambda cluster: _show(cluster, query, options))


async def _show(cluster: Cluster, query: LagQuery, options: Namespace) -> None:
    from headrace.client.lag.model import rows
    from headrace.client.lag.snapshot import snapshot

    output = Output(options.output)

    def view(seen: Snapshot) -> View:
        if output.is_json:
            return View(list(rows(seen)), [])
        shown = rows(seen) if options.partitions else _topics(seen.groups)
        return View(list(shown), [footer(seen)] if seen.groups or not seen.warnings else [])

    async def take() -> Snapshot:
        return await snapshot(cluster, query)

    if options.watch is not None:
        await display(repeated(take, options.watch), view, output)
        return
    seen = await take()
    _print(view(seen), output)
    if seen.warnings:
        raise Failure("; ".join(_shortened(seen.warnings)))


async def repeated(
    take: Callable[[], Awaitable[Snapshot]], every_s: float, times: int | None = None
) -> AsyncIterator[Snapshot]:
    """Yield snapshots. While the cluster does not answer, yield the last one again, with the
    reason.

    :param times: their number; None for no end
    :raises ClientError: the first one cannot be taken
    """
    import asyncio  # not for a help

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
    """Rows, and the lines below their table."""

    rows: Sequence[Row]
    below: Sequence[str]


_WIDE = (
    *("cluster", "member_id", "host", "last_stable_offset", "leader_epoch"),
    *("delivery_complete_count", "delivery_count", "metadata", "snapshot_time_ms"),
)
"""The fields of partitions that a table has only with ``-o wide``."""


def _print(view: View, output: Output) -> None:
    """Print rows; the lines below them go to stderr."""
    output.rows(view.rows, wide=_WIDE)
    sys.stdout.flush()
    for line in view.below:
        print(one_line(line), file=sys.stderr, flush=True)


async def display(
    snapshots: AsyncIterator[Snapshot], view_of: Callable[[Snapshot], View], output: Output
) -> None:
    """Show snapshots until Ctrl-C; on a terminal, one in the place of the other."""
    import asyncio

    on_terminal = sys.stdout.isatty() and not output.is_json
    screen: Any = None
    with ExitStack() as stack, suppress(asyncio.CancelledError):  # Ctrl-C
        async for seen in snapshots:
            view = view_of(seen)
            view = view._replace(below=[*view.below, *_shortened(seen.warnings)])
            if on_terminal:
                from rich.live import Live
                from rich.text import Text  # not str: names may contain the brackets of markup

                screen = screen or stack.enter_context(Live(auto_refresh=False, screen=True))
                text = _screen_text(view, seen, output, screen.console.size.height)
                screen.update(Text(text, no_wrap=True, overflow="crop"), refresh=True)
            else:
                _print(view, output)
                if not output.is_json:
                    print(flush=True)


def _screen_text(view: View, seen: Snapshot, output: Output, height: int) -> str:
    """Return what fits on a terminal of a height."""
    room = max(_FEWEST_LINES, height - _LINES_AROUND - len(view.below))
    more = len(view.rows) - room
    return "\n".join(
        [
            time.strftime("%H:%M:%S", time.localtime(seen.at_ms / 1000)),
            output.table(view.rows[:room], wide=_WIDE) if view.rows else "",
            *([f"and {more:,} more rows"] if more > 0 else []),
            *map(one_line, view.below),
        ]
    )


def _shortened(warnings: Sequence[str]) -> list[str]:
    """Return the first warnings, and the number of the others."""
    more = len(warnings) - _WARNINGS_SHOWN
    return [*warnings[:_WARNINGS_SHOWN], *([f"and {more} more"] if more > 0 else [])]


def footer(seen: Snapshot) -> str:
    """Return the sums of a snapshot."""
    from headrace.client.lag.model import total

    lag = total([group.lag for group in seen.groups])
    parts = [
        count_of(len(seen.groups), "group"),
        count_of(lag.partitions, "partition"),
        count_of(sum(len(group.members) for group in seen.groups), "member"),
    ]
    if lag.partitions:
        parts.append(f"lag {'unknown' if lag.records is None else f'{lag.records:,}'}")
    if lag.seconds is not None:
        parts.append(f"time lag {duration(lag.seconds)}")
    if lag.unknown:
        parts.append(f"{count_of(lag.unknown, 'partition')} whose lag is unknown")
    return ", ".join(parts)


def _topics(groups: Sequence[GroupLag]) -> Iterator[Row]:
    """Yield a row for each topic of each group, and one for the members without a partition."""
    for group in groups:
        members: dict[str | None, set[str]] = {}
        for partition in group.partitions:
            ids = members.setdefault(partition.topic, set())
            ids.update(member.member_id for member in partition.members)
        if group.idle or not group.topics:
            members[None] = {member.member_id for member in group.idle}
        for topic, ids in members.items():
            lag = group.topics.get(topic or "")
            yield {
                "group_id": group.group_id,
                "group_type": group.type,
                "group_state": group.state,
                "topic": topic,
                "partition_count": lag and lag.partitions,
                "member_count": len(ids),
                "lag": lag and lag.records,
                "time_lag_ms": lag and lag.time_lag_ms,
            }
