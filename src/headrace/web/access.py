"""Access: users or a token, logins, and the protection of forms.

Everybody who reaches the page may view it, unless ``login_to_view`` is set. Without credentials the
page is read-only; with credentials, users who log in may act. Each form has a token of its login,
against forged requests. Requests with ``Authorization: Bearer TOKEN`` or HTTP basic authentication
need no login, because no browser sends these headers for another site.
"""

from __future__ import annotations

import base64
import hmac
import ipaddress
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from .limits import FAILED_LOGINS_S, MAX_FAILED_LOGINS, MAX_SESSIONS, SESSION_S

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
    """

    user: str
    csrf: str
    ends_s: float


class Sessions:
    """The logins that are valid. A restart ends them.

    :param clock_s: a steady clock
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._failures: deque[float] = deque(maxlen=MAX_FAILED_LOGINS)

    @property
    def refuses_logins(self) -> bool:
        """True after too many wrong passwords, for a while."""
        full = len(self._failures) == MAX_FAILED_LOGINS
        return full and self._clock_s() - self._failures[0] < FAILED_LOGINS_S

    def failed(self) -> None:
        """Note a wrong password."""
        self._failures.append(self._clock_s())

    def begin(self, user: str) -> str:
        """Begin a login, and return its id."""
        while len(self._sessions) >= MAX_SESSIONS:
            self._sessions.popitem(last=False)
        session_id = secrets.token_urlsafe(32)
        csrf = secrets.token_urlsafe(32)
        self._sessions[session_id] = Session(user, csrf, self._clock_s() + SESSION_S)
        return session_id

    def get(self, session_id: str | None) -> Session | None:
        """Return a login that is valid, or None."""
        session = self._sessions.get(session_id or "")
        if session is None:
            return None
        if self._clock_s() >= session.ends_s:
            self.end(session_id)
            return None
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


class Hosts:
    """The host names under which the page is served.

    A request with another name comes from a foreign page whose name resolves to this host (DNS
    rebinding). IP addresses are always accepted, because nobody can make them resolve elsewhere.

    :param names: besides ``localhost``
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = {"localhost", *(name.lower().rstrip(".") for name in names)}

    def admits(self, host: str) -> bool:
        """Return whether the Host header of a request names this page."""
        name = host.strip()
        if name.startswith("["):
            name = name[1:].partition("]")[0]
        elif name.count(":") == 1:
            name = name.partition(":")[0]
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name.lower().rstrip(".") in self._names
        return True
