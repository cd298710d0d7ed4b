"""One SASL login: the server's side of a conversation, without sockets (RFC 4422)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

NAME = r"(?:[\x01-\x2B\x2D-\x3C\x3E-\x7F]|=2C|=3D)+"
"""The pattern of a name in a message (RFC 5801), to be read with :func:`unescaped`."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """The server's next message; the client has to answer it."""

    token: bytes


@dataclass(frozen=True, slots=True)
class Success:
    """The end of a successful login.

    :ivar name: the name of the principal
    :ivar token: the server's last message
    :ivar expires_ms: the wall time in epoch milliseconds when the credential expires, None for
        never
    """

    name: str
    token: bytes = b""
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The end of a failed login.

    :ivar message: for the client; None for Kafka's text about invalid credentials, which says no
        more
    """

    message: str | None = None


Step = Challenge | Success | Failure


class Conversation(Protocol):
    """The server's side of one login with one mechanism."""

    def respond(self, token: bytes, now_ms: int) -> Step:
        """Return the server's answer to a message of the client. After :class:`Success` and
        :class:`Failure` it is not called again.

        :param now_ms: the wall time in epoch milliseconds
        """


def unescaped(name: str | None) -> str:
    """Return a name as it was before a client wrote it into a message; empty for None."""
    return (name or "").replace("=2C", ",").replace("=3D", "=")


OTHER_AUTHORIZATION = Failure(
    "Authentication failed: Client requested an authorization id that is different from username"
)
"""The end of a login that asks for the name of somebody else."""
