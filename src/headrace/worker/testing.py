"""Tests of apps: functions run inline, or by a real worker on a broker of the test."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import UUID

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.lag.model import LagQuery
from headrace.client.lag.snapshot import snapshot
from headrace.client.loop_thread import LoopThread
from headrace.client.records import Record
from headrace.client.topics import NewTopic
from headrace.protocol import dead_letters

from .outcomes import Ending, TimedOut, Undecodable, decide
from .runner import Runner, Running
from .sending import NewRecord, Sender, SendFailed, Sent
from .task import Task
from .worker import Worker

_LOOK_S = 0.02
_NO_ID = UUID(int=0)


class DeadLetter(NamedTuple):
    """A record that could not be processed.

    :param arguments: the function's, by name; None if the record does not decode
    :param attempts: how often it was tried
    """

    arguments: dict[str, Any] | None
    reason: str
    attempts: int


class _Trial:
    """Tasks whose records go elsewhere than to the app's broker, within a ``with`` block."""

    def __init__(self, tasks: Iterable[Task[Any, Any]]) -> None:
        self._tasks = list(tasks)
        self._senders = [task.sender for task in self._tasks]
        self._sent: defaultdict[str, list[NewRecord]] = defaultdict(list)
        self._letters: defaultdict[str, list[DeadLetter]] = defaultdict(list)

    def sent(self, task: Task[Any, Any]) -> list[dict[str, Any]]:
        """Return the arguments of each call that was sent, by name."""
        return [task.decode(_record(new, 0)) for new in self._sent[task.topics[0]]]

    def dead_letters(self, task: Task[Any, Any]) -> list[DeadLetter]:
        """Return the records of a task that could not be processed."""
        return self._letters[task.name]

    def note_letter(self, task: Task[Any, Any], record: Record, reason: str, attempt: int) -> None:
        """Note a dead letter."""
        arguments = None
        with suppress(Undecodable):
            arguments = task.decode(record)
        self._letters[task.name].append(DeadLetter(arguments, reason, attempt))

    def _send_with(self, sender: Sender) -> None:
        for task in self._tasks:
            task.sender = sender

    def _restore(self) -> None:
        for task, sender in zip(self._tasks, self._senders, strict=True):
            task.sender = sender


class InlineTrial(_Trial):
    """``with app.test() as trial``: records are processed by the call that sends them: encoded,
    decoded, and tried as often as the task says, without waiting for delays. There is no broker.
    """

    def __enter__(self) -> InlineTrial:
        self._thread = LoopThread("headrace-test")
        self._send_with(_InlineSender(self))
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()
        self._thread.close()

    async def process(self, records: Sequence[NewRecord]) -> list[Sent]:
        """Process records to their ends."""
        places = []
        for new in records:
            self._sent[new.topic].append(new)
            record = _record(new, len(self._sent[new.topic]) - 1)
            for task in self._tasks:
                if new.topic in task.topics:
                    await self._process(task, record)
            places.append(Sent(record.topic, record.partition, record.offset))
        return places

    def process_sync(self, records: Sequence[NewRecord]) -> list[Sent]:
        """Do the same without asyncio."""
        return self._thread.run(self.process(records))

    async def _process(self, task: Task[Any, Any], record: Record) -> None:
        runner = Runner(task, {}, "test", 1)
        attempt, outcome = 0, None
        while outcome is None or outcome.ending is Ending.RETRY:
            attempt += 1
            result = await asyncio.create_task(_attempt(runner, record, attempt))
            outcome = decide(result, attempt, task.retry, lambda: 0.5)
        if outcome.ending is Ending.LETTER:
            self.note_letter(task, record, outcome.reason, attempt)


