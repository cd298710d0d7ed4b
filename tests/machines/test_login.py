"""Logins: PLAIN, JAAS lines, tokens, and the order of the requests of a connection."""

from __future__ import annotations

import base64
import hmac
import json
from functools import partial
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.errors import ErrorCode
from headrace.security import jaas
from headrace.security.conversation import Challenge, Failure, Success
from headrace.security.login import EnabledMechanism, Login, State
from headrace.security.oauthbearer import (
    InvalidToken,
    KeySet,
    OAuthBearerServer,
    TokenRules,
    validate_signed,
    validate_unsecured,
)
from headrace.security.plain import PlainServer
from headrace.security.scram import MECHANISMS, ScramServer, UnknownUsers

NOW_MS = 1_800_000_000_000
NOW_S = NOW_MS // 1000

# PLAIN --------------------------------------------------------------------------------------------

USERS = {"ann": "s3cret", "müller": "pä,ss"}


def plain(message: str | bytes) -> Success | Failure:
    token = message.encode() if isinstance(message, str) else message
    step = PlainServer(USERS).respond(token, 0)
    assert not isinstance(step, Challenge)
    return step


@pytest.mark.parametrize("message", ["\0ann\0s3cret", "ann\0ann\0s3cret"])
def test_plain(message: str) -> None:
    assert plain(message) == Success("ann")
    assert plain("\0müller\0pä,ss") == Success("müller")


@pytest.mark.parametrize("message", ["\0ann\0wrong", "\0nobody\0s3cret", "\0nobody\0wrong"])
def test_a_wrong_name_is_like_a_wrong_password(message: str) -> None:
    assert plain(message) == Failure("Authentication failed: Invalid username or password")


TOKENS = "Invalid SASL/PLAIN response: expected 3 tokens, got"


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("", f"{TOKENS} 1"),
        ("\0ann", f"{TOKENS} 2"),
        ("\0ann\0s3cret\0", f"{TOKENS} 4"),
        ("\0" * 1000, f"{TOKENS} 4"),
        ("\0\0s3cret", "Authentication failed: username not specified"),
        ("\0ann\0", "Authentication failed: password not specified"),
        (b"\0ann\0\xff", "Authentication failed: Invalid username or password"),
    ],
)
def test_malformed_plain(message: str | bytes, error: str) -> None:
    assert plain(message) == Failure(error)


def test_plain_for_somebody_else() -> None:
    failure = plain("root\0ann\0s3cret")
    assert isinstance(failure, Failure)
    assert "different from username" in (failure.message or "")


# JAAS lines ---------------------------------------------------------------------------------------

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("line", "options"),
    [
        (f"{MODULE} required;", {}),
        (f'{MODULE} required username="a" password="b";', {"username": "a", "password": "b"}),
        (
            f"{MODULE}  Required\n  user_ann='s3 cret'\n user_b=c ;",
            {"user_ann": "s3 cret", "user_b": "c"},
        ),
        (rf'{MODULE} required p="a\"b\\c=;";', {"p": 'a"b\\c=;'}),
        (f'{MODULE} required p = "";', {"p": ""}),
    ],
)
def test_jaas_lines(line: str, options: dict[str, str]) -> None:
    module = jaas.parse(line)
    assert module.name == MODULE
    assert dict(module.options) == options
    assert "s3" not in repr(module)


def test_users_of_plain() -> None:
    assert jaas.parse(f'{MODULE} required user_ann="x" user_="y" other="z";').users == {
        "ann": "x",
        "": "y",
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "Login module not specified"),
        (MODULE, "control flag not specified"),
        (f"{MODULE} perhaps;", "Invalid login module control flag"),
        (f'{MODULE} required user_ann="s3cret"', "not terminated by semi-colon"),
        (f"{MODULE} required user_ann;", "Value not specified for key 'user_ann'"),
        (f"{MODULE} required user_ann=;", "Value not specified for key 'user_ann'"),
        (f"{MODULE} required user_ann=", "Value not specified for key 'user_ann'"),
        (f"{MODULE} required; {MODULE} required;", "should be 1 module"),
        (f'{MODULE} required user_ann="s3cret;', "without its counterpart"),
    ],
)
def test_malformed_jaas_lines(line: str, message: str) -> None:
    with pytest.raises(jaas.InvalidJaas, match=message) as refused:
        jaas.parse(line)
    assert "s3cret" not in str(refused.value)


