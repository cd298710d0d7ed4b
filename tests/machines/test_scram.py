"""SCRAM: the examples of the RFCs, wrong messages, and users that do not exist."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.security.conversation import Challenge, Failure, Step, Success
from headrace.security.scram import (
    MECHANISMS,
    Credential,
    Mechanism,
    ScramServer,
    UnknownUsers,
    make_credential,
    salt_password,
)

SHA_1 = Mechanism("SCRAM-SHA-1", 0, "sha1")
SHA_256, SHA_512 = MECHANISMS["SCRAM-SHA-256"], MECHANISMS["SCRAM-SHA-512"]
SALT = b"0123456789abcdef"
SECRET = b"s" * 32


def credential(
    mechanism: Mechanism, password: str, salt: bytes = SALT, iterations: int = 4096
) -> Credential:
    salted = salt_password(mechanism, password, salt, iterations)
    return make_credential(mechanism, salted, salt, iterations)


def server(mechanism: Mechanism, nonce: str = "server", **users: Credential) -> ScramServer:
    return ScramServer(mechanism, users.get, nonce, UnknownUsers(mechanism, SECRET, {}))


def text(step: Step) -> str:
    assert isinstance(step, Challenge), step
    return step.token.decode()


class Client:
    """A client that takes the steps of RFC 5802 as it is told to."""

    def __init__(self, mechanism: Mechanism, name: str, password: str) -> None:
        self.mechanism = mechanism
        self.password = password
        self.bare = f"n={name},r=client"
        self.header = "n,,"

    def first(self) -> bytes:
        return (self.header + self.bare).encode()

    def final(self, first: str, **changes: str) -> bytes:
        fields = dict(part.split("=", 1) for part in first.split(","))
        salt = base64.b64decode(fields["s"])
        salted = salt_password(self.mechanism, self.password, salt, int(fields["i"]))
        client_key = self.mechanism.hmac(salted, b"Client Key")
        nonce = changes.get("nonce", fields["r"])
        channel = changes.get("channel", base64.b64encode(self.header.encode()).decode())
        unproved = f"c={channel},r={nonce}"
        messages = f"{self.bare},{first},{unproved}".encode()
        signature = self.mechanism.hmac(self.mechanism.digest(client_key), messages)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        encoded = changes.get("proof", base64.b64encode(proof).decode())
        return f"{unproved},p={encoded}".encode()


@pytest.mark.parametrize(
    ("mechanism", "salt", "first", "challenge", "final", "verifier"),
    [
        (  # RFC 5802, 5
            SHA_1,
            "QSXCR+Q6sek8bf92",
            "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
            "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
            "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
            "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
        ),
        (  # RFC 7677, 3
            SHA_256,
            "W22ZaJ0SNY7soEsUEjb6gQ==",
            "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            "s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        ),
    ],
)
def test_the_examples_of_the_rfcs(
    mechanism: Mechanism, salt: str, first: str, challenge: str, final: str, verifier: str
) -> None:
    user = credential(mechanism, "pencil", base64.b64decode(salt))
    client_nonce = first.rpartition("r=")[2]
    server_nonce = challenge.partition(",")[0][len("r=" + client_nonce) :]
    scram = server(mechanism, server_nonce, user=user)
    assert text(scram.respond(first.encode(), 0)) == challenge
    assert scram.respond(final.encode(), 0) == Success("user", verifier.encode())


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_a_login(mechanism: Mechanism) -> None:
    client = Client(mechanism, "b=3Do=2Cb", "pa,ss=wörd")
    scram = server(mechanism, **{"b=o,b": credential(mechanism, "pa,ss=wörd")})
    success = scram.respond(client.final(text(scram.respond(client.first(), 0))), 0)
    assert isinstance(success, Success)
    assert success.name == "b=o,b"


def test_the_server_proves_that_it_knows_the_user() -> None:
    user = credential(SHA_256, "pencil")
    client, scram = Client(SHA_256, "user", "pencil"), server(SHA_256, user=user)
    first = text(scram.respond(client.first(), 0))
    final = client.final(first)
    success = scram.respond(final, 0)
    assert isinstance(success, Success)
    messages = f"{client.bare},{first},{final.decode().rpartition(',p=')[0]}".encode()
    expected = hmac.new(user.server_key, messages, hashlib.sha256).digest()
    assert base64.b64decode(success.token[2:]) == expected


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"n,,n=user",
        b"n,,r=client,n=user",
        b"y,,n=user,r=client",  # the client thinks that the server has no channel binding
        b"p=tls-unique,,n=user,r=client",
        b"n,,n=us=er,r=client",
        b"n,,n=,r=client",
        b"n,,n=user,r=",
        b"n,,n=user,r=cli ent",
        "n,,n=Müller,r=client".encode(),
        b"n,,n=user,r=client,x",
        b"\0" * 1000,
    ],
)
def test_malformed_first_messages(first: bytes) -> None:
    scram = server(SHA_256, user=credential(SHA_256, "pencil"))
    assert scram.respond(first, 0) == Failure()


def test_another_authorization_id() -> None:
    user = credential(SHA_256, "pencil")
    same = server(SHA_256, user=user).respond(b"n,a=user,n=user,r=client", 0)
    assert isinstance(same, Challenge)
    other = server(SHA_256, user=user).respond(b"n,a=root,n=user,r=client", 0)
    assert isinstance(other, Failure)
    assert "different from username" in (other.message or "")


@pytest.mark.parametrize(
    "changes",
    [
        {"nonce": "clientother"},
        {"nonce": "client"},
        {"nonce": "other"},
        {"channel": "eSws"},
        {"proof": base64.b64encode(b"p" * 32).decode()},
        {"proof": base64.b64encode(b"p" * 31).decode()},
        {"proof": "AAAA"},
        {"proof": "A"},
    ],
)
def test_wrong_final_messages(changes: dict[str, str]) -> None:
    client, scram = (
        Client(SHA_256, "user", "pencil"),
        server(SHA_256, user=credential(SHA_256, "pencil")),
    )
    first = text(scram.respond(client.first(), 0))
    assert scram.respond(client.final(first, **changes), 0) == Failure()


def test_a_replay_of_another_login_fails() -> None:
    user = credential(SHA_256, "pencil")
    client = Client(SHA_256, "user", "pencil")
    before = server(SHA_256, "one", user=user)
    final = client.final(text(before.respond(client.first(), 0)))
    assert isinstance(before.respond(final, 0), Success)
    after = server(SHA_256, "two", user=user)
    after.respond(client.first(), 0)
    assert after.respond(final, 0) == Failure()


def test_an_unknown_user_is_answered_like_a_wrong_password() -> None:
    user = credential(SHA_256, "pencil")
    shapes = []
    for name, password in (("user", "wrong"), ("nobody", "wrong"), ("nobody", "wrong")):
        client, scram = Client(SHA_256, name, password), server(SHA_256, user=user)
        first = text(scram.respond(client.first(), 0))
        shapes.append(first if name == "nobody" else None)
        assert first.startswith("r=clientserver,s=")
        assert first.endswith(",i=4096")
        assert scram.respond(client.final(first), 0) == Failure()
    assert shapes[1] == shapes[2], "the salt of an unknown user never changes"


def test_the_secret_of_unknown_users_is_no_password() -> None:
    """Its keys are known to nobody, but a proof made with them must not be accepted either."""
    client, scram = Client(SHA_256, "nobody", "x"), server(SHA_256)
    first = text(scram.respond(client.first(), 0))
    unproved = f"c=biws,r={first.split(',')[0][2:]}"
    signature = SHA_256.hmac(SECRET, f"{client.bare},{first},{unproved}".encode())
    proof = base64.b64encode(signature).decode()
    assert scram.respond(f"{unproved},p={proof}".encode(), 0) == Failure()


def test_credentials_with_few_iterations_and_delegation_tokens_fail() -> None:
    weak = credential(SHA_256, "pencil", iterations=4095)
    client, scram = Client(SHA_256, "user", "pencil"), server(SHA_256, user=weak)
    assert scram.respond(client.final(text(scram.respond(client.first(), 0))), 0) == Failure()
    client.bare += ",tokenauth=true"
    scram = server(SHA_256, user=credential(SHA_256, "pencil"))
    assert scram.respond(client.final(text(scram.respond(client.first(), 0))), 0) == Failure()


def test_the_text_of_a_credential() -> None:
    """In Kafka's form, and back."""
    user = credential(SHA_512, "pencil", iterations=8192)
    assert user.text().startswith(f"salt={base64.b64encode(SALT).decode()},stored_key=")
    assert user.text().endswith(",iterations=8192")
    assert Credential.parse(user.text()) == user
    assert "stored" not in repr(user)
    for damaged in ("", "salt=x", user.text().replace("iterations=", "iterations=x")):
        with pytest.raises(ValueError, match="not a SCRAM credential"):
            Credential.parse(damaged)


