"""``headrace ui``: serve a page that shows groups, topics and records, and changes them."""

from __future__ import annotations

import asyncio
import secrets
import sys
import tempfile
from argparse import Namespace
from dataclasses import replace

from headrace.cli.client_options import client_config, client_options, client_settings
from headrace.cli.errors import BadUsage
from headrace.cli.metrics_access import server_tls
from headrace.cli.nouns import command
from headrace.cli.options import Address, allow_host_option, arg, listen_option, switch
from headrace.cli.process import allow_all_descriptors, log_to_stderr, run_until_stopped
from headrace.cli.secret_files import login_text, passwords
from headrace.imports import require
from headrace.net.open_ports import is_loopback, warn_if_open

DEFAULT_LISTEN = Address("127.0.0.1", 9380)
_TIMEOUT_S = 10


@command(
    "serve a page that shows the queues of a cluster",
    client_options,
    listen_option(DEFAULT_LISTEN, "the page"),
    arg("--users", "FILE", "a file of NAME:PASSWORD lines: who may log in to the page, to act"),
    arg("--token-file", "FILE", "a file with a token to log in to the page with, to act"),
    arg(
        "--tls",
        "FILE",
        "serve the page over HTTPS, with the private key and certificates of a PEM file",
    ),
    switch(
        "--actions",
        "allow changes to those who log in to the page: with a token that is printed on a "
        "terminal, or else is in a file that is named, unless there are users or a token file "
        "(default: read-only)",
    ),
    switch("--login-to-view", "the page shows nothing without a login"),
    switch(
        "--open",
        "let other machines reach the page without TLS and a login to view it, for example behind "
        "a proxy that has both",
    ),
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
    config = client_config(options)
    read = replace(client_settings(options, _TIMEOUT_S), client_id="headrace-ui")
    check_page(options)
    users, token = credentials_of_files(options)
    has_tls = options.tls is not None
    tls = server_tls(options.tls) if has_tls else None
    log_to_stderr()
    allow_all_descriptors()
    from headrace.http.hosts import Hosts
    from headrace.web.access import FIRST_LOGIN_S, TOKEN_USER, Access
    from headrace.web.app import server_of
    from headrace.web.observer import Observer
    from headrace.web.site import Site

    login_to_view = options.login_to_view
    access = Access(users, login_to_view=login_to_view, is_secure=has_tls)
    site = Site(read, Observer(read), access, config)
    hosts = Hosts([options.listen.host, *options.allow_host])

    async def serve(where: str) -> None:
        async def start() -> str:
            await server.start(*options.listen)
            site.observer.start()
            scheme = "https" if has_tls else "http"
            lines = [f"the page is at {scheme}://{Address(options.listen.host, server.port)}/"]
            if TOKEN_USER in users and sys.stdout.isatty():
                lines[0] += f"login?once={access.first_login()}"
                lines.append(f"this address logs in once, within {FIRST_LOGIN_S // 60} minutes")
            if where:
                lines.append(f"to act on it, log in with the token {where}")
            return "\n".join(lines)

        async with server_of(site, hosts, tls) as server:
            await run_until_stopped(options.listen, start, with_stdin=options.stop_with_stdin)

    warn_if_open("the page", options.listen.host, login=login_to_view, tls=has_tls)
    if token is None or sys.stdout.isatty():
        asyncio.run(serve(token or ""))
        return
    # A log is kept, and read by others: the token is in a file that only its owner can read.
    with tempfile.NamedTemporaryFile("w", prefix="headrace-ui-token-") as file:
        print(token, file=file, flush=True)
        asyncio.run(serve(f"in {file.name}"))


def check_page(options: Namespace) -> None:
    """Check the options before anything starts.

    :raises Failure: jinja2 is missing
    :raises BadUsage: nobody could log in, or other machines reach the page without TLS or a login
        and it is not declared open
    """
    require("jinja2", "ui")
    has_login = options.users or options.token_file or options.actions
    if options.login_to_view and not has_login:
        raise BadUsage("--login-to-view takes --users, --token-file or --actions")
    missing = [] if options.tls else ["--tls"]
    missing += [] if options.login_to_view else ["--login-to-view"]
    host = options.listen.host
    if missing and not options.open and not is_loopback(host):
        raise BadUsage(
            f"other machines reach the page on {host}: give {' and '.join(missing)}, or --open to "
            "show it to whoever reaches it"
        )


def credentials_of_files(options: Namespace) -> tuple[dict[str, str], str | None]:
    """Return the users of the page with their passwords, and the token if one was created for this
    run.

    :raises BadUsage: a file cannot be used
    """
    from headrace.web.access import TOKEN_USER

    users = {} if options.users is None else dict(passwords(options.users))
    if options.token_file is not None:
        token = login_text(options.token_file).strip()
        if not token:
            raise BadUsage(f"{options.token_file} is empty")
        users[TOKEN_USER] = token
    if options.actions and not users:
        made = secrets.token_urlsafe(18)
        return {TOKEN_USER: made}, made
    return users, None
