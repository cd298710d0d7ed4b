"""PLAIN: the server's side of a login (RFC 4616). The password travels as it is, so use it with TLS
only.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from .conversation import OTHER_AUTHORIZATION, Failure, Step, Success


@dataclass(repr=False)
class PlainServer:
    """The server's side of one login.

    :param _users: passwords by user name
    """

    _users: Mapping[str, str]

    def respond(self, token: bytes, now_ms: int) -> Step:
        """Return the result of the client's only message."""
        parts = token.decode(errors="replace").split("\0", 3)
        if len(parts) != 3:
            return Failure(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization, name, password = parts
        if not name:
            return Failure("Authentication failed: username not specified")
        if not password:
            return Failure("Authentication failed: password not specified")
        expected = self._users.get(name)
        # Also compared for an unknown user, so that it takes as long.
        is_right = hmac.compare_digest((expected or "").encode(), password.encode())
        if expected is None or not is_right:
            return Failure("Authentication failed: Invalid username or password")
        if authorization and authorization != name:
            return OTHER_AUTHORIZATION
        return Success(name)
