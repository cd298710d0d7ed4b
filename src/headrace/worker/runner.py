"""One function of a worker on its share group."""

from __future__ import annotations

import asyncio
import random
import time
from collections import OrderedDict, defaultdict, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from logging import LoggerAdapter
from typing import Any

from headrace.client.config import read_config
from headrace.client.configs import ConfigType, alter_configs
from headrace.client.errors import ClientError, RequestRefused
from headrace.client.groups import describe_group
from headrace.client.records import Record
from headrace.client.share.consumer import OutcomesFailed, ShareConsumer, is_setting
from headrace.client.topics import NewTopic, ensure_topic
from headrace.log_lines import get_logger

from .backends import backend
from .breaker import BreakerState
from .delivery import Delivery
from .letters import letter
from .outcomes import ACCEPTED, Ending, Outcome, TimedOut, Undecodable, decide
from .payload import ATTEMPTS, DUE_MS, EXPIRES_MS
from .sending import NewRecord
from .task import Task

_log = get_logger(__name__)

_POLL_S = 1.0
_MAX_POLL_RECORDS = 500
_RETRY_PAUSES_S = (1.0, 30.0)
"""The first and the longest pause after which a consumer that has failed is opened again."""
_CANCEL_GRACE_S = 5.0
"""The time that a cancelled function has to end before its record is given up."""
_MAX_UNCONFIRMED = 10_000
_DELAY_STEPS_S = ((1.0, 0.05), (10.0, 0.5), (60.0, 1.0), (float("inf"), 10.0))
"""Delays up to the first number are rounded to the second, so that many records share a request."""
_MAX_DELIVERIES = 10
"""The largest ``share.delivery.count.limit`` of Apache Kafka."""

Place = tuple[Any, int, int]
"""Topic id, partition, offset."""


class Running:
    """A record whose function runs.

    :ivar since_s: when it began, by ``time.time``
    :ivar is_given_up: whether its outcome is decided, though the function has not ended
    """

    __slots__ = ("attempt", "is_given_up", "is_timed_out", "record", "since_s", "slot")

    def __init__(self, record: Record, attempt: int, slot: asyncio.Task[None] | None) -> None:
        self.record = record
        self.attempt = attempt
        self.slot = slot
        self.since_s = time.time()
        self.is_given_up = self.is_timed_out = False


