"""OAUTHBEARER: the server's side of a login with a JSON web token (RFC 7628, KIP-255, KIP-768)."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jwt

from .conversation import NAME, Challenge, Failure, Step, Success, unescaped

MAX_TOKEN_CHARS = 64 * 1024
"""The longest token that is looked at."""

MIN_RSA_BITS = 2048
"""The shortest RSA key that is used, as in Kafka."""

_CLIENT_FIRST = re.compile(
    rf"n,(?:a=(?P<authorization>{NAME}))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7E \t\r\n]+\x01)*)\x01"
)
_BEARER = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512", "ES256K"),
    "OKP": ("EdDSA",),
}
"""Algorithms that a key of a type may have signed with. None is symmetric: a public key must not
verify as a password.
"""


class InvalidToken(ValueError):
    """A token that is not accepted. The message says why, and does not have the token."""


Validate = Callable[[str, int], Success]
"""``validate(token, now_ms)``: returns the end of the login; raises :class:`InvalidToken`."""


@dataclass(repr=False)
class OAuthBearerServer:
    """The server's side of one login.

    :param _validate: checks a token
    :param _refused: called with the reason why a token is not valid, for the log
    """

    _validate: Validate
    _refused: Callable[[str], object]
    _error: str | None = None

    def respond(self, token: bytes, now_ms: int) -> Step:
        """Return the result of a token. An invalid one is answered with an error, which the client
        confirms.
        """
        if self._error is not None:
            return Failure(self._error if token == b"\x01" else None)
        try:
            text = token.decode("ascii")
        except UnicodeDecodeError:
            return Failure()
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None:
            return Failure()
        pairs = dict(pair.split("=", 1) for pair in match["pairs"].split("\x01") if pair)
        bearer = _BEARER.fullmatch(pairs.get("auth", ""))
        if bearer is None or bearer["scheme"].lower() != "bearer":
            return Failure()
        try:
            valid = self._validate(bearer["token"], now_ms)
        except InvalidToken as error:
            self._refused(str(error))
            self._error = '{"status":"invalid_token"}'
            return Challenge(self._error.encode())
        authorization = unescaped(match["authorization"])
        if authorization and authorization != valid.name:
            return Failure(
                f"Authentication failed: Client requested an authorization id ({authorization}) "
                f"that is different from the token's principal name ({valid.name})"
            )
        return valid


# Tokens -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The claims that a token must have.

    :ivar audiences: one of them, if there are any
    :ivar issuer: None for any
    :ivar required_scopes: all of them
    """

    audiences: Sequence[str] = ()
    issuer: str | None = None
    scope_claim: str = "scope"
    name_claim: str = "sub"
    clock_skew_ms: int = 30_000
    required_scopes: Sequence[str] = ()


class KeySet:
    """The public keys that tokens are verified with.

    :param document: a JSON web key set (RFC 7517)
    :raises ValueError: when it is not a key set, or has no key that can be used
    """

    def __init__(self, document: bytes) -> None:
        try:
            entries = json.loads(document)["keys"]
            self._keys = [key for key in map(_key, entries) if key is not None]
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError("not a JSON web key set") from error
        if not self._keys:
            raise ValueError(
                "the JSON web key set has no public key that verifies signatures; an RSA key needs "
                f"{MIN_RSA_BITS} bits"
            )

    def find(self, key_id: str | None, algorithm: str) -> jwt.PyJWK | None:
        """Return the key of a token, None if there is none."""
        fitting = [
            key
            for key in self._keys
            if algorithm in _algorithms(key) and (key_id is None or key.key_id == key_id)
        ]
        return fitting[0] if len(fitting) == 1 or (fitting and key_id is not None) else None


def _key(entry: Mapping[str, Any]) -> jwt.PyJWK | None:
    if entry.get("kty") not in _ALGORITHMS or entry.get("use", "sig") != "sig":
        return None
    operations = entry.get("key_ops", ("verify",))
    if not isinstance(operations, Sequence) or "verify" not in operations:
        return None
    try:
        key = jwt.PyJWK.from_dict(dict(entry))
    except jwt.PyJWTError:
        return None
    is_short = entry["kty"] == "RSA" and key.key.key_size < MIN_RSA_BITS
    return None if is_short else key


def _algorithms(key: jwt.PyJWK) -> Sequence[str]:
    entry = key._jwk_data
    allowed = _ALGORITHMS[entry["kty"]]
    return [entry["alg"]] if entry.get("alg") in allowed else [] if "alg" in entry else allowed


