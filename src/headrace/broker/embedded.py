"""A broker inside another program, with a thread and an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Self

from headrace.log_lines import get_logger, log_unhandled
from headrace.net.listeners import make_listener

from .broker import Broker
from .config.broker_config import Config
from .server import Server, stop

if TYPE_CHECKING:
    from headrace.net.scram_users import NewUser

LOGGERS = (
    "authorizer",
    "broker",
    "cleaner",
    "coordinators",
    "dead_letters",
    "http",
    "log",
    "loop",
    "metadata",
    "metrics",
    "sasl",
    "server",
    "share",
    "tls",
    "transactions",
)
"""The loggers of the broker, below ``headrace``."""

for _name in LOGGERS:
    # Otherwise Python writes warnings to stderr in a program that has configured no logging.
    get_logger(f"headrace.{_name}").addHandler(logging.NullHandler())


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's event loop, or asyncio's where uvloop is not available."""
    loop: asyncio.AbstractEventLoop
    try:
        import uvloop
    except ImportError:
        loop = asyncio.new_event_loop()
    else:
        loop = uvloop.new_event_loop()
    loop.set_exception_handler(log_unhandled)
    return loop


class EmbeddedBroker:
    """A Kafka-protocol broker in this process: :class:`headrace.Broker`, which has its parameters
    and errors, without its questions.
    """

    def __init__(
        self,
        data_dir: str | PathLike[str] | None = None,
        config: Mapping[str, object] | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        metrics_port: int | None = None,
        users: Mapping[str, str] | None = None,
    ) -> None:
        self._config = Config({name: _as_text(value) for name, value in (config or {}).items()})
        self._data_dir = self._config.data_dir if data_dir is None else Path(data_dir)
        self._host = host
        self._listeners = self._config.listeners(host) or (
            make_listener("PLAINTEXT", host, port, self._config),
        )
        self._metrics_port = metrics_port
        self._users = dict(users or {})
        self._addresses: Mapping[str, str] | None = None
        self._metrics_at: int | None = None
        self._thread: threading.Thread | None = None
        self._end: Callable[[], object] = lambda: None
        """Makes the broker stop, from any thread."""

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of the first listener, for any Kafka client.

        :raises RuntimeError: when the broker is not running
        """
        return next(iter(self.listeners.values()))

    @property
    def listeners(self) -> Mapping[str, str]:
        """``host:port`` of each listener by its name, in their order.

        :raises RuntimeError: when the broker is not running
        """
        if self._addresses is None:
            raise RuntimeError(
                "the broker is not running: call start(), or use it in a with statement"
            )
        return self._addresses

    @property
    def metrics_url(self) -> str:
        """The URL of the metrics.

        :raises RuntimeError: when the broker is not running, or was created without
            ``metrics_port``
        """
        if self._addresses is None or self._metrics_at is None:
            raise RuntimeError("the broker serves no metrics: give metrics_port, and start it")
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._metrics_at}/metrics"

    def client_config(self) -> dict[str, str]:
        """Return the configuration of a client of confluent-kafka."""
        return {"bootstrap.servers": self.bootstrap_servers}

    def start(self) -> Self:
        """Start, and return when clients can connect.

        :raises RuntimeError: when the broker is running already
        :raises Exception: when it cannot start, see :class:`EmbeddedBroker`
        """
        if self._thread is not None:
            raise RuntimeError("the broker is running already")
        started: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(started,), name="headrace-broker", daemon=True
        )
        self._thread.start()
        error = started.exception()
        if error is not None:
            self._thread.join()
            self._thread = None
            raise error
        return self

    def stop(self) -> None:
        """Stop, and return when everything is written. Do nothing if the broker is not running."""
        if self._thread is None:
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: the broker has stopped itself
            self._end()
        self._thread.join()
        self._thread = self._addresses = None

    def produce(self, topic: str, values: Iterable[bytes | str | None]) -> None:
        """Append records to a topic over the first listener, and return when all are written. The
        topic is created if it does not exist.

        :raises RuntimeError: the broker is not running, or has not written a record
        """
        from confluent_kafka import Producer

        producer = Producer({**self.client_config(), "log_level": 0})
        problems: list[object] = []

        def written(error: object, _: object) -> None:
            if error is not None:
                problems.append(error)

        for value in values:
            while True:
                try:
                    producer.produce(topic, value, on_delivery=written)
                    break
                except BufferError:
                    producer.poll(1)
        producer.flush()
        if problems:
            raise RuntimeError(f"{len(problems)} records were not written: {problems[0]}")

    def _run(self, started: Future[None]) -> None:
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(self._serve(started))
        except BaseException as error:
            if not started.done():  # start() raises it
                started.set_exception(error)

    async def _serve(self, started: Future[None]) -> None:
        stopping = asyncio.Event()
        self._end = partial(asyncio.get_running_loop().call_soon_threadsafe, stopping.set)
        broker = Broker(self._config, self._data_dir, users=self._new_users())
        broker.directory_watch.on_loss = stopping.set
        try:
            server = Server(broker, self._listeners)
        except BaseException:
            broker.close()
            raise
        try:
            broker.start()
            if self._metrics_port is not None:
                self._metrics_at = await server.serve_metrics(self._host, self._metrics_port)
            await server.start()
            broker.scrub()
            self._addresses = {
                listener.name: listener.advertised.partition("://")[2]
                for listener in server.listeners
            }
            started.set_result(None)
            await stopping.wait()
        finally:
            await stop(broker, server)

    def _new_users(self) -> Sequence[NewUser]:
        if not self._users:
            return ()
        from headrace.net.scram_users import NewUser
        from headrace.security.scram import MECHANISMS

        return [
            NewUser(name, password, mechanism)
            for name, password in self._users.items()
            for mechanism in MECHANISMS.values()
        ]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
