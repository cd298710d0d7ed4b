"""Logins of a connection: SASL with PLAIN, SCRAM and OAUTHBEARER (RFC 4616, RFC 5802, RFC 7628,
KIP-84, KIP-255), and the tokens of the last one: from a file, a callback or an endpoint (KIP-768).
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import inspect
import json
import os
import re
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

from headrace.security.scram import (
    MECHANISMS,
    MIN_ITERATIONS,  # with fewer a broker learns the password by guessing
    make_credential,
    salt_password,
)

from .errors import AuthenticationFailed, ConnectionFailed

# Tokens -------------------------------------------------------------------------------------------

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


Fetch = Callable[[asyncio.AbstractEventLoop], Token]
"""Returns a new token. It is called in a thread, with the event loop that waits for it."""


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
                fetched = self._fetch(loop)
            except (AuthenticationFailed, ConnectionFailed):
                if self._token is None or self._token.expires_s <= now_s:
                    raise
                return self._token
            self._token = fetched
            lifetime_s = fetched.expires_s - now_s
            self._renew_at_s = now_s + (lifetime_s * self._renewal if lifetime_s < inf else 0)
            return fetched


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

    def fetch(self, _: object = None) -> Token:
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

    def __call__(self, loop: asyncio.AbstractEventLoop) -> Token:
        """Call the function.

        :raises AuthenticationFailed: it fails, or returns no token and expiry
        """
        try:
            returned = self.function(self.config)
            if inspect.isawaitable(returned):
                # A future of the loop can be waited for only in a coroutine.
                waiting = asyncio.wait_for(returned, None)
                returned = asyncio.run_coroutine_threadsafe(waiting, loop).result()
        except AuthenticationFailed:
            raise
        except Exception as error:
            text = f"oauth_cb fails: {type(error).__name__}: {error}"
            raise AuthenticationFailed(text) from error
        try:
            text, expires_s, *more = returned
            return read_token(str(text), "oauth_cb", float(expires_s), *more[1:2])
        except (TypeError, ValueError, OverflowError, AttributeError):
            raise AuthenticationFailed(
                "oauth_cb returns no token and expiry in seconds since the epoch"
            ) from None


ENDPOINT_TIMEOUT_S = 10.0
"""The timeout of connecting to a token endpoint, of each read, and of reading a response."""
_REFUSALS = frozenset((400, 401, 403))
"""HTTP statuses of an endpoint that does not accept the client."""


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """A token endpoint and the credentials of a client (RFC 6749, section 4.4).

    :param url: with ``https`` or ``http``
    :param scope: None for the default of the endpoint
    :param tls: used for ``https``
    """

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    def __call__(self, _: object = None) -> Token:
        """Ask for a token.

        :raises AuthenticationFailed: the endpoint does not accept the client, or its certificate is
            invalid
        :raises ConnectionFailed: it does not answer, or answers without a token
        """
        answer = self._ask()
        try:
            fields = json.loads(answer)
            text = fields["access_token"]
        except (ValueError, KeyError, TypeError, RecursionError):
            text = fields = None
        if not isinstance(text, str):
            raise ConnectionFailed(f"{self._place} answers without an access_token")
        lasts_s = fields.get("expires_in")
        expires_s = None
        if isinstance(lasts_s, int | float) and "exp" not in claims_of(text):
            expires_s = time.time() + lasts_s
        return read_token(text, self._place, expires_s, self.extensions)

    @property
    def _place(self) -> str:
        """The URL for error texts, without the parts that may have secrets."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def _ask(self) -> bytes:
        # HTTP takes a while to import.
        from http.client import HTTPException
        from urllib import request
        from urllib.error import HTTPError, URLError

        class NoRedirects(request.HTTPRedirectHandler):
            """Sends credentials to the configured address only."""

            def redirect_request(self, *_: Any) -> None:
                return None

        form = {"grant_type": "client_credentials"}
        if self.scope:
            form["scope"] = self.scope
        credentials = base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()
        headers = {"Authorization": f"Basic {credentials}", "Accept": "application/json"}
        asking = request.Request(self.url, urlencode(form).encode(), headers)
        opener = request.build_opener(NoRedirects, request.HTTPSHandler(context=self.tls))
        reason: object
        try:
            with opener.open(asking, timeout=ENDPOINT_TIMEOUT_S) as response:
                return _read(response)
        except HTTPError as refusal:
            reason = f"HTTP status {refusal.code}"
            if refusal.code in _REFUSALS:
                with suppress(
                    OSError, HTTPException, ValueError, KeyError, TypeError, RecursionError
                ):
                    reason = str(json.loads(_read(refusal))["error"])
                raise AuthenticationFailed(
                    f"{self._place} refuses the client '{self.client_id}': {reason}: check "
                    "sasl.oauthbearer.client.id, sasl.oauthbearer.client.secret and "
                    "sasl.oauthbearer.scope"
                ) from None
        except URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise AuthenticationFailed(
                    f"the certificate of {self._place} is invalid: {error.reason.verify_message}: "
                    "set https.ca.location to the certificate of the authority that has signed it"
                ) from None
            reason = getattr(error.reason, "strerror", None) or error.reason
        except (OSError, HTTPException, ValueError) as error:
            reason = error
        raise ConnectionFailed(
            f"{self._place} does not answer with a token: {reason}: "
            "check sasl.oauthbearer.token.endpoint.url"
        )


