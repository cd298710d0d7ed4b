"""The names under which a port is served."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Collection

_HOST = re.compile(
    r"(?:\[(?P<v6>[0-9a-f.]*:[0-9a-f:.]*)\]|(?P<name>[a-z0-9._-]+))(?::[0-9]{1,5})?", re.I
)


class Hosts:
    """The host names under which a port is served.

    A request with another name comes from a foreign page whose name resolves to this host (DNS
    rebinding). IP addresses are always accepted, because nobody can make them resolve elsewhere.

    :param names: besides ``localhost`` and the name of this machine
    """

    def __init__(self, names: Collection[str] = ()) -> None:
        all_names = ("localhost", socket.gethostname(), *names)
        self._names = {name.lower().rstrip(".") for name in all_names}

    def admits(self, host: str) -> bool:
        """Return whether the Host header of a request names this port."""
        # The whole of it: what follows an address may be the rest of a foreign name.
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = match["v6"] or match["name"]
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name.lower().rstrip(".") in self._names
        return True
