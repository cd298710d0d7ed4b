"""One function of a worker on its share group."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict, deque
from collections.abc import Mapping
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from itertools import count
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.config import read_config
from headrace.client.configs import ConfigType, alter_configs, describe_configs, share_group_config
from headrace.client.errors import ClientError, RequestRefused
from headrace.client.groups import SHARE, GroupDescription, describe_group
from headrace.client.records import Record, UnreadableBatch
from headrace.client.share.consumer import OutcomesFailed
from headrace.client.topics import ensure_topic
from headrace.client.workers import MAX_FAILURES, Failure, shortened
from headrace.log_lines import FewLines, get_logger

from .attempts import Waiting, attempt_of, origin_of, terms_of
from .backends import backend
from .breaker import BreakerState
from .delivery import Delivery, RecordLog
from .endings import HELD_S, Endings
from .later import crowded, ensure_queue, largest_records
from .members import Members
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
    lost_attempts,
)
from .task import Task

_log = get_logger(__name__)

_POLL_S = 1.0
_MAX_POLL_RECORDS = 500
_AHEAD_S = 0.05
"""Records that are expected to begin in this time are taken from the broker before."""
_STALLED_S = 1.0
"""The time after which records that were taken ahead go back."""
_RETRY_PAUSES_S = (1.0, 30.0)
"""The first and the longest pause after which a consumer that has failed is opened again."""
_CANCEL_GRACE_S = 5.0
"""The time that a cancelled function has to end before its record is given up."""
_MAX_DELIVERIES = 10
"""The largest ``share.delivery.count.limit`` of Apache Kafka."""
_CARE_INTERVAL_S = 10.0
"""The interval of looking after what is held for long."""
_CARES_BETWEEN_LIMITS = 6
"""The intervals after which the group's limit of deliveries is read again."""
_MAX_WAITING = 1000
"""The limit of records of the task's topics that are held until they are due; those that come then
wait in the topic for later records, so that others get past them.
"""
_MAX_WAITING_BYTES = 64 << 20
_MAX_HELD_RECORDS = 20_000
"""The limit of held records beside those that are processed; the broker has lower ones."""


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
        """done, accepted, retried, written_again, dead_letters, rejected, failed, late, expired,
        undecodable → records.
        """
        self.meter = Meter(concurrency, self.counts)
        self.breaker = None if task.breaker is None else task.breaker.new()
        self._failure_lines = FewLines(_log, str(self))
        self.failures: deque[Failure] = deque(maxlen=MAX_FAILURES)
        """The last ones, the newest last."""
        self._conf = {
            **conf,
            "group.id": task.group,
            "client.id": f"{task.name}@{worker}",
        }
        self._backend = backend(task.function, task.run_in, task.name, concurrency, conf)
        self._members: Members | None = None
        self._problem = "it has not joined its group yet"
        self._ready: deque[Record] = deque()
        self._slots, self._is_starting = 0, False
        self._ended = self._counted = self._taken_ahead = 0
        self._counted_at_s = 0.0
        self._slot_free = asyncio.Event()
        self._endings = Endings(task, worker, self.counts, self._slot_free.set)
        self._waiting = Waiting()
        self._is_later_paused = False
        self._is_limit_told = False
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
            largest = await largest_records(cluster, task.topics)
            later = task.new_later
            await ensure_topic(cluster, replace(later, configs={**later.configs, **largest}))
            if task.dead_letters is not None:
                await ensure_queue(cluster, task.dead_letters, largest)
            group = await describe_group(cluster, task.group)
            if group is not None:
                self._check_group(group)
            await self._configure_group(cluster, is_new=group is None)
            await self._read_limit(cluster)

    def _check_group(self, group: GroupDescription) -> None:
        """:raises ClientError: the records of the group go to others, too"""
        if group.type != SHARE:
            raise ClientError(
                f"{self} needs a share group, and '{group.group_id}' is a {group.type} group: give "
                "the task another group"
            )
        for member in group.members:
            name, at, worker = member.client_id.rpartition("@")
            if at and name != self.task.name:
                raise ClientError(
                    f"{self} and task '{name}' of worker {worker} have one group, "
                    f"'{group.group_id}', whose records go to either: give one another group, or "
                    "stop that worker"
                )

    async def _configure_group(self, cluster: Cluster, *, is_new: bool) -> None:
        task, configs = self.task, dict[str, str]()
        if is_new:
            configs["share.auto.offset.reset"] = task.start
            configs["share.delivery.count.limit"] = str(_MAX_DELIVERIES)
        if task.dead_letters is not None:  # for records whose workers died at each delivery
            configs["errors.deadletterqueue.topic.name"] = task.dead_letters
            configs["errors.deadletterqueue.copy.record.enable"] = "true"
        described = await describe_configs(
            cluster, ConfigType.GROUP, [task.group], keys=list(configs)
        )
        answer = described[task.group]
        if not isinstance(answer, ClientError):  # what others have set stays
            for config in answer:
                if config.is_dynamic:
                    configs.pop(config.name, None)
        for name, value in configs.items():  # a broker may know some of them only
            try:
                await alter_configs(cluster, ConfigType.GROUP, task.group, {name: value})
            except RequestRefused as refusal:
                if name == "share.auto.offset.reset":
                    raise
                _log.info("%s goes on without %s: %s", self, name, refusal)

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
        if self._members is None or self._members.is_closed:
            return self._problem
        return self._members.problem

    async def run(self) -> None:
        """Work until :meth:`stop`; then end what runs.

        :raises ClientError: the first attempt to join the group fails
        """
        pause_s, is_first = _RETRY_PAUSES_S[0], True
        try:
            await self._backend.open()
            while not self._stopping.is_set():
                try:
                    await self._work()
                    pause_s = _RETRY_PAUSES_S[0]
                except ClientError as error:
                    if is_first and self._members is None:
                        raise
                    self._problem = str(error)
                    _log.warning("%s: %s; it goes on in %.0f s", self, error, pause_s)
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._stopping.wait(), pause_s)
                    pause_s = min(pause_s * 2, _RETRY_PAUSES_S[1])
                is_first = False
        finally:
            await self._backend.close()

    async def _work(self) -> None:
        """Be a member of the group until :meth:`stop` or an error."""
        async with Members(
            self.task,
            self._conf,
            max_held_records=self.concurrency + _MAX_HELD_RECORDS,
            on_lock_lost=self._lose,
            on_arrival=self._slot_free.set,
        ) as members:
            self._members, self._is_later_paused = members, False
            self._endings.begin(members, is_counted=not await members.broker_delays())
            care = asyncio.create_task(self._care(), name=f"headrace-care-{self.task.name}")
            try:
                while not self._stopping.is_set():
                    await self._take(members)
            finally:
                # No new records; those that run end their own way, or are cancelled by the worker.
                care.cancel()
                self._endings.put_back([*self._waiting.clear(), *members.stop()])
                if not self.task.at_most_once:
                    self._endings.put_back(self._ready)
                    self._ready.clear()
                self._endings.stop()
                while self.running or self._ready or self._endings.is_busy:
                    self._slot_free.clear()
                    await self._slot_free.wait()

    def _lose(self, records: list[Record]) -> None:
        lost = set(map(id, records))
        self._ready = deque(record for record in self._ready if id(record) not in lost)
        self._waiting.remove(records)
        self._endings.lose(records)

    async def _care(self) -> None:
        """Look after records that wait for long, and the limits that others may change."""
        for number in count(1):
            await asyncio.sleep(_CARE_INTERVAL_S)
            waiting = [
                record
                for due_s, record in self._waiting.items()
                if record.topic == self.task.later and due_s > time.time() + HELD_S
            ]
            reads_limit = number % _CARES_BETWEEN_LIMITS == 0
            if not waiting and not reads_limit:
                continue
            try:
                async with read_config(self._conf).cluster() as cluster:
                    if reads_limit:
                        await self._read_limit(cluster)
                    if waiting:
                        # When they fill the memory, those behind get no other turn.
                        behind = (
                            waiting
                            if self._is_later_paused
                            else await crowded(cluster, self.task.group, waiting)
                        )
                        for record in self._waiting.remove(behind):
                            terms = terms_of(record)
                            self._endings.write_again(record, terms.earlier, terms.due_s)
            except ClientError as error:
                _log.info("%s: %s", self, error)

    def stop(self) -> None:
        """Take no more records."""
        self._stopping.set()
        self._slot_free.set()

    def abandon(self) -> None:
        """Cancel what runs; its records are released."""
        for running in list(self.running.values()):
            if not running.is_given_up:
                running.is_given_up = True
                if not self.task.at_most_once:
                    self._endings.put_back([running.record])
            if running.slot is not None and self._backend.is_cancellable:
                running.slot.cancel()

    async def _take(self, members: Members) -> None:
        """Hand the next records to slots."""
        arrived = members.arrived()
        if self.breaker is None or not self.breaker.is_pausing:
            await self._begin(members, arrived)
        elif arrived:  # a poll from before has brought them
            self._endings.put_back(arrived)
        room = self.concurrency + self._ahead() - self._slots - len(self._ready)
        room -= self._endings.stuck
        if self.breaker is not None:
            state = self.breaker.state(time.monotonic())
            if state is BreakerState.OPEN:
                with suppress(TimeoutError):
                    opens_for_s = self.breaker.opens_for_s(time.monotonic())
                    await asyncio.wait_for(self._stopping.wait(), opens_for_s)
                return
            if state is BreakerState.PROBING:
                room = min(room, 1 - len(self.running) - len(self._ready))
        if room <= 0:
            await self._wait_for_room()
            return
        records = self._waiting.take_due(time.time(), room)
        if not records:
            due_s, wait_s = self._waiting.next_due_s(), _POLL_S
            if due_s is not None:
                wait_s = min(max(due_s - time.time(), 0.01), wait_s)
            self._resume_later()
            try:
                records = await members.poll(min(room, _MAX_POLL_RECORDS), wait_s)
            except UnreadableBatch as error:  # its records are released
                _log.error("%s: %s", self, error)
                await asyncio.sleep(_POLL_S)
                return
        await self._begin(members, records)

    async def _begin(self, members: Members, records: list[Record]) -> None:
        """Hand those records to slots of which an attempt is to be made now."""
        records = [record for record in records if not self._ends_before(record)]
        if not records:
            return
        if self.task.at_most_once:
            records = await self._accept_first(members, records)
        self._ready.extend(records)
        self._start_slot()

    def _ahead(self) -> int:
        """Return how many records are taken before there are slots for them: as many as end in a
        moment, so that short functions need not wait for the broker.
        """
        now_s = time.monotonic()
        past_s = now_s - self._counted_at_s
        if past_s >= _AHEAD_S:
            per_s = (self._ended - self._counted) / past_s
            self._taken_ahead = min(int(per_s * _AHEAD_S), _MAX_POLL_RECORDS)
            self._counted, self._counted_at_s = self._ended, now_s
        return 0 if self.task.at_most_once else self._taken_ahead

    async def _wait_for_room(self) -> None:
        """Wait until a slot is free. Records that wait long for one go back, for others."""
        self._slot_free.clear()
        if not self._ready or self.task.at_most_once:
            await self._slot_free.wait()
            return
        try:
            async with asyncio.timeout(_STALLED_S):
                await self._slot_free.wait()
        except TimeoutError:
            self._endings.put_back(self._ready)
            self._ready.clear()

    def _ends_before(self, record: Record) -> bool:
        """Return False for a record of which an attempt is to be made now; see to another one."""
        terms, now_s = terms_of(record), time.time()
        if self._endings.has_ended(record):
            self._endings.accept(record)
        elif 0 < terms.expires_s < now_s:
            self.counts["expired"] += 1
            self._endings.accept(record)
        elif terms.due_s > now_s and not self.hurries:
            self._wait(record, terms.due_s, terms.earlier)
        elif not self.task.at_most_once and record.delivery_count >= self._endings.max_deliveries:
            # A crash in this delivery, which is the last one, would be the end of the record.
            attempt = attempt_of(record)
            if attempt > self.task.retry.attempts:
                self._end(record, attempt, lost_attempts(attempt))
            else:
                self._endings.write_again(record, attempt - 1)
        else:
            return False
        return True

    def _wait(self, record: Record, due_s: float, earlier: int) -> None:
        """Hold a record until it is due, or have it wait elsewhere."""
        is_later = record.topic == self.task.later
        waiting = self._waiting
        is_full = waiting.size_bytes > _MAX_WAITING_BYTES
        is_far = due_s > time.time() + HELD_S or len(waiting) > _MAX_WAITING
        # All deliveries so far were too early. Written again, the next one is the first.
        if record.delivery_count > 1 or (not is_later and (is_full or is_far)):
            self._endings.write_again(record, earlier, due_s)
            return
        waiting.add(record, due_s)
        if is_full and self._members is not None:
            self._is_later_paused = True
            self._members.pause_later()

    def _resume_later(self) -> None:
        if self._is_later_paused and self._waiting.size_bytes < _MAX_WAITING_BYTES / 2:
            self._is_later_paused = False
            assert self._members is not None
            self._members.resume_later()

    async def _accept_first(self, members: Members, records: list[Record]) -> list[Record]:
        """Return the records that are accepted, and so are never delivered again."""
        accepted: list[Record] = []
        for consumer, held in members.by_holder(records).items():
            try:
                await consumer.accept(held)
                accepted += held
            except OutcomesFailed as error:
                accepted += [record for record in held if record not in error.failed]
        return accepted

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
                # What a function has set, or a cancellation of it, must not reach the next one.
                if copy_context() != context or (slot is not None and slot.cancelling()):
                    return
        finally:
            self._slots -= 1
            self._start_slot()
            self._slot_free.set()

    async def _process(self, record: Record, slot: asyncio.Task[None] | None) -> None:
        task = self.task
        terms = terms_of(record)
        attempt = terms.earlier + record.delivery_count
        running = Running(record, attempt, slot)
        self.running[id(running)] = running
        began_s = time.monotonic()
        self.meter.begin(began_s)
        if attempt == 1:
            since_s = terms.due_s or record.timestamp_ms / 1000
            self.meter.started_after.observe(max(running.since_s - since_s, 0.0))
        result: object
        assert self._members is not None
        try:
            with self._members.of(record).processing(record):  # its span tells what is raised
                result = await self.call(running)
            if not isinstance(result, Reject | Retry):
                result = None
        except BaseException as error:  # also SystemExit: it ends the function, not the worker
            result = error
        self._ended += 1
        if self._taken_ahead and len(self._ready) == self._taken_ahead // 2:
            self._slot_free.set()
        self.meter.end(began_s, time.monotonic())
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
            self.counts["done"] += 1
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
        await self._backend.ready()
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
            assert self._members is not None
            await self._members.of(record).renew(record)

        log = RecordLog(task.log, {"record": where})
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
        if outcome is ACCEPTED:
            if self.breaker is not None and self.breaker.succeeded(time.monotonic()):
                _log.warning("%s works again", self)
            # At most once: it is accepted already.
            if not self.task.at_most_once:
                self._endings.accept(record)
            return
        if self.task.at_most_once and outcome.ending is Ending.RETRY:
            outcome = outcome._replace(ending=Ending.LETTER)
        outcome = self._judged(record, attempt, outcome)
        if self.hurries:
            outcome = outcome._replace(delay_s=0.0)
        self._tell(record, attempt, outcome)
        if outcome.ending is not Ending.ACCEPT or not self.task.at_most_once:
            self._endings.end(record, attempt, outcome)

    def _judged(self, record: Record, attempt: int, outcome: Outcome) -> Outcome:
        """Count a failure, and return what becomes of the record if most records fail: then it is
        tried again, also after its last attempt.
        """
        breaker = self.breaker
        if breaker is None or not outcome.is_failure:
            return outcome
        now_s = time.monotonic()
        if breaker.failed(origin_of(record, self.task.later), outcome.reason, now_s):
            _log.error(
                "%s pauses for %.1f s, because most records fail: %s",
                self,
                breaker.opens_for_s(now_s),
                outcome.reason,
            )
        if self.task.at_most_once or not breaker.is_doubtful:
            return outcome
        if outcome.ending is Ending.LETTER:
            delay_s = self.task.retry.delay_s(attempt, random.random())
            outcome = outcome._replace(ending=Ending.PUT_BACK, delay_s=delay_s)
        return outcome._replace(delay_s=breaker.retry_after_s(outcome.delay_s, now_s))

    def _tell(self, record: Record, attempt: int, outcome: Outcome) -> None:
        if not outcome.reason:
            return
        where = f"{record.topic}-{record.partition} offset {record.offset}"
        fate = {
            Ending.ACCEPT: "it ends",
            Ending.RETRY: f"next try in {outcome.delay_s:.1f} s",
            Ending.PUT_BACK: f"put back for {outcome.delay_s:.1f} s, because most records fail",
            Ending.LETTER: f"dead letter in {self.task.dead_letters}"
            if self.task.dead_letters
            else "rejected: there is no dead-letter queue",
        }[outcome.ending]
        self._failure_lines.warning(
            "%s failed on %s, attempt %d of %d: %s; %s",
            self,
            where,
            attempt,
            self.task.retry.attempts,
            outcome.reason,
            fate,
        )
        self.failures.append(
            Failure(
                time.time_ns() // 1_000_000,
                record.topic,
                record.partition,
                record.offset,
                attempt,
                shortened(outcome.reason),
                shortened(fate),
            )
        )
        if outcome.ending in (Ending.RETRY, Ending.PUT_BACK):
            self.meter.retry_in(outcome.delay_s)
        if outcome.is_failure:
            self.counts["failed"] += 1
            if isinstance(outcome.error, Undecodable):
                self.counts["undecodable"] += 1

    def __repr__(self) -> str:
        return f"task '{self.task.name}'"
