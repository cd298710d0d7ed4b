"""The options of the page: those of ``headrace ui``, and with ``--ui-`` of ``headrace serve``."""

from __future__ import annotations

import importlib.util
from argparse import ArgumentParser, Namespace
from pathlib import Path

from headrace.cli.errors import BadUsage, Failure
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


def page_options(parser: ArgumentParser, prefix: str = "") -> None:
    """Declare the options, which are parsed as ``page_NAME``.

    :param prefix: of their names
    """
    for name, text in (_FILES | _FLAGS).items():
        parser.add_argument(
            f"--{prefix}{name}",
            dest=_dest(name),
            help=text,
            **({"type": Path, "metavar": "FILE"} if name in _FILES else {"action": "store_true"}),
        )


def _dest(name: str) -> str:
    return f"page_{name.replace('-', '_')}"


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
    if importlib.util.find_spec("jinja2") is None:
        raise Failure("jinja2 is not installed: pip install 'headrace[ui]'")
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