@given(st.text(alphabet="ab\"'\\=; \n", max_size=40))
def test_any_line_is_parsed_or_refused(line: str) -> None:
    try:
        jaas.parse(line)
    except jaas.InvalidJaas:
        pass


# Tokens -------------------------------------------------------------------------------------------

RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())


def key_entry(key: rsa.RSAPrivateKey) -> dict[str, Any]:
    entry: dict[str, Any] = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
    del entry["key_ops"]  # as providers publish them
    return entry | {"kid": "rsa"}


def key_set() -> KeySet:
    rsa_entry = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA.public_key()))
    ec_entry = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(EC.public_key()))
    octets = {"kty": "oct", "k": "AAAA", "kid": "octets"}
    encryption = rsa_entry | {"kid": "encryption", "use": "enc"}
    entries = [rsa_entry | {"kid": "rsa"}, ec_entry | {"kid": "ec"}, octets, encryption]
    return KeySet(json.dumps({"keys": entries}).encode())


def claims(**changes: Any) -> dict[str, Any]:
    made = {
        "sub": "ann",
        "iss": "https://issuer",
        "aud": ["kafka", "other"],
        "iat": NOW_S - 10,
        "exp": NOW_S + 60,
        "scope": "read write",
    } | changes
    return {name: value for name, value in made.items() if value is not None}


def signed(key_id: str | None = "rsa", algorithm: str = "RS256", **changes: Any) -> str:
    key: Any = EC if algorithm.startswith("ES") else RSA
    headers = {} if key_id is None else {"kid": key_id}
    return jwt.encode(claims(**changes), key, algorithm, headers)


def unsecured(header: object = None, **changes: Any) -> str:
    parts = [{"alg": "none"} if header is None else header, claims(**changes)]
    encoded = (base64.urlsafe_b64encode(json.dumps(one).encode()) for one in parts)
    return ".".join(one.decode().rstrip("=") for one in encoded) + "."


RULES = TokenRules(audiences=("kafka",), issuer="https://issuer")
KEYS = key_set()


def validate(token: str, rules: TokenRules = RULES, keys: KeySet | None = KEYS) -> Success:
    return validate_signed(rules, lambda: keys, lambda: None, token, NOW_MS)


@pytest.mark.parametrize(
    "token",
    [signed(), signed("ec", "ES256"), signed("rsa", "PS512"), signed(aud="kafka")],
    ids=["RS256", "ES256", "PS512", "one audience"],
)
def test_signed_tokens(token: str) -> None:
    assert validate(token) == Success("ann", expires_ms=(NOW_S + 60) * 1000)


@pytest.mark.parametrize(
    ("change", "is_used"),
    [
        ({"key_ops": ["verify"]}, True),
        ({"key_ops": ["sign", "verify"]}, True),
        ({"key_ops": ["encrypt"]}, False),
        ({"key_ops": []}, False),
        ({"key_ops": None}, False),
        ({"use": "enc"}, False),
        (key_entry(rsa.generate_private_key(65537, 1024)), False),
        (key_entry(rsa.generate_private_key(65537, 2047)), False),
    ],
)
def test_only_long_keys_for_signatures_are_used(change: dict[str, Any], is_used: bool) -> None:
    document = json.dumps({"keys": [key_entry(RSA) | change]}).encode()
    if is_used:
        assert validate(signed(), keys=KeySet(document)).name == "ann"
    else:
        with pytest.raises(ValueError, match=r"no public key that verifies.*needs 2048 bits"):
            KeySet(document)


