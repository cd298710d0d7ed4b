"""The identity of a client."""

from __future__ import annotations

from dataclasses import dataclass

USER = "User"
"""The type of all principals that authentication makes."""


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated identity, as ACLs name it.

    :ivar type: ``User`` for clients
    :ivar name: may have any characters
    """

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Parse ``User:alice``; the name may have further colons.

        :raises ValueError: without a type, with Kafka's message
        """
        kind, colon, name = text.partition(":")
        if not colon or not kind:
            raise ValueError(
                "expected a string in format principalType:principalName but got " + text
            )
        return cls(kind, name)


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""The client of a listener without authentication."""


def super_users(text: str) -> frozenset[str]:
    """Return the principals in ``super.users``, as text.

    :raises ValueError: when one of them is no principal
    """
    users = (user.strip() for user in text.split(";"))
    return frozenset(str(Principal.parse(user)) for user in users if user)
