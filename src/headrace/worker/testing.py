"""Tests of apps: functions run inline, or by a real worker on a broker of the test."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from copy import copy
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

from .attempts import Attempt
from .outcomes import Ending, Undecodable, decide
from .runner import Runner
from .sending import NewRecord, Report, Sender, Sent
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


class Trial:
    """Tasks whose records go elsewhere than to the app's broker, within a ``with`` block."""

    def __init__(self, tasks: Iterable[Task[Any, Any]]) -> None:
        self.tasks = list(tasks)
        self._sent: defaultdict[str, list[NewRecord]] = defaultdict(list)
        self._letters: defaultdict[str, list[DeadLetter]] = defaultdict(list)

    def sent(self, task: Task[Any, Any]) -> list[dict[str, Any]]:
        """Return the arguments of each call that was sent, by name."""
        return [task.decode(_record(new, 0)) for new in self._sent[task.topics[0]]]

    def dead_letters(self, task: Task[Any, Any]) -> list[DeadLetter]:
        """Return the records of a task that could not be processed."""
        return self._letters[task.name]

    def note(self, new: NewRecord) -> Record:
        """Note a record that is sent; return it as it would arrive."""
        self._sent[new.topic].append(new)
        return _record(new, len(self._sent[new.topic]) - 1)

    def note_letter(self, task: Task[Any, Any], record: Record, reason: str, attempt: int) -> None:
        """Note a dead letter."""
        arguments = None
        with suppress(Undecodable):
            arguments = task.decode(record)
        self._letters[task.name].append(DeadLetter(arguments, reason, attempt))

    @contextmanager
    def sending_with(self, sender: Sender) -> Iterator[None]:
        """Have all tasks send with another sender meanwhile."""
        senders = [task.sender for task in self.tasks]
        for task in self.tasks:
            task.sender = sender
        try:
            yield
        finally:
            for task, own in zip(self.tasks, senders, strict=True):
                task.sender = own
            sender.close()


@contextmanager
def inline_trial(tasks: Iterable[Task[Any, Any]]) -> Iterator[Trial]:
    """Have records processed by the call that sends them: encoded, decoded, and tried as often as
    the task says, without waiting for delays. There is no broker.
    """
    trial = Trial(tasks)
    with trial.sending_with(_InlineSender(trial)):
        yield trial


class _InlineSender(Sender):
    """Gives records to the functions."""

    def __init__(self, trial: Trial) -> None:
        super().__init__(dict)
        self._trial = trial

    async def ensure_topic(self, topic: NewTopic) -> None:
        pass

    def ensure_topic_sync(self, topic: NewTopic) -> None:
        pass

    def send_sync(self, records: Sequence[NewRecord]) -> list[Sent]:
        outer = self._loop_thread
        if not outer.is_current():
            return self.run(self.send(records))
        # An async function sends, and blocks its loop until this call has been processed.
        self._loop_thread = LoopThread("headrace-sync")
        try:
            return self.run(self.send(records))
        finally:
            self._loop_thread.close()
            self._loop_thread = outer

    async def send(self, records: Sequence[NewRecord]) -> list[Sent]:
        places = []
        for record in map(self._trial.note, records):
            for task in self._trial.tasks:
                if record.topic in task.topics:
                    await self._process(task, record)
            places.append(Sent(record.topic, record.partition, record.offset))
        return places

    async def _process(self, task: Task[Any, Any], record: Record) -> None:
        if task.run_in == "process":  # a test looks at what functions do in its own process
            task = copy(task)
            task.run_in = "thread"
        runner = Runner(task, {}, "test", 1)
        outcome = None
        try:
            while outcome is None or outcome.ending is Ending.RETRY:
                attempt = Attempt(record)
                attempt.slot = asyncio.create_task(runner.result_of(attempt, nullcontext()))
                outcome = decide(await attempt.slot, attempt.number, task.retry, lambda: 0.5)
                record = record._replace(delivery_count=record.delivery_count + 1)
        finally:
            runner.stop()
            await runner.run()  # ends its thread
        if outcome.ending is Ending.LETTER:
            self._trial.note_letter(task, record, outcome.reason, attempt.number)


@asynccontextmanager
async def worker_trial(tasks: Iterable[Task[Any, Any]]) -> AsyncIterator[WorkerTrial]:
    """Have a broker of the test, and a worker of all tasks in the test's event loop. Retries and
    delayed records come at once.
    """
    from headrace.broker.embedded import EmbeddedBroker

    broker = EmbeddedBroker(config={"group.initial.rebalance.delay.ms": 0})
    await asyncio.to_thread(broker.start)
    try:
        trial = WorkerTrial(tasks, broker.bootstrap_servers)
        sender = _NotingSender(trial)
        with trial.sending_with(sender):
            for task in trial.tasks:
                for topic in task.topics:
                    await sender.ensure_topic(NewTopic(topic))
            worker = Worker(trial.tasks, trial.conf, drain_timeout_s=5.0)
            for runner in worker.runners:
                runner.hurries = True
            trial.run = asyncio.create_task(worker.run())
            try:
                yield trial
            finally:
                worker.stop()
                await trial.run
    finally:
        await asyncio.to_thread(broker.stop)


class WorkerTrial(Trial):
    """A trial with a broker and a worker.

    :ivar bootstrap_servers: the broker's address, for subscribers' topics
    :ivar run: the worker
    """

    run: asyncio.Task[None]

    def __init__(self, tasks: Iterable[Task[Any, Any]], bootstrap_servers: str) -> None:
        super().__init__(tasks)
        self.bootstrap_servers = bootstrap_servers
        self.conf = {"bootstrap.servers": bootstrap_servers}

    async def drained(self, timeout: float = 10.0) -> None:
        """Wait until every record is processed, or is a dead letter.

        :param timeout: in seconds
        :raises ClientError: some are left, or the worker has ended
        """
        left: dict[str, int | None] = {task.group: None for task in self.tasks}
        query = LagQuery(tuple(left), time_lag=False, complete_counts=False, members=False)
        deadline_s = time.monotonic() + timeout
        async with Cluster(self.bootstrap_servers) as cluster:
            while any(records != 0 for records in left.values()):
                if self.run.done():
                    raise ClientError(f"the worker has ended: {self.run.exception()}")
                if time.monotonic() > deadline_s:
                    raise ClientError(f"not drained in {timeout:g} s: records left: {left}")
                await asyncio.sleep(_LOOK_S)
                for group in (await snapshot(cluster, query)).groups:
                    left[group.group_id] = None if group.lag.unknown else group.lag.records


class _NotingSender(Sender):
    """Notes what it sends to the broker: calls, and the worker's dead letters."""

    def __init__(self, trial: WorkerTrial) -> None:
        super().__init__(lambda: trial.conf)
        self._trial = trial

    def produce(self, record: NewRecord, report: Report) -> bool:
        if not super().produce(record, report):
            return False
        tasks = [task for task in self._trial.tasks if task.dead_letters == record.topic]
        if tasks:
            headers = {name: value or b"" for name, value in record.headers}
            reason = headers[dead_letters.MESSAGE].decode()
            attempts = int(headers[dead_letters.ATTEMPT])
            self._trial.note_letter(tasks[0], _record(record, 0), reason, attempts)
        else:
            self._trial.note(record)
        return True


def _record(new: NewRecord, offset: int) -> Record:
    """Return a record as it would arrive."""
    headers = tuple(new.headers)
    now_ms = int(time.time() * 1000)
    return Record(
        new.topic, 0, offset, new.key, new.value, headers, now_ms, "CreateTime", 1, _NO_ID
    )