@given(st.lists(st.binary(max_size=200), max_size=3))
def test_any_bytes_fail_or_are_answered(tokens: list[bytes]) -> None:
    scram = server(SHA_256, user=credential_once)
    for token in tokens:
        step = scram.respond(token, 0)
        assert not isinstance(step, Success)
        if isinstance(step, Failure):
            return


credential_once = credential(SHA_256, "pencil")


def test_unknown_users_look_like_existing_ones() -> None:
    """A name keeps its salt and iterations, and as many names have some iterations as users."""
    users = {4096: 3, 8192: 1}
    names = [f"user-{number}" for number in range(2000)]
    unknown, restarted = (UnknownUsers(SHA_256, SECRET, users) for _ in range(2))
    made = [unknown.credential(name) for name in names]
    assert made == [restarted.credential(name) for name in names]
    assert len({one.salt for one in made}) == len(names)
    assert 1400 < [one.iterations for one in made].count(4096) < 1600
    assert {one.iterations for one in made} == {4096, 8192}
    other = UnknownUsers(SHA_256, b"t" * 32, users)
    assert made[0].salt != other.credential(names[0]).salt


def test_one_more_user_changes_few_unknown_ones() -> None:
    names = [f"user-{number}" for number in range(2000)]
    before = UnknownUsers(SHA_512, SECRET, {4096: 99, 8192: 100})
    after = UnknownUsers(SHA_512, SECRET, {4096: 100, 8192: 100})
    changed = [name for name in names if before.credential(name) != after.credential(name)]
    assert len(changed) < 20


def test_without_users_names_have_the_default() -> None:
    assert UnknownUsers(SHA_256, SECRET, {}).credential("ann").iterations == 4096
