"""Tells what a worker does: in the topic of :mod:`headrace.client.workers`, which the page and
``headrace top`` read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from headrace.client.errors import ClientError
from headrace.client.topics import NewTopic
from headrace.client.workers import (
    MAX_FAILURES,
    MAX_RUNNING,
    MAX_STATE_BYTES,
    MAX_TASKS,
    MAX_TOPICS,
    WORKERS_TOPIC,
    RunningRecord,
    TaskState,
    WorkerState,
    encode,
    shortened,
)
from headrace.log_lines import get_logger

from .breaker import BreakerState
from .sending import NewRecord, Sender

if TYPE_CHECKING:
    from .runner import Runner, Running

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
        self.worker = worker
        self.runners = runners
        self._sender = sender
        self._started_ms = time.time_ns() // 1_000_000
        self._is_refused = False

    def state(self) -> WorkerState:
        """Return what the worker does now."""
        oldest = sorted(
            (
                (number, running)
                for number, runner in enumerate(self.runners)
                for running in islice(runner.running.values(), MAX_RUNNING)
            ),
            key=lambda entry: entry[1].since_s,
        )[:MAX_RUNNING]
        newest = sorted(
            (failure.time_ms, number)
            for number, runner in enumerate(self.runners)
            for failure in runner.failures
        )[-MAX_FAILURES:]
        return WorkerState(
            shortened(self.worker),
            self._started_ms,
            any(runner.is_stopping for runner in self.runners),
            tuple(
                _task_state(
                    runner,
                    [running for owner, running in oldest if owner == number],
                    sum(owner == number for _, owner in newest),
                )
                for number, runner in enumerate(self.runners[:MAX_TASKS])
            ),
        )

    async def run(self) -> None:
        """Measure and publish, every few seconds."""
        published, published_s, publishing = None, -_AT_LEAST_EVERY_S, None
        try:
            while True:
                for runner in self.runners:
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
        await self._sender.send([NewRecord(WORKERS_TOPIC, value, shortened(self.worker).encode())])


def _task_state(runner: Runner, oldest: Sequence[Running], failures: int) -> TaskState:
    """Return what a worker does of one task.

    :param failures: the number of those that are told
    """
    task, meter, counts, breaker = runner.task, runner.meter, runner.counts, runner.breaker
    state = BreakerState.CLOSED if breaker is None else breaker.state(time.monotonic())
    return TaskState(
        task=shortened(task.name),
        group_id=shortened(task.group),
        topics=tuple(task.topics[:MAX_TOPICS]),
        dead_letter_queue=task.dead_letters,
        run_in=task.run_in,
        slots=runner.concurrency,
        running=len(runner.running),
        occupancy=round(meter.occupancy, 2),
        done=counts["done"],
        failed=counts["failed"],
        retried=counts["retried"],
        dead_letters=counts["dead_letters"],
        rejected=counts["rejected"],
        late=counts["late"],
        expired=counts["expired"],
        waiting=meter.waiting,
        done_per_s=round(meter.rate("done"), 1),
        failed_per_s=round(meter.rate("failed"), 1),
        retried_per_s=round(meter.rate("retried"), 1),
        breaker=state.value,
        breaker_reason="" if breaker is None else shortened(breaker.reason),
        records=tuple(
            RunningRecord(
                running.record.topic,
                running.record.partition,
                running.record.offset,
                running.attempt,
                int(running.since_s * 1000),
            )
            for running in oldest
        ),
        failures=tuple(runner.failures)[::-1][:failures],
    )
