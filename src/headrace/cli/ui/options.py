"""The options of the page: those of ``headrace ui``, and with ``--ui-`` of ``headrace serve``."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from headrace.cli.errors import BadUsage, require
from headrace.cli.nouns import Declaration, arg, file_option
from headrace.cli.options import port_number
from headrace.open_ports import is_loopback

_FILES = {
    "users": "a file of NAME:PASSWORD lines: who may log in to the page, to act",
    "token-file": "a file with a token to log in to the page with, to act",
    "tls": "serve the page over HTTPS, with the private key and certificates of a PEM file",
}
_FLAGS = {
    "actions": "allow changes to those who log in to the page: with a token that is printed on a "
    "terminal, or else is in a file that is named, unless there are users or a token file "
    "(default: read-only)",
    "login-to-view": "the page shows nothing without a login",
    "open": "let other machines reach the page without TLS and a login to view it, for example "
    "behind a proxy that has both",
}


def page_options(prefix: str = "") -> list[Declaration]:
    """Return the declarations of the options, which are parsed as ``page_NAME``.

    :param prefix: of their names
    """
    return [
        arg(
            f"--{prefix}{name}",
            dest=_dest(name),
            help=text,
            **({"type": Path, "metavar": "FILE"} if name in _FILES else {"action": "store_true"}),
        )
        for name, text in (_FILES | _FLAGS).items()
    ]


def _dest(name: str) -> str:
    return f"page_{name.replace('-', '_')}"


BESIDE = "ui-"
"""The prefix of the options of a page beside a broker."""

PAGE_BESIDE = (
    arg(
        "--ui-port",
        type=port_number,
        metavar="PORT",
        help="port of a page with groups, topics and records; 0: a free port",
    ),
    arg(
        "--ui-host",
        metavar="HOST",
        default="127.0.0.1",
        help="host to serve the page on (default: %(default)s)",
    ),
    file_option(
        "--ui-command-config",
        "a properties file of client configs with which the page connects",
    ),
    *page_options(BESIDE),
)
"""The options of ``headrace serve`` for its page."""


def page_words(options: Namespace) -> list[str]:
    """Return the options as words of ``headrace ui``."""
    words = []
    for name in (*_FILES, *_FLAGS):
        value = getattr(options, _dest(name))
        if value:
            words += [f"--{name}", *([str(value)] if name in _FILES else [])]
    for host in options.allow_host:
        words += ["--allow-host", host]
    return words


def check_page(options: Namespace, host: str, prefix: str = "") -> None:
    """Check the options before anything starts.

    :param host: that the page is served on
    :raises Failure: jinja2 is missing
    :raises BadUsage: nobody could log in, or other machines reach the page without TLS or a login
        and it is not declared open
    """
    require("jinja2", "ui")
    has_login = options.page_users or options.page_token_file or options.page_actions
    if options.page_login_to_view and not has_login:
        raise BadUsage(
            f"--{prefix}login-to-view takes --{prefix}users, --{prefix}token-file or "
            f"--{prefix}actions"
        )
    missing = [] if options.page_tls else [f"--{prefix}tls"]
    missing += [] if options.page_login_to_view else [f"--{prefix}login-to-view"]
    if missing and not options.page_open and not is_loopback(host):
        raise BadUsage(
            f"other machines reach the page on {host}: give {' and '.join(missing)}, or "
            f"--{prefix}open to show it to whoever reaches it"
        )
