"""The limits of connections: how many there may be, of each client address and of each listener,
and the rates at which they are opened: ``max.connection.creation.rate`` of the broker and of each
listener, and the quotas of addresses (``connection_creation_rate``, KIP-612).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from ipaddress import ip_address

from headrace.coordinators.waiting import run_to_end
from headrace.security.quota_entities import CONNECTION
from headrace.security.rates import Rate

from . import log
from .client_quotas import addresses_of
from .listeners import OVERRIDES, PER_IP, parse_overrides
from .services import Services

MAX_CONNECTIONS = "max.connections"
RATE = "max.connection.creation.rate"
NO_LIMIT = 2**31 - 1
"""The value of this config that stands for no limit, the default."""


class ConnectionLimits:
    """The open connections, of each client address and of each listener, and the rates of new ones.

    :param most: the connections that the process has file descriptors for
    :ivar beginning: accepted connections that are not open yet
    """

    def __init__(self, services: Services, most: int) -> None:
        self._config, self._quotas = services.config, services.quotas
        self._metrics = services.metrics
        self._most = most
        self.beginning = 0
        self._open: Counter[str] = Counter()
        self._of_listeners: Counter[str] = Counter()
        self._overrides_text = ""
        self._overrides: Mapping[str, int] = {}
        """The limits by address, as sockets write it."""
        self._rates: dict[str, Rate] = {}
        """By the name of the listener in upper case; "" for all together."""

    # Numbers --------------------------------------------------------------------------------------

    def admit(self) -> bool:
        """Count a connection that begins; return False if there is no file descriptor for it."""
        if len(self._metrics.connections) + self.beginning >= self._most:
            self._metrics.connections_refused += 1
            log.warning(
                "",
                "refused a connection: %d are open, and the process has file descriptors for no "
                "more (ulimit -n)",
                self._most,
            )
            return False
        self.beginning += 1
        return True

    def opened(self, address: str, listener: str) -> tuple[str, int] | None:
        """Count a new connection.

        :returns: the reason to close it, with the limit that is exceeded; None to serve it
        """
        self._open[address] += 1
        self._of_listeners[listener] += 1
        text = self._config.get_str(OVERRIDES) or ""
        if text != self._overrides_text:
            self._apply(text)
        limit = self._config.get_int(MAX_CONNECTIONS)
        if len(self._metrics.connections) > limit:
            return f"{MAX_CONNECTIONS}=%d is reached", limit
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
            run_to_end(self._look_up(text, names))

    async def _look_up(self, text: str, names: Mapping[str, int]) -> None:
        for name, limit in names.items():
            addresses = await addresses_of(name)
            if not addresses:
                log.warning(name, "%s: cannot look up %s", OVERRIDES, name)
            elif self._overrides_text == text:
                self._overrides = {**dict.fromkeys(addresses, limit), **self._overrides}

    # Rates ----------------------------------------------------------------------------------------

    def address_ms(self, address: str) -> int:
        """Count a new connection of an address; return the time in milliseconds after which it is
        to be closed without being served, 0 to serve it.
        """
        machine = self._quotas.machine
        limit = machine.limit_of_address(address)
        if limit is None:
            return 0
        now_ms = self._quotas.now_ms()
        throttle_ms = machine.charge(CONNECTION, limit, 1, now_ms)
        if throttle_ms:
            self._metrics.throttled_connections += 1
            machine.take_back(CONNECTION, limit, 1, now_ms)
        return min(throttle_ms, machine.windows.size_ms)

    def listener_ms(self, listener: str) -> int:
        """Count a new connection of a listener; return the time in milliseconds in which it must
        not accept further ones.
        """
        config = self._config
        return max(
            self._charge("", config.get_int(RATE)),
            self._charge(listener.upper(), config.listener_int(listener, RATE)),
        )

    def _charge(self, name: str, limit: int) -> int:
        if limit == NO_LIMIT:
            return 0
        windows = self._quotas.machine.windows
        rate = self._rates.setdefault(name, Rate(windows))
        return min(rate.charge(1, limit, self._quotas.now_ms()), windows.size_ms)
