"""One function of a worker on its share group."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from contextvars import copy_context
from copy import deepcopy
from itertools import count
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.config import read_config
from headrace.client.configs import share_group_config
from headrace.client.errors import ClientError
from headrace.client.loop_thread import cancel_all
from headrace.client.records import Record, UnreadableBatch
from headrace.client.share.consumer import ShareConsumer, is_setting
from headrace.client.workers import MAX_FAILURES, Failure, shortened
from headrace.log_lines import LimitedLog, get_logger

from .attempts import Attempt, Waiting, origin_of
from .backends import Backend, LoopBackend, RunIn, ThreadBackend
from .breaker import BreakerState
from .endings import HELD_S, LINES_A_SECOND, Endings, is_set_within
from .group import crowded, prepare
from .meter import Meter
from .outcomes import (
    ACCEPTED,
    Ending,
    Outcome,
    Reject,
    Retry,
    TimedOut,
    Undecodable,
    decide,
    growing,
    lost_attempts,
)
from .payload import Arguments, Delivery, RecordLog
from .processes import ProcessBackend
from .task import Task

_log = get_logger(__name__)
_lines = LimitedLog(__name__, limit=LINES_A_SECOND)

_BACKENDS: dict[RunIn, type[Backend]] = {
    "loop": LoopBackend,
    "thread": ThreadBackend,
    "process": ProcessBackend,
}
_POLL_S = 1.0
_MAX_POLL_RECORDS = 500
_AHEAD_S = 0.05
"""Records that are expected to begin in this time are taken from the broker before."""
_MEAN_OF = 32
"""The functions whose times make the mean, about."""
_STALLED_S = 1.0
"""The time after which records that were taken ahead go back."""
_RETRY_PAUSES_S = (1.0, 30.0)
"""The first and the longest pause after which a consumer that has failed is opened again."""
_CANCEL_GRACE_S = 5.0
"""The time that a cancelled function has to end before its record is given up."""
_CARE_INTERVAL_S = 10.0
"""The interval of looking after what is held for long."""
_CARES_BETWEEN_LIMITS = 6
"""The intervals after which the group's limit of deliveries is read again."""
_MAX_WAITING = 1000
"""The limit of records of the task's topics that are held until they are due; those that come then
wait in the topic for later records, so that others get past them.
"""
_MAX_WAITING_BYTES = 32 << 20
_MAX_HELD_RECORDS = 20_000
"""The limit of held records beside those that are processed; the broker has lower ones."""
_MAX_HELD_BYTES = 256 << 20
"""The limit of held records of the task's topics by their size."""


