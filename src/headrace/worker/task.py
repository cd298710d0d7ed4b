"""A function of an app: how its records are sent, and how they are processed."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from copy import copy
from datetime import datetime
from functools import update_wrapper
from math import ceil
from typing import Any, Generic, ParamSpec, TypedDict, TypeVar, get_args, overload

from headrace.client.arguments import Seconds, seconds, whole_number
from headrace.client.errors import ClientError
from headrace.client.records import Record
from headrace.client.topics import NewTopic
from headrace.protocol.task_headers import DUE_MS, EXPIRES_MS
from headrace.protocol.topic_names import why_illegal

from .backends import RunIn
from .breaker import Breaker
from .outcomes import Retry
from .payload import Delivery, Envelope, Signature, Value
from .sending import Headers, NewRecord, Sender, Sent

P = ParamSpec("P")
R = TypeVar("R")

Middleware = Callable[[Delivery, Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Is called around each function: ``async def timed(delivery, call_next): await call_next()``."""

_DEAD_LETTER_PREFIX = "dlq."
_LATER_SUFFIX = "-later"
_LATER_PARTITIONS = 4
"""Records that wait for days stand in the way of others of their partition."""
_LATER_RETENTION_MS = 7 * 86_400_000
_BREAKER, _NEVER = Breaker(), Breaker(failures=1)
_DEFAULT_CONCURRENCY = {"loop": 100, "thread": 20, "process": 2}


class SubscriberOptions(TypedDict, total=False):
    """The options of :meth:`headrace.App.subscriber`, which says what they are."""

    group: str | None
    dead_letters: str | bool
    retry: int | Retry
    timeout: Seconds | None
    concurrency: int | None
    run_in: RunIn | None
    at_most_once: bool
    breaker: Breaker | None


class TaskOptions(SubscriberOptions, total=False):
    """The options of :meth:`headrace.App.task`, which says what they are."""

    name: str | None
    expires: Seconds | None
    partitions: int


