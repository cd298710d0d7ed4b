"""The coordinators' runtime: the write path of every durable change.

:meth:`CoordinatorRuntime.write` takes a command through these steps::

    decide → encode → append → replay → apply → complete parked requests → durable → answer

There is no ``await`` between deciding and completing. Commands of one turn of the event loop are
decided one after the other at its end; their records are appended together, one batch for each
partition of the internal topic. Before a command is decided, waiting records of its key are
appended and replayed, unless both commands commute, as offset commits do.

A command that raises gets its own error. When an append fails, nothing has changed in memory:
records were not replayed and volatile changes not applied. The command and the parked requests that
it would have completed are answered with the error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from time import perf_counter
from typing import Any, Generic, TypeVar

from headrace.coordinators.clock import Clock
from headrace.coordinators.hashing import internal_partition
from headrace.log_lines import LimitedLog
from headrace.outcome import Coordinator, Outcome, Position, make
from headrace.protocol import record_batch
from headrace.protocol.errors import StorageError
from headrace.transactions.producer import NO_PRODUCER, Producer

from .environment import InternalLogs, WriteMeter
from .waiting import Deferred, run_to_end

log = LimitedLog("headrace.coordinators")

TURN_MS = 10
"""The time of one turn of the event loop in which commands are decided and written, and the time in
which requests are answered. It takes 500 offset commits together, as many small turns would write
many small batches.
"""

ANSWERS_AT_ONCE = 100
"""The requests that are answered before the time of a turn of the event loop is checked."""

COMMANDS_AT_ONCE = 20
"""The commands that are decided before the time of a turn of the event loop is checked."""

C = TypeVar("C", bound=Coordinator[Any])
R = TypeVar("R")

Decide = Callable[[int, int], Outcome[Any, R]]
"""A decision: given the steady time and the wall time in milliseconds, an outcome."""


class Command(Deferred[R]):
    """A command that is decided at the end of the turn.

    :ivar key: the group id, share-partition or transactional id that the command changes
    :ivar decide: called once. The answer is the outcome's reply, or the exception raised here
    :ivar commutes: True if other commuting commands of the same key may be decided before the
        records of this one are replayed
    :ivar ticket: the number under which it is parked when its outcome has no reply, to be answered
        by a later one, see :class:`Outcome`; None if it is not parked
    """

    __slots__ = ("commutes", "decide", "key", "ticket")

    def __init__(
        self, key: str, decide: Decide[R], *, commutes: bool = False, ticket: int | None = None
    ) -> None:
        super().__init__()
        self.key = key
        self.decide = decide
        self.commutes = commutes
        self.ticket = ticket


Pair = tuple[bytes, bytes | None]
"""Key and value of an encoded record."""

Decided = tuple[Command[Any], Outcome[Any, Any]]
"""A command and its outcome."""

_NOT_WRITTEN = StorageError("not written yet")
"""The answer to a command until its records are written: it keeps the place of the final one."""


class CoordinatorRuntime(Generic[C]):
    """The write path to one coordinator's state. Belongs to the broker's event loop.

    :param coordinator: the machine that decides and replays
    :param logs: the logs of the internal topics
    :param meter: counts the batches
    :param schedule_timer: called when the coordinator's deadlines may have changed
    :ivar coordinator: the machine
    """

    def __init__(
        self,
        coordinator: C,
        logs: InternalLogs,
        clock: Clock,
        meter: WriteMeter,
        schedule_timer: Callable[[], None],
    ) -> None:
        self.coordinator = coordinator
        self._logs = logs
        self._clock = clock
        self._meter = meter
        self._schedule_timer = schedule_timer
        self._tickets = count(1)
        self._parked: dict[int, Deferred[Any]] = {}
        self._commands: list[Command[Any]] = []
        # Of this turn. Commands that commute are answered in the order of their requests, not of
        # the partitions: their connections are neighbours in memory. 500 commits take 6 % less CPU.
        self._answers: dict[Deferred[Any], Any] = {}
        self._is_scheduled = False
        # Decided commands of this turn whose records wait to be appended, by partition; and their
        # keys, True if the commands of the key commute.
        self._waiting: dict[int, list[Decided]] = {}
        self._waiting_keys: dict[str, bool] = {}
        self._wall_ms = 0  # of this turn

    # Commands -------------------------------------------------------------------------------------

    def write(self, key: str, decide: Decide[R], *, commutes: bool = False) -> Deferred[R]:
        """Decide at the end of this turn and carry the outcome out.

        :param key: the group id, share-partition or transactional id that the outcome changes
        :param commutes: True to batch it with others of its kind also under the same key
        :returns: the answer, given when the outcome is as durable as the flush settings require.
            Awaiting it raises StorageError when the append failed, or the error of ``decide``
        """
        return self._submit(Command(key, decide, commutes=commutes))

    def write_parkable(
        self,
        key: str,
        decide: Callable[[int, int, int], Outcome[Any, R | None]],
    ) -> Deferred[R]:
        """Submit a request that may have to wait for others; else the same as :meth:`write`.

        :param decide: given a ticket, the steady time and the wall time; a reply of None parks the
            request until an outcome completes the ticket
        """
        ticket = next(self._tickets)
        command: Command[Any] = Command(key, partial(decide, ticket), ticket=ticket)
        return self._submit(command)

    def _submit(self, command: Command[R]) -> Deferred[R]:
        self._schedule_turn()
        self._commands.append(command)
        return command

    def write_now(self, key: str, outcome: Outcome[Any, R], producer: Producer = NO_PRODUCER) -> R:
        """Carry an outcome out at once, for operations that need several writes.

        :param producer: the producer of the records' transaction; they take effect when it commits
        :returns: the outcome's reply; wait until the logs are durable before sending it
        :raises StorageError: when the append failed; then nothing has changed
        """
        if outcome.records:
            try:
                self.write_records_now(((key, outcome.records),), producer)
            except Exception as error:
                self._fail_parked(outcome, error)
                raise
        self._carry_out(outcome)
        self._schedule_timer()
        return outcome.reply

    def write_each(
        self, outcomes: Iterable[tuple[str, Outcome[Any, Any]]]
    ) -> Generator[None, None, StorageError | None]:
        """Carry out (key, outcome) pairs one after the other, each before the next is requested;
        yield after each. An append that fails concerns its own outcome only.

        :returns: the first error, None if there was none
        """
        first_error: StorageError | None = None
        for key, outcome in outcomes:
            try:
                self.write_now(key, outcome)
            except StorageError as error:  # it may concern one partition only: continue
                first_error = first_error or error
            yield
        return first_error

    def write_records_now(
        self, keyed: Sequence[tuple[str, Sequence[Any]]], producer: Producer = NO_PRODUCER
    ) -> None:
        """Append and replay records of several keys: one batch for each partition.

        :raises StorageError: when an append failed; partitions before it are written
        """
        if not any(records for _, records in keyed):
            return
        encode = self.coordinator.encode
        partitions = self._logs.partition_count(self.coordinator.topic)
        by_partition: dict[int, tuple[list[Any], list[Pair]]] = {}
        for key, records in keyed:
            if key in self._waiting_keys:
                self._append_waiting()
            if records:
                place = internal_partition(key, partitions)
                all_records, encoded = by_partition.setdefault(place, ([], []))
                all_records.extend(records)
                encoded.extend(map(encode, records))
        for partition, (all_records, encoded) in by_partition.items():
            started = perf_counter()
            base_offset = self._append(partition, encoded, self._clock.wall_ms(), producer)
            for offset, record in enumerate(all_records, base_offset):
                position = make(Position, (partition, offset, producer.producer_id))
                self.coordinator.replay(record, position)
            self._meter.wrote(all_records, started)

    # A turn ---------------------------------------------------------------------------------------

    def _schedule_turn(self) -> None:
        if not self._is_scheduled:
            asyncio.get_running_loop().call_soon(self._end_turn)
            self._is_scheduled = True

    def _end_turn(self) -> None:
        self._is_scheduled = False
        commands, self._commands = self._commands, []
        decided = self._decide(commands) if commands else 0
        if decided < len(commands):  # the next turn continues
            self._commands[:0] = commands[decided:]
            self._schedule_turn()
        answers, self._answers = self._answers, {}
        flush = self._logs.pending_flush()
        if flush is None:
            _send(iter(answers.items()))
        else:
            run_to_end(_send_when_durable(flush, answers))

    def _decide(self, commands: Sequence[Command[Any]]) -> int:
        """Decide commands and write their records, those of one partition together.

        :returns: the number of decided commands. Writing takes about as long as deciding, so
            deciding ends after half the time of a turn
        """
        end_s = perf_counter() + TURN_MS / 2000
        now_ms = self._clock.now_ms()
        wall_ms = self._wall_ms = self._clock.wall_ms()
        answers, waiting_keys = self._answers, self._waiting_keys
        partitions = decided = 0
        for command in commands:
            if decided % COMMANDS_AT_ONCE == 0 and decided and perf_counter() >= end_s:
                break
            decided += 1
            key, commutes = command.key, command.commutes
            if key in waiting_keys and not (commutes and waiting_keys[key]):
                self._append_waiting()
            try:
                outcome = command.decide(now_ms, wall_ms)
                if not outcome.records:
                    self._finish(command, outcome)
                    continue
                if not partitions:
                    partitions = self._logs.partition_count(self.coordinator.topic)
            except Exception as error:
                answers[command] = error
                continue
            if commutes:
                answers[command] = _NOT_WRITTEN
            waiting_keys[key] = commutes
            place = internal_partition(key, partitions)
            self._waiting.setdefault(place, []).append((command, outcome))
        self._append_waiting()
        self._schedule_timer()
        return decided

    def _append_waiting(self) -> None:
        """Append and replay the records that wait, and finish their commands."""
        waiting, self._waiting = self._waiting, {}
        self._waiting_keys.clear()
        for partition, batch in waiting.items():
            error = self._append_batch(partition, batch)
            for command, outcome in batch if error is not None else ():
                # The whole batch may be too large, or one command's records cannot be encoded.
                if len(batch) > 1:
                    error = self._append_batch(partition, [(command, outcome)])
                if error is not None:
                    self._answers[command] = error
                    self._fail_parked(outcome, error)

    def _append_batch(self, partition: int, batch: Sequence[Decided]) -> Exception | None:
        """Append a batch, replay it and finish its commands.

        :returns: the error if the append failed; then nothing has changed
        """
        started = perf_counter()
        written = [record for _, outcome in batch for record in outcome.records]
        try:
            encoded = map(self.coordinator.encode, written)
            offset = self._append(partition, encoded, self._wall_ms, NO_PRODUCER)
        except Exception as error:
            return error
        replay, answers, producer_id = self.coordinator.replay, self._answers, NO_PRODUCER[0]
        for command, outcome in batch:
            reply, records, completions, deletable, apply = outcome
            first, offset = offset, offset + len(records)
            try:
                for record in records:
                    replay(record, make(Position, (partition, first, producer_id)))
                    first += 1
                if reply is None or apply or completions or deletable:
                    self._finish(command, outcome)
                else:  # the usual case of an offset commit, kept short
                    answers[command] = reply
            except Exception as error:
                answers[command] = error
        self._meter.wrote(written, started)
        return None

    def _append(
        self, partition: int, encoded: Iterable[Pair], wall_ms: int, producer: Producer
    ) -> int:
        data = record_batch.build(
            encoded,
            timestamp_ms=wall_ms,
            attributes=0 if producer == NO_PRODUCER else record_batch.TRANSACTIONAL_BIT,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
        )
        return self._logs.append(self.coordinator.topic, partition, data, wall_ms)

    def _finish(self, command: Command[Any], outcome: Outcome[Any, Any]) -> None:
        """Carry out all but the records of an outcome, and answer its command or park it."""
        ticket = command.ticket if outcome.reply is None else None
        if ticket is not None:
            self._parked[ticket] = command
        self._carry_out(outcome)
        if ticket is None:
            self._answers[command] = outcome.reply

    def _fail_parked(self, outcome: Outcome[Any, Any], error: Exception) -> None:
        """Fail the parked requests that an outcome would have completed; their clients retry.

        When the machine completes the same tickets later, they are ignored.
        """
        for ticket, _ in outcome.completions:
            self._complete(ticket, error)

    def _carry_out(self, outcome: Outcome[Any, Any]) -> None:
        _, _, completions, deletable, apply = outcome
        if apply is not None:
            apply()
        for ticket, reply in completions:
            self._complete(ticket, reply)
        for partition, offset, _ in deletable:
            self._logs.delete_before(self.coordinator.topic, partition, offset)

    def _complete(self, ticket: int, reply: object) -> None:
        parked = self._parked.pop(ticket, None)
        if parked is not None:
            self._answers[parked] = reply
            self._schedule_turn()

    # Time -----------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """Return when :meth:`expire` is due, in steady milliseconds; None when nothing waits."""
        return self.coordinator.next_deadline_ms()

    def expire(self, now_ms: int) -> None:
        """Carry out the coordinator's timeouts that are due. It tries those that fail again."""
        failures: list[tuple[str, Exception]] = []
        for key, outcome in self.coordinator.expire(now_ms, self._clock.wall_ms()):
            try:
                self.write_now(key, outcome)
            except Exception as error:  # it may concern one partition only: continue
                failures.append((key, error))
        if failures:
            first_key, first_error = failures[0]
            log.error(
                self.coordinator.topic,
                "cannot act on %d timeouts of %s; trying again; the first is of %s: %s",
                len(failures),
                self.coordinator.topic,
                first_key,
                first_error,
                exc_info=None if isinstance(first_error, StorageError) else first_error,
            )


async def _send_when_durable(flush: Awaitable[None], answers: Mapping[Deferred[Any], Any]) -> None:
    try:
        await flush
    except Exception as error:
        answers = {
            deferred: answer if isinstance(answer, Exception) else error
            for deferred, answer in answers.items()
        }
    _send(iter(answers.items()))


def _send(answers: Iterator[tuple[Deferred[Any], Any]]) -> None:
    """Answer requests. If they are many, as the members of a large group are, the next turns of the
    event loop continue.
    """
    end_s = perf_counter() + TURN_MS / 1000
    for number, (deferred, answer) in enumerate(answers, 1):
        try:
            deferred.answer(answer)
        except Exception as error:  # continue with the other connections
            log.error("clients", "cannot answer a request", exc_info=error)
        if number % ANSWERS_AT_ONCE == 0 and perf_counter() >= end_s:
            asyncio.get_running_loop().call_soon(_send, answers)
            return
