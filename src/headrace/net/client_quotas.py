"""The client quotas of a broker: the machine, and its entities in the catalog.

A quota is a row of the catalog's ``configs``: the entity as JSON, the key, and the value
(docs/decisions/0017). A change is stored before it is in effect.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_address

from headrace.coordinators.clock import Clock
from headrace.coordinators.waiting import run_to_end
from headrace.log_lines import get_logger
from headrace.security.quota_entities import Entity, entity_of, host_of
from headrace.security.quotas import ClientQuotas
from headrace.security.rates import Windows
from headrace.topics.catalog import Catalog
from headrace.topics.settings import Settings

log = get_logger("headrace.broker")

KIND = "quota"
"""The kind of the rows."""


class Quotas:
    """The client quotas of a broker."""

    def __init__(self, config: Settings, catalog: Catalog, clock: Clock) -> None:
        self._catalog = catalog
        self._clock = clock
        self.machine = ClientQuotas(
            Windows(
                config.get_int("quota.window.num"),
                config.get_int("quota.window.size.seconds") * 1000,
            ),
            Windows(
                config.get_int("controller.quota.window.num"),
                config.get_int("controller.quota.window.size.seconds") * 1000,
            ),
        )
        for text in catalog.configured(KIND):
            values = {key: float(value) for key, value in catalog.configs(KIND, text).items()}
            self.machine.alter(entity_of(json.loads(text)), values)
        self.on_change: Callable[[], object] = lambda: None
        """Called after a change of quotas."""

    @property
    def limits_requests(self) -> bool:
        """True if there are quotas of users or client ids."""
        return any(host_of(entity) is None for entity in self.machine.entities)

    def now_ms(self) -> int:
        """Return the steady time that quotas are measured by."""
        return self._clock.now_ms()

    def start(self) -> None:
        """Look up the names of hosts in stored quotas. Call it on the running event loop."""
        hosts = [host for entity in self.machine.entities if (host := host_of(entity)) is not None]
        for host in hosts:
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