class Runner:
    """Takes records of one share group as slots come free, runs the function, and ends them.

    Functions run in slots: asyncio tasks that take one record after the other while there are
    some. The outcomes of records that end while others travel are sent together.

    A runner is two members of its group, one for the task's topics and one for the topic of later
    records. The assignor of share groups counts partitions, whatever is in them: with one member
    for both, the first worker would keep all partitions of the task, and the second one would get
    those where mostly nothing is. When members subscribe to different topics, the assignor balances
    each topic on its own.

    :param task: what to run
    :param conf: librdkafka's names and values
    :param worker: the worker's name, for dead letters and for the group's member list
    :param concurrency: the number of slots
    """

    def __init__(
        self, task: Task[Any, Any], conf: Mapping[str, Any], worker: str, concurrency: int
    ) -> None:
        self.task = task
        self.concurrency = concurrency
        self.hurries = False
        """True in tests: retries and delayed records come at once."""
        self.running: set[Attempt] = set()
        """Those whose functions run."""
        self.counts: defaultdict[str, int] = defaultdict(int)
        """:data:`headrace.client.workers.COUNTERS`, accepted, written_again → records."""
        self.meter = Meter(concurrency, self.counts)
        self.breaker = deepcopy(task.breaker)
        self.failures: deque[Failure] = deque(maxlen=MAX_FAILURES)
        """The last ones, the newest last."""
        self._conf = {**conf, "group.id": task.group, "client.id": f"{task.name}@{worker}"}
        self._backend = _BACKENDS[task.run_in](task.function, task.name, concurrency, conf)
        self._consumers: tuple[ShareConsumer, ...] = ()
        """That of the task's topics, and that of later records; none while it has not joined."""
        self._problem: str | None = "it has not joined its group yet"
        self._ready: deque[Attempt] = deque()
        self._moved_s = 0.0
        """When one of them was last begun, or came while there was none."""
        self._slots, self._is_starting = 0, False
        self._context = copy_context()
        self._mean_s = float(concurrency)
        """The time that functions have taken lately. It begins as if one ended in a second."""
        self._slot_free = asyncio.Event()
        self._endings = Endings(task, worker, self.counts, self._holder, self._slot_free.set)
        self._waiting = Waiting()
        self._waits_for_another = asyncio.Event()
        self._is_limit_told = False
        self._stopping = asyncio.Event()

    def __repr__(self) -> str:
        return repr(self.task)

    # -- life

    async def prepare(self) -> None:
        """Create what is missing: topics, the share group's configs.

        :raises ClientError: no broker answers, or it refuses
        """
        async with self._cluster() as cluster:
            await prepare(cluster, self.task)
            await self._read_limit(cluster)

    def _cluster(self) -> Cluster:
        return read_config(self._conf).cluster()

    async def _read_limit(self, cluster: Cluster) -> None:
        """Learn after how many deliveries the broker archives a record: anybody may change it."""
        limit = await share_group_config(cluster, self.task.group, "share.delivery.count.limit")
        if limit is None and not self._is_limit_told:
            self._is_limit_told = True
            _log.warning(
                "%s may not read share.delivery.count.limit of group '%s', so it writes each "
                "record again that has failed: the user needs the permission DESCRIBE_CONFIGS on "
                "the group",
                self,
                self.task.group,
            )
        self._endings.max_deliveries = int(limit or 2)

    @property
    def is_stopping(self) -> bool:
        """Whether it takes no more records."""
        return self._stopping.is_set()

    @property
    def problem(self) -> str | None:
        """Why it gets no records; None while it is a member of its group."""
        if self._stopping.is_set():
            return "it stops"
        problems = [self._problem, *(consumer.problem for consumer in self._consumers)]
        return next(filter(None, problems), None)

    @property
    def breaker_state(self) -> BreakerState:
        """Whether the breaker lets records through."""
        return self.breaker.state(time.monotonic())

    async def run(self) -> None:
        """Work until :meth:`stop`; then end what runs.

        :raises ClientError: the first attempt to join the group fails
        """
        pauses_s = growing(*_RETRY_PAUSES_S)
        try:
            await self._backend.open()
            while not self._stopping.is_set():
                try:
                    await self._work()
                except ClientError as error:
                    if not self._consumers:  # it has never joined
                        raise
                    if self._problem is None:  # it has joined since the last one
                        pauses_s = growing(*_RETRY_PAUSES_S)
                    self._problem, pause_s = str(error), next(pauses_s)
                    _log.warning("%s: %s; it goes on in %.0f s", self, error, pause_s)
                    await is_set_within(self._stopping, pause_s)
        finally:
            await self._backend.close()

    async def _work(self) -> None:
        """Be a member of the group until :meth:`stop` or an error."""
        async with (
            self._consumer(self.task.topics, _MAX_HELD_BYTES) as own,
            self._consumer([self.task.later], 2 * _MAX_WAITING_BYTES) as later,
        ):
            self._consumers, self._problem = (own, later), None
            self._endings.begin(is_counted=not await own.broker_delays())
            loops = [
                asyncio.create_task(loop)
                for loop in (
                    self._take(own),
                    self._take(later),
                    self._begin_due(),
                    self._care(),
                    self._stopping.wait(),
                )
            ]
            try:
                ended, _ = await asyncio.wait(loops, return_when=asyncio.FIRST_COMPLETED)
                for loop in ended:
                    loop.result()
            finally:
                # No new records; those that run end their own way, or are cancelled by the worker.
                await cancel_all(loops)
                self._give_back()
                self._endings.put_back(self._waiting.attempts)
                self._waiting = Waiting()
                self._endings.stop()
                while self._endings.is_busy or self._slots > self._given_up():
                    self._slot_free.clear()
                    await self._slot_free.wait()

    def _given_up(self) -> int:
        """Return how many slots have functions that nothing waits for: they may never end. When the
        worker stops, it waits for them, too, as long as for others.
        """
        return 0 if self.is_stopping else sum(attempt.is_given_up for attempt in self.running)

    def _consumer(self, topics: Iterable[str], max_held_bytes: int) -> ShareConsumer:
        return ShareConsumer(
            {name: value for name, value in self._conf.items() if is_setting(name)},
            topics,
            on_lock_lost=self._lose,
            max_held_records=self.concurrency + _MAX_HELD_RECORDS,
            max_held_bytes=max_held_bytes,
            tracing=self.task.sender.tracing,
        )

    def _holder(self, record: Record) -> ShareConsumer:
        own, later = self._consumers
        return later if record.topic == self.task.later else own

    def _lose(self, records: list[Record]) -> None:
        lost = set(map(id, records))
        self._ready = deque(attempt for attempt in self._ready if id(attempt.record) not in lost)
        self._waiting.remove(lost)
        self._endings.lose(lost)

    async def _care(self) -> None:
        """Look after records that wait for long, and the limits that others may change."""
        for number in count(1):
            await asyncio.sleep(_CARE_INTERVAL_S)
            far = [
                attempt
                for attempt in self._waiting.attempts
                if attempt.record.topic == self.task.later and attempt.due_s > time.time() + HELD_S
            ]
            reads_limit = number % _CARES_BETWEEN_LIMITS == 0
            if not far and not reads_limit:
                continue
            try:
                async with self._cluster() as cluster:
                    if reads_limit:
                        await self._read_limit(cluster)
                    # When they fill the memory, those behind get no other turn.
                    if far and self._waiting.size_bytes < _MAX_WAITING_BYTES:
                        far = await crowded(cluster, self.task, far)
            except ClientError as error:
                _log.info("%s: %s", self, error)
                continue
            for attempt in self._waiting.remove({id(attempt.record) for attempt in far}):
                self._endings.write_again(attempt, attempt.earlier, attempt.due_s)

    def stop(self) -> None:
        """Take no more records."""
        self._stopping.set()

    def abandon(self) -> None:
        """Cancel what runs; its records are released."""
        self._give_back()
        for attempt in self.running:
            if not attempt.is_given_up:
                attempt.is_given_up = True
                self._endings.put_back([attempt])
            if attempt.slot is not None and self._backend.is_cancellable:
                attempt.slot.cancel()

    # -- arrivals

    async def _take(self, consumer: ShareConsumer) -> None:
        """Take records as slots come free."""
        while True:
            room = await self._room()
            try:
                records = await consumer.poll(min(room, _MAX_POLL_RECORDS), _POLL_S)
            except UnreadableBatch as error:  # its records are released
                _log.error("%s: %s", self, error)
                await asyncio.sleep(_POLL_S)
            else:
                self._begin(map(Attempt, records))

    async def _begin_due(self) -> None:
        """Begin the attempts that have waited until they are due."""
        while True:
            self._waits_for_another.clear()
            wait_s = min(self._waiting.next_due_s() - time.time(), _POLL_S)
            if wait_s > 0:
                await is_set_within(self._waits_for_another, wait_s)
            else:
                room = await self._room()
                self._begin(self._waiting.take_due(time.time(), room))

    async def _room(self) -> int:
        """Wait until records may be taken, and return how many. Those that wait long for a slot go
        back, for others.
        """
        while True:
            if self._ready and time.monotonic() - self._moved_s >= _STALLED_S:
                self._give_back()
            if (room := self._room_now()) > 0:
                return room
            if self.breaker_state == "open":
                await asyncio.sleep(self.breaker.opens_for_s(time.monotonic()))
                continue
            self._slot_free.clear()
            await is_set_within(self._slot_free, _STALLED_S if self._ready else None)

    def _give_back(self) -> None:
        """Give back what was taken ahead, and take nothing ahead until functions are seen to be
        fast: a broker may count each delivery.
        """
        self._endings.put_back(self._ready)
        self._ready.clear()
        self._mean_s = float(self.concurrency)

    def _room_now(self) -> int:
        room = self.concurrency + self._ahead() - self._slots - len(self._ready)
        room -= self._endings.stuck
        match self.breaker_state:
            case "closed":
                return room
            case "probing":
                probes = sum(
                    not attempt.is_given_up and self.breaker.is_probe(attempt.began_s)
                    for attempt in self.running
                )
                return min(room, 1 - probes - len(self._ready))
            case "open":
                return 0

    def _ahead(self) -> int:
        """Return how many records are taken before there are slots for them: as many as end in a
        moment, so that short functions need not wait for the broker.
        """
        return min(int(self.concurrency * _AHEAD_S / self._mean_s), _MAX_POLL_RECORDS)

    def _begin(self, attempts: Iterable[Attempt]) -> None:
        """Hand those attempts to slots that are to be made now."""
        now = [attempt for attempt in attempts if not self._ends_before(attempt)]
        if self.breaker.is_pausing:  # a poll from before brings them
            room = max(self._room_now(), 0)
            self._endings.put_back(now[room:])
            now = now[:room]
        if not self._ready:
            self._moved_s = time.monotonic()
        self._ready += now
        self._start_slot()

    def _ends_before(self, attempt: Attempt) -> bool:
        """Return False for an attempt that is to be made now; see to another one."""
        record, now_s = attempt.record, time.time()
        if self._endings.end_again(attempt):
            return True
        if 0 < attempt.expires_s < now_s:
            self.counts["expired"] += 1
            self._endings.accept(attempt)
        elif attempt.due_s > now_s and not self.hurries:
            self._wait(attempt)
        elif not self.task.at_most_once and record.delivery_count >= self._endings.max_deliveries:
            # A crash in this delivery, which is the last one, would be the end of the record.
            if attempt.number > self.task.retry.attempts:
                self._end(attempt, lost_attempts(attempt.number))
            else:
                self._endings.write_again(attempt, attempt.number - 1)
        else:
            return False
        return True

    def _wait(self, attempt: Attempt) -> None:
        """Hold a record until it is due, or have it wait elsewhere."""
        is_later = attempt.record.topic == self.task.later
        is_too_much = (
            attempt.due_s > time.time() + HELD_S
            or len(self._waiting.attempts) > _MAX_WAITING
            or self._waiting.size_bytes > _MAX_WAITING_BYTES
        )
        # All deliveries so far were too early. Written again, the next one is the first.
        if attempt.record.delivery_count > 1 or (is_too_much and not is_later):
            self._endings.write_again(attempt, attempt.earlier, attempt.due_s)
            return
        self._waiting.add(attempt)
        self._waits_for_another.set()

    # -- slots

    def _start_slot(self) -> None:
        """Have one more slot, if there are records for it. Each starts the next one: functions that
        never wait need one slot.
        """
        if self._ready and not self._is_starting and self._slots < self.concurrency:
            self._slots += 1
            self._is_starting = True
            context = self._context.copy()  # the current one may be that of a function
            asyncio.create_task(self._slot(), context=context)  # noqa: RUF006  # `running` has it

    async def _slot(self) -> None:
        self._is_starting = False
        slot = asyncio.current_task()
        try:
            while self._ready:
                attempt, self._moved_s = self._ready.popleft(), time.monotonic()
                attempt.slot = slot
                self._start_slot()
                await self._process(attempt)
                # What a function has set, or a cancellation of it, must not reach the next one.
                if copy_context() != self._context or (slot is not None and slot.cancelling()):
                    return
        finally:
            self._slots -= 1
            self._start_slot()
            self._slot_free.set()

    async def _process(self, attempt: Attempt) -> None:
        context = self._holder(attempt.record).processing(attempt.record)
        if not await self._endings.may_go_on(attempt):
            return
        self.running.add(attempt)
        attempt.since_s, attempt.began_s = time.time(), time.monotonic()
        self.meter.begin(attempt.began_s)
        if attempt.number == 1:
            sent_s = attempt.due_s or attempt.record.timestamp_ms / 1000
            self.meter.started_after.observe(max(attempt.since_s - sent_s, 0.0))
        result = await self.result_of(attempt, context)
        ended_s = time.monotonic()
        self.meter.end(attempt.began_s, ended_s)
        self._mean_s += (max(ended_s - attempt.began_s, 1e-6) - self._mean_s) / _MEAN_OF
        if len(self._ready) == self._ahead() // 2:
            self._slot_free.set()
        self.running.remove(attempt)
        if attempt.is_given_up:
            self._tell_late(attempt, result)
        else:
            self.counts["done"] += result is None
            self._end_with(attempt, result)

    async def result_of(
        self, attempt: Attempt, context: AbstractContextManager[object]
    ) -> BaseException | None:
        """Run the function once with what is in a record.

        :param context: around the function; is told what that raises
        :returns: what it has raised, or its decision; None for success
        """
        try:
            with context:
                result = await self._run(attempt)
        except asyncio.CancelledError as error:
            if attempt.is_timed_out:
                return TimedOut(f"not done in {self.task.timeout_s:g} s")
            return error if attempt.is_given_up else RuntimeError("the function was cancelled")
        except BaseException as error:  # also SystemExit: it ends the function, not the worker
            return error
        return result if isinstance(result, Reject | Retry) else None

    async def _run(self, attempt: Attempt) -> object:
        task = self.task
        arguments = task.decode(attempt.record)
        takes_delivery = task.signature.delivery is not None or task.middleware
        delivery = self._delivery(attempt) if takes_delivery else None
        call = task.signature.call(arguments, delivery)
        if task.timeout_s is None:
            return await self._call(call, delivery)
        await self._backend.ready()
        loop = asyncio.get_running_loop()
        deadline = loop.call_later(task.timeout_s, self._time_out, attempt)
        try:
            return await self._call(call, delivery)
        finally:
            deadline.cancel()

    async def _call(self, call: Arguments, delivery: Delivery | None, depth: int = 0) -> object:
        """Run the function within the middleware from a depth on."""
        if delivery is None or depth == len(self.task.middleware):
            return await self._backend.run(call)
        return await self.task.middleware[depth](
            delivery, lambda: self._call(call, delivery, depth + 1)
        )

    def _delivery(self, attempt: Attempt) -> Delivery:
        record, task = attempt.record, self.task

        async def renew() -> None:
            await self._holder(record).renew(record)

        log = RecordLog(task.log, {"record": f"{task.name} {attempt}"})
        return Delivery(record, attempt.number, task.name, task.group, log, renew)

    def _time_out(self, attempt: Attempt) -> None:
        attempt.is_timed_out = True
        grace_s = 0.0
        if self._backend.is_cancellable and attempt.slot is not None:
            attempt.slot.cancel()
            grace_s = _CANCEL_GRACE_S
        asyncio.get_running_loop().call_later(grace_s, self._give_up, attempt)

    def _give_up(self, attempt: Attempt) -> None:
        """Decide what becomes of a record, though its function still runs."""
        if attempt in self.running and not attempt.is_given_up:
            attempt.is_given_up = True
            error = TimedOut(f"not done in {self.task.timeout_s:g} s, and still running")
            self._end_with(attempt, error)
            self._slot_free.set()

    def _tell_late(self, attempt: Attempt, result: object) -> None:
        if not isinstance(result, asyncio.CancelledError | TimedOut):
            self.counts["late"] += 1
            _log.warning(
                "%s has ended %s after its record was given up: the result is not used",
                self,
                attempt,
            )

    # -- outcomes

    def _end_with(self, attempt: Attempt, result: object) -> None:
        self._end(attempt, decide(result, attempt.number, self.task.retry, random.random))

    def _end(self, attempt: Attempt, outcome: Outcome) -> None:
        """Have an outcome sent; tell and count failures."""
        if outcome is ACCEPTED:
            if self.breaker.succeeded(attempt.began_s):
                _log.info("%s works again", self)
            self._endings.accept(attempt)
            return
        if outcome.error is not None:
            outcome = self._judged(attempt, outcome)
        if self.hurries:
            outcome = outcome._replace(delay_s=0.0)
        if outcome.reason:
            self._tell(attempt, outcome)
        self._endings.end(attempt, outcome)

    def _judged(self, attempt: Attempt, outcome: Outcome) -> Outcome:
        """Count a failure, and return what becomes of the record if most records fail: then it is
        tried again, also after its last attempt.
        """
        self.counts["failed"] += 1
        if isinstance(outcome.error, Undecodable):  # it says nothing of what the function needs
            return outcome
        breaker, now_s = self.breaker, time.monotonic()
        origin = origin_of(attempt.record, self.task.later)
        if breaker.failed(origin, outcome.reason, attempt.began_s, now_s):
            self._give_back()
            outcome = outcome._replace(pause_s=breaker.opens_for_s(now_s))
        if attempt.is_accepted or not breaker.is_doubtful:
            return outcome
        if outcome.ending is Ending.LETTER:
            delay_s = self.task.retry.delay_s(attempt.number, random.random())
            outcome = outcome._replace(ending=Ending.PUT_BACK, delay_s=delay_s)
        return outcome._replace(delay_s=breaker.retry_after_s(origin, outcome.delay_s, now_s))

    def _tell(self, attempt: Attempt, outcome: Outcome) -> None:
        queue = self.task.dead_letters
        fate = {
            Ending.ACCEPT: "it ends",
            Ending.RETRY: f"next try in {outcome.delay_s:.1f} s",
            Ending.PUT_BACK: f"put back for {outcome.delay_s:.1f} s, because most records fail",
            Ending.LETTER: f"dead letter in {queue}"
            if queue
            else "rejected: there is no dead-letter queue",
        }[outcome.ending]
        most = self.task.retry.attempts
        comes_again = outcome.ending in (Ending.RETRY, Ending.PUT_BACK)
        attempts = "not tried again"
        if comes_again or attempt.number == most:
            attempts = f"attempt {attempt.number} of {most}"
        told = attempt, attempts, outcome.reason, fate
        if outcome.pause_s:
            line = "%s pauses for %.1f s, because most records fail, such as %s, %s: %s; %s"
            _log.error(line, self, outcome.pause_s, *told)
        else:
            line = "%s failed on %s, %s: %s; %s"
            _lines.warning(repr(self.task), line, self, *told)
        record, time_ms = attempt.record, time.time_ns() // 1_000_000
        place = record.topic, record.partition, record.offset
        texts = shortened(outcome.reason), shortened(fate)
        self.failures.append(Failure(time_ms, *place, attempt.number, *texts))
        if comes_again:
            self.meter.retry_in(outcome.delay_s)
