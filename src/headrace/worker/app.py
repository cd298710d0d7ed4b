"""An app: functions whose calls are records of Kafka topics."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    overload,
)

from headrace.client.arguments import Seconds, seconds, whole_number
from headrace.client.errors import ClientError
from headrace.log_lines import get_logger
from headrace.patterns import meant

from .payload import Delivery
from .sending import Sender
from .task import Middleware, SubscriberOptions, Task, TaskOptions
from .worker import Worker

if TYPE_CHECKING:
    from headrace.client.tracing import Tracing

    from .testing import Trial, WorkerTrial

_log = get_logger(__name__)

P = ParamSpec("P")
R = TypeVar("R")


class TaskDecorator(Protocol):
    """Makes a function a task. A first parameter of type :class:`Delivery` is not sent."""

    @overload
    def __call__(self, function: Callable[Concatenate[Delivery, P], R], /) -> Task[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class App:
    """Functions whose calls are records of Kafka topics.

    ::

        app = headrace.App("127.0.0.1:9092")

        @app.task(retry=8, timeout=60)
        async def pack(order: Order) -> None: ...

        await pack.send(order)

    ``headrace worker shop:app`` calls them.

    :param conf: the addresses of some brokers; or librdkafka's names and values, such as
        ``bootstrap.servers`` and the settings of TLS and login. None takes the addresses in the
        environment variable ``HEADRACE_BOOTSTRAP_SERVERS``; without it, a broker runs in this
        process, for development: its records end with it
    :param tracing: spans and metrics of OpenTelemetry: :class:`headrace.client.tracing.Tracing`
    """

    is_being_loaded = False
    """Whether ``headrace worker`` imports its module now."""

    def __init__(
        self, conf: str | Mapping[str, Any] | None = None, *, tracing: Tracing | None = None
    ) -> None:
        self.tasks: dict[str, Task[Any, Any]] = {}
        self.middlewares: list[Middleware] = []
        conf = conf or os.environ.get("HEADRACE_BOOTSTRAP_SERVERS")
        self._conf = {"bootstrap.servers": conf} if isinstance(conf, str) else conf
        self._broker: Any = None
        self._sender = Sender(lambda: self.conf, tracing)

    @property
    def conf(self) -> Mapping[str, Any]:
        """librdkafka's names and values for all connections of the app."""
        if self._conf is None:
            from headrace.embedded import Broker

            self._broker = Broker().start()
            self._conf = {"bootstrap.servers": self._broker.bootstrap_servers}
            _log.warning(
                "App() has no address: a broker runs in this process, at %s, and its records end "
                "with it",
                self._broker.bootstrap_servers,
            )
        return self._conf

    def connect_to(self, bootstrap_servers: str) -> None:
        """Use these brokers from now on, also after :meth:`close`: a test may do that with an app
        that other tests have used.
        """
        self._sender.begin_anew()
        self._conf = {**(self._conf or {}), "bootstrap.servers": bootstrap_servers}

    def close(self) -> None:
        """Wait for the records on their way, and end the embedded broker if there is one."""
        self._sender.close()
        if self._broker is not None:
            self._broker.stop()

    def __enter__(self) -> App:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def middleware(self, function: Middleware) -> Middleware:
        """Have a coroutine function called around each function of the app; a decorator."""
        self.middlewares.append(function)
        return function

    def task(self, *misplaced: object, **options: Unpack[TaskOptions]) -> TaskDecorator:
        """Make a function a task: its calls are records of a topic of its own.

        :param name: of the task and its topic; the function's by default
        :param group: the share group; the name by default
        :param dead_letters: the topic of records that could not be processed; ``dlq.`` and the name
            by default, False for none
        :param retry: how often a failed record is tried again, 3 times by default; or a policy
        :param timeout: the seconds that the function may take
        :param expires: records are not processed later than so many seconds after they were sent
        :param concurrency: how many records each worker processes at once; 100 async functions, 20
            threads and 2 processes by default
        :param run_in: where it runs: ``"loop"``, ``"thread"`` or ``"process"``. By default async
            functions run on the loop, others in threads
        :param at_most_once: records are accepted before they are processed: never twice, and lost
            if the worker dies
        :param breaker: when to pause because most records fail; None for never
        :param partitions: of the topic, when it is created; 1 by default, which all workers share:
            of more partitions each worker has some, and those of one that is killed wait for the
            end of its session
        :raises ClientError: a parameter makes no sense, or the name is taken
        """
        if misplaced:
            raise ClientError("write @app.task(), with parentheses, and name each option")
        return self._decorator(None, "earliest", options, TaskOptions.__optional_keys__)

    def subscriber(
        self, *topics: str, start: str = "earliest", **options: Unpack[SubscriberOptions]
    ) -> TaskDecorator:
        """Have a function process the records of topics that others write: its argument is the
        record's value, by its annotation: ``bytes``, ``str``, or what JSON describes.

        :param topics: their names
        :param start: where a new group begins: ``"earliest"`` or ``"latest"``

        The group is the function's name by default. The other parameters are those of :meth:`task`,
        without ``name``, ``expires`` and ``partitions``.
        """
        return self._decorator(topics, start, options, SubscriberOptions.__optional_keys__)

    def _decorator(
        self,
        topics: Sequence[str] | None,
        start: str,
        options: Mapping[str, Any],
        allowed: Collection[str],
    ) -> Any:
        for name in options:
            if name not in allowed:
                raise ClientError(f"there is no option {name}: {hint(name, allowed, 'option')}")

        def decorate(function: Any) -> Any:
            task: Task[Any, Any] = Task(
                function, self._sender, self.middlewares, topics, start, **options
            )
            for other in self.tasks.values():
                if other.name == task.name:
                    raise ClientError(f"the app has two tasks '{task.name}': give one another name")
                if other.group == task.group:
                    raise ClientError(
                        f"tasks '{other.name}' and '{task.name}' have one group, '{task.group}', "
                        "whose records go to either: give one another group"
                    )
            self.tasks[task.name] = task
            return task

        return decorate

    def worker(
        self,
        tasks: Iterable[str] | None = None,
        *,
        concurrency: int | None = None,
        drain_timeout: Seconds = 30.0,
    ) -> Worker:
        """Return a worker of tasks.

        :param tasks: their names; None for all
        :param concurrency: how many records of each task it processes at once, instead of the
            task's own
        :param drain_timeout: the seconds that functions have to end after it is told to stop
        :raises ClientError: there is no such task
        """
        names = list(self.tasks if tasks is None else tasks)
        for name in names:
            if name not in self.tasks:
                raise ClientError(f"the app has no task '{name}': {hint(name, self.tasks, 'task')}")
        if not names:
            raise ClientError("the app has no tasks: decorate a function with @app.task()")
        return Worker(
            [self.tasks[name] for name in names],
            self.conf,
            concurrency=None if concurrency is None else whole_number(concurrency, "concurrency"),
            drain_timeout_s=seconds(drain_timeout, "drain_timeout"),
        )

    @overload
    def test(self) -> AbstractContextManager[Trial]: ...

    @overload
    def test(self, *, worker: Literal[True]) -> AbstractAsyncContextManager[WorkerTrial]: ...

    def test(self, *, worker: bool = False) -> object:
        """Return a context for tests: ``with app.test() as trial`` processes records when they are
        sent, without a broker; ``async with app.test(worker=True) as trial`` has a broker and a
        worker of the test, and ``await trial.drained()``. Both have ``trial.sent(task)`` and
        ``trial.dead_letters(task)``.
        """
        from .testing import inline_trial, worker_trial

        return (worker_trial if worker else inline_trial)(self.tasks.values())

    def run(self) -> None:
        """Be a worker of all tasks, until SIGTERM or Ctrl-C.

        :raises ClientError: ``headrace worker`` imports the module, and is the worker
        """
        if App.is_being_loaded:
            raise ClientError(
                "the module calls app.run() when it is imported: put that below "
                "if __name__ == '__main__':"
            )
        asyncio.run(self.worker().run_until_signal())


def hint(name: str, names: Collection[str], kind: str) -> str:
    """Return what a name that does not exist may stand for."""
    existing = f"the {kind}s: {', '.join(sorted(names))}" if names else f"there is no {kind}"
    return meant(name, names) or existing
