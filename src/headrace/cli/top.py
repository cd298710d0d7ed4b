"""``headrace top``: a live view of the groups of a cluster: lag, rates, forecasts, members."""

from __future__ import annotations

import asyncio
import math
import re
import sys
import time
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from shutil import get_terminal_size
from typing import Any

from .client_options import call_options, on_cluster
from .clients import Cluster, errors, model, snapshot, watch, work, workers
from .lag.show import QUERY_OPTIONS, footer, lag_query
from .nouns import command
from .options import arg, seconds_option
from .output import Output, Row
from .screen import screen
from .tables import json_line, one_line, tell

_WINDOW_S = 30.0
_SORTS: dict[str, Callable[[model.GroupLag], float | None]] = {
    "lag": lambda group: group.lag.records,
    "time": lambda group: group.lag.seconds,
    "rate": lambda group: group.lag.done_per_s,
    "name": lambda group: 0,
}
_KEYS = "q quit  s sort  / filter  a active only  up, down  Enter partitions"
_LINES_AROUND = 4
"""The number of lines of a screen that are not rows of a table, besides warnings."""
_WARNINGS_SHOWN = 3


@command(
    "show the groups of a cluster, with lag and rates; on a terminal with keys to sort, filter, "
    "scroll and look into a group",
    *QUERY_OPTIONS,
    seconds_option("--every", "time between two snapshots", 2.0),
    arg("--iterations", "N", "end after N snapshots (default: at Ctrl-C)"),
    arg("--sort", choices=_SORTS, default="lag", help="order of the groups (default: lag)"),
    arg(
        "-o --output",
        choices=("table", "jsonl"),
        default="table",
        help="table; jsonl: an object a line, for each snapshot",
    ),
    call_options,
    examples="headrace top\n"
    "headrace top --groups-pattern 'team-.*' --sort time --every 5\n"
    "headrace top -o jsonl --iterations 2 | tail -n 1 | jq '.groups[0]'",
)
def run(options: Namespace) -> None:
    """Execute the command.

    :raises ClientError: no broker answers at first
    :raises Failure: the options are wrong
    """
    query = replace(lag_query(options), held=True)
    on_cluster(options, lambda cluster: _Top(cluster, query, options).run())


