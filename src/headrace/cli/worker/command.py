"""``headrace worker``: run the tasks of an app until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from argparse import Namespace
from contextlib import AsyncExitStack
from importlib import import_module
from traceback import extract_tb
from typing import TYPE_CHECKING

import headrace
from headrace.cli.errors import BadUsage, Failure
from headrace.cli.nouns import command
from headrace.cli.options import (
    DEFAULT_LISTEN,
    Address,
    Declaration,
    arg,
    page_address,
    port_number,
    seconds_option,
    switch,
)
from headrace.cli.output import Output, Row
from headrace.cli.process import at_end_of_stdin, log_to_stderr
from headrace.cli.tables import one_line

if TYPE_CHECKING:
    from headrace.client.cluster import Cluster
    from headrace.worker.app import App
    from headrace.worker.runner import Runner
    from headrace.worker.worker import Worker

_LOG_LEVELS = {
    "headrace": logging.ERROR,  # an embedded broker is for development
    "headrace.client": logging.WARNING,
    "headrace.client.share.membership": logging.INFO,  # the end of a trouble
    "headrace.ports": logging.WARNING,
    "headrace.worker": logging.INFO,
}
_RENEWING = 2
"""The version of ShareAcknowledge that renews locks (KIP-1222, Kafka 4.2)."""


def _port_address(text: str) -> Address:
    """Parse ``PORT``, ``:PORT`` or ``HOST:PORT``.

    :raises ArgumentTypeError: it is none of them
    """
    return page_address(text) if ":" in text else Address(DEFAULT_LISTEN.host, port_number(text))


def _port_option(name: str, what: str) -> Declaration:
    help_text = f"port of {what}; :PORT: all addresses, 0: a free port"
    return arg(name, "[[HOST]:]PORT", help_text, type=_port_address)


@command(
    "run the tasks of an app until SIGTERM or Ctrl-C; a second one ends it at once",
    arg("app", "MODULE:APP", "a headrace.App; the working directory comes first"),
    arg("--tasks", "TASK,…", "only these tasks (default: all)"),
    arg(
        "--concurrency",
        "N",
        "how many records of each task are processed at once (default: that of the task)",
    ),
    switch("--reload", "restart when a .py file below the working directory changes"),
    _port_option("--health-port", "health: 200 while the tasks get records, else 503"),
    _port_option("--metrics-port", "the metrics for Prometheus"),
    seconds_option("--drain-timeout", "time that running functions have to end", 30.0),
    arg("-b --bootstrap-server", "HOST:PORT,…", "bootstrap brokers, instead of those of the app"),
    switch(
        "--stop-with-stdin", "stop at the end of the standard input, as a part of another program"
    ),
    examples="headrace worker shop:app\n"
    "headrace worker shop:app --tasks pack,ship --concurrency 50\n"
    "headrace worker shop:app --reload\n"
    "headrace worker shop:app -b broker:9092 --health-port :8080 --metrics-port :9090",
)
def run(options: Namespace) -> int:
    """Execute the command.

    :returns: the exit status
    :raises ClientError: no broker answers, or it refuses
    :raises Failure: the app or a port cannot be used
    """
    from headrace.client.errors import ClientError

    if options.reload:
        from .reload import run_reloaded

        return run_reloaded(options.drain_timeout)
    log_to_stderr()
    for name, level in _LOG_LEVELS.items():
        logging.getLogger(name).setLevel(level)
    with load_app(options.app) as app:
        if options.bootstrap_server is not None:
            app.connect_to(options.bootstrap_server)
        try:
            worker = app.worker(
                options.tasks,
                concurrency=options.concurrency,
                drain_timeout=options.drain_timeout,
            )
        except ClientError as error:
            raise BadUsage(str(error)) from None
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_work(app, worker, options))
    return 0


def new_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's event loop, or asyncio's where uvloop is not available."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _work(app: App, worker: Worker, options: Namespace) -> None:
    """Run a worker until a signal.

    :raises ClientError: no broker answers, or it refuses
    :raises Failure: a port cannot be used
    """
    from headrace.client.config import read_config

    from .ports import open_port

    async with read_config(app.conf).cluster() as cluster:
        broker = await _broker_text(cluster, worker.runners[0].task.group)
    servers = one_line(cluster.bootstrap_servers)
    print(f"headrace {headrace.__version__}, worker {worker.name}, broker {servers}: {broker}")
    print(Output().table([_row(runner) for runner in worker.runners]), flush=True)
    if options.stop_with_stdin:
        at_end_of_stdin(worker.stop)
    async with AsyncExitStack() as stack:
        for name in ("health", "metrics"):
            if (at := getattr(options, f"{name}_port")) is not None:
                port = await stack.enter_async_context(open_port(worker, at))
                print(f"{name}: http://{Address(at.host, port)}/{name}", flush=True)
        await worker.run_until_signal()


async def _broker_text(cluster: Cluster, group_id: str) -> str:
    """Return what the broker is, and what it can do for workers.

    :raises ClientError: no broker answers
    """
    from headrace.client.share.consumer import delays_releases
    from headrace.protocol.api import ShareAcknowledgeRequest

    connection = await cluster.connection()
    renews = connection.version(ShareAcknowledgeRequest) >= _RENEWING
    locks = "renews locks" if renews else "does not renew locks: a task must end within its lock"
    if await delays_releases(cluster, group_id):
        return f"headrace, {locks}, keeps delayed records"
    return f"Apache Kafka, {locks}, leaves delayed records to the worker"


def _row(runner: Runner) -> Row:
    task = runner.task
    return {
        "task": task.name,
        "topics": task.topics,
        "group_id": task.group,
        "runs_in": task.run_in,
        "concurrency": runner.concurrency,
        "retries": task.retry.attempts - 1,
        "timeout": None if task.timeout_s is None else f"{task.timeout_s:g}s",
        "dead_letters": task.dead_letters,
    }


# The app ------------------------------------------------------------------------------------------

_HEADRACE = os.path.dirname(headrace.__file__) + os.sep


def load_app(name: str) -> App:
    """Import an app.

    :param name: ``MODULE:APP``; modules of the working directory come first
    :raises BadUsage: there is no such module or app
    :raises Failure: the module fails
    """
    module_name, _, attribute = name.partition(":")
    if not attribute or not all(part.isidentifier() for part in module_name.split(".")):
        raise BadUsage(f"'{name}' is not of the form MODULE:APP, such as shop:app")
    if "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    from headrace.worker.app import App, hint

    App.is_being_loaded = True
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise Failure(f"cannot import {module_name}: {_where(error)}") from error
        raise BadUsage(f"there is no module '{error.name}' in {os.getcwd()} or sys.path") from error
    except (Exception, SystemExit) as error:
        raise Failure(f"cannot import {module_name}: {_where(error)}") from error
    finally:
        App.is_being_loaded = False
    apps = [key for key, value in vars(module).items() if isinstance(value, App)]
    app = getattr(module, attribute, None)
    if not isinstance(app, App):
        what = "is no headrace.App" if hasattr(module, attribute) else "does not exist"
        raise BadUsage(f"{module_name}:{attribute} {what}: {hint(attribute, apps, 'app')}")
    return app


def _where(error: BaseException) -> str:
    """Return an exception, and the line outside of headrace that has led to it."""
    from headrace.client.errors import ClientError

    reason = f"{type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, ClientError):
        reason = str(error)
    if isinstance(error, SyntaxError):
        return reason
    frames = extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith((_HEADRACE, "<frozen "))]
    last = (own or frames)[-1]
    return f"{reason} ({last.filename}, line {last.lineno})"
