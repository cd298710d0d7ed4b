"""Tokens for logins with OAUTHBEARER: from a file, a callback, or unsecured ones for development
(KIP-255); from an endpoint see :mod:`.token_endpoint`.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import os
import re
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from .errors import AuthenticationFailed, ConnectionFailed

MAX_TOKEN_BYTES = 1 << 20
"""The longest response of a token endpoint, and the longest token file, that is read."""
ALLOWED_URLS = "HEADRACE_SASL_OAUTHBEARER_ALLOWED_URLS"
"""The environment variable with the ``file:`` URLs that tokens are read from, separated by commas:
Kafka's system property ``org.apache.kafka.sasl.oauthbearer.allowed.urls``.
"""
RENEWAL = 0.8
"""The part of its lifetime after which a token is fetched again, Kafka's
``sasl.login.refresh.window.factor``.
"""
_TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]+=*", re.ASCII)
_EXTENSION_NAME = re.compile(r"[a-zA-Z]+", re.ASCII)
_EXTENSION_VALUE = re.compile(r"[\x21-\x7E \t\r\n]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token.

    :ivar name: its claim ``sub``; empty if the token is not a JSON web token
    :ivar expires_s: seconds since the epoch; infinite if unknown
    :ivar extensions: SASL extensions (KIP-342)
    """

    text: str = field(repr=False)
    name: str
    expires_s: float
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)


Fetch = Callable[[], Token | Awaitable[Token]]
"""Returns a new token. It is called in a thread; its awaitable is awaited on the event loop."""


class TokenSource:
    """The token of a client, fetched again when most of its lifetime has passed.

    Connections of several threads and event loops may share one.

    :param fetch: raises :class:`ClientError` if there is no token
    :param renewal: the part of its lifetime after which a token is fetched again
    """

    def __init__(self, fetch: Fetch, renewal: float = RENEWAL) -> None:
        self._fetch = fetch
        self._renewal = renewal
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._renew_at_s = -inf

    async def current(self) -> Token:
        """Return a token that has not expired, if there is one.

        :raises AuthenticationFailed: there is no token, and a setting is the reason
        :raises ConnectionFailed: the token endpoint does not answer
        """
        return await asyncio.to_thread(self._current, asyncio.get_running_loop())

    def _current(self, loop: asyncio.AbstractEventLoop) -> Token:
        with self._lock:
            now_s = time.time()
            if self._token is not None and now_s < self._renew_at_s:
                return self._token
            try:
                fetched = self._fetch()
                if inspect.isawaitable(fetched):
                    fetched = asyncio.run_coroutine_threadsafe(_wait(fetched), loop).result()
            except (AuthenticationFailed, ConnectionFailed):
                if self._token is None or self._token.expires_s <= now_s:
                    raise
                return self._token
            self._token = fetched
            lifetime_s = fetched.expires_s - now_s
            self._renew_at_s = now_s + (lifetime_s * self._renewal if lifetime_s < inf else 0)
            return fetched


async def _wait(awaitable: Awaitable[Token]) -> Token:
    return await awaitable


def read_token(
    text: str,
    origin: str,
    expires_s: float | None = None,
    extensions: Mapping[str, str] | None = None,
) -> Token:
    """Return a token with the claims that it shows.

    :param origin: the place it comes from, for errors
    :param expires_s: seconds since the epoch; None for its claim ``exp``
    :raises AuthenticationFailed: it is not a token, or an extension is malformed
    """
    text = text.strip()
    if _TOKEN.fullmatch(text) is None:
        raise AuthenticationFailed(f"{origin} has no token: it is empty or has other characters")
    for name, value in (extensions or {}).items():
        is_valid = _EXTENSION_NAME.fullmatch(name) and _EXTENSION_VALUE.fullmatch(value)
        if not is_valid or name.lower() == "auth":
            raise AuthenticationFailed(f"the SASL extension '{name}' of {origin} is malformed")
    claims = claims_of(text)
    expiry = claims.get("exp") if expires_s is None else expires_s
    expires_at_s = inf
    if isinstance(expiry, int | float) and not isinstance(expiry, bool):
        with suppress(OverflowError):
            expires_at_s = float(expiry)
    return Token(text, str(claims.get("sub", "")), expires_at_s, dict(extensions or {}))