def test_a_token_without_a_key_id_needs_a_key_that_only_fits() -> None:
    assert validate(signed(None, "ES256")).name == "ann"


def test_other_claims_of_the_name_and_scope() -> None:
    rules = TokenRules(name_claim="azp", scope_claim="scp", required_scopes=("read",))
    assert validate(signed(azp="client-1", scp=["read"]), rules).name == "client-1"
    with pytest.raises(InvalidToken, match="lacks the scopes read"):
        validate(signed(azp="client-1", scp=["write"]), rules)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"exp": NOW_S - 31}, "has expired"),
        ({"exp": None}, "no claim exp"),
        ({"exp": "soon"}, "exp is not a time"),
        ({"exp": True}, "exp is not a time"),
        ({"exp": 1e300}, "exp is not a time"),
        ({"iat": None}, "no claim iat"),
        ({"nbf": NOW_S + 31}, "not valid yet"),
        ({"iss": "https://other"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"aud": "other"}, "audience"),
        ({"aud": None}, "audience"),
        ({"sub": None}, "no claim sub"),
        ({"sub": " "}, "no name"),
    ],
)
def test_claims_that_are_not_accepted(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidToken, match=message):
        validate(signed(**changes))


def test_the_clock_skew() -> None:
    assert validate(signed(exp=NOW_S - 29)).name == "ann"
    assert validate(signed(nbf=NOW_S + 29)).name == "ann"


def with_public_key_as_password() -> str:
    """The public key of RS256, used as the password of HS256."""
    public = RSA.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    head, body, _ = unsecured({"alg": "HS256", "kid": "rsa"}).split(".")
    signature = hmac.digest(public, f"{head}.{body}".encode(), "sha256")
    return f"{head}.{body}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def with_another_body() -> str:
    head, _, signature = signed().split(".")
    return f"{head}.{signed(sub='root').split('.')[1]}.{signature}"


@pytest.mark.parametrize(
    "token",
    [
        "",
        "x",
        "a.b.c",
        unsecured(),
        unsecured({"alg": "none", "kid": "rsa"}),
        unsecured({"alg": "RS256", "kid": "rsa"}),
        unsecured({"alg": ["RS256"], "kid": "rsa"}),
        unsecured({"alg": "RS256", "kid": {}}),
        unsecured([]),
        with_public_key_as_password(),
        jwt.encode(claims(), "AAAA" * 8, "HS256", {"kid": "octets"}),
        signed("unknown"),
        signed("encryption"),
        signed("ec"),
        signed()[:-4] + "AAAA",
        with_another_body(),
        "[" * 30_000 + ".x.y",
        base64.urlsafe_b64encode(b"[" * 40_000).decode() + ".x.y",
        "x" * 100_000,
    ],
    ids=[f"token {number}" for number in range(19)],
)
def test_tokens_that_are_not_signed_by_a_key(token: str) -> None:
    with pytest.raises(InvalidToken) as refused:
        validate(token)
    assert not token or token not in str(refused.value) or len(token) < 6


def test_keys_that_are_missing_are_asked_for() -> None:
    asked = []
    for token, keys in ((signed("unknown"), KEYS), (signed(), None)):
        tokens = partial(validate_signed, RULES, lambda keys=keys: keys, lambda: asked.append(1))  # type: ignore[misc]
        with pytest.raises(InvalidToken):
            tokens(token, NOW_MS)
    assert asked == [1, 1]


@pytest.mark.parametrize(
    "document",
    [b"", b"[]", b"{}", b'{"keys": []}', b'{"keys": [1]}', b'{"keys": 5}', b"[" * 100_000],
)
def test_documents_without_keys(document: bytes) -> None:
    with pytest.raises(ValueError):
        KeySet(document)


