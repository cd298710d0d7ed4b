"""``headrace serve``: run a broker until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from headrace.broker.broker import Broker
from headrace.broker.catalog import CatalogError
from headrace.broker.config.broker_config import Config, ConfigError
from headrace.broker.embedded import new_event_loop
from headrace.broker.server import Listener, Server
from headrace.log.log_directory import DirectoryInUse
from headrace.log.recovery import CorruptLog

from .errors import BadUsage, Failure
from .options import DEFAULT_DATA_DIR, DEFAULT_LISTEN, Address, properties, serve_options

log = logging.getLogger("headrace")

GC_ALLOCATIONS = 20_000
"""After so many allocations the garbage collector looks for cycles, of which a broker makes few:
Python's own 700 cost a twentieth of the time that commits of offsets take."""

STOP_WITHIN_S = 4.5
"""How long stopping may take. What is not flushed by then is found again as after a crash."""

_ANY_ADDRESS = ("0.0.0.0", "::")


def declare(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = "Run a Kafka-protocol broker."
    serve_options(parser)


def run(options: Namespace) -> int:
    """Run the broker as the options of the command line say.

    :returns: the exit status
    :raises Failure: when it cannot start
    """
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    gc.set_threshold(GC_ALLOCATIONS)
    config = _config(options)
    listeners = _listeners(options.listen or [DEFAULT_LISTEN], options.advertise or [])
    data_dir = None if options.ephemeral else options.data_dir or DEFAULT_DATA_DIR
    watchdog = threading.Timer(STOP_WITHIN_S, _give_up)
    watchdog.daemon = True
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_serve(config, data_dir, listeners, options.metrics_port, watchdog))
    finally:
        watchdog.cancel()
    return 0


def _config(options: Namespace) -> Config:
    configs: dict[str, str] = {}
    if options.config_file is not None:
        try:
            configs = properties(options.config_file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BadUsage(f"cannot read {options.config_file}: {_one_line(error)}") from error
    configs.update(options.configs)
    try:
        config = Config(configs)
    except ConfigError as error:
        raise BadUsage(str(error)) from error
    if config.without_effect:
        log.info("these configs have no effect here: %s", ", ".join(sorted(config.without_effect)))
    return config


def _listeners(listen: Sequence[Address], advertise: Sequence[Address]) -> list[Listener]:
    if len(advertise) not in (0, 1, len(listen)):
        raise BadUsage("give --advertise once, or once for each --listen")
    advertised: Sequence[Address | None] = advertise or [None]
    if len(advertised) < len(listen):
        advertised = [advertised[0]] * len(listen)
    listeners = []
    for at, told in zip(listen, advertised, strict=True):
        if at.host in _ANY_ADDRESS and told is None:
            raise BadUsage(
                f"--listen {at} needs --advertise HOST:PORT: no client can connect to {at.host}"
            )
        if told is None:
            listeners.append(Listener(at.host, at.port))
        else:
            listeners.append(Listener(at.host, at.port, told.host, told.port or None))
    return listeners


async def _serve(
    config: Config,
    data_dir: Path | None,
    listeners: Sequence[Listener],
    metrics_port: int | None,
    watchdog: threading.Timer,
) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    try:
        broker = Broker(config, data_dir)
    except (CatalogError, DirectoryInUse, OSError) as error:
        raise Failure(_one_line(error)) from error
    server = Server(broker, listeners)
    try:
        try:
            broker.start()
        except CorruptLog as error:
            raise Failure(_one_line(error)) from error
        try:
            await server.start()
        except OSError as error:
            where = ", ".join(str(Address(one.host, one.port)) for one in listeners)
            raise Failure(f"cannot listen on {where}: {_one_line(error)}") from error
        addresses = ", ".join(str(Address(one.host, one.port)) for one in server.listeners)
        metrics_at = None
        if metrics_port is not None:
            metrics_at = await _serve_metrics(server, Address(listeners[0].host, metrics_port))
        print(f"headrace is listening on {addresses}", flush=True)
        if metrics_at is not None:
            print(f"metrics are at http://{metrics_at}/metrics", flush=True)
        await stopping.wait()
        log.info("stopping")
        watchdog.start()
    finally:
        await server.close()
        broker.close()


async def _serve_metrics(server: Server, at: Address) -> Address:
    try:
        return Address(at.host, await server.serve_metrics(at.host, at.port))
    except OSError as error:
        raise Failure(f"cannot serve metrics on {at}: {_one_line(error)}") from error


def _give_up() -> None:
    """End the process when stopping takes too long: a supervisor would kill it soon anyway."""
    log.error("stopping takes more than %.1f s; the next start will check the logs", STOP_WITHIN_S)
    os._exit(1)


def _one_line(error: BaseException) -> str:
    """What an error says, without the number and the repetitions of an OSError."""
    text = str(error)
    if isinstance(error, OSError) and error.errno is not None:
        text = (
            os.strerror(error.errno) if error.errno > 0 else str(error.strerror)
        )  # below 0 is of name look-up
        if error.filename is not None:
            text += f": {error.filename}"
    return " ".join(text.split())
