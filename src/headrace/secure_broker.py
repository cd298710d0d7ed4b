"""A secured broker for tests, in one line: TLS from a throw-away certificate authority, users, and
ACLs.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.embedded import Broker
from headrace.throwaway_ca import ThrowawayCA

ADMIN = "admin"
"""The super user, who may do everything."""

_LISTENER = "SASL_SSL"
_MECHANISM = "SCRAM-SHA-512"
_TIMEOUT_S = 30


class SecureBroker(Broker):
    """A broker whose only listener is SASL_SSL, with an authorizer: ``with SecureBroker() as
    broker: Producer(broker.client_config())``.

    :param users: names of users; ``admin`` exists in any case and may do everything, the others
        nothing until :meth:`allow`
    :param config: further broker configuration
    """

    def __init__(
        self, users: tuple[str, ...] = ("alice", "bob"), config: Mapping[str, object] | None = None
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-ca-")
        self.ca = ThrowawayCA(Path(self._folder.name))
        self.passwords = {name: secrets.token_urlsafe(12) for name in (ADMIN, *users)}
        super().__init__(
            config={
                "listeners": f"{_LISTENER}://127.0.0.1:0",
                "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": self.ca.issue_pem("broker"),
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": f"User:{ADMIN}",
                "group.initial.rebalance.delay.ms": 0,
                **(config or {}),
            },
            users=self.passwords,
        )

    def client_config(self, user: str = ADMIN) -> dict[str, str]:
        """Return the configuration of a client of confluent-kafka that logs in as a user."""
        return {
            **super().client_config(),
            "security.protocol": _LISTENER,
            "ssl.ca.location": str(self.ca.certificate),
            "sasl.mechanism": _MECHANISM,
            "sasl.username": user,
            "sasl.password": self.passwords[user],
        }

    def allow(
        self,
        user: str,
        operation: str,
        resource_type: str,
        name: str,
        *,
        prefixed: bool = False,
        host: str = "*",
    ) -> None:
        """Allow a user an operation on a resource.

        :param operation: such as ``READ``
        :param resource_type: ``TOPIC``, ``GROUP``, ``BROKER`` (the cluster) or
            ``TRANSACTIONAL_ID``
        :param name: the name of the resource, ``*`` for all
        :param prefixed: the name is the beginning of names
        """
        from confluent_kafka import admin

        binding = admin.AclBinding(
            admin.ResourceType[resource_type.upper()],
            name,
            admin.ResourcePatternType.PREFIXED if prefixed else admin.ResourcePatternType.LITERAL,
            f"User:{user}",
            host,
            admin.AclOperation[operation.upper()],
            admin.AclPermissionType.ALLOW,
        )
        settings: dict[str, Any] = dict(self.client_config())
        client = admin.AdminClient(settings)
        created: Any = client.create_acls([binding], request_timeout=_TIMEOUT_S)
        for future in created.values():
            future.result(_TIMEOUT_S)

    def stop(self) -> None:
        """Stop, and delete the certificates."""
        super().stop()
        self._folder.cleanup()