class Task(Generic[P, R]):
    """A function of an app, and how its records are processed. It can be called as before.

    :ivar name: its name in the app
    :ivar topics: where its records are
    :ivar group: its share group
    :ivar dead_letters: the topic of its dead letters; None for none
    :ivar later: the topic of the group's records that wait for a long time, or are tried again
        after their last delivery
    :ivar middleware: what is called around the function, the outermost first
    """

    def __init__(
        self,
        function: Callable[P, R],
        sender: Sender,
        middleware: Sequence[Middleware],
        topics: Sequence[str] | None,
        start: str,
        *,
        name: str | None = None,
        group: str | None = None,
        dead_letters: str | bool = True,
        retry: int | Retry = 3,
        timeout: Seconds | None = None,
        expires: Seconds | None = None,
        concurrency: int | None = None,
        run_in: RunIn | None = None,
        at_most_once: bool = False,
        breaker: Breaker | None = _BREAKER,
        partitions: int = 1,
    ) -> None:
        if not callable(function):
            raise ClientError(f"{function!r} is not a function: decorate one with @app.task()")
        if topics is not None and not topics:
            raise ClientError(
                f"{function.__qualname__}: no topic given: name one, such as "
                "@app.subscriber('orders')"
            )
        update_wrapper(self, function)
        self.function = function
        self.sender = sender
        self.middleware = middleware
        self.name = name or function.__name__
        self.topics = list(topics or [self.name])
        self.group = group or self.name
        if dead_letters is True:
            dead_letters = f"{_DEAD_LETTER_PREFIX}{self.topics[0]}"
        self.dead_letters = dead_letters or None
        self.later = f"{self.group}{_LATER_SUFFIX}"
        for topic in (*self.topics, self.later, *filter(None, [self.dead_letters])):
            if problem := why_illegal(topic):
                raise ClientError(f"{function.__qualname__}: '{topic}' names no topic: {problem}")
        if not isinstance(retry, Retry):
            retry = Retry(whole_number(retry, "retry", 0) + 1)
        self.retry = retry.once() if at_most_once else retry
        self.timeout_s = None if timeout is None else seconds(timeout, "timeout")
        self.expires_s = None if expires is None else seconds(expires, "expires")
        is_async = inspect.iscoroutinefunction(function)
        self.run_in: RunIn = run_in or ("loop" if is_async else "thread")
        if self.run_in not in get_args(RunIn) or (self.run_in == "loop") != is_async:
            raise ClientError(
                f"{function.__qualname__}: run_in is {self.run_in!r}; an async function runs in "
                "'loop', another one in 'thread' or 'process'"
            )
        if concurrency is None:
            concurrency = _DEFAULT_CONCURRENCY[self.run_in]
        self.concurrency = whole_number(concurrency, "concurrency")
        if breaker is not None and not isinstance(breaker, Breaker):
            raise ClientError(f"breaker is {breaker!r}, not a headrace.worker.breaker.Breaker")
        self.at_most_once = at_most_once
        self.breaker = breaker or _NEVER
        partitions = -1 if topics else whole_number(partitions, "partitions")
        self.new_topic = NewTopic(self.topics[0], partitions)
        """The topic of its own."""
        self.new_later = NewTopic(
            self.later,
            max(partitions, _LATER_PARTITIONS),
            configs={"retention.ms": str(_LATER_RETENTION_MS)},
        )
        self.start = start
        self.signature = Signature(function)
        self.envelope = Envelope(self.signature, self.name) if topics is None else None
        """The form of its records; None if others write them, so that its topic is theirs."""
        self.decode: Callable[[Record], dict[str, Any]] = (
            self.envelope.decode if self.envelope else Value(self.signature).decode
        )
        self.log = logging.getLogger(f"{function.__module__}.{function.__name__}")
        self._key: bytes | None = None
        self._headers: list[tuple[str, bytes | None]] = []
        """What :meth:`options` says."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"task '{self.name}'"

    @overload
    async def send(self, *args: P.args, **kwargs: P.kwargs) -> Sent: ...

    @overload
    async def send(
        self, *args: Any, delay: Seconds | None, at: datetime | None = None, **kwargs: Any
    ) -> Sent: ...

    async def send(self, *args: Any, **kwargs: Any) -> Sent:
        """Have a worker call the function, some time.

        Besides the function's own arguments it takes those of :meth:`options`.

        :returns: where the broker has written the record
        :raises ClientError: the broker has not written it
        :raises TypeError: the function cannot be called so
        """
        return (await self._send([self._record(args, kwargs)]))[0]

    def send_sync(self, *args: Any, **kwargs: Any) -> Sent:
        """Do the same from code without asyncio."""
        record = self._record(args, kwargs)
        self.sender.ensure_topic_sync(self.new_topic)
        return self.sender.send_sync([record])[0]

    async def send_many(self, calls: Iterable[Any]) -> list[Sent]:
        """Send many calls, each with one argument; faster than one by one.

        :raises ClientError: the broker has not written one; others may be written
        """
        return await self._send([self._record((argument,), {}) for argument in calls])

    def options(
        self,
        *,
        delay: Seconds | None = None,
        at: datetime | None = None,
        expires: Seconds | None = None,
        key: bytes | str | None = None,
        headers: Headers = (),
    ) -> Task[P, R]:
        """Return this task, to send calls with these options, beside those that it has.

        :param delay: not to be processed before so many seconds
        :param at: not to be processed before; without a time zone it is local time
        :param expires: not to be processed later than so many seconds from now
        :param key: the key of the record: records with one key are in one partition
        :param headers: further headers
        """
        task = copy(self)
        if key is not None:
            task._key = key.encode() if isinstance(key, str) else key
        encoded = ((name, v.encode() if isinstance(v, str) else v) for name, v in headers)
        task._headers = [*self._headers, *encoded]
        if at is not None or delay is not None:
            due_s = time.time() + seconds(delay, "delay") if at is None else at.timestamp()
            task._headers.append((DUE_MS, b"%d" % ceil(due_s * 1000)))
        if expires is not None:
            task.expires_s = seconds(expires, "expires")
        return task

    async def _send(self, records: list[NewRecord]) -> list[Sent]:
        await self.sender.ensure_topic(self.new_topic)
        return await self.sender.send(records)

    def _record(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewRecord:
        if self.envelope is None:
            raise ClientError(f"{self} takes the records of others: produce to {self.topics[0]}")
        names = self.signature.names
        if options := [name for name in kwargs if name in _OPTIONS and name not in names]:
            return self.options(**{name: kwargs.pop(name) for name in options})._record(
                args, kwargs
            )
        headers = [*self.envelope.headers, *self._headers]
        if self.expires_s is not None:
            headers.append((EXPIRES_MS, b"%d" % ((time.time() + self.expires_s) * 1000)))
        return NewRecord(self.topics[0], self.envelope.encode(args, kwargs), self._key, headers)


_OPTIONS = frozenset(Task.options.__kwdefaults__ or ())
"""The options of one call."""