def test_unsecured_tokens() -> None:
    tokens = partial(validate_unsecured, TokenRules())
    assert tokens(unsecured(), NOW_MS).name == "ann"
    for token in (
        signed(),
        unsecured({"alg": "RS256"}),
        unsecured()[:-1],
        unsecured(exp=1),
        "a.b.",
    ):
        with pytest.raises(InvalidToken):
            tokens(token, NOW_MS)


def bearer(token: str, authorization: str = "") -> bytes:
    return f"n,{authorization},\x01auth=Bearer {token}\x01\x01".encode()


def oauth(reasons: list[str]) -> OAuthBearerServer:
    return OAuthBearerServer(
        partial(validate_signed, RULES, lambda: KEYS, lambda: None), reasons.append
    )


def test_oauthbearer() -> None:
    assert oauth([]).respond(bearer(signed()), NOW_MS) == Success("ann", b"", (NOW_S + 60) * 1000)
    assert isinstance(oauth([]).respond(bearer(signed(), "a=ann"), NOW_MS), Success)
    other = oauth([]).respond(bearer(signed(), "a=bob"), NOW_MS)
    assert isinstance(other, Failure)
    assert "authorization id (bob)" in (other.message or "")


def test_an_invalid_token_is_told_and_confirmed() -> None:
    reasons: list[str] = []
    conversation = oauth(reasons)
    step = conversation.respond(bearer(signed(exp=5)), NOW_MS)
    assert step == Challenge(b'{"status":"invalid_token"}')
    assert conversation.respond(b"\x01", NOW_MS) == Failure('{"status":"invalid_token"}')
    assert reasons == ["it has expired"]


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01other=Bearer a\x01\x01",
        b"y,,\x01auth=Bearer a\x01\x01",
        "n,,\x01auth=Bearer ä\x01\x01".encode(),
    ],
)
def test_malformed_oauthbearer(message: bytes) -> None:
    assert oauth([]).respond(message, NOW_MS) == Failure()


@given(st.binary(max_size=100))
def test_any_bytes_fail(token: bytes) -> None:
    assert not isinstance(oauth([]).respond(token, NOW_MS), Success)


# The order of requests ----------------------------------------------------------------------------

ANN, BOB = b"\0ann\0s3cret", b"\0bob\0s3cret"


def login(max_reauth_ms: int = 0) -> Login:
    users = {"ann": "s3cret", "bob": "s3cret"}
    mechanism = EnabledMechanism(lambda: PlainServer(users), max_reauth_ms)
    sha_256 = MECHANISMS["SCRAM-SHA-256"]
    unknown = UnknownUsers(sha_256, b"s", {})
    scram = EnabledMechanism(lambda: ScramServer(sha_256, {}.get, "n", unknown))
    return Login({"PLAIN": mechanism, "OTHER": mechanism, "SCRAM-SHA-256": scram})


def done(max_reauth_ms: int = 0, *, can_reauthenticate: bool = True) -> Login:
    made = login(max_reauth_ms)
    made.versions_answered()
    made.shake_hands("PLAIN", 1, 0)
    made.authenticate(ANN, NOW_MS, 0, can_reauthenticate=can_reauthenticate)
    assert made.is_complete
    return made


def test_a_login_without_limits() -> None:
    made = login()
    assert made.intercepts(3, 0)
    assert made.shake_hands("PLAIN", 1, 0).code == ErrorCode.NONE
    answer = made.authenticate(ANN, NOW_MS, 0)
    assert (answer.code, answer.session_lifetime_ms) == (ErrorCode.NONE, 0)
    assert str(made.principal) == "User:ann"
    assert not made.intercepts(3, 10**12)
    assert not made.intercepts(17, 10**12), "this client does not know sessions"


def test_version_0_takes_tokens_as_they_are() -> None:
    made = login()
    made.shake_hands("PLAIN", 0, 0)
    assert made.takes_tokens
    made.authenticate(ANN, NOW_MS, 0)
    assert not made.takes_tokens