class _Top:
    """One run of the command."""

    def __init__(self, cluster: Cluster, query: model.LagQuery, options: Namespace) -> None:
        self._cluster = cluster
        self._query = query
        self._options = options
        self._output = Output(options.output)
        self._watch, self._work = watch.LagWatch(cluster, query, _WINDOW_S), work.GroupWork(cluster)
        self._workers = workers.WorkerWatch(cluster)
        self._browser = Browser(self._output, options.sort)

    async def run(self) -> None:
        """Show snapshots until the end, ``q`` or Ctrl-C."""
        is_screen = not self._output.is_json and self._output.is_for_people and sys.stdin.isatty()
        with suppress(asyncio.CancelledError):
            if is_screen:
                await self._browse()
            else:
                async for seen in self._snapshots():
                    self._print(seen)

    async def _snapshots(self) -> AsyncIterator[model.Snapshot]:
        """Yield snapshots. While the cluster does not answer, yield the last one again, with the
        reason.

        :raises ClientError: the first one cannot be taken
        """
        seen = await self._take()
        for number in count(1):
            yield seen
            if number == self._options.iterations:
                return
            await asyncio.sleep(self._options.every)
            try:
                seen = await self._take()
            except errors.ClientError as error:
                seen = replace(seen, warnings=[f"the last snapshot is shown: {error}"])

    async def _browse(self) -> None:
        browser, task = self._browser, asyncio.current_task()
        looks: set[asyncio.Task[None]] = set()

        def draw() -> None:
            show(browser.lines(get_terminal_size().lines))

        async def look() -> None:
            await self._look_into(browser.chosen)
            draw()

        def press(key: str) -> None:
            if key == "q" and browser.typed is None and task is not None:
                task.cancel()
            before = browser.chosen
            browser.press(key)
            if browser.chosen != before:
                looks.add(looking := asyncio.create_task(look()))
                looking.add_done_callback(looks.discard)
            draw()

        with screen(press) as show:
            async for seen in self._snapshots():
                browser.seen = seen
                draw()

    async def _take(self) -> model.Snapshot:
        if self._output.is_for_people:  # a terminal may change its size
            self._output.columns = get_terminal_size().columns
        warnings: list[str] = []
        states = workers.by_task(await self._workers.look_or_tell(warnings))
        tasks = {group_id: workers.summed(of_task) for (_, group_id), of_task in states.items()}
        self._work.begin(time.monotonic())
        seen = await self._watch.snapshot(self._work.add)
        warnings += await self._work.end()
        await self._look_into(self._browser.chosen)
        # Not before: keys draw the last snapshot meanwhile.
        self._browser.extras = {
            group.group_id: _extras(group.group_id, self._work, tasks) for group in seen.groups
        }
        return replace(seen, warnings=[*seen.warnings, *warnings])

    async def _look_into(self, group_id: str | None) -> None:
        """Read the partitions of a group, if one is chosen."""
        if group_id is None:
            return
        query = replace(self._query, groups=(group_id,), groups_pattern=None)
        with suppress(errors.ClientError):  # the snapshots tell
            partitions = list(model.rows(await snapshot.snapshot(self._cluster, query)))
            if self._browser.chosen == group_id:
                self._browser.partitions = partitions

    def _print(self, seen: model.Snapshot) -> None:
        rows = _rows(sort_groups(seen.groups, self._options.sort), self._browser.extras)
        if self._output.is_json:
            print(json_line({"time_ms": seen.at_ms, "groups": rows, "warnings": seen.warnings}))
        else:
            self._output.rows(_for_table(rows))
            for line in (footer(seen), *seen.warnings):
                tell(line)
            print()
        sys.stdout.flush()


@dataclass(slots=True)
class Browser:
    """What a person looks at. Pure.

    :param sort: a key of :data:`_SORTS`
    :ivar seen: the last snapshot
    :ivar extras: group → what is known besides its lag
    :ivar chosen: the group whose partitions are shown; None for the groups
    :ivar partitions: of the chosen group
    :ivar typed: the filter that is being typed; None if none is
    """

    output: Output
    sort: str
    seen: model.Snapshot | None = None
    extras: Mapping[str, Row] = field(default_factory=dict)
    chosen: str | None = None
    partitions: Sequence[Row] = ()
    typed: str | None = None
    _filter: str = ""
    _is_active_only: bool = False
    _at: int = 0

    def press(self, key: str) -> None:
        """Do what a key stands for."""
        page = max(1, get_terminal_size().lines - _LINES_AROUND)
        moves = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -page, "page down": page}
        if self.typed is not None:
            self._type(key)
        elif key in moves:
            self._at += moves[key]
        elif key == "s":
            orders = list(_SORTS)
            self.sort = orders[(orders.index(self.sort) + 1) % len(orders)]
        elif key in ("/", "f"):
            self.typed = self._filter
        elif key == "a":
            self._is_active_only = not self._is_active_only
        elif key == "enter" and self.chosen is None and (groups := self._groups()):
            self.chosen, self.partitions = groups[self._place(len(groups))].group_id, ()
        elif key in ("escape", "backspace"):
            self.chosen, self._filter = None, self._filter if self.chosen else ""

    def _type(self, key: str) -> None:
        if key == "backspace":
            self.typed = (self.typed or "")[:-1]
        elif len(key) == 1:
            self.typed = f"{self.typed}{key}"
        if key in ("enter", "escape"):
            self._filter, self.typed = (self.typed or "") if key == "enter" else "", None

    def _place(self, count: int) -> int:
        self._at = max(0, min(self._at, count - 1))
        return self._at

    def _groups(self) -> list[model.GroupLag]:
        needle = (self._filter if self.typed is None else self.typed).lower()
        groups = () if self.seen is None else self.seen.groups
        return [
            group
            for group in sort_groups(groups, self.sort)
            if needle in group.group_id.lower() and (group.members or not self._is_active_only)
        ]

    def lines(self, room: int) -> list[str]:
        """Return the lines that are shown.

        :param room: the number of lines of the terminal, which cuts what is wider
        """
        seen = self.seen
        if seen is None:
            return []
        below = [footer(seen), *seen.warnings[:_WARNINGS_SHOWN]]
        head = [time.strftime("%H:%M:%S", time.localtime(seen.at_ms / 1000)), f"by {self.sort}"]
        head += ["active only"] * self._is_active_only
        if self.typed is not None or self._filter:
            head.append(f"/{self._filter if self.typed is None else self.typed}")
        rows: list[Row]
        if self.chosen is not None:
            head = [head[0], self.chosen, "Escape: all groups"]
            rows = [{name: row[name] for name in _PARTITION_FIELDS} for row in self.partitions]
        else:
            rows = _for_table(_rows(self._groups(), self.extras))
        space = max(1, room - _LINES_AROUND - len(below) + 1)
        at = self._place(len(rows))
        first = max(0, at - space + 1)
        title, *lines = self.output.table(rows).split("\n") if rows else ["nothing"]
        if lines:
            lines[at] = f"\x1b[7m{_SGR.sub('', lines[at])}\x1b[m"
        more = len(lines) - first - space
        shown = [
            one_line("  ".join(head)),
            title,
            *lines[first : first + space],
            *map(one_line, below),
            _KEYS + (f"  ({more:,} more)" if more > 0 else ""),
        ]
        return shown[:room]


