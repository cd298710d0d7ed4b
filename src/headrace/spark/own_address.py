"""The address under which other processes reach this one."""

from __future__ import annotations

import socket

_DISCARD_PORT = 9


def own_address(towards: str) -> str:
    """Return the address of this host from which packets to another host are sent.

    :param towards: name or address of the other host, such as a broker
    :returns: an IP address; that of the loopback interface if there is no route to the other host
    """
    try:
        candidates = socket.getaddrinfo(towards, _DISCARD_PORT, type=socket.SOCK_DGRAM)
        family, _, _, _, address = candidates[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
