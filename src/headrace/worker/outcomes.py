"""What becomes of a record after its function has returned or raised. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from typing import Any, NamedTuple

from headrace.client.arguments import Seconds, seconds, whole_number
from headrace.client.errors import ClientError
from headrace.log_lines import shown

ExceptionTypes = type[BaseException] | Iterable[type[BaseException]]


def growing(first_s: float, longest_s: float) -> Iterator[float]:
    """Yield the pauses between attempts: each twice as long as the one before."""
    while True:
        yield first_s
        first_s = min(2 * first_s, longest_s)


class Reject(Exception):
    """Raised or returned by a function: this record cannot be processed, now or later. It becomes a
    dead letter.

    :param reason: is logged, and is in the dead letter
    """

    reason = ""  # of a subclass that does not call __init__

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = str(reason)


class Retry(Exception):
    """A policy of retries; or, raised or returned by a function with ``after``, one retry.

    The n-th retry is due ``first * factor ** (n - 1)`` seconds after the failure, at most ``max``,
    give or take the share ``jitter``.

    :param attempts: the number of times that a record is tried; after the last failure it becomes a
        dead letter. ``retry=8`` of a task means ``Retry(9)``
    :param first: seconds until the first retry
    :param factor: by which each next delay grows, from 1 to 1000
    :param max: the longest delay
    :param jitter: from 0 to 1
    :param on: the exceptions after which to try again; others make a dead letter at once
    :param ignore: exceptions after which the record ends as if it were processed
    :param after: of one retry: the delay, instead of the policy's. The retry counts as an attempt
    """

    after_s: float | None = None  # of a subclass that does not call __init__

    def __init__(
        self,
        attempts: int = 4,
        *,
        first: Seconds = 1.0,
        factor: float = 2.0,
        max: Seconds = 600.0,
        jitter: float = 0.1,
        on: ExceptionTypes = Exception,
        ignore: ExceptionTypes = (),
        after: Seconds | None = None,
    ) -> None:
        super().__init__("to be tried again")
        if not 1 <= factor <= 1000 or not 0 <= jitter <= 1:
            raise ClientError(f"factor is {factor!r} and jitter {jitter!r}: 1 to 1000, and 0 to 1")
        self.attempts = whole_number(attempts, "attempts")
        self.first_s = seconds(first, "first")
        self.factor = factor
        self.max_s = seconds(max, "max")
        self.jitter = jitter
        self.on, self.ignore = _exception_types(on, "on"), _exception_types(ignore, "ignore")
        self.after_s = None if after is None else seconds(after, "after")

    def once(self) -> Retry:
        """Return this policy without retries."""
        return Retry(1, on=self.on, ignore=self.ignore)

    def __reduce__(self) -> tuple[Any, ...]:  # the arguments of an exception are its text
        return Retry, (), self.__dict__

    def delay_s(self, attempt: int, chance: float) -> float:
        """Return the delay after a failed attempt.

        :param attempt: from 1
        :param chance: from 0 to 1: where in the range of the jitter
        """
        exponent = min(attempt - 1, 100)
        delay_s = min(self.first_s * min(self.factor**exponent, 1e9), self.max_s)
        return delay_s * (1 + self.jitter * (2 * chance - 1))


def _exception_types(types: ExceptionTypes, name: str) -> tuple[type[BaseException], ...]:
    listed = tuple(types) if isinstance(types, Iterable) else (types,)
    if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in listed):
        raise ClientError(f"{name} is {types!r}, not types of exceptions, such as (OSError,)")
    return listed


class Undecodable(Exception):
    """The record's value is not what the function takes."""


class TimedOut(Exception):
    """The function has not ended in its time."""


class ProcessDied(Exception):
    """The process that ran the function has ended before it."""


class Ending(Enum):
    """What becomes of a record."""

    ACCEPT = auto()
    RETRY = auto()
    PUT_BACK = auto()
    """As a retry, but the attempt does not count."""
    LETTER = auto()
    """A dead letter is written, then the record ends."""


class Outcome(NamedTuple):
    """What becomes of a record, and why.

    :param delay_s: until the next attempt
    :param reason: one line; empty for success
    :param error: the exception, if there was one. ``Reject`` and ``Retry`` are decisions, not
        failures
    :param pause_s: for which the task pauses now, because of this outcome; 0 if it does not
    """

    ending: Ending
    delay_s: float = 0.0
    reason: str = ""
    error: BaseException | None = None
    pause_s: float = 0.0


ACCEPTED = Outcome(Ending.ACCEPT)


def lost_attempts(attempt: int) -> Outcome:
    """Return what becomes of a record of whose attempts none has ended.

    :param attempt: the number of this one, which is not made
    """
    return Outcome(
        Ending.LETTER,
        reason=f"none of {attempt - 1} attempts has ended: each time the worker died, or lost the "
        "lock of the record",
    )


def decide(result: object, attempt: int, policy: Retry, chance: Callable[[], float]) -> Outcome:
    """Return what becomes of a record.

    :param result: what the function has returned or raised
    :param attempt: the number of this attempt, from 1
    :param chance: returns a number from 0 to 1
    """
    if isinstance(result, Reject):
        return Outcome(Ending.LETTER, reason=shown(result.reason) or "rejected")
    if isinstance(result, Retry):
        if attempt >= policy.attempts:
            return Outcome(Ending.LETTER, reason=f"no success in {attempt} attempts")
        delay_s = policy.delay_s(attempt, chance()) if result.after_s is None else result.after_s
        return Outcome(Ending.RETRY, delay_s, "the function asks for another attempt")
    if not isinstance(result, BaseException):
        return ACCEPTED
    # The text of an exception may be of any kind and length, or fail.
    reason = f"{type(result).__name__}: {shown(result)}".rstrip(": ")
    if isinstance(result, Undecodable):
        return Outcome(Ending.LETTER, reason=f"does not decode: {shown(result)}", error=result)
    if isinstance(result, policy.ignore):
        return Outcome(Ending.ACCEPT, reason=f"ignored: {reason}")
    if isinstance(result, (*policy.on, TimedOut, ProcessDied)) and attempt < policy.attempts:
        # A process may die of anything, also of another function: its records go on at once.
        delay_s = 0.0 if isinstance(result, ProcessDied) else policy.delay_s(attempt, chance())
        return Outcome(Ending.RETRY, delay_s, reason, result)
    return Outcome(Ending.LETTER, reason=reason, error=result)
