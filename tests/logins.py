"""The conformance suites through TLS and a login: `--listener sasl_ssl`.

The broker under test has a second listener, SASL_SSL, and an authorizer. Each raw connection and
each client of librdkafka to its address speaks TLS and logs in as one user, whose permissions just
suffice (:data:`ACLS`). Clients of the listener PLAINTEXT are administrators; only this module uses
it.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin

from headrace.protocol.authorized_operations import Operation
from headrace.security.acls import PatternType, Permission, ResourceType
from tests import wire_client
from tests.support import HeadraceProcess
from tests.throwaway_ca import ThrowawayCA

USER, PASSWORD = "suite", "suite's"
ACLS = (
    "READ TOPIC *",
    "WRITE TOPIC *",
    "CREATE TOPIC *",
    "DELETE TOPIC *",
    "ALTER TOPIC *",
    "ALTER_CONFIGS TOPIC *",
    "READ GROUP *",
    "DELETE GROUP *",
    "ALTER_CONFIGS GROUP *",
    "WRITE TRANSACTIONAL_ID *",
    "CLUSTER_ACTION CLUSTER kafka-cluster",
    "ALTER CLUSTER kafka-cluster",
    "ALTER_CONFIGS CLUSTER kafka-cluster",
)
"""The permissions of the user; the suites need each of them. READ, WRITE, DELETE and ALTER imply
DESCRIBE, ALTER_CONFIGS implies DESCRIBE_CONFIGS.
"""

_ALL_OPERATIONS = "it expects all operations on the cluster, of which the user needs some"
_OWN_BROKER = "it starts brokers of its own, without a login"
CANNOT: Mapping[str, str] = {
    "test_authorized_operations.test_the_cluster": _ALL_OPERATIONS,
    "test_authorized_operations.test_the_cluster_in_metadata": _ALL_OPERATIONS,
    "test_client_quotas.test_connections_of_an_address_beyond_its_rate_are_closed": (
        "it opens sockets of its own, without TLS"
    ),
    "test_new_broker": _OWN_BROKER,
    "test_permissions": _OWN_BROKER,
    "test_restarts": _OWN_BROKER,
}
"""Module, or test of a module → why it cannot run through the login. The side-by-side suites need a
real Apache Kafka, which has no such listener.
"""


def why_not(module: str, test: str) -> str | None:
    """Return why a test cannot run through the login, None if it can."""
    return CANNOT.get(module) or CANNOT.get(f"{module}.{test}")


_certificates: dict[str, Path] = {}
"""Address with a login → the certificate to trust."""


class SecuredProcess(HeadraceProcess):
    """A `headrace serve` whose address is that of its listener with TLS and logins."""

    def __init__(self, data_dir: Path, configs: Mapping[str, str]) -> None:
        self._ca = ThrowawayCA(data_dir.parent)
        self._secure_port = 0
        store = self._ca.issue("broker")
        super().__init__(
            data_dir,
            {
                **configs,
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(store.both),
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_ssl.plain.sasl.jaas.config": (
                    "org.apache.kafka.common.security.plain.PlainLoginModule required "
                    f'user_{USER}="{PASSWORD}";'
                ),
            },
        )
        self.command = (*self.command, "--listen", "SASL_SSL://127.0.0.1:0")

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self._secure_port}"

    def start(self, timeout_s: float = 30) -> HeadraceProcess:
        """Start it, and create the ACLs of the user."""
        super().start(timeout_s)
        creations = []
        for acl in ACLS:
            operation, resource_type, name = acl.split()
            creations.append(
                {
                    "resource_type": int(ResourceType[resource_type]),
                    "resource_name": name,
                    "resource_pattern_type": int(PatternType.LITERAL),
                    "principal": f"User:{USER}",
                    "host": "*",
                    "operation": int(Operation[operation]),
                    "permission_type": int(Permission.ALLOW),
                }
            )
        with wire_client.connection(f"127.0.0.1:{self.port}") as administrator:
            results = administrator.ask(30, 3, creations=creations).results
            assert {one.error_code for one in results} == {0}, results
        _certificates[self.bootstrap_servers] = self._ca.certificate
        return self

    def _take_addresses(self, line: str) -> None:
        secure, plain = line.rpartition(" on ")[2].split(", ")
        self.port = int(plain.rpartition(":")[2])
        self._secure_port = int(secure.rpartition(":")[2])


def log_in(address: str, plain: socket.socket) -> socket.socket:
    """Return the socket with TLS and a login, if the address requires them."""
    certificate = _certificates.get(address)
    if certificate is None:
        return plain
    context = ssl.create_default_context(cafile=certificate)
    secure = context.wrap_socket(plain, server_hostname=address.rpartition(":")[0])
    for request in (
        wire_client.request_frame(17, 1, mechanism="PLAIN"),
        wire_client.request_frame(36, 2, auth_bytes=f"\0{USER}\0{PASSWORD}".encode()),
    ):
        secure.sendall(request)
        answer = wire_client.receive_frame(secure)
        assert answer is not None
    return secure


def with_login(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a client of librdkafka, with a login if it needs one."""
    certificate = _certificates.get(str(config.get("bootstrap.servers")))
    if certificate is None:
        return dict(config)
    return {
        **config,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(certificate),
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }


def install() -> None:
    """Let all connections and clients of this process log in where it is required.

    Call it before modules of tests are imported: they import the classes of clients by name.
    """
    wire_client.prepare_socket = log_in
    for name in ("Producer", "Consumer", "ShareConsumer"):
        setattr(confluent_kafka, name, _logging_in(getattr(confluent_kafka, name)))
    admin_client: Any = confluent_kafka.admin.AdminClient  # refers to itself by its name
    create = admin_client.__init__

    def create_with_login(client: Any, config: Mapping[str, Any], **more: Any) -> None:
        create(client, with_login(config), **more)

    admin_client.__init__ = create_with_login


def _logging_in(client: Any) -> Any:
    class LoggingIn(client):  # type: ignore[misc]
        def __init__(self, config: Mapping[str, Any], *more: Any, **named: Any) -> None:
            super().__init__(with_login(config), *more, **named)

    return LoggingIn
