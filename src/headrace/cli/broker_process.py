"""The process of ``headrace serve``: a broker until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import threading
from argparse import Namespace
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import NoReturn

from headrace.broker.broker import Broker
from headrace.broker.config import retired
from headrace.broker.config.broker_config import Config
from headrace.broker.embedded import new_event_loop
from headrace.broker.server import Server, stop
from headrace.imports import never_collected
from headrace.log.directory_format import UnusableDirectory
from headrace.log.directory_lock import DirectoryInUse
from headrace.log.recovery import CorruptLog
from headrace.log_lines import LIMITER, get_logger
from headrace.net.listeners import Listener, make_listener
from headrace.net.scram_users import InvalidUser, NewUser
from headrace.protocol.errors import ConfigError
from headrace.topics.catalog import CatalogError

from .errors import BadUsage, Failure, one_line_error
from .metrics_access import metrics_access
from .options import (
    DEFAULT_DATA_DIR,
    DEFAULT_LISTEN,
    DEFAULT_LISTENER,
    Address,
    ListenAddress,
    properties_file,
)
from .process import allow_all_descriptors, keep_collections_short, log_to_stderr, stopping_event
from .secret_files import entries, secret_file
from .ui.beside import check as check_ui
from .ui.beside import page_beside

log = get_logger("headrace")

SWITCH_INTERVAL_S = 0.0005
"""The time after which a working thread lets a waiting event loop run. Python's default is 5 ms.
While a thread decompresses 200 MiB of gzip, the p99 of other producers is 6 to 17 ms with this
interval, and 14 to 43 ms with the default (two busy cores, 4 runs each).
"""

STOP_WITHIN_S = 4.5
"""The time limit for stopping; then the process exits, and the next start recovers the logs."""

_ANY_ADDRESS = ("0.0.0.0", "::")


def run_broker(options: Namespace) -> NoReturn:
    """Run the broker until SIGTERM or SIGINT, and end the process.

    :raises Failure: it cannot start
    """
    log_to_stderr()
    keep_collections_short()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    allow_all_descriptors()
    watchdog = threading.Timer(STOP_WITHIN_S, _give_up)
    watchdog.daemon = True
    try:
        config = _config(options)
        listeners = _listeners(config, options.listen or [], options.advertise or [])
        check_ui(options, listeners)
        if options.metrics_port is None and (options.metrics_users or options.metrics_tls):
            raise BadUsage("--metrics-users and --metrics-tls take --metrics-port")
        users = new_users(options.add_scram_file)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_serve(options, config, users, listeners, watchdog))
    except ConfigError as error:
        raise BadUsage(str(error)) from error
    finally:
        watchdog.cancel()
        LIMITER.report()
    _exit()


def _exit() -> NoReturn:
    """End the process at once after a clean stop.

    Python takes up to 0.1 s to tear down its modules. If a broker is unreachable for so long, a
    Java share consumer that is closed waits for its whole timeout.
    """
    sys.stdout.flush()
    logging.shutdown()
    os._exit(0)


def _config(options: Namespace) -> Config:
    configs = {} if options.config_file is None else properties_file(options.config_file)
    config = Config({**configs, **dict(options.configs)})
    if config.without_effect:
        log.info("these configs have no effect here: %s", ", ".join(sorted(config.without_effect)))
    if config.retired:
        log.info("Apache Kafka 4 does not have these configs: %s", _with_origins(config.retired))
    return config


def _with_origins(names: Sequence[str]) -> str:
    by_origin: dict[str | None, list[str]] = {}
    for name in sorted(names):
        by_origin.setdefault(retired.origin(name), []).append(name)
    return "; ".join(f"{', '.join(some)} ({origin})" for origin, some in by_origin.items())


def new_users(path: Path | None) -> list[NewUser]:
    """Return the users of ``--add-scram-file``.

    :raises BadUsage: the file cannot be used; the text names a line, and no password
    """
    if path is None:
        return []
    try:
        text = sys.stdin.read() if path == Path("-") else secret_file(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise BadUsage(f"cannot read {path}: {one_line_error(error)}") from None
    users = []
    for number, line in entries(text):
        try:
            users.append(NewUser.parse(line))
        except InvalidUser as error:
            raise BadUsage(f"line {number} of {path}: {error}") from None
    if not users:
        raise BadUsage(f"{path} has no users")
    return users


def _data_dir(options: Namespace, config: Config) -> Path | None:
    """Return the directory of the broker's state; None for a temporary one."""
    configured = config.data_dir
    data_dir = options.data_dir or configured
    if options.ephemeral:
        if data_dir is not None:
            log.info("--ephemeral: the state is in a temporary directory, not in %s", data_dir)
        return None
    if configured is not None and data_dir != configured:
        log.info("--data-dir: the state is in %s, not in %s of the configs", data_dir, configured)
    return data_dir or DEFAULT_DATA_DIR


