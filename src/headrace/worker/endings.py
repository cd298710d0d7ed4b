"""How records end: outcomes are sent to the broker, dead letters and later attempts are written."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, MutableMapping, Sequence
from itertools import starmap
from typing import Any

from headrace.client.errors import ClientError
from headrace.client.records import Record
from headrace.client.share.consumer import OutcomesFailed, ShareConsumer
from headrace.log_lines import LimitedLog, get_logger

from .attempts import Attempt, letter, written_again
from .outcomes import Ending, Outcome, growing
from .sending import NewRecord, SendFailed
from .task import Task

_log = get_logger(__name__)

HELD_S = 20.0
"""A longer delay is waited for in the topic for later records: the locks and backoffs of a
partition are few, and new records wait for them.
"""
LINES_A_SECOND = 10
"""The limit of lines of a kind about a task. Further ones are counted."""
_lines = LimitedLog(__name__, limit=LINES_A_SECOND)

_MAX_UNCONFIRMED = 10_000
_WRITE_PAUSES_S = (1.0, 30.0)
"""The first and the longest pause until a copy that was refused is written again."""

_WRITTEN_AGAIN = "written_again"

Place = tuple[Any, int, int, int]
"""Topic id, partition, offset, timestamp: after a power cut or an unclean election, another record
may have the offset.
"""
_Call = tuple[ShareConsumer, str, tuple[tuple[str, str | float], ...]]
"""A consumer, the name of its method, and the arguments beside the records that it ends."""


class Endings:
    """Ends the records of one group. What ends while other outcomes travel is sent together.

    A record of which a copy is to be written is held until the copy is there, and only then
    accepted: if the broker refuses the copy, it is written again later, and the record stays. At
    most once, it is accepted first.

    :param worker: the worker's name, for dead letters
    :param counts: accepted, retried, dead_letters, rejected, late → records; is changed
    :param holder: returns the consumer that holds a record
    :param on_change: called when records have ended
    :ivar max_deliveries: the group's limit of deliveries
    """

    def __init__(
        self,
        task: Task[Any, Any],
        worker: str,
        counts: MutableMapping[str, int],
        holder: Callable[[Record], ShareConsumer],
        on_change: Callable[[], object],
    ) -> None:
        self.max_deliveries = 2
        self._task, self._worker, self._counts = task, worker, counts
        self._holder, self._on_change = holder, on_change
        self._all_count = True
        self._pending: defaultdict[_Call, list[Record]] = defaultdict(list)
        self._sending: asyncio.Task[None] | None = None
        self._writing: set[asyncio.Task[None]] = set()
        self._stuck: dict[int, asyncio.Task[None]] = {}
        """What waits to write a copy of a record again, by the record's ``id()``."""
        self._problem = ""
        self._stopping = asyncio.Event()
        self._unconfirmed: OrderedDict[Place, _Call] = OrderedDict()
        """How records have ended of which the broker has not confirmed it."""

    # -- state

    @property
    def is_busy(self) -> bool:
        """True while there is something to send or to write."""
        return self._sending is not None or bool(self._writing)

    @property
    def stuck(self) -> int:
        """The number of records whose copies the broker has refused."""
        return len(self._stuck)

    def begin(self, *, is_counted: bool) -> None:
        """Write copies until :meth:`stop`.

        :param is_counted: whether the broker counts every delivery
        """
        self._all_count = is_counted
        self._stopping.clear()

    def stop(self) -> None:
        """Release records whose copies the broker refuses, from now on."""
        self._stopping.set()

    def lose(self, record_ids: Container[int]) -> None:
        """Forget records, by ``id()``, whose locks were lost: they are delivered again."""
        for record_id, writer in self._stuck.items():
            if record_id in record_ids:
                writer.cancel()

    # -- outcomes

    def accept(self, attempt: Attempt) -> None:
        """Have a record accepted."""
        self._send_soon(attempt, "accept")

    def end_again(self, attempt: Attempt) -> bool:
        """Have a record that has ended before, and is delivered again, end in the same way.

        :returns: whether it is one
        """
        call = self._unconfirmed.pop(_place(attempt.record), None) if self._unconfirmed else None
        if call is not None:
            self._send_soon(attempt, call[1], **dict(call[2]))
        return call is not None

    async def may_go_on(self, attempt: Attempt) -> bool:
        """At most once: accept a record before anything is done with it. Return False if the broker
        refuses: others get it.
        """
        if self._task.at_most_once and not attempt.is_accepted:
            try:
                await self._holder(attempt.record).accept(attempt.record)
            except ClientError as error:
                _log.info("%s: %s", self._task, error)
                return False
            attempt.is_accepted = True
        return True

    def put_back(self, attempts: Iterable[Attempt]) -> None:
        """Have records released of which no attempt was made."""
        for attempt in attempts:
            if not attempt.is_accepted:  # before it was made: at most once
                self._try_later(attempt, 0.0, is_counted=False)

    def end(self, attempt: Attempt, outcome: Outcome) -> None:
        """Have an outcome sent."""
        if outcome.ending is Ending.ACCEPT:
            self.accept(attempt)
        elif outcome.ending is Ending.LETTER:
            self._end_without_success(attempt, outcome)
        else:
            self._try_later(attempt, outcome.delay_s, is_counted=outcome.ending is Ending.RETRY)

    def write_again(self, attempt: Attempt, earlier: int, due_s: float = 0.0) -> None:
        """Have a record written again, and accepted.

        :param earlier: the attempts so far
        :param due_s: the time before which it is not processed
        """
        copy = written_again(self._task.later, attempt.record, earlier, due_s)
        self._write_soon(attempt, [copy], _WRITTEN_AGAIN)

    def _end_without_success(self, attempt: Attempt, outcome: Outcome) -> None:
        task = self._task
        if task.dead_letters is not None:
            copies = letter(
                task.dead_letters, attempt, outcome, group=task.group, worker=self._worker
            )
            self._write_soon(attempt, copies, "dead_letters")
            return
        self._counts["rejected"] += 1
        self._send_soon(attempt, "reject", reason=outcome.reason)

    def _try_later(self, attempt: Attempt, delay_s: float, *, is_counted: bool) -> None:
        self._counts["retried"] += is_counted
        # A crash in the last delivery would be the end of the record.
        is_last = attempt.record.delivery_count >= self.max_deliveries - 1
        uses_delivery = is_counted or self._all_count
        if (is_last and uses_delivery) or (is_counted and delay_s > HELD_S):
            earlier = attempt.number if is_counted else attempt.number - 1
            self.write_again(attempt, earlier, time.time() + delay_s if delay_s else 0.0)
        else:
            self._release(attempt, delay_s, is_counted=is_counted)

    def _release(self, attempt: Attempt, delay_s: float, *, is_counted: bool) -> None:
        # Rounded to two digits, so that many records share a request.
        self._send_soon(attempt, "release", delay=float(f"{delay_s:.2g}"), counted=is_counted)

    def _send_soon(self, attempt: Attempt, verb: str, **terms: str | float) -> None:
        if attempt.is_accepted:  # before it was made: at most once
            return
        call = self._holder(attempt.record), verb, tuple(terms.items())
        self._pending[call].append(attempt.record)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        """Send outcomes until there are no more."""
        try:
            while pending := self._pending:
                self._pending = defaultdict(list)
                await asyncio.gather(*starmap(self._confirm, pending.items()))
        finally:
            self._sending = None
            self._on_change()

    async def _confirm(self, call: _Call, records: list[Record]) -> None:
        """End records, and remember what the broker has not taken: if it is delivered again, it
        ends at once.
        """
        consumer, verb, terms = call
        if verb == "accept":
            self._counts["accepted"] += len(records)
        try:
            await getattr(consumer, verb)(records, **dict(terms))
        except ClientError as error:
            failed: Collection[Record] = records
            if isinstance(error, OutcomesFailed):  # the loss of their locks was logged
                failed = error.failed
            else:
                _log.warning("%s: %s; these records are delivered again", self._task, error)
            if verb != "release":
                self._counts["late"] += len(failed)
                self._unconfirmed.update(dict.fromkeys(map(_place, failed), call))
                while len(self._unconfirmed) > _MAX_UNCONFIRMED:
                    self._unconfirmed.popitem(last=False)

    # -- copies

    def _write_soon(self, attempt: Attempt, copies: Sequence[NewRecord], counted_as: str) -> None:
        writer = asyncio.create_task(self._write(attempt, copies, counted_as))
        self._writing.add(writer)
        writer.add_done_callback(self._written)

    def _written(self, writer: asyncio.Task[None]) -> None:
        self._writing.discard(writer)
        self._on_change()

    async def _write(self, attempt: Attempt, copies: Sequence[NewRecord], counted_as: str) -> None:
        """Write a copy of a record until the broker takes it, then have the record accepted; at
        most once, the other way round.

        :param copies: the next one is written if the broker finds one too large
        :param counted_as: the name of what is counted when it is written
        """
        if not await self.may_go_on(attempt):
            return
        pauses_s = growing(*_WRITE_PAUSES_S)
        while problem := await self._refusal(copies[0]):
            if isinstance(problem, SendFailed) and problem.is_too_large:
                if len(copies) > 1:
                    copies = copies[1:]
                    continue
                if counted_as == _WRITTEN_AGAIN:
                    self._end_too_large(attempt)
                    return
            if str(problem) != self._problem:
                self._problem = str(problem)
                _log.error(
                    "%r: %s; the records stay, and it is tried again until it succeeds",
                    self._task,
                    problem,
                )
            if await self._is_stopped_within(next(pauses_s), id(attempt.record)):
                if attempt.is_accepted:
                    line = "%s: %s is lost, at most once: %s"
                    _lines.warning(repr(self._task), line, self._task, attempt, problem)
                self._release(attempt, 0.0, is_counted=False)
                return
        self._counts[counted_as] += 1
        self._problem = ""
        self.accept(attempt)

    async def _refusal(self, copy: NewRecord) -> ClientError | None:
        try:
            await self._task.sender.send([copy])
        except ClientError as error:
            return error
        return None

    async def _is_stopped_within(self, pause_s: float, record_id: int) -> bool:
        writer = asyncio.current_task()
        assert writer is not None
        self._stuck[record_id] = writer
        try:
            return await is_set_within(self._stopping, pause_s)
        finally:
            del self._stuck[record_id]

    def _end_too_large(self, attempt: Attempt) -> None:
        """Anybody may write such records, and those that stay take the room of others."""
        reason = (
            "too large to be written again: raise max.message.bytes of topic "
            f"'{self._task.later}', or set compression.type"
        )
        _lines.warning(repr(self._task), "%s: %s is %s", self._task, attempt, reason)
        self._end_without_success(attempt, Outcome(Ending.LETTER, reason=reason))


def _place(record: Record) -> Place:
    return record.topic_id, record.partition, record.offset, record.timestamp_ms


async def is_set_within(event: asyncio.Event, timeout_s: float | None) -> bool:
    """Wait for an event; return whether it was set in time."""
    try:
        async with asyncio.timeout(timeout_s):
            return await event.wait()
    except TimeoutError:
        return False
