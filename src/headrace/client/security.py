"""The security of a connection: TLS, and SASL with PLAIN, SCRAM or OAUTHBEARER (RFC 4616, RFC 5802,
RFC 7628, KIP-84, KIP-255).
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
import secrets
import ssl
from base64 import b64decode, b64encode
from collections.abc import Generator
from dataclasses import dataclass, field

from .errors import AuthenticationFailed
from .tokens import Token, TokenSource

SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_MIN_ITERATIONS = 4096
"""The fewest SCRAM iterations, as in Kafka: with fewer a broker learns the password by guessing."""
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


async def begin(sasl: Sasl) -> tuple[str, Conversation]:
    """Begin a login: return the name of the user, if known, and the client's messages.

    :raises AuthenticationFailed: there is no token
    :raises ConnectionFailed: the token endpoint does not answer
    """
    if sasl.tokens is None:
        return sasl.username, conversation(sasl)
    token = await sasl.tokens.current()
    return token.name, bearer(token)


def bearer(token: Token) -> Conversation:
    """Yield the client's messages of a login with a token."""
    pairs = {"auth": f"Bearer {token.text}", **token.extensions}
    text = "".join(f"{name}={value}\x01" for name, value in pairs.items())
    refusal = yield f"n,,\x01{text}\x01".encode()
    if refusal:
        yield b"\x01"  # the broker ends the login after this confirmation


def conversation(sasl: Sasl, nonce: str | None = None) -> Conversation:
    """Return the client's messages of a login with a password.

    The generator raises :class:`AuthenticationFailed` if the broker's messages are malformed, or do
    not prove that the broker knows the password.

    :param nonce: SCRAM's nonce of printable characters; None for a random one
    """
    if sasl.mechanism == "PLAIN":
        return _plain(sasl)
    return _scram(sasl, nonce or secrets.token_urlsafe(24))


def _plain(sasl: Sasl) -> Conversation:
    yield f"\0{sasl.username}\0{sasl.password}".encode()


def _scram(sasl: Sasl, nonce: str) -> Conversation:
    algorithm = sasl.mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    name = sasl.username.replace("=", "=3D").replace(",", "=2C")
    client_first = f"n={name},r={nonce}"
    server_first = (yield f"n,,{client_first}".encode()).decode(errors="replace")
    challenge = _SERVER_FIRST.fullmatch(server_first)
    salt = b"" if challenge is None else _from_base64(challenge["salt"])
    if challenge is None or not salt:
        raise AuthenticationFailed(f"the broker's {sasl.mechanism} challenge is malformed")
    full_nonce, iterations = challenge["nonce"], int(challenge["iterations"])
    if not full_nonce.startswith(nonce) or full_nonce == nonce:
        raise AuthenticationFailed(
            f"the broker's {sasl.mechanism} challenge does not belong to this login"
        )
    if not _MIN_ITERATIONS <= iterations <= _MAX_ITERATIONS:
        raise AuthenticationFailed(
            f"the broker asks for {iterations} iterations of {sasl.mechanism}; from "
            f"{_MIN_ITERATIONS} to {_MAX_ITERATIONS} are accepted: check that it is the right "
            f"broker, and set the password of '{sasl.username}' again with more or fewer iterations"
        )
    salted = hashlib.pbkdf2_hmac(algorithm, sasl.password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    stored_key = hashlib.new(algorithm, client_key).digest()
    without_proof = f"c=biws,r={full_nonce}"  # biws is n,, in Base64: no channel binding
    auth_message = f"{client_first},{server_first},{without_proof}".encode()
    signature = hmac.digest(stored_key, auth_message, algorithm)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_final = yield f"{without_proof},p={b64encode(proof).decode()}".encode()
    server_key = hmac.digest(salted, b"Server Key", algorithm)
    expected = b64encode(hmac.digest(server_key, auth_message, algorithm))
    verifier = _fields(server_final.decode(errors="replace")).get("v", "")
    if not hmac.compare_digest(verifier.encode(), expected):
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


def _from_base64(text: str) -> bytes:
    """Return the bytes of a Base64 text; none if it is malformed."""
    try:
        return b64decode(text, validate=True)
    except binascii.Error:
        return b""


def _fields(message: str) -> dict[str, str]:
    return {part[:1]: part[2:] for part in message.split(",") if part[1:2] == "="}
