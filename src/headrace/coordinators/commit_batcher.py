"""Commands of many clients, made true together: one append for all that come in one turn of the
event loop.

They are decided at the end of the turn, one after the other, then appended and replayed: one batch
for each partition of the internal topic. That is for commands that do not depend on each other, as
commits of offsets do not: each is decided before the records of those before it are replayed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headrace.errors import StorageError
from headrace.outcome import Coordinator, Outcome

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

log = logging.getLogger("headrace.broker")

R = TypeVar("R")


class Later(Generic[R]):
    """An answer that comes at the end of the turn. One waits for it, who may give up.

    :ivar waiter: called with the answer, or with why there is none
    """

    __slots__ = ("waiter",)

    def __init__(self) -> None:
        self.waiter: Callable[[R | Exception], None] | None = None

    def cancel(self) -> None:
        """Give up waiting. What was asked for happens all the same."""
        self.waiter = None


class Command(Later[R]):
    """What shall be decided at the end of the turn.

    :ivar key: what it is about, as of :class:`~headrace.outcome.Coordinator`
    """

    __slots__ = ("key",)

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key

    def decide(self, now_ms: int) -> Outcome[Any, R]:
        """Called once; the reply is the answer, and so is what it raises. It completes nothing
        else.
        """
        raise NotImplementedError


class Together:
    """The commands of this turn, for one coordinator."""

    def __init__(self, broker: Broker, coordinator: Coordinator[Any]) -> None:
        self._broker = broker
        self._coordinator = coordinator
        self._commands: list[Command[Any]] = []
        self._durable: set[asyncio.Task[None]] = set()

    def submit(self, command: Command[R]) -> Later[R]:
        """Have a command decided and made true at the end of this turn.

        :returns: the outcome's reply, when its records are as durable as the flush settings ask;
            StorageError when the append failed
        """
        if not self._commands:
            asyncio.get_running_loop().call_soon(self._end_turn)
        self._commands.append(command)
        return command

    def _end_turn(self) -> None:
        commands, self._commands = self._commands, []
        answers: list[Any] = []
        written: list[tuple[str, Sequence[Any]]] = []
        now_ms = self._broker.now_ms()
        for command in commands:
            try:
                answer, records, _, _, _ = command.decide(now_ms)
            except Exception as error:
                answer, records = error, ()
            answers.append(answer)
            written.append((command.key, records))
        try:
            self._broker.submit_all(self._coordinator, written)
        except StorageError:  # perhaps not everywhere: what is written twice says the same
            answers = [self._alone(*both) for both in zip(answers, written, strict=True)]
        self._broker.arm()
        if self._broker.flusher.pending:
            task = asyncio.get_running_loop().create_task(
                _answer_when_durable(self._broker.durable(), commands, answers)
            )
            self._durable.add(task)
            task.add_done_callback(self._durable.discard)
        else:
            _answer(commands, answers)

    def _alone(self, answer: Any, written: tuple[str, Sequence[Any]]) -> Any:
        try:
            self._broker.submit_all(self._coordinator, [written])
        except StorageError as error:
            return error
        return answer


async def _answer_when_durable(
    durable: Awaitable[None], commands: Sequence[Later[Any]], answers: Sequence[Any]
) -> None:
    try:
        await durable
    except Exception as error:
        answers = [error] * len(commands)
    _answer(commands, answers)


def _answer(commands: Sequence[Later[Any]], answers: Sequence[Any]) -> None:
    for command, answer in zip(commands, answers, strict=True):
        waiter = command.waiter
        if waiter is not None:
            try:
                waiter(answer)
            except Exception:  # of one connection, which is not the others' fault
                log.exception("cannot answer")
