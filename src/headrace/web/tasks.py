"""The tasks of workers: what runs, how busy they are, and what has failed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from headrace.client.workers import SeenWorker, TaskState

from .limits import MAX_FAILURES_OF_PAGE, MAX_RUNNING_OF_PAGE, ROWS_OF_PAGE
from .lists import NameFilter, page_of
from .views import (
    FailureOfTask,
    GroupSummary,
    RunningOfTask,
    Task,
    Tasks,
    WorkerOfTasks,
)
from .visits import PageNumber, Visit

_TaskKey = tuple[str, str]
"""The names of a task and its group."""
_WORST_FIRST: Sequence[Literal["open", "probing", "closed"]] = ("open", "probing", "closed")


async def tasks(visit: Visit, *, filter: NameFilter = "", page: PageNumber = 1) -> Tasks:
    """Return a page of the tasks of workers: what runs, how busy they are, and what has failed."""
    seen = await visit.seen()
    states = by_task(seen.workers)
    keys = [key for key in sorted(states) if filter.strip().lower() in key[0].lower()]
    shown, page, pages = page_of(keys, page, ROWS_OF_PAGE)
    on_page = [
        (worker.state.worker, state)
        for key in shown
        for worker, state in states[key]
        if not worker.is_gone
    ]
    running = [
        RunningOfTask(state.task, worker, record)
        for worker, state in on_page
        for record in state.records
    ]
    failures = [
        FailureOfTask(state.task, worker, failure)
        for worker, state in on_page
        for failure in state.failures
    ]
    return Tasks(
        seen.time_ms,
        len(keys),
        page,
        pages,
        [task_of(key, states[key], seen.groups) for key in shown],
        sorted(running, key=lambda each: each.record.since_ms)[:MAX_RUNNING_OF_PAGE],
        sorted(failures, key=lambda each: -each.failure.time_ms)[:MAX_FAILURES_OF_PAGE],
        [_worker(worker) for worker in seen.workers],
    )


def by_task(workers: Iterable[SeenWorker]) -> dict[_TaskKey, list[tuple[SeenWorker, TaskState]]]:
    """Return the workers of each task."""
    states: defaultdict[_TaskKey, list[tuple[SeenWorker, TaskState]]] = defaultdict(list)
    for worker in workers:
        for state in worker.state.tasks:
            states[state.task, state.group_id].append((worker, state))
    return states


def task_of(
    key: _TaskKey,
    states: Sequence[tuple[SeenWorker, TaskState]],
    groups: Mapping[str, GroupSummary],
) -> Task:
    """Return the sums of a task over its workers."""
    name, group_id = key
    live = [state for worker, state in states if not worker.is_gone]
    newest = states[-1][1]
    group = groups.get(group_id)
    slots = sum(state.slots for state in live)
    worst = min(live, key=lambda state: _WORST_FIRST.index(state.breaker), default=None)
    return Task(
        task=name,
        group_id=group_id,
        topics=newest.topics,
        dead_letter_queue=newest.dead_letter_queue,
        workers=len(live),
        slots=slots,
        running=sum(state.running for state in live),
        occupancy=sum(state.occupancy * state.slots for state in live) / slots if slots else None,
        done=sum(state.done for state in live),
        failed=sum(state.failed for state in live),
        retried=sum(state.retried for state in live),
        dead_letters=sum(state.dead_letters for state in live),
        late=sum(state.late for state in live),
        expired=sum(state.expired for state in live),
        waiting=sum(state.waiting for state in live),
        done_per_s=sum(state.done_per_s for state in live),
        failed_per_s=sum(state.failed_per_s for state in live),
        retried_per_s=sum(state.retried_per_s for state in live),
        breaker="closed" if worst is None else worst.breaker,
        breaker_reason="" if worst is None else worst.breaker_reason,
        lag=None if group is None else group.lag,
        time_lag_ms=None if group is None else group.time_lag_ms,
    )


def _worker(worker: SeenWorker) -> WorkerOfTasks:
    state = worker.state
    return WorkerOfTasks(
        state.worker,
        "gone" if worker.is_gone else "stopping" if state.is_stopping else "working",
        [task.task for task in state.tasks],
        state.started_ms,
        worker.seen_ms,
    )
