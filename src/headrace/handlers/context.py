"""The context of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.net.call import CloseConnection
from headrace.security.access import UNLIMITED, AnyAccess
from headrace.security.principal import ANONYMOUS, Principal

__all__ = ["CloseConnection", "RequestContext"]

if TYPE_CHECKING:
    from headrace.broker.request_charge import RequestCharge


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The client and connection of a request.

    :param api_version: the version that the client sent; the request itself is in the shape of the
        latest version
    :param client_id: the client id of the request header
    :param client_host: the client's address with a leading slash, as Kafka prints it
    :param connection_id: the connection's number, unique while the broker runs
    :param listener_host: the host that clients of this listener connect to
    :param listener_port: the port that clients of this listener connect to
    :param client_port: the client's port, 0 if unknown
    :param legacy: fields of the client's version that the latest version lacks
    :param principal: the authenticated client
    :param access: the permissions of the client
    :param listener_name: the name of the listener that the client has connected to
    :param charge: the use of client quotas; None without quotas
    """

    api_version: int
    client_id: str | None
    client_host: str
    connection_id: int
    listener_host: str
    listener_port: int
    client_port: int = 0
    legacy: Mapping[str, Any] = field(default_factory=dict)
    principal: Principal = ANONYMOUS
    listener_name: str = "PLAINTEXT"
    access: AnyAccess = UNLIMITED
    charge: RequestCharge | None = None

    @property
    def host(self) -> str:
        """The client's address as ACLs name it, without the slash of :attr:`client_host`."""
        return self.client_host[1:]
