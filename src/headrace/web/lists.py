"""The overview, and the lists of groups, topics and tasks: filtered, sorted, a page at a time; and
the search.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from headrace.client.lag.model import sum_of_known
from headrace.client.workers import OLD_MS, SeenWorker, TaskState, by_task, summed

from .requests import url
from .schemas import about, text, whole
from .site import Visit
from .views import (
    FailureOfTask,
    GroupSummary,
    Hit,
    Hits,
    Overview,
    Page,
    RunningOfTask,
    Task,
    Tasks,
    TopicSummary,
    Totals,
    WorkerOfTasks,
    WorkerStatus,
)

T = TypeVar("T")

GroupSort = Literal[
    "group_id",
    "group_type",
    "group_state",
    "member_count",
    "lag",
    "time_lag_ms",
    "done_per_s",
    "produced_per_s",
    "seconds_to_zero",
]
TopicSort = Literal[
    "topic",
    "partition_count",
    "end_offset_sum",
    "size_bytes",
    "retention_ms",
    "produced_per_s",
    "group_count",
]
NameFilter = Annotated[str, text("a part of the name")]
PageNumber = Annotated[int, whole("the page, from 1", least=1)]

_OVERVIEW_ROWS = 15
ROWS_OF_PAGE = 50
"""Rows of a table of groups or topics."""
MAX_RUNNING_OF_PAGE, MAX_FAILURES_OF_PAGE, MAX_WORKERS_OF_PAGE = 50, 50, 200
"""Rows below the table of tasks."""
MAX_HITS = 20
"""Results of a search."""
_RECORD = re.compile(r"(.+)-(\d{1,9})[@ :](\d{1,18})")
"""A record, as the page and the command line name it: ``orders-2@6670``."""


def page_of(rows: Sequence[T], page: int, size: int = ROWS_OF_PAGE) -> Page[T]:
    """Return a page of a list, which has at least one.

    :param page: from 1; the nearest one if the list has no such page
    :param size: the rows of one page
    """
    pages = max(1, -(-len(rows) // size))
    page = min(max(1, page), pages)
    return Page(rows[(page - 1) * size : page * size], len(rows), page, pages)


def listed(rows: Iterable[T], name: str, sort: str, text: str = "") -> list[T]:
    """Return the rows whose name contains a text.

    :param name: the field that has the name
    :param sort: the field to sort by; names and words ascending, counts and times with the largest
        first: -1 stands for no end, and unknown ones are last
    """

    def rank(row: T) -> tuple[bool, Any, str]:
        value = getattr(row, sort)
        if isinstance(value, int | float):
            value = -math.inf if value == -1 else -value
        return value is None, value, getattr(row, name)

    text = text.strip().lower()
    return sorted((row for row in rows if text in getattr(row, name).lower()), key=rank)


async def overview(visit: Visit) -> Overview:
    """Return the totals of the cluster, and what needs attention."""
    seen = await visit.seen()
    active = [group for group in seen.groups.values() if group.member_count]
    topics = [topic for topic in seen.topics.values() if not topic.is_internal]
    times = [group.time_lag_ms for group in active if group.time_lag_ms is not None]
    return Overview(
        seen.time_ms,
        seen.took_ms,
        seen.cluster_id,
        seen.brokers,
        visit.site.observer.problem,
        visit.site.access.failed_logins.total,
        Totals(
            len(seen.groups),
            len(active),
            len(topics),
            max(times, default=None),
            sum_of_known(group.done_per_s for group in active),
            sum_of_known(topic.produced_per_s for topic in topics),
        ),
        seen.notes,
        listed(active, "group_id", "lag")[:_OVERVIEW_ROWS],
        listed(topics, "topic", "produced_per_s")[:_OVERVIEW_ROWS],
        seen.warnings,
    )


async def groups(
    visit: Visit,
    *,
    filter: NameFilter = "",
    group_type: Annotated[
        Literal["", "share", "consumer", "classic", "streams"], about("only groups of this type")
    ] = "",
    members: Annotated[
        Literal["", "some", "none"], about("only groups with members, or without")
    ] = "",
    sort: Annotated[GroupSort, about("the order")] = "lag",
    page: PageNumber = 1,
) -> Page[GroupSummary]:
    """Return a page of the groups."""
    seen = await visit.seen()
    rows = [
        group
        for group in seen.groups.values()
        if group_type in ("", group.group_type)
        and members in ("", "some" if group.member_count else "none")
    ]
    rows = listed(rows, "group_id", sort, filter)
    if sort == "lag":  # of groups that nobody reads for, the lag is no news
        rows.sort(key=lambda group: not group.member_count)
    return page_of(rows, page)


async def topics(
    visit: Visit,
    *,
    filter: NameFilter = "",
    sort: Annotated[TopicSort, about("the order")] = "topic",
    internal: Annotated[bool, about("with internal topics")] = False,
    page: PageNumber = 1,
) -> Page[TopicSummary]:
    """Return a page of the topics."""
    seen = await visit.seen()
    rows = [topic for topic in seen.topics.values() if internal or not topic.is_internal]
    return page_of(listed(rows, "topic", sort, filter), page)


# Tasks --------------------------------------------------------------------------------------------


async def tasks(visit: Visit, *, filter: NameFilter = "", page: PageNumber = 1) -> Tasks:
    """Return a page of the tasks of workers: what runs, how busy they are, and what has failed."""
    seen = await visit.seen()
    states = by_task(seen.workers)
    keys = [key for key in sorted(states) if filter.strip().lower() in key[0].lower()]
    on_page = page_of(keys, page)
    told = [
        (worker.state.worker, state)
        for key in on_page.rows
        for worker, state in states[key]
        if not worker.is_gone
    ]
    running = [
        RunningOfTask(state.task, worker, record)
        for worker, state in told
        for record in state.records
    ]
    failures = [
        FailureOfTask(state.task, worker, failure)
        for worker, state in told
        for failure in state.failures
    ]
    return Tasks(
        seen.time_ms,
        on_page.of([_task(states[key], seen.groups) for key in on_page.rows]),
        sorted(running, key=lambda each: each.record.since_ms)[:MAX_RUNNING_OF_PAGE],
        sorted(failures, key=lambda each: -each.failure.time_ms)[:MAX_FAILURES_OF_PAGE],
        [
            WorkerOfTasks(
                worker.state.worker,
                _status(worker),
                [task.task for task in worker.state.tasks],
                worker.state.started_ms,
                worker.seen_ms,
            )
            for worker in seen.workers
        ],
    )


def _task(
    states: Sequence[tuple[SeenWorker, TaskState]], groups: Mapping[str, GroupSummary]
) -> Task:
    worker_count, age_ms, total = summed(states)
    group = groups.get(total.group_id)
    lags = (None, None) if group is None else (group.lag, group.time_lag_ms)
    return Task(worker_count, age_ms, *lags, total)


def _status(worker: SeenWorker) -> WorkerStatus:
    if worker.is_gone:
        return "gone"
    if worker.age_ms > OLD_MS:
        return "silent"
    return "stopping" if worker.state.is_stopping else "working"


# Search -------------------------------------------------------------------------------------------


async def search(
    visit: Visit,
    *,
    name: Annotated[str, text("a part of a name, or a record such as orders-2@6670")] = "",
) -> Hits:
    """Return the groups, topics, tasks and records with a name."""
    seen = await visit.seen()
    part = name.strip().lower()
    tasks_seen = {task.task for worker in seen.workers for task in worker.state.tasks}
    names = [
        *(Hit("group", each, url("/group", group_id=each)) for each in seen.groups),
        *(Hit("topic", each, url("/topic", topic=each)) for each in seen.topics),
        *(Hit("task", each, url("/tasks", filter=each)) for each in tasks_seen),
    ]
    hits = [hit for hit in names if part in hit.name.lower()] if part else []
    # The whole name comes first, then names that begin with the text.
    hits.sort(key=lambda hit: (hit.name.lower().find(part), len(hit.name), hit.name))
    if (place := _RECORD.fullmatch(name.strip())) is not None:
        topic, partition, offset = place.groups()
        address = url("/record", topic=topic, partition=partition, offset=offset)
        hits.insert(0, Hit("record", f"{topic}-{partition}@{offset}", address))
    return Hits(hits[:MAX_HITS])
