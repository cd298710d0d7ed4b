"""Conversations before and after a login, the same with Apache Kafka and with headrace."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest

import headrace
from headrace.security.scram import MECHANISMS
from tests.machines.test_scram import Client as ScramClient
from tests.secure_kafka import NAME, PASSWORD, SecureKafka
from tests.wire_client import Connection

pytestmark = [pytest.mark.java, pytest.mark.slow]

METADATA, HANDSHAKE, API_VERSIONS, AUTHENTICATE = 3, 17, 18, 36
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
ANN = b"\0ann\0s3cret"
CLOSED = "closed"


class Ask(NamedTuple):
    """A request."""

    api_key: int
    version: int
    fields: dict[str, Any]

    def outcome(self, client: Connection) -> object:
        try:
            response = client.ask(self.api_key, self.version, **self.fields)
        except (AssertionError, ConnectionError):
            return CLOSED
        if self.api_key == METADATA:
            return len(response.brokers), len(response.topics)
        if self.api_key == API_VERSIONS:
            return int(response.error_code)
        kept = ("error_code", "error_message", "mechanisms", "session_lifetime")
        seen = {name: getattr(response, name) for name in kept if hasattr(response, name)}
        if "mechanisms" in seen:  # a set in Apache Kafka
            seen["mechanisms"] = set(seen["mechanisms"])
        if hasattr(response, "auth_bytes"):
            seen["auth_bytes"] = bytes(response.auth_bytes)[:2]
        return seen


class Raw(NamedTuple):
    """Bytes in a frame."""

    payload: bytes

    def outcome(self, client: Connection) -> object:
        try:
            client.send(struct.pack(">i", len(self.payload)) + self.payload)
            response = client.receive()
        except ConnectionError:
            return CLOSED
        return CLOSED if response is None else response[:6]


def handshake(mechanism: str = "PLAIN", version: int = 1) -> Ask:
    return Ask(HANDSHAKE, version, {"mechanism": mechanism})


def authenticate(token: bytes = ANN, version: int = 2) -> Ask:
    return Ask(AUTHENTICATE, version, {"auth_bytes": token})


versions = Ask(API_VERSIONS, 3, {"client_software_name": "x", "client_software_version": "1"})
unnamed_versions = Ask(API_VERSIONS, 3, {"client_software_name": "", "client_software_version": ""})
of_another_broker = Ask(
    API_VERSIONS, 5, {**versions.fields, "cluster_id": "another", "node_id": 77}
)
of_half_a_broker = Ask(API_VERSIONS, 5, {**versions.fields, "cluster_id": "another"})
metadata = Ask(METADATA, 1, {"topics": []})


def header(api_key: int, version: int) -> bytes:
    return struct.pack(">hhih", api_key, version, 7, -1)


CONVERSATIONS: dict[str, Sequence[Ask | Raw]] = {
    "a login": (versions, handshake(), authenticate(), metadata),
    "without versions": (handshake(), authenticate(version=0), metadata),
    "a wrong password": (handshake(), authenticate(b"\0ann\0wrong"), metadata),
    "a wrong password, version 0": (handshake(), authenticate(b"\0ann\0wrong", 0), metadata),
    "an unknown user": (handshake(), authenticate(b"\0nobody\0x"), metadata),
    "no password": (handshake(), authenticate(b"\0ann\0"), metadata),
    "no name": (handshake(), authenticate(b"\0\0x"), metadata),
    "two parts": (handshake(), authenticate(b"ann\0x"), metadata),
    "four parts": (handshake(), authenticate(b"\0ann\0x\0y"), metadata),
    "no UTF-8": (handshake(), authenticate(b"\0ann\0\xff"), metadata),
    "another authorization id": (handshake(), authenticate(b"root\0ann\0s3cret"), metadata),
    "the same authorization id": (handshake(), authenticate(b"ann\0ann\0s3cret"), metadata),
    "an unknown mechanism": (handshake("DIGEST-MD5"), handshake()),
    "a mechanism in lower case": (handshake("plain"),),
    "authenticate first": (authenticate(), metadata),
    "metadata first": (metadata,),
    "metadata after versions": (versions, metadata),
    "metadata after a handshake": (handshake(), metadata, metadata),
    "versions twice": (versions, versions),
    "versions after a handshake": (handshake(), versions),
    "versions of another broker": (of_another_broker, handshake(), authenticate(), metadata),
    "versions of another broker after a login": (handshake(), authenticate(), of_another_broker),
    "versions of half a broker": (of_half_a_broker, handshake(), authenticate()),
    "invalid versions": (unnamed_versions, versions, handshake()),
    "unknown versions": (Raw(header(API_VERSIONS, 99) + b"\0"), versions, handshake()),
    "two handshakes": (handshake(), handshake()),
    "an unknown version of the handshake": (Raw(header(HANDSHAKE, 9) + b"\0\5PLAIN"),),
    "an unknown version of authenticate": (handshake(), Raw(header(AUTHENTICATE, 9))),
    "an unknown api": (Raw(header(999, 0)),),
    "a cut request": (Raw(header(HANDSHAKE, 1) + b"\0\x7fPLAIN"),),
    "an empty frame": (Raw(b""),),
    "tokens as frames": (handshake(version=0), Raw(ANN), metadata),
    "a wrong token as a frame": (handshake(version=0), Raw(b"\0ann\0wrong"), metadata),
    "a handshake again": (handshake(), authenticate(), handshake(), metadata),
    "authenticate again": (handshake(), authenticate(), authenticate(), metadata),
    "garbage for SCRAM": (handshake("SCRAM-SHA-256"), authenticate(b"garbage"), metadata),
    "SCRAM with channel binding": (
        handshake("SCRAM-SHA-256"),
        authenticate(b"p=tls-unique,,n=b=3Do=2Cb,r=x"),
    ),
    "SCRAM for somebody else": (
        handshake("SCRAM-SHA-256"),
        authenticate(b"n,a=root,n=b=3Do=2Cb,r=x"),
    ),
    "SCRAM with another nonce": (
        handshake("SCRAM-SHA-256"),
        authenticate(b"n,,n=b=3Do=2Cb,r=x"),
        authenticate(b"c=biws,r=x,p=AAAA"),
    ),
    "SCRAM without a proof": (
        handshake("SCRAM-SHA-512"),
        authenticate(b"n,,n=b=3Do=2Cb,r=x"),
        authenticate(b""),
    ),
}


@pytest.fixture(scope="module")
def sasl_of_headrace() -> Iterator[str]:
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{MODULE} required user_ann="s3cret";'
        ),
    }
    with headrace.Broker(config=config, users={NAME: PASSWORD}) as broker:
        yield broker.bootstrap_servers


def outcomes(address: str, steps: Sequence[Ask | Raw]) -> list[object]:
    client = Connection(address, timeout_s=20)
    try:
        return [step.outcome(client) for step in steps]
    finally:
        client.close()


@pytest.mark.parametrize("name", list(CONVERSATIONS))
def test_conversations(secure_kafka: SecureKafka, sasl_of_headrace: str, name: str) -> None:
    steps = CONVERSATIONS[name]
    assert outcomes(sasl_of_headrace, steps) == outcomes(secure_kafka.sasl, steps)


@pytest.mark.parametrize("mechanism", list(MECHANISMS))
@pytest.mark.parametrize("password", [PASSWORD, "wrong"])
def test_scram(
    secure_kafka: SecureKafka, sasl_of_headrace: str, mechanism: str, password: str
) -> None:
    seen = []
    for address in (sasl_of_headrace, secure_kafka.sasl):
        client = Connection(address, timeout_s=20)
        scram = ScramClient(MECHANISMS[mechanism], "b=3Do=2Cb", password)
        handshake(mechanism).outcome(client)
        first = client.ask(AUTHENTICATE, 2, auth_bytes=scram.first())
        final = scram.final(bytes(first.auth_bytes).decode())
        seen.append([authenticate(final).outcome(client), metadata.outcome(client)])
        client.close()
    assert seen[0] == seen[1]
