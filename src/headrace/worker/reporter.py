"""Tells what a worker does: in the topic of :mod:`headrace.client.workers`, which the page and
``headrace top`` read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from heapq import nlargest, nsmallest
from operator import attrgetter
from typing import TYPE_CHECKING

from headrace.client.errors import ClientError
from headrace.client.topics import NewTopic
from headrace.client.workers import (
    COUNTERS,
    MAX_FAILURES,
    MAX_RUNNING,
    MAX_STATE_BYTES,
    MAX_TASKS,
    MAX_TOPICS,
    WORKERS_TOPIC,
    Failure,
    RunningRecord,
    TaskState,
    WorkerState,
    encode,
    shortened,
)
from headrace.log_lines import get_logger

from .sending import NewRecord, Sender

if TYPE_CHECKING:
    from .attempts import Attempt
    from .runner import Runner

_log = get_logger(__name__)

_EVERY_S, _AT_LEAST_EVERY_S = 2.0, 15.0
_REFUSED_PAUSE_S = 60.0
_END_S = 2.0
"""The time for the record that says that the worker has ended."""
_TOPIC = NewTopic(
    WORKERS_TOPIC,
    1,
    configs={
        "cleanup.policy": "compact,delete",
        "retention.ms": "3600000",
        "segment.ms": "600000",
        "message.timestamp.type": "LogAppendTime",
    },
)


class Reporter:
    """Publishes the state of a worker until it is cancelled.

    :param worker: its name
    """

    def __init__(self, worker: str, runners: Sequence[Runner], sender: Sender) -> None:
        self._worker = shortened(worker)
        self._runners = runners
        self._sender = sender
        self._started_ms = time.time_ns() // 1_000_000
        self._is_refused = False

    def state(self) -> WorkerState:
        """Return what the worker does now."""
        longest = nsmallest(
            MAX_RUNNING,
            (attempt for runner in self._runners for attempt in runner.running),
            key=attrgetter("since_s"),
        )
        newest = nlargest(
            MAX_FAILURES,
            (failure for runner in self._runners for failure in runner.failures),
            key=attrgetter("time_ms"),
        )
        return WorkerState(
            self._worker,
            self._started_ms,
            any(runner.is_stopping for runner in self._runners),
            tuple(task_state(runner, longest, newest) for runner in self._runners[:MAX_TASKS]),
        )

    async def run(self) -> None:
        """Measure and publish, every few seconds."""
        published, published_s, publishing = None, -_AT_LEAST_EVERY_S, None
        try:
            while True:
                for runner in self._runners:
                    runner.meter.sample()
                state, now_s = self.state(), time.monotonic()
                is_due = state != published or now_s - published_s >= _AT_LEAST_EVERY_S
                if is_due and (publishing is None or publishing.done()):
                    publishing = asyncio.create_task(self._publish(encode(state)))
                    published, published_s = state, now_s
                await asyncio.sleep(_EVERY_S)
        finally:
            if publishing is not None:
                publishing.cancel()

    async def end(self) -> None:
        """Say that the worker has ended."""
        if not self._is_refused:
            with suppress(ClientError, TimeoutError):
                async with asyncio.timeout(_END_S):
                    await self._send(None)

    async def _publish(self, value: bytes) -> None:
        try:
            if len(value) > MAX_STATE_BYTES:
                raise ClientError(f"its state has {len(value):,} bytes")
            await self._sender.ensure_topic(_TOPIC)
            await self._send(value)
        except ClientError as error:
            if not self._is_refused:
                _log.warning("the page does not show this worker: %s", error)
            self._is_refused = True
            await asyncio.sleep(_REFUSED_PAUSE_S)
        else:
            self._is_refused = False

    async def _send(self, value: bytes | None) -> None:
        await self._sender.send([NewRecord(WORKERS_TOPIC, value, self._worker.encode())])


def task_state(
    runner: Runner, longest: Sequence[Attempt] = (), newest: Sequence[Failure] = ()
) -> TaskState:
    """Return what a worker does of one task.

    :param longest: the attempts that are told, of all tasks
    :param newest: the failures that are told, of all tasks
    """
    task, meter, counts = runner.task, runner.meter, runner.counts
    return TaskState(
        task=shortened(task.name),
        group_id=shortened(task.group),
        topics=tuple(task.topics[:MAX_TOPICS]),
        dead_letter_queue=task.dead_letters,
        run_in=task.run_in,
        slots=runner.concurrency,
        running=len(runner.running),
        occupancy=round(meter.occupancy, 2),
        waiting=meter.waiting,
        **{name: counts[name] for name in COUNTERS},
        done_per_s=round(meter.rate("done"), 1),
        failed_per_s=round(meter.rate("failed"), 1),
        retried_per_s=round(meter.rate("retried"), 1),
        breaker=runner.breaker_state,
        breaker_reason=shortened(runner.breaker.reason),
        records=tuple(
            RunningRecord(
                attempt.record.topic,
                attempt.record.partition,
                attempt.record.offset,
                attempt.number,
                int(attempt.since_s * 1000),
            )
            for attempt in longest
            if attempt in runner.running
        ),
        failures=tuple(failure for failure in newest if failure in runner.failures),
    )
