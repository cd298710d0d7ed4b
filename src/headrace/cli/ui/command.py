"""``headrace ui``: serve a page that shows groups, topics and records, and changes them."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import tempfile
import threading
from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.cli.client_options import client_config, client_options
from headrace.cli.descriptors import allow_all_descriptors
from headrace.cli.errors import BadUsage, Failure, one_line_error
from headrace.cli.log_output import log_to_stderr
from headrace.cli.metrics_access import server_tls
from headrace.cli.nouns import allow_host_option, command, listen_option, switch
from headrace.cli.options import Address
from headrace.cli.secret_files import passwords, secret_file
from headrace.cli.signals import stopping_event
from headrace.open_ports import warn_if_open

from .options import check_page, page_options

if TYPE_CHECKING:
    from headrace.web.access import Credentials

DEFAULT_LISTEN = Address("127.0.0.1", 9380)
_TIMEOUT_MS = 10_000


@command(
    "serve a page that shows the queues of a cluster",
    client_options,
    listen_option(DEFAULT_LISTEN, "the page"),
    *page_options(),
    allow_host_option("the page is asked for"),
    switch(
        "--stop-with-stdin", "stop at the end of the standard input, as a part of another program"
    ),
    examples="headrace ui --bootstrap-server broker:9092\n"
    "headrace ui --actions\n"
    "headrace ui --command-config client.properties --listen 0.0.0.0:9380 --tls ui.pem \\\n"
    "    --users ui.users --login-to-view --allow-host queues.example.org",
)
def run(options: Namespace) -> None:
    """Serve until SIGTERM or SIGINT.

    :raises Failure: it cannot start
    :raises UnsupportedSetting: the client configuration is wrong
    """
    from headrace.client.config import read_config

    config = client_config(options)
    read = read_config(config)
    check_page(options, options.listen.host)
    credentials, token = credentials_of_files(options)
    has_tls = options.page_tls is not None
    tls = server_tls(options.page_tls) if has_tls else None
    log_to_stderr()
    allow_all_descriptors()
    read = replace(
        read,
        client_id="headrace-ui",
        request_timeout_ms=_TIMEOUT_MS,
        connect_timeout_ms=_TIMEOUT_MS,
    )
    from headrace.http.hosts import Hosts
    from headrace.web.observer import Observer
    from headrace.web.server import serve
    from headrace.web.site import Site

    login_to_view = options.page_login_to_view
    site = Site(
        read,
        Observer(read),
        credentials,
        producer_config=config,
        login_to_view=login_to_view,
        is_secure=has_tls,
    )
    hosts = Hosts([options.listen.host, *options.allow_host])

    async def serve_all(where: str) -> None:
        def ready(port: int) -> None:
            scheme = "https" if has_tls else "http"
            print(f"the page is at {scheme}://{Address(options.listen.host, port)}/", flush=True)
            if where:
                print(f"to act on it, log in with the token {where}", flush=True)

        stopping = stopping_event()
        if options.stop_with_stdin:
            _stop_at_end_of_stdin(stopping)
        try:
            await serve(site, hosts, options.listen, stopping, tls=tls, ready=ready)
        except OSError as error:
            raise Failure(f"cannot listen on {options.listen}: {one_line_error(error)}") from error

    warn_if_open("the page", options.listen.host, login=login_to_view, tls=has_tls)
    if token is None or sys.stdout.isatty():
        asyncio.run(serve_all(token or ""))
        return
    # A log is kept, and read by others: the token is in a file that only its owner can read.
    with tempfile.NamedTemporaryFile("w", prefix="headrace-ui-token-") as file:
        print(token, file=file, flush=True)
        asyncio.run(serve_all(f"in {file.name}"))


def _stop_at_end_of_stdin(stopping: asyncio.Event) -> None:
    """Set ``stopping`` when the program that started this one has ended."""
    loop = asyncio.get_running_loop()

    def wait() -> None:
        while os.read(0, 1024):
            pass
        loop.call_soon_threadsafe(stopping.set)

    threading.Thread(target=wait, name="stdin", daemon=True).start()


def credentials_of_files(options: Namespace) -> tuple[Credentials, str | None]:
    """Return the credentials of the page, and the token if one was created for this run.

    :raises BadUsage: a file cannot be used
    """
    from headrace.web.access import Credentials

    users = {} if options.page_users is None else dict(passwords(options.page_users))
    token = None
    if options.page_token_file is not None:
        try:
            token = secret_file(options.page_token_file).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BadUsage(f"cannot read who may log in: {one_line_error(error)}") from error
        if not token:
            raise BadUsage(f"{options.page_token_file} is empty")
    if options.page_actions and not users and token is None:
        made = secrets.token_urlsafe(18)
        return Credentials(token=made), made
    return Credentials(users, token), None
