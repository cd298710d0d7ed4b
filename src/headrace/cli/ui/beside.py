"""The page of ``headrace serve --ui``: ``headrace ui`` as a process beside the broker.

A process of its own takes no time of the broker's event loop, and reaches the broker as any client
does, with the permissions of its user. When the broker ends or is killed, the standard input of the
process ends, and then the process.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from headrace.cli.errors import BadUsage
from headrace.cli.main import parsed
from headrace.cli.options import Address
from headrace.log_lines import get_logger
from headrace.net.listeners import Listener
from headrace.net.listeners import SecurityProtocol as Protocol

from .command import check_page, run

log = get_logger("headrace.ui")

_STOP_S = 2.0
_LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def check(options: Namespace, listeners: Sequence[Listener]) -> None:
    """Check the options of the page before the broker starts.

    :raises Failure: a package is missing
    :raises BadUsage: the page could not log in to the broker, is for another one, or is open to
        other machines
    :raises SystemExit: an option is wrong; a message is on stderr
    """
    if options.ui is None:
        return
    _, page = _parsed(options)
    if (page.bootstrap_server, page.context) != (None, None):
        raise BadUsage("--ui takes no --bootstrap-server or --context: it is of this broker")
    check_page(page)
    if page.command_config is None and _plain(listeners) is None:
        raise BadUsage(
            "no listener is PLAINTEXT, and the page connects as a client does: give "
            "--ui='--command-config FILE'"
        )


def _parsed(options: Namespace) -> tuple[list[str], Namespace]:
    """Return the words of ``--ui``, and the options of the page that they are."""
    try:
        words = shlex.split(options.ui)
    except ValueError as error:
        raise BadUsage(f"--ui: {error}") from None
    return words, parsed("ui", run, words)


def _plain(listeners: Sequence[Listener]) -> Listener | None:
    """Return the first listener without TLS and login."""
    return next((each for each in listeners if each.protocol is Protocol.PLAINTEXT), None)


def _command(options: Namespace, listeners: Sequence[Listener]) -> list[str]:
    """Return the command line of the page.

    :param listeners: with the ports that they listen on
    """
    page_words, page = _parsed(options)
    to = (page.command_config is None and _plain(listeners)) or listeners[0]
    broker = Address(_LOOPBACK.get(to.host, to.host), to.port)
    return [
        *(sys.executable, "-m", "headrace", "ui", *page_words, "--stop-with-stdin"),
        *("--bootstrap-server", str(broker)),
        *(f"--allow-host={host}" for host in options.allow_host),
    ]


@asynccontextmanager
async def page_beside(options: Namespace, listeners: Sequence[Listener]) -> AsyncIterator[None]:
    """Have the page run while the block does, if the options say so. It prints on the same standard
    output.
    """
    if options.ui is None:
        yield
        return
    process = await asyncio.create_subprocess_exec(
        *_command(options, listeners),
        stdin=asyncio.subprocess.PIPE,
        env={**os.environ, "HEADRACE_CONFIG": ""},  # it may be for another cluster
    )
    watching = asyncio.create_task(_watch(process))
    try:
        yield
    finally:
        watching.cancel()
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()


async def _watch(process: asyncio.subprocess.Process) -> None:
    status = await process.wait()
    log.error("the page has ended with status %d; the broker goes on", status)
