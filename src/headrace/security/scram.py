"""SCRAM-SHA-256 and SCRAM-SHA-512: credentials, and the server's side of a login (RFC 5802, RFC
7677, KIP-84).

A credential has salted keys, from which no password can be computed. A login takes the server three
hashes. An unknown user gets a salt like everybody else, and fails with the proof, so that an answer
does not tell who exists, and takes as long.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate

from .conversation import NAME, OTHER_AUTHORIZATION, Challenge, Failure, Step, Success, unescaped

MIN_ITERATIONS = 4096
"""Kafka's own, for both mechanisms."""

SALT_BYTES = 20
"""The length of new salts, and of those of unknown users."""

MAX_ITERATIONS = 16384
"""Kafka's own: the most iterations of a credential that is stored."""


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A mechanism of SCRAM.

    :ivar number: in requests about credentials
    :ivar hash_name: for :mod:`hashlib`
    """

    name: str
    number: int
    hash_name: str

    def digest(self, data: bytes) -> bytes:
        """Return the hash of some bytes."""
        return hashlib.new(self.hash_name, data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        """Return the keyed hash of some bytes."""
        return hmac.digest(key, data, self.hash_name)


MECHANISMS: Mapping[str, Mechanism] = {
    mechanism.name: mechanism
    for mechanism in (
        Mechanism("SCRAM-SHA-256", 1, "sha256"),
        Mechanism("SCRAM-SHA-512", 2, "sha512"),
    )
}

MECHANISM_NUMBERS: Mapping[int, Mechanism] = {
    mechanism.number: mechanism for mechanism in MECHANISMS.values()
}

# Credentials --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Credential:
    """The salted keys of a user for one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"Credential(iterations={self.iterations})"  # for logs and tracebacks

    def text(self) -> str:
        """Return Kafka's text of a credential."""
        return (
            f"salt={_base64(self.salt)},stored_key={_base64(self.stored_key)},"
            f"server_key={_base64(self.server_key)},iterations={self.iterations}"
        )

    @classmethod
    def parse(cls, text: str) -> Credential:
        """Parse what :meth:`text` returned.

        :raises ValueError: when it is something else; the message does not have it
        """
        try:
            fields = dict(part.split("=", 1) for part in text.split(","))
            salt, stored_key, server_key = (
                base64.b64decode(fields[name], validate=True)
                for name in ("salt", "stored_key", "server_key")
            )
            return cls(salt, stored_key, server_key, int(fields["iterations"]))
        except (KeyError, ValueError):
            raise ValueError("not a SCRAM credential") from None


def salt_password(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the salted password. This takes milliseconds: do it in a thread."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def make_credential(
    mechanism: Mechanism, salted_password: bytes, salt: bytes, iterations: int
) -> Credential:
    """Return the credential of a salted password."""
    client_key = mechanism.hmac(salted_password, b"Client Key")
    return Credential(
        salt,
        mechanism.digest(client_key),
        mechanism.hmac(salted_password, b"Server Key"),
        iterations,
    )


class UnknownUsers:
    """The credentials of users that do not exist: they look like those that do.

    A name has the same salt and iterations at each login, also after a restart.

    :param secret: random bytes that nobody else knows
    :param users: the number of existing users by their iterations
    """

    def __init__(self, mechanism: Mechanism, secret: bytes, users: Mapping[int, int]) -> None:
        self._mechanism = mechanism
        self._secret = secret
        users = users or {MIN_ITERATIONS: 1}
        self._iterations = sorted(users)
        self._ends = list(accumulate(users[iterations] for iterations in self._iterations))

    def credential(self, name: str) -> Credential:
        """Return the credential of a name, whose password nobody knows."""
        made = self._mechanism.hmac(self._secret, name.encode())
        salt, chance = made[:SALT_BYTES], made[SALT_BYTES:]
        # As many have some iterations as existing users, and few change with one more user.
        place = int.from_bytes(chance) * self._ends[-1] >> 8 * len(chance)
        iterations = self._iterations[bisect_right(self._ends, place)]
        return Credential(salt, made, made, iterations)


# A login ------------------------------------------------------------------------------------------

_PRINTABLE = r"[\x21-\x2B\x2D-\x7E]+"
_VALUE = r"[\x01-\x2B\x2D-\x7F]+"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"
_BASE64 = r"[A-Za-z0-9+/]+={0,2}"
_CLIENT_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<authorization>{NAME}))?,)"
    rf"(?P<bare>(?:m={_VALUE},)?n=(?P<name>{NAME}),r=(?P<nonce>{_PRINTABLE})"
    rf"(?P<extensions>{_EXTENSIONS}))"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<unproved>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE})(?:{_EXTENSIONS}))"
    rf",p=(?P<proof>{_BASE64})"
)
_DELEGATION_TOKEN = "tokenauth=true"


@dataclass(repr=False)
class ScramServer:
    """The server's side of one login.

    :param _find: returns the credential of a user name, None for an unknown one
    :param _server_nonce: random and printable, without a comma
    """

    _mechanism: Mechanism
    _find: Callable[[str], Credential | None]
    _server_nonce: str
    _unknown: UnknownUsers
    _name: str | None = None
    _is_known: bool = False
    _credential: Credential = Credential(b"", b"", b"", 0)
    _header: str = ""
    _messages: str = ""
    _nonce: str = ""

    def respond(self, token: bytes, now_ms: int) -> Step:
        """Return the answer to the client's first or final message."""
        try:
            text = token.decode("ascii")
        except UnicodeDecodeError:
            return Failure()
        return self._begin(text) if self._name is None else self._finish(text, self._name)

    def _begin(self, text: str) -> Step:
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None:
            return Failure()
        self._name = unescaped(match["name"])
        authorization = unescaped(match["authorization"])
        if authorization and authorization != self._name:
            return OTHER_AUTHORIZATION
        credential = self._find(self._name)
        # Delegation tokens are not served: nobody is known by one.
        is_token = _DELEGATION_TOKEN in match["extensions"].split(",")
        self._credential = self._unknown.credential(self._name)
        if credential is not None and credential.iterations >= MIN_ITERATIONS and not is_token:
            self._is_known, self._credential = True, credential
        self._nonce = match["nonce"] + self._server_nonce
        self._header = match["header"]
        first = (
            f"r={self._nonce},s={_base64(self._credential.salt)},i={self._credential.iterations}"
        )
        self._messages = f"{match['bare']},{first}"
        return Challenge(first.encode())

    def _finish(self, text: str, name: str) -> Step:
        match = _CLIENT_FINAL.fullmatch(text)
        if (
            match is None
            or match["nonce"] != self._nonce
            or match["channel"] != _base64(self._header.encode())
        ):
            return Failure()
        try:
            proof = base64.b64decode(match["proof"], validate=True)
        except binascii.Error:
            return Failure()
        mechanism, credential = self._mechanism, self._credential
        messages = f"{self._messages},{match['unproved']}".encode()
        signature = mechanism.hmac(credential.stored_key, messages)
        if len(proof) != len(signature):
            return Failure()
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        is_right = hmac.compare_digest(mechanism.digest(client_key), credential.stored_key)
        verifier = _base64(mechanism.hmac(credential.server_key, messages))
        if not (is_right and self._is_known):
            return Failure()
        return Success(name, f"v={verifier}".encode())


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
