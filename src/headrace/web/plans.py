"""Plans of changes: shown first, executed after a confirmation, and logged; and the redrives of
dead-letter queues, which run in threads, because they may take long.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaException

from headrace.client.dead_letters.redrive import Redrive, RedriveCounts
from headrace.client.errors import ClientError
from headrace.log_lines import get_logger

from .texts import short
from .views import Change, RunningRedrive

log = get_logger("headrace.ui")

MAX_PLANS = 100
"""Actions that wait for their confirmation; the oldest is forgotten first."""
PLAN_S = 600
"""The time in which an action must be confirmed."""
MAX_REDRIVES = 4
"""Redrives of dead letters at a time."""
REDRIVE_PLAN_S = 10.0
"""The time in which a queue is read to show what a redrive would do."""
REDRIVE_WAIT_S = 5.0
"""The time that a request waits for the end of a redrive, which then goes on."""
MAX_ENDED_REDRIVES = 20
"""Redrives that have ended, and are still listed."""


@dataclass(slots=True)
class Plan:
    """An action that is ready to be executed.

    :ivar title: a sentence, in the imperative
    :ivar execute: makes the change, and returns a sentence about it
    :ivar cautions: warnings about the change, one line each
    :ivar action: its name
    :ivar back: the address of the page to return to
    """

    title: str
    changes: Sequence[Change]
    execute: Callable[[], Awaitable[str]] = field(repr=False)
    cautions: Sequence[str] = ()
    action: str = ""
    back: str = "/"


class Plans:
    """The plans that wait for confirmation.

    :param clock_s: a steady clock
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._waiting: OrderedDict[str, tuple[str, float, Plan]] = OrderedDict()

    def keep(self, user: str, plan: Plan) -> str:
        """Keep a plan until it is confirmed, and return its id."""
        while len(self._waiting) >= MAX_PLANS:
            self._waiting.popitem(last=False)
        plan_id = secrets.token_urlsafe(24)
        self._waiting[plan_id] = (user, self._clock_s() + PLAN_S, plan)
        return plan_id

    def take(self, user: str, plan_id: str) -> Plan | None:
        """Remove and return a plan of a user; None if there is none, or it has expired."""
        owner, until_s, plan = self._waiting.get(plan_id, ("", 0.0, None))
        if plan is None or owner != user:
            return None
        del self._waiting[plan_id]
        return plan if self._clock_s() < until_s else None

    async def execute(self, user: str, host: str, plan: Plan) -> str:
        """Execute a plan, and log it.

        :param host: the address of the user
        :returns: a sentence about it
        :raises ClientError: the cluster refuses or does not answer
        """
        log_line(user, host, f"has begun {plan.action}", plan.title)
        deed, outcome = "has failed in", ""
        try:
            outcome = await plan.execute()
            deed = "has done"
        except (ClientError, KafkaException) as failure:
            outcome = str(failure)
            raise ClientError(outcome) from failure
        except BaseException as failure:
            outcome = type(failure).__name__
            raise
        finally:
            log_line(user, host, f"{deed} {plan.action}", f"{plan.title}: {outcome}")
        return outcome


def log_line(user: str, host: str, deed: str, detail: str = "") -> None:
    """Log what a user of the page has done; in the form of the broker's log of changes."""
    log.info("User %s %s from host %s%s", user, deed, host, f": {detail}" if detail else "")


# Redrives -----------------------------------------------------------------------------------------


class Redrives:
    """The redrives that run, and the last ones that have ended."""

    def __init__(self) -> None:
        self._running = dict[asyncio.Task[RedriveCounts], tuple[RunningRedrive, threading.Event]]()
        self._ended: deque[RunningRedrive] = deque(maxlen=MAX_ENDED_REDRIVES)

    def of(self, queue: str) -> list[RunningRedrive]:
        """Return the redrives of a queue, the newest first."""
        runs = [*(run for run, _ in reversed(self._running.values())), *self._ended]
        return [run for run in runs if run.queue == queue]

    async def plan(self, redrive: Redrive) -> RedriveCounts:
        """Return what a redrive would do. For a large queue, stop after a time limit.

        :raises ClientError: the queue cannot be read
        """
        stop = threading.Event()
        timer = asyncio.get_running_loop().call_later(REDRIVE_PLAN_S, stop.set)
        try:
            return await asyncio.to_thread(redrive.plan, stop)
        finally:
            timer.cancel()
            stop.set()

    async def run(self, queue: str, redrive: Redrive) -> str:
        """Start a redrive, and wait a moment for its end.

        :returns: a sentence about the outcome
        :raises ClientError: it has failed, or too many run
        """
        if len(self._running) >= MAX_REDRIVES:
            raise ClientError("other redrives are running: wait for their end")
        run, stop = RunningRedrive(queue), threading.Event()

        def progress(read: int, total: int) -> None:
            run.read, run.total = read, total

        task = asyncio.create_task(asyncio.to_thread(redrive.run, stop, progress))
        self._running[task] = run, stop
        task.add_done_callback(self._end)
        done, _ = await asyncio.wait((task,), timeout=REDRIVE_WAIT_S)
        return summary(task.result()) if done else "it runs: the page of the queue has its progress"

    def _end(self, task: asyncio.Task[RedriveCounts]) -> None:
        run, _ = self._running.pop(task)
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or error is not None:
            run.outcome = f"failed: {error or 'cancelled'}"
        else:
            run.outcome = summary(task.result())
        self._ended.appendleft(run)
        log.info("a redrive of %s has ended: %s", run.queue, run.outcome)

    async def close(self) -> None:
        """Stop all redrives. A later redrive of a queue continues where this one stopped."""
        for _, stop in self._running.values():
            stop.set()
        await asyncio.gather(*self._running, return_exceptions=True)


def summary(counts: RedriveCounts) -> str:
    """Return a sentence about what a redrive did."""
    totals: Counter[str] = Counter({"redriven": 0})
    for _, count, outcome, reason in counts.outcomes():
        totals[_kind(outcome, reason)] += count
    parts = [f"{count:,} {kind}" for kind, count in totals.items()]
    if counts.stopped:
        parts.append("stopped before its end: the next redrive continues there")
    return "; ".join(parts)


def _kind(outcome: str, reason: str | None) -> str:
    return outcome if reason is None else f"{outcome}: {reason}"


def redrive_changes(counts: RedriveCounts) -> list[Change]:
    """Return what a redrive would do."""
    at_least = "at least " if counts.stopped else ""
    changes = [
        Change(source, "", f"{at_least}{count:,} {_kind(outcome, reason)}")
        for source, count, outcome, reason in counts.outcomes()
    ]
    for sample, evidence in counts.samples:
        key, value = _quoted(sample.key), _quoted(sample.value)
        changes.append(Change(sample.place, "", f"key {key}, value {value} ({evidence})"))
    return changes


def _quoted(data: bytes | None) -> str:
    return "null" if data is None else repr(short(data, 100))