class Runner:
    """Takes records of one share group as slots come free, runs the function, and ends them.

    Functions run in slots: asyncio tasks that take one record after the other while there are
    some. The outcomes of records that end while others travel are sent together.

    :param task: what to run
    :param conf: librdkafka's names and values
    :param worker: the worker's name, for dead letters and for the group's member list
    :param concurrency: the number of slots
    """

    def __init__(
        self,
        task: Task[Any, Any],
        conf: Mapping[str, Any],
        worker: str,
        concurrency: int,
    ) -> None:
        self.task = task
        self.worker = worker
        self.concurrency = concurrency
        self.hurries = False
        """True in tests: retries and delayed records come at once."""
        self.running: dict[int, Running] = {}
        """By id; in the order of their beginning."""
        self.counts: dict[str, int] = defaultdict(int)
        """accepted, retried, dead_letters, failed, late, expired, undecodable → records."""
        self.busy_s = 0.0
        """The sum of all times for which slots were busy."""
        self.breaker = None if task.breaker is None else task.breaker.new()
        self.failures: deque[tuple[float, Record, int, str]] = deque(maxlen=20)
        """The last failures: (time, record, attempt, reason)."""
        self._conf = {
            **conf,
            "group.id": task.group,
            "client.id": f"{task.name}@{worker}",
        }
        self._sender = task.sender
        self._backend = backend(task.function, task.run_in, task.name, concurrency)
        self._queue: ShareConsumer | None = None
        self._ready: deque[Record] = deque()
        self._slots, self._is_starting = 0, False
        self._slot_free = asyncio.Event()
        self._ended: list[tuple[Record, int, Outcome]] = []
        self._flushing: asyncio.Task[None] | None = None
        self._unconfirmed: OrderedDict[Place, Outcome] = OrderedDict()
        """Outcomes that the broker has not confirmed: if it delivers such a record again, the
        function does not run again.
        """
        self._stopping = asyncio.Event()

    # -- life

    async def prepare(self) -> None:
        """Create what is missing: topics, the share group's configs.

        :raises ClientError: no broker answers, or it refuses
        """
        task = self.task
        async with read_config(self._conf).cluster() as cluster:
            if task.is_own_topic:
                await ensure_topic(cluster, task.new_topic)
            if task.dead_letters is not None:
                await ensure_topic(
                    cluster,
                    NewTopic(
                        task.dead_letters,
                        configs={"errors.deadletterqueue.group.enable": "true"},
                    ),
                )
            if await describe_group(cluster, task.group) is None:
                await self._configure_group(cluster)

    async def _configure_group(self, cluster: Any) -> None:
        task = self.task
        configs = {
            "share.auto.offset.reset": task.start,
            "share.delivery.count.limit": str(_MAX_DELIVERIES),
        }
        if task.dead_letters is not None:  # for records whose workers died at each delivery
            configs["errors.deadletterqueue.topic.name"] = task.dead_letters
            configs["errors.deadletterqueue.copy.record.enable"] = "true"
        for name, value in configs.items():
            try:
                await alter_configs(cluster, ConfigType.GROUP, task.group, {name: value})
            except RequestRefused as refusal:
                if name == "share.auto.offset.reset":
                    raise
                _log.info("%s goes on without %s: %s", self, name, refusal)

    async def run(self) -> None:
        """Work until :meth:`stop`; then end what runs.

        :raises ClientError: the first attempt to join the group fails
        """
        pause_s, is_first = _RETRY_PAUSES_S[0], True
        try:
            while not self._stopping.is_set():
                try:
                    await self._work()
                    pause_s = _RETRY_PAUSES_S[0]
                except ClientError as error:
                    if is_first and self._queue is None:
                        raise
                    _log.warning("%s: %s; it goes on in %.0f s", self, error, pause_s)
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._stopping.wait(), pause_s)
                    pause_s = min(pause_s * 2, _RETRY_PAUSES_S[1])
                is_first = False
        finally:
            await self._backend.close()

    async def _work(self) -> None:
        """Be a member of the group until :meth:`stop` or an error."""
        conf = {name: value for name, value in self._conf.items() if is_setting(name)}
        async with ShareConsumer(conf, self.task.topics) as queue:
            self._queue = queue
            try:
                while not self._stopping.is_set():
                    await self._take(queue)
            finally:
                # No new records; those that run end their own way, or are cancelled by the worker.
                self._ready.clear()
                while self.running or self._ended or self._flushing is not None:
                    self._slot_free.clear()
                    await self._slot_free.wait()

    def stop(self) -> None:
        """Take no more records."""
        self._stopping.set()
        self._slot_free.set()

    def abandon(self) -> None:
        """Cancel what runs; its records are released."""
        for running in list(self.running.values()):
            self._give_up(running, Outcome(Ending.RETRY, 0.0, "the worker stops"))
            if running.slot is not None and self._backend.is_cancellable:
                running.slot.cancel()

    async def _take(self, queue: ShareConsumer) -> None:
        """Hand the next records to slots."""
        free = self.concurrency - self._slots - len(self._ready)
        if self.breaker is not None:
            state = self.breaker.state(time.monotonic())
            if state is BreakerState.OPEN:
                with suppress(TimeoutError):
                    opens_for_s = self.breaker.opens_for_s(time.monotonic())
                    await asyncio.wait_for(self._stopping.wait(), opens_for_s)
                return
            if state is BreakerState.PROBING:
                free = min(free, 1 - len(self.running) - len(self._ready))
        if free <= 0:
            self._slot_free.clear()
            await self._slot_free.wait()
            return
        records = await queue.poll(min(free, _MAX_POLL_RECORDS), _POLL_S)
        if not records:
            return
        if self.task.at_most_once:
            records = await self._accept_first(queue, records)
        self._ready.extend(records)
        self._start_slot()

    async def _accept_first(self, queue: ShareConsumer, records: list[Record]) -> list[Record]:
        """Return the records that are accepted, and so are never delivered again."""
        try:
            await queue.accept(records)
        except OutcomesFailed as error:
            return [record for record in records if record not in error.failed]
        return records

    # -- slots

    def _start_slot(self) -> None:
        """Have one more slot, if there are records for it. Each starts the next one: functions that
        never wait need one slot.
        """
        if self._ready and not self._is_starting and self._slots < self.concurrency:
            self._slots += 1
            self._is_starting = True
            asyncio.create_task(self._slot())  # noqa: RUF006  # `running` has it

    async def _slot(self) -> None:
        self._is_starting = False
        slot, context = asyncio.current_task(), copy_context()
        try:
            while self._ready:
                record = self._ready.popleft()
                self._start_slot()
                await self._process(record, slot)
                if copy_context() != context:
                    return  # what a function has set must not reach the next one
        finally:
            self._slots -= 1
            self._start_slot()
            self._slot_free.set()

    async def _process(self, record: Record, slot: asyncio.Task[None] | None) -> None:
        task = self.task
        attempt = record.delivery_count
        if record.headers:
            headers = dict(record.headers)
            if (earlier := headers.get(ATTEMPTS)) is not None:
                attempt += _number(earlier)
            if (due := headers.get(DUE_MS)) is not None:
                attempt = max(attempt - 1, 1)  # the delivery before it was due
                if (delay_s := _number(due) / 1000 - time.time()) > 0 and not self.hurries:
                    self._end(record, attempt, Outcome(Ending.RETRY, delay_s))
                    return
            if (expires := headers.get(EXPIRES_MS)) is not None and _number(
                expires
            ) < time.time() * 1000:
                self.counts["expired"] += 1
                self._end(record, attempt, ACCEPTED)
                return
        if self._unconfirmed and (known := self._unconfirmed.pop(_place(record), None)):
            self._end(record, attempt, known)
            return
        running = Running(record, attempt, slot)
        self.running[id(running)] = running
        began_s = time.monotonic()
        result: object
        try:
            result = await self.call(running)
        except BaseException as error:  # also SystemExit: it ends the function, not the worker
            result = error
        self.busy_s += time.monotonic() - began_s
        del self.running[id(running)]
        if running.is_given_up:
            self._tell_late(running, result)
            return
        if isinstance(result, asyncio.CancelledError):
            if running.is_timed_out:
                result = TimedOut(f"not done in {task.timeout_s:g} s")
            else:
                result = RuntimeError("the function was cancelled")
        if not isinstance(result, BaseException):
            self._end(record, attempt, ACCEPTED)
        else:
            self._end(record, attempt, decide(result, attempt, task.retry, random.random))

    async def call(self, running: Running) -> object:
        """Run the function once with what is in a record.

        :raises Exception: what it raises; of :class:`Undecodable` and ``CancelledError``, too
        """
        task, record = self.task, running.record
        arguments = task.decode(record)
        delivery: Delivery | None = None
        if task.signature.delivery is not None or task.middleware:
            delivery = self._delivery(running)
        call = task.signature.call(arguments, delivery)
        if task.timeout_s is None:
            return await self._call(call, delivery)
        loop = asyncio.get_running_loop()
        deadline = loop.call_later(task.timeout_s, self._time_out, running)
        try:
            return await self._call(call, delivery)
        finally:
            deadline.cancel()

    async def _call(self, call: Any, delivery: Delivery | None) -> Any:
        if not self.task.middleware or delivery is None:
            return await self._backend.run(call)

        async def at(depth: int) -> Any:
            if depth == len(self.task.middleware):
                return await self._backend.run(call)
            return await self.task.middleware[depth](delivery, lambda: at(depth + 1))

        return await at(0)

    def _delivery(self, running: Running) -> Delivery:
        record, task = running.record, self.task
        where = f"{task.name} {record.topic}-{record.partition} offset {record.offset}"

        async def renew() -> None:
            assert self._queue is not None
            await self._queue.renew(record)

        log = _RecordLog(task.log, {"record": where})
        return Delivery(record, running.attempt, task.name, task.group, log, renew)

    def _time_out(self, running: Running) -> None:
        running.is_timed_out = True
        grace_s = 0.0
        if self._backend.is_cancellable and running.slot is not None:
            running.slot.cancel()
            grace_s = _CANCEL_GRACE_S
        asyncio.get_running_loop().call_later(grace_s, self._give_up_timed_out, running)

    def _give_up_timed_out(self, running: Running) -> None:
        if id(running) in self.running and not running.is_given_up:
            error = TimedOut(f"not done in {self.task.timeout_s:g} s, and still running")
            self._give_up(running, decide(error, running.attempt, self.task.retry, random.random))

    def _give_up(self, running: Running, outcome: Outcome) -> None:
        """Decide what becomes of a record, though its function still runs."""
        if not running.is_given_up:
            running.is_given_up = True
            self._end(running.record, running.attempt, outcome)

    def _tell_late(self, running: Running, result: object) -> None:
        if isinstance(result, asyncio.CancelledError):
            return
        self.counts["late"] += 1
        _log.warning(
            "%s has ended %s-%d offset %d after its record was given up: the result is not used",
            self,
            running.record.topic,
            running.record.partition,
            running.record.offset,
        )

    # -- outcomes

    def _end(self, record: Record, attempt: int, outcome: Outcome) -> None:
        """Have an outcome sent; tell and count failures."""
        if self.hurries and outcome.delay_s:
            outcome = outcome._replace(delay_s=0.0)
        self._ended.append((record, attempt, outcome))
        if outcome is not ACCEPTED:
            self._tell(record, attempt, outcome)
        elif self.breaker is not None and self.breaker.succeeded():
            _log.warning("%s works again", self)
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())

    def _tell(self, record: Record, attempt: int, outcome: Outcome) -> None:
        if not outcome.reason:
            return
        where = f"{record.topic}-{record.partition} offset {record.offset}"
        fate = {
            Ending.ACCEPT: "it ends",
            Ending.RETRY: f"next try in {outcome.delay_s:.1f} s",
            Ending.LETTER: f"dead letter in {self.task.dead_letters}"
            if self.task.dead_letters
            else "rejected: there is no dead-letter queue",
        }[outcome.ending]
        _log.warning(
            "%s failed on %s, attempt %d of %d: %s; %s",
            self,
            where,
            attempt,
            self.task.retry.attempts,
            outcome.reason,
            fate,
        )
        self.failures.append((time.time(), record, attempt, outcome.reason))
        if outcome.is_failure:
            self.counts["failed"] += 1
            if isinstance(outcome.error, Undecodable):
                self.counts["undecodable"] += 1
            if self.breaker is not None and self.breaker.failed(outcome.reason, time.monotonic()):
                _log.error(
                    "%s pauses for %.0f s, because most records fail: %s",
                    self,
                    self.breaker.opens_for_s(time.monotonic()),
                    outcome.reason,
                )

    async def _flush(self) -> None:
        """Send outcomes until there are no more."""
        try:
            while self._ended:
                ended, self._ended = self._ended, []
                try:
                    await self._send_outcomes(ended)
                except Exception:
                    _log.exception("%s cannot end %d records", self, len(ended))
        finally:
            self._flushing = None
            self._slot_free.set()

    async def _send_outcomes(self, ended: Sequence[tuple[Record, int, Outcome]]) -> None:
        queue = self._queue
        assert queue is not None
        if self.task.at_most_once:
            # They are accepted already: only letters are left to write.
            await self._write_letters([e for e in ended if e[2].ending is not Ending.ACCEPT])
            return
        accepted = [record for record, _, outcome in ended if outcome is ACCEPTED]
        calls = []
        if len(accepted) < len(ended):
            others = [entry for entry in ended if entry[2] is not ACCEPTED]
            letters = [entry for entry in others if entry[2].ending is Ending.LETTER]
            again = [
                entry
                for entry in others
                if entry[2].ending is Ending.RETRY and entry[0].delivery_count >= _MAX_DELIVERIES
            ]
            accepted += [record for record, _, o in others if o.ending is Ending.ACCEPT]
            accepted += await self._write_letters(letters)
            accepted += await self._send_again(again)
            delays: defaultdict[float, list[Record]] = defaultdict(list)
            for record, _, outcome in others:
                if outcome.ending is Ending.RETRY and record.delivery_count < _MAX_DELIVERIES:
                    delays[_rounded(outcome.delay_s)].append(record)
            for delay_s, records in delays.items():
                self.counts["retried"] += len(records)
                calls.append(queue.release(records, delay=delay_s))
        if accepted:
            self.counts["accepted"] += len(accepted)
            calls.append(queue.accept(accepted))
        if len(calls) == 1:
            results: Sequence[object] = [await _outcome_of(calls[0])]
        else:
            results = await asyncio.gather(*map(_outcome_of, calls))
        outcomes = None
        for error in results:
            if isinstance(error, OutcomesFailed):
                outcomes = outcomes or {id(record): outcome for record, _, outcome in ended}
                self._unsent(error, outcomes)
            elif isinstance(error, ClientError):
                _log.warning("%s: %s", self, error)

    def _unsent(self, error: OutcomesFailed, outcomes: Mapping[int, Outcome]) -> None:
        """Remember outcomes that the broker has not taken, and tell it."""
        done = [r for r in error.failed if outcomes[id(r)].ending is not Ending.RETRY]
        for record in done:
            self._unconfirmed[_place(record)] = ACCEPTED
        while len(self._unconfirmed) > _MAX_UNCONFIRMED:
            self._unconfirmed.popitem(last=False)
        self.counts["late"] += len(done)
        _log.warning("%s: %s; these records are delivered again", self, error)

    async def _write_letters(self, entries: Sequence[tuple[Record, int, Outcome]]) -> list[Record]:
        """Write dead letters.

        :returns: the records that may end now
        """
        queue = self.task.dead_letters
        if not entries:
            return []
        if queue is not None:
            letters = [
                letter(
                    queue,
                    record,
                    group=self.task.group,
                    worker=self.worker,
                    attempt=attempt,
                    reason=outcome.reason,
                    error=outcome.error,
                )
                for record, attempt, outcome in entries
            ]
            await self._sender.send(letters)
        self.counts["dead_letters"] += len(entries)
        return [record for record, _, _ in entries]

    async def _send_again(self, entries: Sequence[tuple[Record, int, Outcome]]) -> list[Record]:
        """Write records again that have no delivery left, with the number of attempts.

        :returns: the records that may end now
        """
        again = []
        for record, attempt, outcome in entries:
            due_ms = int((time.time() + outcome.delay_s) * 1000)
            headers = [h for h in record.headers if h[0] not in (ATTEMPTS, DUE_MS)]
            headers += [(ATTEMPTS, b"%d" % attempt), (DUE_MS, b"%d" % due_ms)]
            again.append(NewRecord(record.topic, record.value, record.key, headers))
        if again:
            self.counts["retried"] += len(again)
            await self._sender.send(again)
        return [record for record, _, _ in entries]

    def __repr__(self) -> str:
        return f"task '{self.task.name}'"


class _RecordLog(LoggerAdapter):  # type: ignore[type-arg]
    """Puts the place of a record before each line."""

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        return f"{(self.extra or {})['record']}: {msg}", kwargs


async def _outcome_of(call: Any) -> object:
    """Return the error of a call, or None."""
    try:
        await call
    except ClientError as error:
        return error
    return None


def _place(record: Record) -> Place:
    return record.topic_id, record.partition, record.offset


def _number(text: bytes | None) -> int:
    """Return the number in a header; 0 if there is none: anybody may write headers."""
    return int(text) if text is not None and text.isdigit() and len(text) < 16 else 0


def _rounded(delay_s: float) -> float:
    step_s = next(step for limit, step in _DELAY_STEPS_S if delay_s <= limit)
    return round(delay_s / step_s) * step_s
