"""Coroutines that wait without being tasks of asyncio: most never wait, and those that do wait for
one or two things.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")

_NO_ANSWER: Any = object()


class Charge(Protocol):
    """Counts the time that a coroutine takes."""

    def resume(self) -> None:
        """Begin to count."""

    def pause(self) -> None:
        """Count no further."""


class Deferred(Generic[T]):
    """An answer that is given later to one waiter, which may stop waiting.

    :ivar waiter: called with the answer or the exception
    """

    __slots__ = ("_early", "waiter")

    def __init__(self) -> None:
        self._early: Any = _NO_ANSWER
        """The answer, if it came before the waiter."""
        self.waiter: Callable[[T | Exception], object] | None = None

    def cancel(self) -> None:
        """Stop waiting. The answer is not needed any more."""
        self.waiter = None

    def answer(self, answer: T | Exception) -> None:
        """Give the answer to the waiter, or keep it until there is one."""
        if self.waiter is None:
            self._early = answer
        else:
            self.waiter(answer)

    def __await__(self) -> Generator[Any, Any, T]:
        """Wait for the answer. :class:`Waiting` takes it without a future."""
        answer = self._early
        if answer is _NO_ANSWER and asyncio.current_task() is None:
            answer = yield self
        elif answer is _NO_ANSWER:
            future: asyncio.Future[T | Exception] = asyncio.get_running_loop().create_future()

            def settle(answer: T | Exception) -> None:
                if not future.done():  # else the task has been cancelled meanwhile
                    future.set_result(answer)

            self.waiter = settle
            answer = yield from future
        if isinstance(answer, Exception):
            raise answer
        return answer


class Waiting:
    """A coroutine that has begun, and awaits something.

    :param steps: the coroutine
    :param awaited: what it awaits: a future, a deferred answer, or None for the next
        turn of the loop
    :param done: called with its value, or with what it has raised
    :param charge: is charged the time of its steps
    """

    __slots__ = ("_awaited", "_charge", "_done", "_is_cancelled", "_steps")

    def __init__(
        self,
        steps: Coroutine[Any, Any, Any],
        awaited: Any,
        done: Callable[[Any], None],
        charge: Charge | None,
    ) -> None:
        self._steps, self._done, self._charge = steps, done, charge
        self._is_cancelled = False
        self._wait_for(awaited)

    def _wait_for(self, awaited: Any) -> None:
        self._awaited = awaited
        if awaited is None:
            asyncio.get_running_loop().call_soon(self._go_on, None)
        elif isinstance(awaited, Deferred):
            awaited.waiter = self._go_on
        else:
            awaited._asyncio_future_blocking = False
            awaited.add_done_callback(self._go_on)

    def _go_on(self, answer: Any) -> None:
        """Go on with what was awaited. A future that has a result ignores it here."""
        if self._is_cancelled:
            return
        if self._charge is not None:
            self._charge.resume()
        try:
            following = self._steps.send(answer)
        except StopIteration as end:
            self._done(end.value)
        except (Exception, asyncio.CancelledError) as error:  # or what it awaited was cancelled
            self._done(error)
        else:
            if self._charge is not None:
                self._charge.pause()
            self._wait_for(following)

    def cancel(self) -> None:
        """End it without an answer: the connection closes, or the broker stops."""
        if self._is_cancelled:
            return
        self._is_cancelled = True
        awaited, self._awaited = self._awaited, None
        try:
            self._steps.throw(asyncio.CancelledError())
        except (asyncio.CancelledError, StopIteration):
            pass
        except Exception as error:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a call failed while it was cancelled", "exception": error}
            )
        else:
            self._steps.close()
        if awaited is not None:
            awaited.cancel()


def run_to_end(steps: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
    """Run a coroutine until it ends, also if who awaits its value stops waiting. It goes on in the
    callback of what it awaits, so before those who have begun to await that later.
    """
    value: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def done(end: Any) -> None:
        if value.done():  # nobody waits
            return
        if isinstance(end, asyncio.CancelledError):
            value.cancel()
        elif isinstance(end, Exception):
            value.set_exception(end)
        else:
            value.set_result(end)

    try:
        awaited = steps.send(None)
    except StopIteration as end:
        done(end.value)
    except Exception as error:
        done(error)
    else:
        Waiting(steps, awaited, done, None)
    return value
