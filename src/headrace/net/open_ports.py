"""Which ports are open to other machines, and the warning about them."""

from __future__ import annotations

import ipaddress

from headrace.log_lines import get_logger

log = get_logger("headrace.ports")


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def warn_if_open(name: str, host: str, *, login: bool, tls: bool = True) -> None:
    """Log a warning if other machines reach a port without a login, or without TLS.

    :param name: of the port, such as "the metrics port"
    :param login: whether clients must prove who they are
    :param tls: whether what they send and receive is encrypted
    """
    if is_loopback(host):
        return
    if not login:
        log.warning(
            "%s is open to other machines without a login: whoever reaches it uses it", name
        )
    elif not tls:
        log.warning("%s is open to other machines without TLS: others may read passwords", name)