def claims_of(token: str) -> Mapping[str, Any]:
    """Return the unverified claims of a JSON web token; none for another kind of token."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


# Sources ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A file with a token, read at each login. Another program renews it.

    Its address must be in :data:`ALLOWED_URLS`: whoever writes a client's settings could otherwise
    have any file sent to a broker of his own.

    An instance is also a callback for librdkafka, which does not read such files.
    """

    path: str

    def fetch(self) -> Token:
        """Return the token.

        :raises AuthenticationFailed: the file is not allowed or cannot be read, or has no token
        """
        urls = os.environ.get(ALLOWED_URLS, "").split(",")
        if self.path not in [unquote(urlsplit(url.strip()).path) for url in urls]:
            raise AuthenticationFailed(
                f"the token file {self.path} may not be read: to allow it, set the environment "
                f"variable {ALLOWED_URLS} to file://{quote(self.path)}"
            )
        try:
            with Path(self.path).open("rb") as file:
                text = file.read(MAX_TOKEN_BYTES).decode("ascii")
        except (OSError, ValueError) as error:
            reason = (isinstance(error, OSError) and error.strerror) or "it is not text"
            raise AuthenticationFailed(
                f"the token file {self.path} cannot be read: {reason}: check "
                "sasl.oauthbearer.token.endpoint.url"
            ) from None
        return read_token(text, f"the token file {self.path}")

    def __call__(self, _: str) -> tuple[str, float]:
        """Return the token and its expiry in seconds since the epoch, for ``oauth_cb``."""
        token = self.fetch()
        return token.text, token.expires_s if token.expires_s < inf else time.time() + 3600


@dataclass(frozen=True, slots=True)
class TokenCallback:
    """A function that returns tokens, as ``oauth_cb`` of confluent-kafka, or a coroutine function.

    :param function: gets ``sasl.oauthbearer.config``, and returns a token and its expiry in seconds
        since the epoch; then perhaps the name of the principal and a dict of SASL extensions
    """

    function: Callable[[str], Any]
    config: str = field(default="", repr=False)

    def __call__(self) -> Token | Awaitable[Token]:
        """Call the function.

        :raises AuthenticationFailed: it fails, or returns no token and expiry
        """
        try:
            found = self.function(self.config)
        except Exception as error:
            raise self._failure(error) from error
        return self._wait(found) if inspect.isawaitable(found) else self._token(found)

    async def _wait(self, awaitable: Awaitable[Any]) -> Token:
        try:
            found = await awaitable
        except Exception as error:
            raise self._failure(error) from error
        return self._token(found)

    def _failure(self, error: Exception) -> AuthenticationFailed:
        if isinstance(error, AuthenticationFailed):
            return error
        return AuthenticationFailed(f"oauth_cb fails: {type(error).__name__}: {error}")

    def _token(self, found: Any) -> Token:
        try:
            text, expires_s, *more = found
            token = read_token(str(text), "oauth_cb", float(expires_s), *more[1:2])
        except (TypeError, ValueError, OverflowError, AttributeError):
            raise AuthenticationFailed(
                "oauth_cb returns no token and expiry in seconds since the epoch"
            ) from None
        return token


@dataclass(frozen=True, slots=True)
class UnsecuredTokens:
    """Tokens without a signature, for development only: anybody can forge them.

    :param principal: the value of ``principal_claim``
    """

    principal: str
    principal_claim: str = "sub"
    scope: Sequence[str] = ()
    scope_claim: str = "scope"
    life_s: float = 3600
    extensions: Mapping[str, str] = field(default_factory=dict)

    def __call__(self) -> Token:
        """Return a new token."""
        now_s = time.time()
        claims: dict[str, Any] = {
            self.principal_claim: self.principal,
            "iat": round(now_s, 3),
            "exp": round(now_s + self.life_s, 3),
        }
        if self.scope:
            claims[self.scope_claim] = list(self.scope)
        header, payload = (_base64(json.dumps(part)) for part in ({"alg": "none"}, claims))
        return Token(f"{header}.{payload}.", self.principal, now_s + self.life_s, self.extensions)


def _base64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()