def _read(response: Any) -> bytes:
    """Return the body of a response, or its beginning.

    :raises TimeoutError: it is not complete after :data:`ENDPOINT_TIMEOUT_S`
    """
    ends_at_s = time.monotonic() + ENDPOINT_TIMEOUT_S
    data = bytearray()
    while len(data) < MAX_TOKEN_BYTES and (part := response.read1(MAX_TOKEN_BYTES - len(data))):
        data += part
        if time.monotonic() > ends_at_s:
            raise TimeoutError("timed out")
    return bytes(data)


# Logins -------------------------------------------------------------------------------------------

SASL_MECHANISMS = ("PLAIN", *MECHANISMS, "OAUTHBEARER")
_MAX_ITERATIONS = 1_000_000
"""The most SCRAM iterations, so that no broker keeps this client busy: about a second."""
_SERVER_FIRST = re.compile(
    r"r=(?P<nonce>[\x21-\x2B\x2D-\x7E]+),s=(?P<salt>[A-Za-z0-9+/]+={0,2})"
    r",i=(?P<iterations>[1-9][0-9]{0,9})(?:,[A-Za-z]=[^,]+)*"
)
"""A mandatory extension, ``m=``, comes first: none is known, so that it does not match."""


@dataclass(frozen=True, slots=True)
class Sasl:
    """A SASL login.

    :param mechanism: one of :data:`SASL_MECHANISMS`
    :param tokens: for OAUTHBEARER, which has no user name and password
    """

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    tokens: TokenSource | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Security:
    """The security settings of a connection; by default Kafka's PLAINTEXT.

    :param tls: None for no TLS
    :param sasl: None for no login
    """

    tls: ssl.SSLContext | None = None
    sasl: Sasl | None = None


PLAINTEXT = Security()

Conversation = Generator[bytes, bytes, None]
"""Yields the client's messages and receives the broker's, until the login is complete."""


def bearer(token: Token) -> Conversation:
    """Yield the client's messages of a login with a token."""
    pairs = {"auth": f"Bearer {token.text}", **token.extensions}
    text = "".join(f"{name}={value}\x01" for name, value in pairs.items())
    refusal = yield f"n,,\x01{text}\x01".encode()
    if refusal:
        yield b"\x01"  # the broker ends the login after this confirmation


def conversation(sasl: Sasl, nonce: str | None = None) -> Conversation:
    """Yield the client's messages of a login with a password.

    :param nonce: SCRAM's nonce of printable characters; None for a random one
    :raises AuthenticationFailed: the broker's messages are malformed, or do not prove that the
        broker knows the password
    """
    if sasl.mechanism == "PLAIN":
        yield f"\0{sasl.username}\0{sasl.password}".encode()
        return
    mechanism = MECHANISMS[sasl.mechanism]
    nonce = nonce or secrets.token_urlsafe(24)
    name = sasl.username.replace("=", "=3D").replace(",", "=2C")
    client_first = f"n={name},r={nonce}"
    server_first = (yield f"n,,{client_first}".encode()).decode(errors="replace")
    challenge = _SERVER_FIRST.fullmatch(server_first)
    salt = b""
    with suppress(ValueError):  # of characters that are no bytes
        salt = base64.b64decode(challenge["salt"] if challenge else "")
    if challenge is None or not salt:
        raise AuthenticationFailed(f"the broker's {mechanism.name} challenge is malformed")
    full_nonce, iterations = challenge["nonce"], int(challenge["iterations"])
    if not full_nonce.startswith(nonce) or full_nonce == nonce:
        raise AuthenticationFailed(
            f"the broker's {mechanism.name} challenge does not belong to this login"
        )
    if not MIN_ITERATIONS <= iterations <= _MAX_ITERATIONS:
        raise AuthenticationFailed(
            f"the broker asks for {iterations} iterations of {mechanism.name}; from "
            f"{MIN_ITERATIONS} to {_MAX_ITERATIONS} are accepted: check that it is the right "
            f"broker, and set the password of '{sasl.username}' again with more or fewer iterations"
        )
    salted = salt_password(mechanism, sasl.password, salt, iterations)
    credential = make_credential(mechanism, salted, salt, iterations)
    without_proof = f"c=biws,r={full_nonce}"  # biws is n,, in Base64: no channel binding
    messages = f"{client_first},{server_first},{without_proof}".encode()
    client_key = mechanism.hmac(salted, b"Client Key")
    signature = mechanism.hmac(credential.stored_key, messages)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_final = yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
    verifier = re.match(rb"v=([^,]*)", server_final)
    expected = base64.b64encode(mechanism.hmac(credential.server_key, messages))
    if verifier is None or not hmac.compare_digest(verifier[1], expected):
        raise AuthenticationFailed(
            f"the broker does not prove that it knows the password of '{sasl.username}'"
        )


def next_message(talk: Conversation, answer: bytes) -> bytes | None:
    """Return the client's message after the broker's ``answer``; None when the login is complete.

    SCRAM takes up to a second: call it in a thread.

    :raises AuthenticationFailed: see :func:`conversation`
    """
    try:
        return talk.send(answer)
    except StopIteration:
        return None
