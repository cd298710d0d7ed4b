"""The listeners of a broker: ``listeners``, ``advertised.listeners`` and
``listener.security.protocol.map``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from headrace.protocol.configuration import Configuration, entries, parts
from headrace.protocol.errors import ConfigError


class SecurityProtocol(Enum):
    """The protection of a listener, with Kafka's name.

    :ivar uses_tls: connections are encrypted
    :ivar uses_sasl: clients log in before their first request
    """

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def uses_tls(self) -> bool:
        return self.name.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.name.startswith("SASL")


@dataclass(frozen=True, slots=True)
class Listener:
    """An address to listen on, and the address that is advertised to clients.

    :param host: empty for all addresses of the machine
    :param port: 0 picks a free port
    :param advertised_host: None for ``host``
    :param advertised_port: None for the port of the listening socket
    :param name: the name in ``listeners``, in upper case
    :param protocol: its protection
    """

    host: str
    port: int
    advertised_host: str | None = None
    advertised_port: int | None = None
    name: str = "PLAINTEXT"
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port that clients connect to."""
        return self.advertised_host or self.host, self.advertised_port or self.port

    @property
    def advertised(self) -> str:
        """The address that clients connect to, as in ``advertised.listeners``."""
        host, port = self.address
        bracketed = f"[{host}]" if ":" in host else host
        return f"{self.name}://{bracketed}:{port}"


PER_IP, OVERRIDES = "max.connections.per.ip", "max.connections.per.ip.overrides"

ANY_HOSTS = ("", "0.0.0.0", "::")
"""Hosts of listeners to which no client can connect."""

MAX_PORT = 65535
_ENDPOINT = re.compile(
    r"(?P<name>(?:(?!://).)+)://(?:\[(?P<v6>.*)\]|(?P<host>[^:]*)):(?P<port>[0-9]{1,5})", re.DOTALL
)


def split_address(text: str) -> tuple[str, str, int]:
    """Parse ``NAME://HOST:PORT`` to its parts, the name in upper case.

    :raises ConfigError: when it has another form
    """
    match = _ENDPOINT.fullmatch(text.strip())
    if match is None or int(match["port"]) > MAX_PORT:
        raise ConfigError(f"Unable to parse {text} to a broker endpoint")
    return match["name"].upper(), match["host"] or match["v6"] or "", int(match["port"])


def protocol_map(config: Configuration) -> Mapping[str, SecurityProtocol]:
    """Return the protocol of each listener name of ``listener.security.protocol.map``.

    :raises ConfigError: when it is malformed
    """
    setting = "listener.security.protocol.map"
    protocols = {}
    for entry in parts(config.get_str(setting)):
        name, _, protocol = (part.strip() for part in entry.partition(":"))
        try:
            protocols[name.upper()] = SecurityProtocol(protocol.upper())
        except ValueError:
            raise ConfigError(
                f"{setting} maps {name} to {protocol or 'nothing'}, which is not one of "
                f"{', '.join(SecurityProtocol.__members__)}"
            ) from None
    return protocols


def configured_listeners(config: Configuration, local_host: str) -> Sequence[Listener]:
    """Return the listeners of ``listeners``, without those of controllers.

    :param local_host: advertised for a listener on all addresses
    :raises ConfigError: when they contradict each other, or ``advertised.listeners``
    """
    controllers = {name.upper() for name in entries(config.get_str("controller.listener.names"))}
    endpoints = entries(config.get_str("listeners"))
    parsed = [address for address in map(split_address, endpoints) if address[0] not in controllers]
    if not parsed:
        raise ConfigError(
            f"listeners is {','.join(endpoints) or 'empty'}, without a listener for clients: add "
            "one, such as PLAINTEXT://127.0.0.1:9092"
        )
    names = [name for name, _, _ in parsed]
    if _has_repeated(names):
        raise ConfigError("Each listener must have a different name")
    ports = [port for _, _, port in parsed if port]
    if _has_repeated(ports) and _has_repeated([(host, port) for _, host, port in parsed]):
        raise ConfigError("Each listener must have a different port")
    advertised = advertised_addresses(config)
    unknown = sorted(set(advertised) - set(names) - controllers)
    if unknown:
        raise ConfigError(
            "advertised.listeners listener names must be equal to or a subset of the ones defined "
            f"in listeners. Found {', '.join(unknown)}"
        )
    listeners = []
    for name, host, port in parsed:
        address = None
        if host in ANY_HOSTS and name not in advertised:
            if host:
                raise ConfigError(
                    f"listener {name} is on {host}, to which no client can connect: set "
                    "advertised.listeners"
                )
            address = local_host, port
        listeners.append(make_listener(name, host, port, config, address))
    return listeners


def _has_repeated(items: Sequence[object]) -> bool:
    return len(set(items)) < len(items)


def make_listener(
    name: str,
    host: str,
    port: int,
    config: Configuration,
    advertised: tuple[str, int] | None = None,
) -> Listener:
    """Return a listener.

    :param advertised: the address that clients connect to; by default the one in
        ``advertised.listeners``, or that of the listener. Port 0 stands for the port of the
        listening socket
    :raises ConfigError: when the name is not mapped to a protocol
    """
    protocol = protocol_map(config).get(name)
    if protocol is None:
        raise ConfigError(
            f"No security protocol defined for listener {name}: name it in "
            "listener.security.protocol.map"
        )
    advertised_host, advertised_port = (
        advertised or advertised_addresses(config).get(name) or (None, None)
    )
    return Listener(host, port, advertised_host, advertised_port or None, name, protocol)


def advertised_addresses(config: Configuration) -> Mapping[str, tuple[str, int]]:
    """Return the host and port of each listener of ``advertised.listeners``.

    :raises ConfigError: when one has no address that clients can connect to
    """
    addresses = {}
    for entry in entries(config.get_str("advertised.listeners")):
        name, host, port = split_address(entry)
        if host in ANY_HOSTS:
            raise ConfigError(
                "advertised.listeners cannot use the nonroutable meta-address "
                f"{host or 'without a host'}. Use a routable IP address."
            )
        addresses[name] = host, port
    return addresses


def parse_overrides(text: str) -> Mapping[str, int]:
    """Return the maximum for each address or host name of ``max.connections.per.ip.overrides``.

    :raises ValueError: an entry is not ``ADDRESS:NUMBER``
    """
    overrides = {}
    for entry in parts(text):
        host, colon, number = entry.rpartition(":")
        if not colon:
            raise ValueError(entry)
        overrides[host.strip()] = int(number)
    return overrides
