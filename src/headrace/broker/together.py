"""Commands of many clients, made true together: one append for all that come in one turn of the event loop.

They are decided at the end of the turn, one after the other, then appended and replayed: one batch for each partition
of the internal topic. That is for commands that do not depend on each other, as commits of offsets do not: each is
decided before the records of those before it are replayed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headrace.errors import StorageError
from headrace.outcome import Coordinator, Outcome

if TYPE_CHECKING:
    from .broker import Broker

log = logging.getLogger("headrace.broker")

R = TypeVar("R")


class Later(Generic[R]):
    """An answer that comes at the end of the turn. One waits for it, who may give up."""

    __slots__ = ("_waiter",)

    def __init__(self) -> None:
        self._waiter: Callable[[R | Exception], None] | None = None

    def then(self, waiter: Callable[[R | Exception], None]) -> None:
        """Have ``waiter`` called with the answer, or with why there is none."""
        self._waiter = waiter

    def cancel(self) -> None:
        """Give up waiting. What was asked for happens all the same."""
        self._waiter = None

    def come(self, answer: R | Exception) -> None:
        """Here it is."""
        if self._waiter is not None:
            self._waiter(answer)


class _Command(Later[R]):
    __slots__ = ("decide", "key")

    def __init__(self, key: str, decide: Callable[[], Outcome[Any, R]]) -> None:
        self._waiter = None
        self.key = key
        self.decide = decide


class Together:
    """The commands of this turn, for one coordinator."""

    def __init__(self, broker: Broker, coordinator: Coordinator[Any]) -> None:
        self._broker = broker
        self._coordinator = coordinator
        self._commands: list[_Command[Any]] = []
        self._durable: set[asyncio.Task[None]] = set()

    def submit(self, key: str, decide: Callable[[], Outcome[Any, R]]) -> Later[R]:
        """Have a command decided and made true at the end of this turn. Its outcome completes nothing else.

        :param decide: called once; what it raises is the answer
        :returns: the outcome's reply, when its records are as durable as the flush settings ask; StorageError when the
            append failed
        """
        if not self._commands:
            asyncio.get_running_loop().call_soon(self._end_turn)
        command = _Command(key, decide)
        self._commands.append(command)
        return command

    def _end_turn(self) -> None:
        commands, self._commands = self._commands, []
        answers: list[tuple[Later[Any], Any]] = []
        decided: list[tuple[_Command[Any], Outcome[Any, Any]]] = []
        for command in commands:
            try:
                decided.append((command, command.decide()))
            except Exception as error:
                answers.append((command, error))
        try:
            self._write(decided)
            answers += [(command, outcome.reply) for command, outcome in decided]
        except StorageError:  # perhaps not everywhere: what is written twice says the same
            answers += [(command, self._alone(command, outcome)) for command, outcome in decided]
        self._broker.arm()
        if self._broker.flusher.due:
            task = asyncio.get_running_loop().create_task(self._answer_when_durable(answers))
            self._durable.add(task)
            task.add_done_callback(self._durable.discard)
        else:
            _answer(answers)

    def _write(self, decided: list[tuple[_Command[Any], Outcome[Any, Any]]]) -> None:
        self._broker.submit_all(self._coordinator, [(command.key, outcome.records) for command, outcome in decided])

    def _alone(self, command: _Command[Any], outcome: Outcome[Any, Any]) -> Any:
        try:
            self._write([(command, outcome)])
        except StorageError as error:
            return error
        return outcome.reply

    async def _answer_when_durable(self, answers: list[tuple[Later[Any], Any]]) -> None:
        try:
            await self._broker.durable()
        except StorageError as error:
            answers = [(later, error) for later, _ in answers]
        _answer(answers)


def _answer(answers: list[tuple[Later[Any], Any]]) -> None:
    for later, answer in answers:
        try:
            later.come(answer)
        except Exception:  # of one connection, which is not the others' fault
            log.exception("cannot answer")
