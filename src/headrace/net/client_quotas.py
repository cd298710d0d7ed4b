"""The client quotas of a broker: the machine, its entities in the catalog, and the use of quotas by
the requests of a connection.

A quota is a row of the catalog's ``configs``: the entity as JSON, the key, and the value
(docs/decisions/0017). A change is stored before it is in effect.

Requests are charged for the time that they take on the event loop (``request_percentage``), Produce
for the bytes of requests, Fetch and ShareFetch for those of responses. Apache Kafka's request
handlers work alike (docs/behaviour/security.md).
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from time import perf_counter

from headrace.coordinators.clock import Clock
from headrace.coordinators.waiting import run_to_end
from headrace.log_lines import get_logger
from headrace.security.quota_entities import (
    FETCH,
    MUTATION,
    PRODUCE,
    REQUEST,
    Entity,
    entity_of,
    host_of,
)
from headrace.security.quotas import ClientQuotas, Limit
from headrace.security.rates import MAX_THROTTLE_MS, Windows
from headrace.topics.catalog import Catalog
from headrace.topics.settings import Settings

log = get_logger("headrace.broker")

KIND = "quota"
"""The kind of the rows."""


class Quotas:
    """The client quotas of a broker.

    :ivar now_ms: the steady clock that quotas are measured by
    """

    def __init__(self, config: Settings, catalog: Catalog, clock: Clock) -> None:
        self._catalog = catalog
        self.now_ms = clock.now_ms
        windows = [
            Windows(
                config.get_int(f"{prefix}quota.window.num"),
                config.get_int(f"{prefix}quota.window.size.seconds") * 1000,
            )
            for prefix in ("", "controller.")
        ]
        self.machine = ClientQuotas(*windows)
        for text in catalog.configured(KIND):
            values = {key: float(value) for key, value in catalog.configs(KIND, text).items()}
            self.machine.alter(entity_of(json.loads(text)), values)
        self.on_change: Callable[[], object] = lambda: None
        """Called after a change of quotas."""

    @property
    def limits_requests(self) -> bool:
        """True if there are quotas of users or client ids."""
        return any(host_of(entity) is None for entity in self.machine.entities)

    def start(self) -> None:
        """Look up the names of hosts in stored quotas. Call it on the running event loop."""
        for host in map(host_of, self.machine.entities):
            if host is not None:
                run_to_end(self._look_up(host))

    async def _look_up(self, host: str) -> None:
        addresses = await addresses_of(host)
        self.machine.hosts.update(dict.fromkeys(addresses, host))
        if not addresses:
            log.warning("cannot look up %s, which has a quota", host)

    def alter(
        self,
        changes: Mapping[Entity, Mapping[str, float | None]],
        hosts: Mapping[str, Iterable[str]],
    ) -> None:
        """Set quotas of valid entities in one transaction; None removes one.

        :param hosts: the addresses of the hosts among the entities
        :raises CatalogError: when the database fails; then nothing has changed
        """
        changes = {entity: values for entity, values in changes.items() if values}
        if not changes:
            return
        self._catalog.alter_configs(
            {
                (KIND, json.dumps(dict(entity))): {
                    key: None if value is None else repr(value) for key, value in values.items()
                }
                for entity, values in changes.items()
            }
        )
        for entity, values in changes.items():
            self.machine.alter(entity, values)
        for host, addresses in hosts.items():
            self.machine.hosts.update(dict.fromkeys(addresses, host))
        self.on_change()


# The use of quotas --------------------------------------------------------------------------------

_PRODUCE, _WRITE_MARKERS, _SHARE_FETCH = 0, 27, 78
_PERCENT = 100


@dataclass(slots=True)
class RequestCharge:
    """The use of quotas by the present request of one connection.

    :ivar user: the name of the client's principal
    :ivar client_id: of the request, "" for none
    :ivar throttle_ms: the throttle time of the request so far
    """

    _machine: ClientQuotas
    _now_ms: Callable[[], int]
    user: str = ""
    client_id: str = ""
    throttle_ms: int = 0
    _request_bytes: int = 0
    _started_s: float = 0.0
    """When the work on the request has begun, or gone on."""
    _used_s: float = 0.0
    """The time of the work before that."""
    _is_charged: bool = False

    # The time -------------------------------------------------------------------------------------

    def begin(self, request_bytes: int) -> None:
        """Begin a request."""
        self._request_bytes = request_bytes
        self._started_s = perf_counter()
        self._used_s = 0.0
        self.throttle_ms = 0
        self._is_charged = False

    def pause(self) -> None:
        """Note that the request waits from now on."""
        self._used_s += perf_counter() - self._started_s

    def resume(self) -> None:
        """Note that the request is worked on again."""
        self._started_s = perf_counter()

    # Charges --------------------------------------------------------------------------------------

    def most_fetch_bytes(self) -> int | None:
        """Return the most bytes that the client may fetch at once; None for no limit."""
        limit = self._limit(FETCH)
        return None if limit is None else self._machine.most_bytes(limit)

    def fetch_ms(self, response_bytes: int) -> int:
        """Charge a Fetch, and return its throttle time. If it is above 0, send an empty response:
        the bytes are not charged.
        """
        self._charge_request()
        limit = self._charge(FETCH, response_bytes)
        if limit is not None and self.throttle_ms:
            self._machine.take_back(FETCH, limit, response_bytes, self._now_ms())
        return self.throttle_ms

    def admit_mutations(self, count: int, *, strict: bool) -> bool:
        """Charge the creation or deletion of partitions; return False if it must be refused.

        :param strict: refuse it while earlier ones exceed the quota; otherwise it only is throttled
        """
        if not strict:
            self._charge(MUTATION, count)
            return True
        wait_ms = self.meter_mutations(count)
        self.throttle_ms = max(self.throttle_ms, wait_ms)
        return not wait_ms

    def meter_mutations(self, count: int) -> int:
        """Charge mutations unless earlier ones exceed the quota; return the time until they do not,
        0 for now.
        """
        limit, machine, now_ms = self._limit(MUTATION), self._machine, self._now_ms()
        if limit is None:
            return 0
        wait_ms = machine.wait_ms(limit, now_ms)
        if not wait_ms:
            machine.charge(MUTATION, limit, count, now_ms)
        return wait_ms

    def settle(self, api_key: int, response_bytes: int) -> int:
        """End a request and return its throttle time.

        :param response_bytes: the size of the response, 0 without one
        """
        if api_key == _PRODUCE:
            self._charge(PRODUCE, self._request_bytes)
        elif api_key == _SHARE_FETCH:
            self._charge(FETCH, response_bytes)
        if api_key != _WRITE_MARKERS and (response_bytes or api_key != _PRODUCE):
            self._charge_request()
        return min(self.throttle_ms, MAX_THROTTLE_MS)

    def _charge_request(self) -> None:
        """Charge the time of the request, once."""
        if self._is_charged:
            return
        self._is_charged = True
        used_s = self._used_s + perf_counter() - self._started_s
        self._charge(REQUEST, used_s * _PERCENT, self._machine.windows.size_ms)

    def _limit(self, key: str) -> Limit | None:
        return self._machine.limit_of(key, self.user, self.client_id)

    def _charge(self, key: str, value: float, most_ms: int = MAX_THROTTLE_MS) -> Limit | None:
        """Charge a quota if the client has it, and return its limit. The longest throttle time of
        all quotas of a request counts.
        """
        limit = self._limit(key)
        if limit is not None:
            throttle_ms = self._machine.charge(key, limit, value, self._now_ms())
            self.throttle_ms = max(self.throttle_ms, min(throttle_ms, most_ms))
        return limit


# Hosts -------------------------------------------------------------------------------------------


async def addresses_of(host: str) -> list[str]:
    """Return the addresses of a host as sockets write them; empty if it is unknown."""
    try:
        return [str(ip_address(host))]
    except ValueError:
        pass
    try:
        addresses = await asyncio.get_running_loop().getaddrinfo(
            host, None, type=socket.SOCK_STREAM
        )
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(address[4][0]) for address in addresses))
