"""How records end: outcomes are sent to the broker, dead letters and later attempts are written."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from typing import Any, NamedTuple

from headrace.client.errors import ClientError
from headrace.client.records import Record
from headrace.client.share.consumer import OutcomesFailed
from headrace.log_lines import FewLines, get_logger

from .attempts import attempt_of, written_again
from .letters import letter, without_content
from .members import Members
from .outcomes import Ending, Outcome
from .sending import NewRecord, SendFailed, Sent
from .task import Task

_log = get_logger(__name__)

HELD_S = 60.0
"""A longer delay is waited for in the topic for later records: the locks and backoffs of a
partition are few, and new records wait for them.
"""
_MAX_UNCONFIRMED = 10_000
_DELAY_STEPS_S = ((1.0, 0.05), (10.0, 0.5), (60.0, 1.0), (float("inf"), 10.0))
"""Delays up to the first number are rounded to the second, so that many records share a request."""
_WRITE_PAUSES_S = (1.0, 30.0)
"""The first and the longest pause until a copy that was refused is written again."""

_WRITTEN_AGAIN = "written_again"

Place = tuple[Any, int, int, int]
"""Topic id, partition, offset, timestamp: after a power cut or an unclean election, another record
may have the offset.
"""


class _Copy(NamedTuple):
    """A record that ends when its dead letter, or the record itself, is written again.

    :param counted_as: the name of what is counted when it is written
    :param is_held: False if the record was accepted before it was processed
    :param smaller: is written if the broker finds the copy too large; None if nothing is
    :param pause_s: until it is written again, if the broker refuses it
    """

    record: Record
    copy: NewRecord
    counted_as: str
    is_held: bool = True
    smaller: NewRecord | None = None
    pause_s: float = _WRITE_PAUSES_S[0]


class Endings:
    """Ends the records of one group. What ends while other outcomes travel is sent together.

    A record of which a copy is to be written is held until the copy is there, and only then
    accepted: if the broker refuses the copy, it is written again later, and the record stays.

    :param worker: the worker's name, for dead letters
    :param counts: accepted, retried, dead_letters, rejected, late → records; is changed
    :param on_change: called when records have ended
    :ivar members: what holds the records
    :ivar max_deliveries: the group's limit of deliveries
    """

    def __init__(
        self,
        task: Task[Any, Any],
        worker: str,
        counts: MutableMapping[str, int],
        on_change: Callable[[], object],
    ) -> None:
        self.members: Members | None = None
        self.max_deliveries = 2
        self._task, self._worker, self._counts = task, worker, counts
        self._on_change = on_change
        self._accepted: list[Record] = []
        self._released: defaultdict[tuple[float, bool], list[Record]] = defaultdict(list)
        """By delay in seconds, and whether the delivery counts."""
        self._rejected: defaultdict[str, list[Record]] = defaultdict(list)
        self._copies: list[_Copy] = []
        self._refused: dict[asyncio.TimerHandle, _Copy] = {}
        """Copies that wait to be written again."""
        self._problem = ""
        self._lines = FewLines(_log, repr(task))
        self._is_stopping, self._all_count = False, True
        self._sending: asyncio.Task[None] | None = None
        self._writing: asyncio.Task[None] | None = None
        self._unconfirmed: OrderedDict[Place, None] = OrderedDict()
        """Records that have ended, and the broker has not confirmed it."""

    # -- state

    @property
    def is_busy(self) -> bool:
        """True while there is something to send or to write."""
        return self._sending is not None or self._writing is not None or bool(self._refused)

    @property
    def stuck(self) -> int:
        """The number of records whose copies the broker has refused."""
        return len(self._refused)

    def begin(self, members: Members, *, is_counted: bool) -> None:
        """Have outcomes sent by the members that hold the records.

        :param is_counted: whether the broker counts every delivery
        """
        self.members, self._is_stopping, self._all_count = members, False, is_counted

    def stop(self) -> None:
        """Release records whose copies the broker refuses, from now on."""
        self._is_stopping = True
        for handle, copy in list(self._refused.items()):
            handle.cancel()
            del self._refused[handle]
            self._give_up(copy)

    def lose(self, records: Iterable[Record]) -> None:
        """Forget records whose locks were lost: they are delivered again."""
        lost = set(map(id, records))
        for handle, copy in list(self._refused.items()):
            if id(copy.record) in lost:
                handle.cancel()
                del self._refused[handle]
        self._copies = [copy for copy in self._copies if id(copy.record) not in lost]

    def has_ended(self, record: Record) -> bool:
        """Return whether a record has ended before, and is delivered again. Forget it then."""
        if not self._unconfirmed or (place := _place(record)) not in self._unconfirmed:
            return False
        del self._unconfirmed[place]
        return True

    # -- outcomes

    def accept(self, record: Record) -> None:
        """Have a record accepted."""
        self._accepted.append(record)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())

    def end(self, record: Record, attempt: int, outcome: Outcome) -> None:
        """Have an outcome sent.

        :param attempt: the number of the attempt that has ended
        """
        if outcome.ending is Ending.ACCEPT:
            self.accept(record)
        elif outcome.ending is Ending.LETTER:
            is_held = not self._task.at_most_once
            self._end_without_success(record, attempt, outcome, is_held=is_held)
        elif outcome.ending is Ending.PUT_BACK:
            self._try_later(record, attempt - 1, outcome.delay_s, is_counted=False)
        else:
            self._try_later(record, attempt, outcome.delay_s)

    def write_again(self, record: Record, earlier: int, due_s: float = 0.0) -> None:
        """Have a record written again, and accepted.

        :param earlier: the attempts so far
        :param due_s: the time before which it is not processed
        """
        copy = written_again(self._task.later, record, earlier, due_s)
        self._write(_Copy(record, copy, _WRITTEN_AGAIN))

    def put_back(self, records: Iterable[Record], delay_s: float = 0.0) -> None:
        """Have records released of which no attempt was made."""
        self._released[delay_s, False] += records
        self._start_sending()

    def _end_without_success(
        self, record: Record, attempt: int, outcome: Outcome, *, is_held: bool
    ) -> None:
        if self._task.dead_letters is None:
            self._counts["rejected"] += 1
            if is_held:
                self._rejected[outcome.reason].append(record)
                self._start_sending()
            return
        copy = letter(
            self._task.dead_letters,
            record,
            group=self._task.group,
            worker=self._worker,
            attempt=attempt,
            reason=outcome.reason,
            error=outcome.error,
        )
        smaller = without_content(copy, record)
        self._write(_Copy(record, copy, "dead_letters", is_held, smaller))

    def _try_later(
        self, record: Record, earlier: int, delay_s: float, *, is_counted: bool = True
    ) -> None:
        self._counts["retried"] += is_counted
        # A crash in the last delivery would be the end of the record.
        is_last = record.delivery_count >= self.max_deliveries - 1
        uses_delivery = is_counted or self._all_count
        if (is_last and uses_delivery) or (is_counted and delay_s > HELD_S):
            self.write_again(record, earlier, time.time() + delay_s if delay_s else 0.0)
            return
        self._released[_rounded(delay_s), is_counted].append(record)
        self._start_sending()

    def _start_sending(self) -> None:
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        """Send outcomes until there are no more."""
        try:
            while self._accepted or self._released or self._rejected:
                assert self.members is not None
                by_holder = self.members.by_holder
                calls: list[Awaitable[None]] = []
                if accepted := self._accepted:
                    self._accepted = []
                    self._counts["accepted"] += len(accepted)
                    for consumer, held in by_holder(accepted).items():
                        calls.append(self._confirm(consumer.accept(held), held))
                if self._rejected:
                    for reason, records in self._rejected.items():
                        for consumer, held in by_holder(records).items():
                            rejected = consumer.reject(held, reason=reason)
                            calls.append(self._confirm(rejected, held))
                    self._rejected = defaultdict(list)
                if self._released:
                    for (delay_s, is_counted), records in self._released.items():
                        for consumer, held in by_holder(records).items():
                            released = consumer.release(held, delay=delay_s, counted=is_counted)
                            calls.append(self._confirm(released, ()))
                    self._released = defaultdict(list)
                if len(calls) == 1:
                    await calls[0]
                else:
                    await asyncio.gather(*calls)
        finally:
            self._sending = None
            self._on_change()

    async def _confirm(self, call: Awaitable[None], ended: Collection[Record]) -> None:
        """Wait for an answer, and remember what the broker has not taken.

        :param ended: the records that have ended: if they are delivered again, they end at once
        """
        try:
            await call
        except ClientError as error:
            failed = error.failed if ended and isinstance(error, OutcomesFailed) else ended
            self._counts["late"] += len(failed)
            self._unconfirmed.update(dict.fromkeys(map(_place, failed)))
            while len(self._unconfirmed) > _MAX_UNCONFIRMED:
                self._unconfirmed.popitem(last=False)
            _log.warning("%s: %s; these records are delivered again", self, error)

    # -- copies

    def _write(self, copy: _Copy) -> None:
        self._copies.append(copy)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_copies())

    async def _write_copies(self) -> None:
        """Write copies until there are no more, and accept their records."""
        try:
            while self._copies:
                copies, self._copies = self._copies, []
                results: list[Sent | SendFailed] | list[ClientError]
                try:
                    results = await self._task.sender.try_send([copy.copy for copy in copies])
                except ClientError as error:
                    results = [error] * len(copies)
                for copy, result in zip(copies, results, strict=True):
                    if isinstance(result, ClientError):
                        self._refuse(copy, result)
                        continue
                    self._counts[copy.counted_as] += 1
                    self._problem = ""
                    if copy.is_held:
                        self.accept(copy.record)
        finally:
            self._writing = None
            self._on_change()

    def _refuse(self, copy: _Copy, error: ClientError) -> None:
        """Have a copy written again, smaller or later."""
        is_too_large = isinstance(error, SendFailed) and error.is_too_large
        if is_too_large and copy.smaller is not None:
            self._copies.append(copy._replace(copy=copy.smaller, smaller=None))
            return
        if is_too_large and copy.counted_as == _WRITTEN_AGAIN:
            # Anybody may write such records, and those that stay take the room of others.
            reason = (
                "too large to be written again: raise max.message.bytes of topic "
                f"'{copy.copy.topic}', or set compression.type"
            )
            where = f"{copy.record.topic}-{copy.record.partition} offset {copy.record.offset}"
            self._lines.warning("%s: %s is %s", self, where, reason)
            outcome = Outcome(Ending.LETTER, reason=reason)
            attempt = attempt_of(copy.record)
            self._end_without_success(copy.record, attempt, outcome, is_held=True)
            return
        if str(error) != self._problem:
            self._problem = str(error)
            _log.error(
                "%s: %s; the records stay, and it is tried again until it succeeds", self, error
            )
        if self._is_stopping:
            self._give_up(copy)
            return

        def write() -> None:
            del self._refused[handle]
            pause_s = min(2 * copy.pause_s, _WRITE_PAUSES_S[1])
            self._write(copy._replace(pause_s=pause_s))

        handle = asyncio.get_running_loop().call_later(copy.pause_s, write)
        self._refused[handle] = copy

    def _give_up(self, copy: _Copy) -> None:
        if copy.is_held:
            self.put_back([copy.record])

    def __repr__(self) -> str:
        return repr(self._task)


def _place(record: Record) -> Place:
    return record.topic_id, record.partition, record.offset, record.timestamp_ms


def _rounded(delay_s: float) -> float:
    step_s = next(step for limit, step in _DELAY_STEPS_S if delay_s <= limit)
    return round(delay_s / step_s) * step_s
