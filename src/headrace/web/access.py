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

from headrace.http.failed_logins import FailedLogins

from .errors import BadRequest
from .requests import PageRequest, Session

MAX_SESSIONS = 100
"""Logins that are valid at a time; the oldest ends first."""
SESSION_S = 12 * 3600
"""The time for which a login is valid."""
SESSION_IDLE_S = 3600
"""The time after which a login ends if its user does nothing."""
FIRST_LOGIN_S = 600
"""The time for which the address that is printed at the start logs in."""

_COOKIE = "headrace_session"
_SECURE_COOKIE = f"__Host-{_COOKIE}"
"""Browsers take it over TLS only, and neither from nor for another host."""

Header = tuple[bytes, bytes]

TOKEN_USER = "token"
"""The user whose password is the token, which needs no name."""


def _is_same(secret: str, other: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(secret.encode(), other.encode())


class Sessions:
    """The logins that are valid. A restart ends them.

    :param clock_s: a steady clock
    """

    def __init__(self, clock_s: Callable[[], float]) -> None:
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

    def get(self, session_id: str, *, is_use: bool = True) -> Session | None:
        """Return a login that is valid, or None.

        :param is_use: the user does something, rather than a page that refreshes itself
        """
        session = self._sessions.get(session_id)
        if session is None:
            return None
        now_s = self._clock_s()
        if now_s >= min(session.ends_s, session.used_s + SESSION_IDLE_S):
            self.end(session_id)
            return None
        if is_use:
            session.used_s = now_s
        return session

    def end(self, session_id: str) -> None:
        """End a login."""
        self._sessions.pop(session_id, None)


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


class Access:
    """The visitors of the page, and what they may do.

    :param users: name → password of the users who may act; empty: the page is read-only
    :param login_to_view: require a login to view pages, too
    :param is_secure: the page is served over TLS, so that browsers may require it for the cookie
    :param clock_s: a steady clock
    """

    def __init__(
        self,
        users: Mapping[str, str],
        *,
        login_to_view: bool = False,
        is_secure: bool = False,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.users = users
        self.is_secure = is_secure
        self.sessions = Sessions(clock_s)
        self.failed_logins = FailedLogins()
        self._clock_s = clock_s
        self._cookie = _SECURE_COOKIE if is_secure else _COOKIE
        self._login_to_view = login_to_view
        self._first_login = "", 0.0

    def identify(self, request: PageRequest) -> None:
        """Look up who sent a request, once: a wrong password counts for each."""
        session = self.sessions.get(request.cookie(self._cookie), is_use=not request.is_part)
        request.session, request.user = session, None if session is None else session.user
        header = request.headers.get("authorization")
        # A proxy may forward the header of its own login.
        is_needed = session is None and (self._login_to_view or request.is_api)
        if header is not None and self.users and is_needed:
            name_and_secret = basic_or_bearer(header)
            request.user = name_and_secret and self.admitted(request, *name_and_secret)

    def admitted(self, request: PageRequest, name: str, secret: str) -> str | None:
        """Return the user with this name and password, or of this token; count a wrong one."""
        admitted = None
        # Compare with all of them, so that the time does not depend on the one that matches.
        for user, password in self.users.items():
            is_named = name == user or (user == TOKEN_USER and not name)
            if _is_same(secret, password) and is_named:
                admitted = user
        if admitted is None:
            named = name if name in self.users else None
            request.is_late = self.failed_logins.count(request.host, named)
        return admitted

    def first_login(self) -> str:
        """Return the code of a login with the token that is good once, and not for long: for the
        address that is printed at the start.
        """
        self._first_login = secrets.token_urlsafe(24), self._clock_s() + FIRST_LOGIN_S
        return self._first_login[0]

    def admitted_first(self, request: PageRequest, code: str) -> str | None:
        """Return the user of the code of the first login, which then is used up."""
        first, until_s = self._first_login
        if self._clock_s() >= until_s or not _is_same(code, first):
            request.is_late = self.failed_logins.count(request.host, None)
            return None
        self._first_login = "", 0.0
        return TOKEN_USER

    def may_view(self, request: PageRequest) -> bool:
        """Return whether a visitor may view pages."""
        return not self._login_to_view or request.user is not None

    def form(self, request: PageRequest) -> tuple[str, dict[str, str]]:
        """Return the user who sent a form, and its fields.

        :raises BadRequest: it lacks the token of its sender's login, or another site has sent it
        """
        session, fields = request.session, request.form()
        if session is None or not _is_same(fields.pop("csrf", ""), session.csrf):
            raise BadRequest(
                "The form is no longer valid: go back, load the page again, and repeat."
            )
        return session.user, fields

    def begin(self, user: str) -> Header:
        """Begin a login in a browser, and return the header that says so."""
        return self._cookie_header(f"{self._cookie}={self.sessions.begin(user)}")

    def end(self, request: PageRequest) -> Header:
        """End the login of a browser, and return the header that says so."""
        self.sessions.end(request.cookie(self._cookie))
        return self._cookie_header(f"{self._cookie}=; Max-Age=0")

    def _cookie_header(self, cookie: str) -> Header:
        secure = "; Secure" if self.is_secure else ""
        return b"set-cookie", f"{cookie}; HttpOnly; Path=/; SameSite=strict{secure}".encode()
