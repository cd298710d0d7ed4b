"""The rates at which connections are opened: ``max.connection.creation.rate`` of the broker and of
each listener, and the quotas of addresses (``connection_creation_rate``, KIP-612).
"""

from __future__ import annotations

from headrace.security.quota_entities import CONNECTION
from headrace.security.rates import Rate
from headrace.topics.settings import Settings

from .client_quotas import Quotas
from .metrics import Metrics

RATE = "max.connection.creation.rate"
NO_LIMIT = 2**31 - 1
"""The value of this config that stands for no limit, the default."""


class ConnectionRates:
    """The rates of new connections of all listeners."""

    def __init__(self, config: Settings, quotas: Quotas, metrics: Metrics) -> None:
        self._config = config
        self._quotas = quotas
        self._metrics = metrics
        self._rates: dict[str, Rate] = {}
        """By the name of the listener in upper case; "" for all together."""

    def address_ms(self, address: str) -> int:
        """Count a new connection of an address; return the time in milliseconds after which it is
        to be closed without being served, 0 to serve it.
        """
        if not self._quotas.limits_connections:
            return 0
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
        rate = self._rates.get(name)
        if rate is None:
            rate = self._rates[name] = Rate(windows)
        return min(rate.charge(1, limit, self._quotas.now_ms()), windows.size_ms)