def validate_signed(
    rules: TokenRules,
    keys: Callable[[], KeySet | None],
    missing: Callable[[], object],
    token: str,
    now_ms: int,
) -> Success:
    """Validate a signed token.

    :param keys: returns the present keys, None while there are none
    :param missing: called when the key of a token is not among them
    :raises InvalidToken: when it is not valid now
    """
    header = _json(_parts(token)[0])
    key_set = keys()
    if key_set is None:
        missing()
        raise InvalidToken("there are no keys to verify it with")
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or not isinstance(key_id, str | None):
        raise InvalidToken("its header is malformed")
    key = key_set.find(key_id, algorithm)
    if key is None:
        missing()
        raise InvalidToken(f"no key for it: kid {key_id}, alg {algorithm}")
    unchecked = {
        f"verify_{claim}": False for claim in ("aud", "exp", "iat", "iss", "jti", "nbf", "sub")
    }
    try:
        claims = jwt.decode(token, key.key, algorithms=[algorithm], options=unchecked)  # type: ignore[arg-type]
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        raise InvalidToken(f"its signature or form is not valid: {error}") from error
    return check_claims(claims, rules, now_ms)


def validate_unsecured(rules: TokenRules, token: str, now_ms: int) -> Success:
    """Validate a token without a signature, for development only: everybody can write one.

    :raises InvalidToken: when it is not valid now
    """
    parts = _parts(token)
    if len(parts) != 3 or parts[2]:
        raise InvalidToken("it has a signature, or is no token")
    if _json(parts[0]).get("alg") != "none":
        raise InvalidToken("its algorithm is not none")
    return check_claims(_json(parts[1]), rules, now_ms, requires_issued_at=False)


def check_claims(
    claims: Mapping[str, Any], rules: TokenRules, now_ms: int, *, requires_issued_at: bool = True
) -> Success:
    """Check the claims of a token.

    :param now_ms: epoch milliseconds
    :raises InvalidToken: when one is missing or wrong
    """
    expires_ms = _time_ms(claims, "exp")
    issued_ms = _time_ms(claims, "iat")
    begins_ms = _time_ms(claims, "nbf")
    if expires_ms is None:
        raise InvalidToken("it has no claim exp")
    if issued_ms is None and requires_issued_at:
        raise InvalidToken("it has no claim iat")
    if expires_ms + rules.clock_skew_ms <= now_ms:
        raise InvalidToken("it has expired")
    if begins_ms is not None and begins_ms - rules.clock_skew_ms > now_ms:
        raise InvalidToken("it is not valid yet")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise InvalidToken("its issuer is not the expected one")
    if rules.audiences and not set(rules.audiences) & set(_texts(claims.get("aud"))):
        raise InvalidToken("its audience is not an expected one")
    scopes = _texts(claims.get(rules.scope_claim), separator=" ")
    missing = sorted(set(rules.required_scopes) - set(scopes))
    if missing:
        raise InvalidToken(f"it lacks the scopes {', '.join(missing)}")
    if not isinstance(claims.get("sub", ""), str) or (requires_issued_at and not claims.get("sub")):
        raise InvalidToken("it has no claim sub")
    name = claims.get(rules.name_claim)
    if not isinstance(name, str) or not name.strip():
        raise InvalidToken(f"it has no name in claim {rules.name_claim}")
    return Success(name.strip(), expires_ms=expires_ms)


def _parts(token: str) -> Sequence[str]:
    """Return header, claims and signature of a well-formed token."""
    if len(token) > MAX_TOKEN_CHARS:
        raise InvalidToken("the token is too long")
    return token.split(".")


def _json(part: str) -> Mapping[str, Any]:
    """Return the JSON object of a part of a token.

    :raises InvalidToken: when it is not a JSON object
    """
    try:
        value = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError) as error:
        raise InvalidToken("it is malformed") from error
    if not isinstance(value, dict):
        raise InvalidToken("it is malformed")
    return value


def _time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e12:
        raise InvalidToken(f"its claim {name} is not a time")
    return int(value * 1000)


def _texts(value: object, separator: str | None = None) -> Sequence[str]:
    if isinstance(value, str):
        return value.split(separator) if separator else [value]
    if isinstance(value, list):
        return [text for text in value if isinstance(text, str)]
    return []