_OF_TASKS = (
    *("worker_count", "running", "slots", "occupancy", "failed_per_s", "breaker"),
    "numbers_age_ms",
)
_GROUP_FIELDS = (
    *("group_id", "lag", "time_lag_ms", "done_per_s", "produced_per_s", "seconds_to_zero"),
    *("group_state", "breaker", "numbers_age_ms", "stuck", "held", "occupancy", "failed_per_s"),
    *("running", "slots", "member_count", "worker_count", "letters_per_s", "group_type"),
)
"""The first ones are what a narrow screen shows."""
_PARTITION_FIELDS = (
    *("topic", "partition", "lag", "time_lag_ms", "held", "delivery_count", "end_offset"),
    *("client_id", "host"),
)


_SGR = re.compile(r"\x1b\[\d*m")


def _extras(
    group_id: str,
    work: work.GroupWork,
    tasks: Mapping[str, tuple[int, int | None, workers.TaskState]],
) -> dict[str, Any]:
    """Return what is known of a group besides its lag; :data:`_OF_TASKS` if it has tasks."""
    count, age_ms, total = tasks.get(group_id, (None, None, None))
    told = {name: getattr(total, name, None) for name in _OF_TASKS[1:]}
    return {
        "held": work.held.get(group_id),
        "stuck": len(work.stuck.get(group_id, ())),
        "letters_per_s": work.letters_per_s(group_id),
        "worker_count": count,
        **{
            name: round(value, 2) if isinstance(value, float) else value
            for name, value in told.items()
        },
        "numbers_age_ms": age_ms,
    }


def sort_groups(groups: Sequence[model.GroupLag], order: str) -> list[model.GroupLag]:
    """Return groups with the largest value first, unknown ones last; equal ones by name."""

    def key(group: model.GroupLag) -> float:
        value = _SORTS[order](group)
        return math.inf if value is None else -value

    return sorted(groups, key=key)


def _rows(groups: Sequence[model.GroupLag], extras: Mapping[str, Row]) -> list[Row]:
    """Return a row for each group."""
    return [{**model.summary(group), **extras.get(group.group_id, {})} for group in groups]


def _for_table(rows: list[Row]) -> list[Row]:
    """Return rows with what matters most first, and those fields of tasks that a group has."""
    empty = {name for name in _OF_TASKS if all(row.get(name) is None for row in rows)}
    fields = [name for name in _GROUP_FIELDS if name not in empty]
    return [{name: row[name] for name in fields if name in row} for row in rows]
