"""The connections of each client address and of each listener, and their limits."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from ipaddress import ip_address

from headrace.log_lines import get_logger
from headrace.topics.settings import Settings

from .client_quotas import addresses_of
from .listeners import OVERRIDES, PER_IP, parse_overrides

MAX_CONNECTIONS = "max.connections"

log = get_logger("headrace.server")


class ConnectionCounts:
    """The open connections of each client address and of each listener."""

    def __init__(self, config: Settings) -> None:
        self._config = config
        self._open: Counter[str] = Counter()
        self._of_listeners: Counter[str] = Counter()
        self._overrides_text = ""
        self._overrides: Mapping[str, int] = {}
        """The limits by address, as sockets write it."""
        self._look_ups: set[asyncio.Task[None]] = set()

    def opened(self, address: str, listener: str) -> tuple[str, int] | None:
        """Count a new connection.

        :returns: the reason to close it, with the limit that is exceeded; None to serve it
        """
        self._open[address] += 1
        self._of_listeners[listener] += 1
        text = self._config.get_str(OVERRIDES) or ""
        if text != self._overrides_text:
            self._apply(text)
        limit = self._config.listener_int(listener, MAX_CONNECTIONS)
        if self._of_listeners[listener] > limit:
            return "its listener has the maximum of %d connections", limit
        limit = self._overrides.get(address, self._config.get_int(PER_IP))
        if self._open[address] > limit:
            return "it has the maximum of %d connections", limit
        return None

    def closed(self, address: str, listener: str) -> None:
        """Count the end of a connection."""
        self._of_listeners[listener] -= 1
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]

    def _apply(self, text: str) -> None:
        """Take overrides that are new. Host names are looked up in the background."""
        self._overrides_text = text
        overrides, names = {}, {}
        for host, limit in parse_overrides(text).items():
            try:
                overrides[str(ip_address(host))] = limit
            except ValueError:
                names[host] = limit
        self._overrides = overrides
        if names:
            look_up = asyncio.get_running_loop().create_task(self._look_up(text, names))
            self._look_ups.add(look_up)
            look_up.add_done_callback(self._look_ups.discard)

    async def _look_up(self, text: str, names: Mapping[str, int]) -> None:
        for name, limit in names.items():
            addresses = await addresses_of(name)
            if not addresses:
                log.warning("%s: cannot look up %s", OVERRIDES, name)
            elif self._overrides_text == text:
                self._overrides = {**dict.fromkeys(addresses, limit), **self._overrides}