def _listeners(
    config: Config, listen: Sequence[ListenAddress], advertise: Sequence[Address]
) -> Sequence[Listener]:
    """Return the listeners of ``--listen`` or of the configuration, or else the default."""
    configured = config.listeners(socket.gethostname())
    if configured and listen:
        raise BadUsage(
            "--listen and the config listeners both name addresses, which may be protected "
            "otherwise: give only one of them"
        )
    if configured and advertise:
        raise BadUsage("--advertise belongs to --listen; set advertised.listeners for listeners")
    if configured:
        return configured
    listen = listen or [ListenAddress(DEFAULT_LISTENER, DEFAULT_LISTEN)]
    if len(advertise) not in (0, 1, len(listen)):
        raise BadUsage("give --advertise once, or once for each --listen")
    listeners = []
    for (name, at), advertised_at in zip(listen, cycle(advertise or [None]), strict=False):
        listener = make_listener(name, at.host, at.port, config, advertised_at)
        if at.host in _ANY_ADDRESS and listener.advertised_host is None:
            raise BadUsage(
                f"--listen {at} needs --advertise HOST:PORT: no client can connect to {at.host}"
            )
        listeners.append(listener)
    return listeners


async def _serve(
    options: Namespace,
    config: Config,
    users: Sequence[NewUser],
    listeners: Sequence[Listener],
    watchdog: threading.Timer,
) -> None:
    stopping = stopping_event()
    try:
        broker = Broker(config, _data_dir(options, config), users=users)
    except (CatalogError, DirectoryInUse, UnusableDirectory, OSError) as error:
        raise Failure(one_line_error(error)) from error
    broker.directory_watch.on_loss = stopping.set
    try:
        server = Server(broker, listeners)
    except ConfigError:
        broker.close()
        raise
    try:
        try:
            # The first collections after the start of a broker with many committed offsets would
            # visit all of them.
            with never_collected():
                broker.start()
        except CorruptLog as error:
            raise Failure(one_line_error(error)) from error
        metrics_at = None
        if options.metrics_port is not None:
            # Before the listeners start, because its imports take time, and clients would wait.
            at = Address(options.metrics_host, options.metrics_port)
            access = metrics_access(options)
            try:
                metrics_at = Address(at.host, await server.serve_metrics(*at, access))
            except OSError as error:
                raise Failure(f"cannot serve metrics on {at}: {one_line_error(error)}") from error
        try:
            await server.start()
        except (OSError, UnicodeError) as error:
            where = ", ".join(str(Address(listener.host, listener.port)) for listener in listeners)
            raise Failure(f"cannot listen on {where}: {one_line_error(error)}") from error
        log.info("the data is in %s", broker.data_dir.absolute())
        addresses = ", ".join(map(_shown, server.listeners))
        print(f"headrace is listening on {addresses}", flush=True)
        if metrics_at is not None:
            scheme = "http" if options.metrics_tls is None else "https"
            print(f"metrics are at {scheme}://{metrics_at}/metrics", flush=True)
        broker.scrub()
        async with page_beside(options, server.listeners):
            await stopping.wait()
            log.info("stopping")
            watchdog.start()
    finally:
        await stop(broker, server)
    if broker.directory_watch.loss is not None:
        raise Failure(broker.directory_watch.loss)


def _shown(listener: Listener) -> str:
    address = str(Address(listener.host, listener.port))
    return address if listener.name == DEFAULT_LISTENER else f"{listener.name}://{address}"


def _give_up() -> None:
    """Exit when stopping takes too long, before a supervisor kills the process."""
    log.error("stopping takes more than %.1f s; the next start will check the logs", STOP_WITHIN_S)
    os._exit(1)