def test_an_unknown_mechanism() -> None:
    made = login()
    answer = made.shake_hands("GSSAPI", 1, 0)
    assert answer.code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert made.state is State.FAILED
    assert list(made.mechanisms) == ["PLAIN", "OTHER", "SCRAM-SHA-256"]


def test_a_wrong_password() -> None:
    made = login()
    made.shake_hands("PLAIN", 1, 0)
    answer = made.authenticate(b"\0ann\0wrong", NOW_MS, 0)
    assert answer.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert made.state is State.FAILED
    assert made.intercepts(3, 0)


def test_a_malformed_message_says_no_more_than_that() -> None:
    made = login()
    made.shake_hands("SCRAM-SHA-256", 1, 0)
    assert made.authenticate(b"x", NOW_MS, 0).message == (
        "Authentication failed during authentication due to invalid credentials with SASL "
        "mechanism SCRAM-SHA-256"
    )


def test_a_session_ends() -> None:
    made = done(5000)
    assert made.expires_ms == 5000
    assert not made.intercepts(3, 4999)
    assert made.intercepts(3, 5000)


def test_a_client_authenticates_again() -> None:
    """The first time whenever it wants, then once a second."""
    made = done(5000)
    for begin_ms in (0, 1000):
        assert made.intercepts(17, begin_ms)
        made.shake_hands("PLAIN", 1, begin_ms)
        assert made.intercepts(3, begin_ms)
        answer = made.authenticate(ANN, NOW_MS, begin_ms + 500)
        assert answer.session_lifetime_ms == 5000
        assert made.expires_ms == begin_ms + 5500
        assert not made.intercepts(17, begin_ms + 999), "too soon"


def test_nobody_becomes_somebody_else() -> None:
    made = done(5000)
    made.shake_hands("PLAIN", 1, 0)
    answer = made.authenticate(BOB, NOW_MS, 2000)
    assert answer.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.message == (
        "Cannot change principals during re-authentication from User.ann: User.bob"
    )


def test_nobody_changes_the_mechanism() -> None:
    made = done(5000)
    assert made.shake_hands("OTHER", 1, 0).code == ErrorCode.NONE
    answer = made.authenticate(ANN, NOW_MS, 2000)
    assert answer.message == (
        "SASL mechanism 'OTHER' requested by client is not supported for re-authentication of "
        "mechanism 'PLAIN'"
    )


class Expiring:
    def respond(self, token: bytes, now_ms: int) -> Success:
        return Success("ann", b"", int(token))


@pytest.mark.parametrize(
    ("max_reauth_ms", "expires_ms", "lifetime_ms"),
    [
        (0, NOW_MS + 700, 700),
        (500, NOW_MS + 700, 500),
        (900, NOW_MS + 700, 700),
        (0, NOW_MS - 5, 0),
    ],
)
def test_a_session_is_as_long_as_both_allow(
    max_reauth_ms: int, expires_ms: int, lifetime_ms: int
) -> None:
    made = Login({"OAUTHBEARER": EnabledMechanism(Expiring, max_reauth_ms)})
    made.shake_hands("OAUTHBEARER", 1, 0)
    answer = made.authenticate(str(expires_ms).encode(), NOW_MS, 50)
    assert answer.session_lifetime_ms == lifetime_ms
    assert made.expires_ms == 50 + lifetime_ms


@pytest.mark.parametrize(("state", "step"), [("begin", "handshake"), ("shaken", "authentication")])
def test_a_request_that_may_not_come(state: str, step: str) -> None:
    made = login()
    if state == "shaken":
        made.shake_hands("PLAIN", 1, 0)
    answer = made.refuse("METADATA")
    assert answer.code == ErrorCode.ILLEGAL_SASL_STATE
    assert answer.message == f"Unexpected Kafka request of type METADATA during SASL {step}."
    assert made.state is State.FAILED
