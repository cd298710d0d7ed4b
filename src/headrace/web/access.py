"""Access: users or a token, logins, and the protection of forms.

Everybody who reaches the page may view it, unless ``login_to_view`` is set. Without credentials the
page is read-only; with credentials, users who log in may act. Each form has a token of its login,
against forged requests. Requests with ``Authorization: Bearer TOKEN`` or HTTP basic authentication
need no login.
"""

from __future__ import annotations

import base64
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .limits import MAX_SESSIONS, SESSION_IDLE_S, SESSION_S

TOKEN_USER = "token"
"""The name of a user who has logged in with the token."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of the users who may log in.

    :param users: name → password
    :param token: None for none
    """

    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    token: str | None = field(default=None, repr=False)

    def __bool__(self) -> bool:
        return bool(self.users) or self.token is not None

    def admits(self, name: str, secret: str) -> str | None:
        """Return the user with this name and password, or of this token; None if there is none."""
        given = secret.encode()
        # Compare with all of them, so that the time does not depend on the one that matches.
        found = None
        for user, password in self.users.items():
            if hmac.compare_digest(given, password.encode()) and name == user:
                found = user
        if self.token is not None and hmac.compare_digest(given, self.token.encode()):
            found = found or TOKEN_USER
        return found


@dataclass(slots=True)
class Session:
    """A login.

    :ivar csrf: the token that its forms carry
    :ivar used_s: when its user did something last
    """

    user: str
    csrf: str
    ends_s: float
    used_s: float


class Sessions:
    """The logins that are valid. A restart ends them.

    :param clock_s: a steady clock
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def begin(self, user: str) -> str:
        """Begin a login, and return its id."""
        while len(self._sessions) >= MAX_SESSIONS:
            self._sessions.popitem(last=False)
        session_id = secrets.token_urlsafe(32)
        csrf = secrets.token_urlsafe(32)
        now_s = self._clock_s()
        self._sessions[session_id] = Session(user, csrf, now_s + SESSION_S, now_s)
        return session_id

    def get(self, session_id: str | None, *, is_use: bool = True) -> Session | None:
        """Return a login that is valid, or None.

        :param is_use: the user does something, rather than a page that refreshes itself
        """
        session = self._sessions.get(session_id or "")
        if session is None:
            return None
        now_s = self._clock_s()
        if now_s >= min(session.ends_s, session.used_s + SESSION_IDLE_S):
            self.end(session_id)
            return None
        if is_use:
            session.used_s = now_s
        return session

    def end(self, session_id: str | None) -> None:
        """End a login."""
        self._sessions.pop(session_id or "", None)


def basic_or_bearer(header: str) -> tuple[str, str] | None:
    """Return the name and the password, or an empty name and the token, of an Authorization header;
    None if it has neither.
    """
    scheme, _, value = header.strip().partition(" ")
    if scheme.lower() == "bearer" and value.strip():
        return "", value.strip()
    if scheme.lower() == "basic":
        try:
            name, separator, password = (
                base64.b64decode(value, validate=True).decode().partition(":")
            )
        except ValueError:
            return None
        return (name, password) if separator else None
    return None