class WorkerTrial(_Trial):
    """``async with app.test(worker=True) as trial``: a broker of the test, and a worker of all
    tasks in the test's event loop. Retries and delayed records come at once.

    :ivar bootstrap_servers: the broker's address, for subscribers' topics
    """

    bootstrap_servers = ""

    async def __aenter__(self) -> WorkerTrial:
        from headrace.broker.embedded import EmbeddedBroker

        self._broker = EmbeddedBroker(config={"group.initial.rebalance.delay.ms": 0})
        await asyncio.to_thread(self._broker.start)
        self.bootstrap_servers = self._broker.bootstrap_servers
        self._conf = {"bootstrap.servers": self.bootstrap_servers}
        self._sender = _NotingSender(self, self._conf)
        self._send_with(self._sender)
        self._worker = Worker(self._tasks, self._conf, drain_timeout_s=5.0)
        for runner in self._worker.runners:
            runner.hurries = True
        for task in self._tasks:
            for topic in task.topics:
                await self._sender.ensure_topic(NewTopic(topic))
        self._run = asyncio.create_task(self._worker.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._worker.stop()
        try:
            await self._run
        finally:
            self._restore()
            await asyncio.to_thread(self._sender.close)
            await asyncio.to_thread(self._broker.stop)

    async def drained(self, timeout: float = 10.0) -> None:
        """Wait until every record is processed, or is a dead letter.

        :param timeout: in seconds
        :raises ClientError: some are left, or the worker has ended
        """
        deadline_s = time.monotonic() + timeout
        groups = tuple(task.group for task in self._tasks)
        query = LagQuery(groups, time_lag=False, complete_counts=False, members=False)
        async with Cluster(self.bootstrap_servers) as cluster:
            while True:
                if self._run.done():
                    raise ClientError(f"the worker has ended: {self._run.exception()}")
                lags = {g.group_id: g.lag for g in (await snapshot(cluster, query)).groups}
                left = [
                    group
                    for group in groups
                    if group not in lags or lags[group].unknown or lags[group].records != 0
                ]
                if not left:
                    return
                if time.monotonic() > deadline_s:
                    counts = {group: lags[group].records for group in left if group in lags}
                    raise ClientError(f"not drained in {timeout:g} s: records left: {counts}")
                await asyncio.sleep(_LOOK_S)

    def note(self, records: Sequence[NewRecord]) -> None:
        """Note what is sent to the broker: calls, and the worker's dead letters."""
        for new in records:
            task = next((task for task in self._tasks if task.dead_letters == new.topic), None)
            if task is None:
                self._sent[new.topic].append(new)
                continue
            headers = {name: value or b"" for name, value in new.headers}
            reason = headers[dead_letters.MESSAGE].decode()
            attempts = int(headers[dead_letters.ATTEMPT])
            self.note_letter(task, _record(new, 0), reason, attempts)


class _InlineSender(Sender):
    """Gives records to the functions."""

    def __init__(self, trial: InlineTrial) -> None:
        super().__init__(dict)
        self._trial = trial

    async def ensure_topic(self, topic: NewTopic) -> None:
        pass

    def ensure_topic_sync(self, topic: NewTopic) -> None:
        pass

    async def send(self, records: Sequence[NewRecord]) -> list[Sent]:
        return await self._trial.process(records)

    def send_sync(self, records: Sequence[NewRecord]) -> list[Sent]:
        return self._trial.process_sync(records)


class _NotingSender(Sender):
    """Notes records, and sends them."""

    def __init__(self, trial: WorkerTrial, conf: Mapping[str, Any]) -> None:
        super().__init__(lambda: conf)
        self._trial = trial

    async def try_send(self, records: Sequence[NewRecord]) -> list[Sent | SendFailed]:
        self._trial.note(records)
        return await super().try_send(records)

    def send_sync(self, records: Sequence[NewRecord]) -> list[Sent]:
        self._trial.note(records)
        return super().send_sync(records)


async def _attempt(runner: Runner, record: Record, attempt: int) -> object:
    """Return the result of the function, or its exception."""
    running = Running(record, attempt, asyncio.current_task())
    try:
        return await runner.call(running)
    except asyncio.CancelledError as error:
        return TimedOut("not done in time") if running.is_timed_out else error
    except BaseException as error:
        return error


def _record(new: NewRecord, offset: int) -> Record:
    """Return a record as it would arrive."""
    headers = tuple(new.headers)
    now_ms = int(time.time() * 1000)
    return Record(
        new.topic, 0, offset, new.key, new.value, headers, now_ms, "CreateTime", 1, _NO_ID
    )
