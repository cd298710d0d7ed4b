"""The page of ``headrace serve --ui-port``: ``headrace ui`` as a process beside the broker.

A process of its own takes no time of the broker's event loop, and reaches the broker as any client
does, with the permissions of its user. When the broker ends or is killed, the standard input of the
process ends, and then the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from headrace.broker.config.listeners import Listener
from headrace.broker.config.listeners import SecurityProtocol as Protocol
from headrace.cli.errors import BadUsage, Failure
from headrace.cli.options import Address, file_option, flag, port_number
from headrace.log_lines import get_logger

from .exposure import check_exposure

log = get_logger("headrace.ui")

_STOP_S = 2.0
_PAGE_HOST = "127.0.0.1"
_LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
_PACKAGES = ("jinja2", "starlette")
_FILES = (
    ("command-config", "a properties file of client configs with which the page connects"),
    ("users", "a file of NAME:PASSWORD lines: who may log in to the page, to act"),
    ("token-file", "a file with a token to log in to the page with, to act"),
    ("tls", "serve the page over HTTPS, with the private key and certificates of a PEM file"),
)


def declare(parser: ArgumentParser) -> None:
    """Declare the options of ``headrace serve`` for its page."""
    parser.add_argument(
        "--ui-port",
        type=port_number,
        metavar="PORT",
        help="port of a page with groups, topics and records; 0: a free port",
    )
    parser.add_argument(
        "--ui-host",
        metavar="HOST",
        default=_PAGE_HOST,
        help="host to serve the page on (default: %(default)s)",
    )
    for name, what in _FILES:
        file_option(parser, f"--ui-{name}", what)
    flag(
        parser,
        "--ui-actions",
        "allow changes to those who log in to the page, with a token in a file that is named",
    )
    flag(parser, "--ui-login-to-view", "the page shows nothing without a login")
    flag(
        parser,
        "--ui-open",
        "let other machines reach the page without --ui-tls and --ui-login-to-view",
    )


def check(options: Namespace, listeners: Sequence[Listener]) -> None:
    """Check the options before the broker starts.

    :raises Failure: a package is missing
    :raises BadUsage: the page could not log in to the broker, or is open to other machines
    """
    if options.ui_port is None:
        return
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise Failure(f"{missing[0]} is not installed: pip install 'headrace[ui]'")
    check_exposure(
        options.ui_host,
        tls=options.ui_tls is not None,
        login_to_view=options.ui_login_to_view,
        is_open=options.ui_open,
        prefix="--ui-",
    )
    if options.ui_command_config is None and _plain(listeners) is None:
        raise BadUsage(
            "--ui-port takes --ui-command-config FILE, as no listener is PLAINTEXT: the page "
            "connects as a client does"
        )


def _plain(listeners: Sequence[Listener]) -> Listener | None:
    """Return the first listener without TLS and login."""
    return next((one for one in listeners if one.protocol is Protocol.PLAINTEXT), None)


def command(options: Namespace, listeners: Sequence[Listener]) -> list[str]:
    """Return the command line of the page.

    :param listeners: with the ports that they listen on
    """
    plain = None if options.ui_command_config is not None else _plain(listeners)
    to = plain or listeners[0]
    broker = Address(_LOOPBACK.get(to.host, to.host), to.port)
    at = Address(options.ui_host, options.ui_port)
    words = [sys.executable, "-m", "headrace", "ui", "--stop-with-stdin"]
    words += ["--bootstrap-server", str(broker), "--listen", str(at)]
    for name, _ in _FILES:
        path = getattr(options, f"ui_{name.replace('-', '_')}")
        if path is not None:
            words += [f"--{name}", str(path)]
    if options.ui_actions:
        words.append("--actions")
    if options.ui_login_to_view:
        words.append("--login-to-view")
    if options.ui_open:
        words.append("--open")
    for name in options.allow_host:
        words += ["--allow-host", name]
    return words


class PageBeside:
    """The page of a broker."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._process: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self) -> None:
        """Start the process. Its output is printed on stdout."""
        self._process = await asyncio.create_subprocess_exec(
            *self._words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        self._watching = asyncio.create_task(self._watch(self._process))

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            print(line.decode(errors="replace").rstrip("\n"), flush=True)
        status = await process.wait()
        if not self._stopping:
            log.error("the page has ended with status %d; the broker goes on", status)

    async def stop(self) -> None:
        """Stop the process."""
        process = self._process
        if process is None:
            return
        self._stopping = True
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        if self._watching is not None:
            self._watching.cancel()
