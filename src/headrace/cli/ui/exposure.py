"""Pages that other machines reach."""

from __future__ import annotations

from headrace.cli.errors import BadUsage
from headrace.open_ports import is_loopback


def check_exposure(
    host: str, *, tls: bool, login_to_view: bool, is_open: bool, prefix: str = "--"
) -> None:
    """Refuse a page for other machines without TLS or a login, unless it is declared open.

    :param prefix: of the options
    :raises BadUsage: for such a page
    """
    missing = [
        f"{prefix}{name}"
        for name, is_set in (("tls", tls), ("login-to-view", login_to_view))
        if not is_set
    ]
    if missing and not is_open and not is_loopback(host):
        raise BadUsage(
            f"other machines reach the page on {host}: give {' and '.join(missing)}, or "
            f"{prefix}open to show it to whoever reaches it"
        )
