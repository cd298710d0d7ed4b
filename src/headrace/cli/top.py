"""``headrace top``: a live view of the groups of a cluster: lag, rates, forecasts, members."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .client_options import call_options
from .cluster_run import on_cluster
from .lag.show import QUERY_OPTIONS, View, display, duration, footer, lag_query, repeated
from .nouns import arg, command, seconds_option
from .options import positive_number
from .output import Output, Row, output_option

if TYPE_CHECKING:
    from headrace.client import Cluster
    from headrace.client.lag.model import GroupLag, LagQuery, Snapshot
    from headrace.client.workers import TaskState, WorkerWatch

_WINDOW_S = 30.0
_SORTS: dict[str, Callable[[GroupLag], float | None]] = {
    "lag": lambda group: group.lag.records,
    "time": lambda group: group.lag.seconds,
    "rate": lambda group: group.lag.done_per_s,
    "name": lambda group: 0,
}


@command(
    "show the groups of a cluster, with lag and rates, until Ctrl-C",
    *QUERY_OPTIONS,
    seconds_option("--every", "time between two snapshots", 2.0),
    arg(
        "--iterations",
        type=positive_number,
        metavar="N",
        help="end after N snapshots (default: at Ctrl-C)",
    ),
    arg("--sort", choices=_SORTS, default="lag", help="order of the groups (default: lag)"),
    output_option,
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
    query = lag_query(options)
    on_cluster(options, lambda cluster: _show(cluster, query, options))


async def _show(cluster: Cluster, query: LagQuery, options: Namespace) -> None:
    from headrace.client.lag.model import summary
    from headrace.client.lag.watch import LagWatch
    from headrace.client.workers import WorkerWatch

    output = Output(options.output)
    tasks: dict[str, tuple[int, TaskState]] = {}
    """Group → what its workers do."""

    def view(seen: Snapshot) -> View:
        groups = sort_groups(seen.groups, options.sort)
        if output.is_json:
            lines = [summary(group) | _told(tasks.get(group.group_id)) for group in groups]
            seen_at = {"time_ms": seen.at_ms, "groups": lines, "warnings": seen.warnings}
            return View([seen_at], [])
        rows = [
            {**_row(group), **(_cells(tasks.get(group.group_id)) if tasks else {})}
            for group in groups
        ]
        return View(rows, [footer(seen)])

    watch, workers = LagWatch(cluster, query, _WINDOW_S), WorkerWatch(cluster)

    async def take() -> Snapshot:
        tasks.clear()
        warnings = await _look(workers, tasks)
        seen = await watch.snapshot()
        return replace(seen, warnings=[*seen.warnings, *warnings])

    await display(repeated(take, options.every, options.iterations), view, output)


async def _look(workers: WorkerWatch, tasks: dict[str, tuple[int, TaskState]]) -> list[str]:
    """Learn what workers do, and return why not, if so."""
    from headrace.client import ClientError
    from headrace.client.workers import by_task, summed

    try:
        states = by_task(await workers.look())
    except ClientError as error:
        return [f"the workers are unknown: {error}"]
    tasks.update({group_id: summed(seen) for (_, group_id), seen in states.items()})
    return []


def _told(task: tuple[int, TaskState] | None) -> dict[str, object]:
    """Return what the workers of a group tell; unknown for a group without tasks."""
    if task is None:
        return dict.fromkeys(
            ("workers", "running", "slots", "occupancy", "failed_per_s", "breaker")
        )
    workers, total = task
    return {
        "workers": workers,
        "running": total.running,
        "slots": total.slots,
        "occupancy": round(total.occupancy, 2),
        "failed_per_s": round(total.failed_per_s, 1),
        "breaker": total.breaker,
    }


def _cells(task: tuple[int, TaskState] | None) -> Row:
    told = _told(task)
    if task is not None:
        told |= {
            "occupancy": f"{task[1].occupancy:.0%}",
            "failed_per_s": _rate(task[1].failed_per_s),
        }
    return told


def sort_groups(groups: Sequence[GroupLag], order: str) -> list[GroupLag]:
    """Return groups with the largest value first, unknown ones last; equal ones by name."""

    def key(group: GroupLag) -> float:
        value = _SORTS[order](group)
        return math.inf if value is None else -value

    return sorted(groups, key=key)


def _row(group: GroupLag) -> Row:
    lag, left_s = group.lag, group.lag.seconds_to_zero
    return {
        "group_id": group.group_id,
        "group_type": group.type,
        "group_state": group.state,
        "members": len(group.members),
        "lag": None if lag.records is None else f"{lag.records:,}",
        "time_lag": duration(lag.seconds),
        "done_per_s": _rate(lag.done_per_s),
        "produced_per_s": _rate(lag.produced_per_s),
        "zero_in": "never" if left_s == math.inf else duration(left_s),
    }


def _rate(per_s: float | None) -> str | None:
    return None if per_s is None else f"{per_s:,.1f}"
