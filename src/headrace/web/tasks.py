"""The tasks of workers: what runs, how busy they are, and what has failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.client.workers import OLD_MS, SeenWorker, TaskState, by_task, summed

from .lists import NameFilter, PageNumber, page_of
from .site import Visit
from .views import (
    FailureOfTask,
    GroupSummary,
    RunningOfTask,
    Task,
    Tasks,
    WorkerOfTasks,
    WorkerStatus,
)

MAX_RUNNING_OF_PAGE, MAX_FAILURES_OF_PAGE, MAX_WORKERS_OF_PAGE = 50, 50, 200
"""Rows below the table of tasks."""


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
        [_worker(worker) for worker in seen.workers],
    )


def _task(
    states: Sequence[tuple[SeenWorker, TaskState]], groups: Mapping[str, GroupSummary]
) -> Task:
    worker_count, age_ms, total = summed(states)
    group = groups.get(total.group_id)
    lags = (None, None) if group is None else (group.lag, group.time_lag_ms)
    return Task(worker_count, age_ms, *lags, total)


def _worker(worker: SeenWorker) -> WorkerOfTasks:
    state = worker.state
    return WorkerOfTasks(
        state.worker,
        _status(worker),
        [task.task for task in state.tasks],
        state.started_ms,
        worker.seen_ms,
    )


def _status(worker: SeenWorker) -> WorkerStatus:
    if worker.is_gone:
        return "gone"
    if worker.age_ms > OLD_MS:
        return "silent"
    return "stopping" if worker.state.is_stopping else "working"
