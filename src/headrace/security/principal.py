"""The identity of a client."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated identity. As text it is what ACLs name, ``User:alice``.

    :ivar name: may have any characters
    """

    name: str

    def __str__(self) -> str:
        return f"User:{self.name}"


ANONYMOUS = Principal("ANONYMOUS")
"""The client of a listener without authentication."""


def super_users(text: str) -> frozenset[str]:
    """Return the principals in ``super.users``, as text: ``User:alice``, where the name may have
    further colons.

    :raises ValueError: when one of them has no type, with Kafka's message
    """
    users = frozenset(filter(None, map(str.strip, text.split(";"))))
    for user in users:
        if user.find(":") < 1:
            raise ValueError(
                f"expected a string in format principalType:principalName but got {user}"
            )
    return users
