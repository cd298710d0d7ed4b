"""SASL on a socket: logins in all forms, sessions, and requests that may not come."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from headrace import ConfigError
from headrace.broker.config.broker_config import Config
from headrace.net import authentication, jwks, session
from headrace.net.scram_users import SCRAM, NewUser, add_users, find_credential
from headrace.security.conversation import Challenge, Failure
from headrace.security.plain import PlainServer
from headrace.security.scram import (
    MECHANISMS,
    Credential,
    Mechanism,
    ScramServer,
    UnknownUsers,
    make_credential,
    salt_password,
)
from headrace.topics.catalog import Catalog
from tests.machines.test_scram import Client as ScramClient
from tests.security.oauth import key_set
from tests.security.serving import Client, Serving, on_uvloop, run, serving, warnings
from tests.support import wait_until

pytestmark = pytest.mark.broker

METADATA, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 3, 17, 18, 36
MODULES = "org.apache.kafka.common.security"
UNVERIFIED = {
    "sasl.oauthbearer.allow.unverified.audience": "true",
    "sasl.oauthbearer.allow.unverified.issuer": "true",
}
PLAIN_LINE = f'{MODULES}.plain.PlainLoginModule required user_ann="s3cret" user_bob="b0b";'
ANN, WRONG, NOBODY = b"\0ann\0s3cret", b"\0ann\0wrong", b"\0nobody\0s3cret"


def configs(**more: object) -> dict[str, object]:
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_LINE,
        "connection.failed.authentication.delay.ms": 1,
        **{name.replace("__", ".").replace("_", "."): value for name, value in more.items()},
    }


async def connected(scene: Serving) -> Client:
    return await scene.connect("SASL_PLAINTEXT")


async def logged_in(scene: Serving, token: bytes = ANN) -> Client:
    client = await connected(scene)
    await client.ask(API_VERSIONS, 0)
    await client.ask(SASL_HANDSHAKE, 1, mechanism="PLAIN")
    response = await client.ask(SASL_AUTHENTICATE, 2, auth_bytes=token)
    assert response.error_code == 0, response
    return client


def add_user(scene: Serving, name: str, password: str, mechanism: str = "SCRAM-SHA-256") -> None:
    found = MECHANISMS[mechanism]
    salted = salt_password(found, password, b"salt", 4096)
    text = make_credential(found, salted, b"salt", 4096).text()
    scene.broker.catalog.alter_configs({(SCRAM, name): {mechanism: text}})


@pytest.mark.parametrize("version", [0, 1, 2])
@on_uvloop
async def test_plain(version: int) -> None:
    async with serving(configs()) as broker:
        client = await connected(broker)
        shaken = await client.ask(SASL_HANDSHAKE, 1, mechanism="PLAIN")
        assert shaken.error_code == 0
        assert shaken.mechanisms == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
        response = await client.ask(SASL_AUTHENTICATE, version, auth_bytes=ANN)
        assert (response.error_code, response.auth_bytes) == (0, b"")
        assert str(broker.connection.session.client.principal) == "User:ann"
        assert (await client.ask(METADATA, 1, topics=[])).brokers


@on_uvloop
async def test_tokens_as_frames_of_their_own() -> None:
    """As after SaslHandshake version 0."""
    async with serving(configs()) as broker:
        client = await connected(broker)
        await client.ask(SASL_HANDSHAKE, 0, mechanism="PLAIN")
        client.writer.write(struct.pack(">i", len(ANN)) + ANN)
        assert await client.frame() == b""
        assert (await client.ask(METADATA, 1, topics=[])).brokers


@pytest.mark.parametrize("apart", [False, True])
@on_uvloop
async def test_a_token_that_is_shorter_than_any_request(*, apart: bool) -> None:
    token = b"\0a\0b"
    line = f'{MODULES}.plain.PlainLoginModule required user_a="b";'
    users = {"listener.name.sasl_plaintext.plain.sasl.jaas.config": line}
    async with serving(configs() | users) as broker:
        client = await connected(broker)
        await client.ask(SASL_HANDSHAKE, 0, mechanism="PLAIN")
        frame = struct.pack(">i", len(token)) + token
        if apart:
            client.writer.write(frame[:6])
            await client.writer.drain()
            await asyncio.sleep(0.05)
            frame = frame[6:]
        client.writer.write(frame)
        assert await client.frame() == b""
        assert (await client.ask(METADATA, 1, topics=[])).brokers


@pytest.mark.parametrize("mechanism", list(MECHANISMS))
@on_uvloop
async def test_scram(mechanism: str) -> None:
    async with serving(configs()) as broker:
        add_user(broker, "b=o,b", "pa,ss=wörd", mechanism)
        client = await connected(broker)
        await client.ask(SASL_HANDSHAKE, 1, mechanism=mechanism)
        scram = ScramClient(MECHANISMS[mechanism], "b=3Do=2Cb", "pa,ss=wörd")
        first = await client.ask(SASL_AUTHENTICATE, 2, auth_bytes=scram.first())
        final = scram.final(bytes(first.auth_bytes).decode())
        last = await client.ask(SASL_AUTHENTICATE, 2, auth_bytes=final)
        assert (last.error_code, bytes(last.auth_bytes)[:2]) == (0, b"v=")
        assert str(broker.connection.session.client.principal) == "User:b=o,b"


@pytest.mark.parametrize("token", [WRONG, NOBODY, b"", b"x" * 1000, b"\0\0\0"])
@on_uvloop
async def test_a_failed_login_is_answered_and_closed(
    token: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(configs()) as broker:
        client = await connected(broker)
        await client.ask(SASL_HANDSHAKE, 1, mechanism="PLAIN")
        response = await client.ask(SASL_AUTHENTICATE, 2, auth_bytes=token)
        assert response.error_code == 58  # SASL_AUTHENTICATION_FAILED
        assert response.error_message
        assert await client.is_closed()
        assert broker.broker.metrics.failed_logins == 1
        await logged_in(broker)
    (line,) = warnings(caplog)
    assert "its login has failed" in line
    assert "s3cret" not in caplog.text


@on_uvloop
async def test_a_failed_login_is_answered_late() -> None:
    given = configs(connection_failed_authentication_delay_ms=300)
    async with serving(given) as broker:
        client = await connected(broker)
        await client.ask(SASL_HANDSHAKE, 1, mechanism="PLAIN")
        began = time.monotonic()
        await client.ask(SASL_AUTHENTICATE, 2, auth_bytes=WRONG)
        # The broker's clock counts whole milliseconds.
        assert time.monotonic() - began >= 0.299
        assert await client.is_closed()


@on_uvloop
async def test_an_unknown_mechanism() -> None:
    async with serving(configs()) as broker:
        client = await connected(broker)
        response = await client.ask(SASL_HANDSHAKE, 1, mechanism="GSSAPI")
        assert response.error_code == 33  # UNSUPPORTED_SASL_MECHANISM
        assert response.mechanisms == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
        assert await client.is_closed()


REQUEST = struct.pack(">hhih", METADATA, 1, 7, -1) + b"\0\0\0\0"


@pytest.mark.parametrize(
    "sent",
    [
        REQUEST,
        struct.pack(">hhih", SASL_AUTHENTICATE, 1, 7, -1) + b"\0\0\0\0",
        struct.pack(">hhih", 999, 0, 7, -1),
        struct.pack(">hhih", SASL_HANDSHAKE, 9, 7, -1),
        struct.pack(">hhih", SASL_HANDSHAKE, 1, 7, -1) + b"\x7f\xff",
        b"\0" * 8,
        b"\xff" * 500,
    ],
)
@on_uvloop
async def test_only_a_login_is_served_before_the_login(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with serving(configs()) as broker:
        client = await connected(broker)
        client.writer.write(struct.pack(">i", len(sent)) + sent)
        assert await client.is_closed()
        await logged_in(broker)
    assert len(warnings(caplog)) == 1


@on_uvloop
async def test_a_request_between_handshake_and_authentication() -> None:
    """As on a real broker: an empty answer, then the end."""
    async with serving(configs()) as broker:
        client = await connected(broker)
        await client.ask(SASL_HANDSHAKE, 1, mechanism="PLAIN")
        response = await client.ask(METADATA, 1, topics=[])
        assert (response.brokers, response.topics) == ((), ())
        assert await client.is_closed()


@on_uvloop
async def test_versions_are_told_once() -> None:
    async with serving(configs()) as broker:
        client = await connected(broker)
        assert (await client.ask(API_VERSIONS, 0)).error_code == 0
        client.writer.write(struct.pack(">ihhih", 10, API_VERSIONS, 0, 7, -1))
        assert await client.is_closed()


@on_uvloop
async def test_an_unknown_version_of_api_versions_may_be_tried_again() -> None:
    async with serving(configs()) as broker:
        client = await connected(broker)
        client.writer.write(struct.pack(">ihhih", 10, API_VERSIONS, 99, 7, -1))
        assert (await client.frame())[4:6] == b"\0\x23"  # UNSUPPORTED_VERSION
        assert (await client.ask(API_VERSIONS, 0)).error_code == 0
        await client.ask(SASL_HANDSHAKE, 1, mechanism="PLAIN")


@on_uvloop
async def test_a_login_without_need() -> None:
    """On a listener without SASL, and after a login whose client knows no sessions."""
    async with serving(configs()) as broker:
        plain = await broker.connect("PLAINTEXT")
        assert (await plain.ask(SASL_HANDSHAKE, 1, mechanism="PLAIN")).error_code == 34
        response = await plain.ask(SASL_AUTHENTICATE, 2, auth_bytes=ANN)
        assert response.error_code == 34  # ILLEGAL_SASL_STATE
        assert (await plain.ask(METADATA, 1, topics=[])).brokers


@on_uvloop
async def test_a_large_request_before_the_login() -> None:
    async with serving(configs(sasl_server_max_receive_size=1000)) as broker:
        for sent in (b"x" * 1001, b"x" * 10):
            client = await connected(broker)
            client.writer.write(struct.pack(">i", 1001) + sent)
            assert await client.is_closed()
        client = await logged_in(broker)
        client.writer.write(struct.pack(">ihhih", 5000, METADATA, 1, 7, -1))
        await asyncio.sleep(0.05)
        assert broker.server.connections


@on_uvloop
async def test_a_slow_login_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "LOGIN_TIMEOUT_S", 0.2)
    async with serving(configs()) as broker:
        silent, half = await connected(broker), await connected(broker)
        done = await logged_in(broker)
        half.writer.write(b"\0\0\0\x20\0")
        assert await silent.is_closed()
        assert await half.is_closed()
        assert (await done.ask(METADATA, 1, topics=[])).brokers


@on_uvloop
async def test_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(configs(connections_max_reauth_ms=1500)) as broker:
        clients = [await logged_in(broker) for _ in range(3)]
        again, silent, other = clients
        now_ms = broker.broker.clock.now_ms
        end_ms = now_ms() + 1500
        await asyncio.sleep(1.05)
        shaken = await again.ask(SASL_HANDSHAKE, 1, mechanism="PLAIN")
        assert shaken.error_code == 0
        response = await again.ask(SASL_AUTHENTICATE, 2, auth_bytes=ANN)
        assert response.session_lifetime.total_seconds() == 1.5
        assert (await silent.ask(METADATA, 1, topics=[])).brokers
        await other.ask(SASL_HANDSHAKE, 1, mechanism="PLAIN")
        response = await other.ask(SASL_AUTHENTICATE, 2, auth_bytes=b"\0bob\0b0b")
        assert response.error_message == (
            "Cannot change principals during re-authentication from User.ann: User.bob"
        )
        await asyncio.sleep(max(end_ms - now_ms(), 0) / 1000 + 0.05)
        assert (await again.ask(METADATA, 1, topics=[])).brokers
        silent.writer.write(struct.pack(">i", len(REQUEST)) + REQUEST)
        assert await silent.is_closed()


# Configuration ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, r"GSSAPI \(Kerberos\) is not served"),
        ({"sasl.enabled.mechanisms": "PLAIN,DIGEST-MD5"}, "DIGEST-MD5 is not served"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "sasl.oauthbearer.jwks.endpoint.url"),
        (
            {"listener.name.sasl_plaintext.plain.sasl.jaas.config": None},
            "PLAIN needs its users in listener.name.sasl_plaintext.plain.sasl.jaas.config",
        ),
        (
            {"listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{PLAIN_LINE}x"},
            "should be 1 module",
        ),
        (
            {
                "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
                    f"{MODULES}.plain.PlainLoginModule required;"
                )
            },
            "the login module of SCRAM-SHA-256 is",
        ),
        ({"sasl.jaas.config": PLAIN_LINE}, "needs the mechanism in its name"),
        (
            {"listener.name.sasl_plaintext.plain.sasl.server.callback.handler.class": "x.Y"},
            "sasl.server.callback.handler.class of PLAIN is not served",
        ),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": "ftp://x",
                **UNVERIFIED,
            },
            "expected a URL with file, https or http",
        ),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": "https://host/keys",
                "sasl.oauthbearer.expected.issuer": "https://host",
            },
            "OAUTHBEARER needs the audience of its tokens in sasl.oauthbearer.expected.audience",
        ),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": "https://host/keys",
                "sasl.oauthbearer.expected.audience": "kafka",
            },
            "set sasl.oauthbearer.allow.unverified.issuer to true",
        ),
    ],
)
@on_uvloop
async def test_what_is_not_served_refuses_the_start(
    changes: Mapping[str, str | None], message: str
) -> None:
    given = {name: value for name, value in (configs() | changes).items() if value is not None}
    with pytest.raises(ConfigError, match=message) as refused:
        async with serving(given):
            pass
    assert "s3cret" not in str(refused.value)


# Tokens -------------------------------------------------------------------------------------------

KEY = rsa.generate_private_key(65537, 2048)


def key_file(path: Path, key_id: str = "one") -> Path:
    entry = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key())) | {"kid": key_id}
    path.write_text(json.dumps({"keys": [entry]}))
    return path


def token_message(key_id: str = "one", lifetime_s: float = 60) -> bytes:
    now = time.time()
    claims = {"sub": "ann", "iat": now, "exp": now + lifetime_s, "aud": "kafka"}
    token = jwt.encode(claims, KEY, "RS256", {"kid": key_id})
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


def token_configs(url: str, **more: object) -> dict[str, object]:
    return configs(
        sasl_enabled_mechanisms="OAUTHBEARER",
        sasl_oauthbearer_jwks_endpoint_url=url,
        sasl_oauthbearer_expected_audience="kafka",
        sasl_oauthbearer_allow_unverified_issuer="true",
        **more,
    )


async def log_in_with_token(scene: Serving, message: bytes) -> tuple[Client, int]:
    client = await connected(scene)
    await client.ask(SASL_HANDSHAKE, 1, mechanism="OAUTHBEARER")
    response = await client.ask(SASL_AUTHENTICATE, 2, auth_bytes=message)
    if response.auth_bytes:  # an error in JSON
        response = await client.ask(SASL_AUTHENTICATE, 2, auth_bytes=b"\x01")
    return client, int(response.error_code)


@on_uvloop
async def test_tokens_and_new_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "MIN_JWKS_INTERVAL_S", 0)
    keys = key_file(tmp_path / "keys.json")
    async with serving(token_configs(keys.as_uri())) as broker:
        _, code = await log_in_with_token(broker, token_message())
        assert code == 0
        assert str(broker.connection.session.client.principal) == "User:ann"
        for message in (token_message(lifetime_s=-60), token_message("two")):
            assert (await log_in_with_token(broker, message))[1] == 58
        key_file(keys, "two")
        async with asyncio.timeout(20):
            while (await log_in_with_token(broker, token_message("two")))[1] != 0:
                await asyncio.sleep(0.02)


@on_uvloop
async def test_the_session_of_a_token_ends_with_it(tmp_path: Path) -> None:
    keys = key_file(tmp_path / "keys.json")
    async with serving(token_configs(keys.as_uri())) as broker:
        client, _ = await log_in_with_token(broker, token_message(lifetime_s=1))
        assert (await client.ask(METADATA, 1, topics=[])).brokers
        await asyncio.sleep(1.1)
        client.writer.write(struct.pack(">i", len(REQUEST)) + REQUEST)
        assert await client.is_closed()


@on_uvloop
async def test_keys_that_cannot_be_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Logins fail at once, and the log says why."""
    missing = (tmp_path / "none.json").as_uri()
    caplog.set_level(logging.WARNING)
    async with serving(token_configs(missing)) as broker:
        for _ in range(3):
            assert (await log_in_with_token(broker, token_message()))[1] == 58
    assert "cannot read the keys of tokens" in caplog.text


def _fifo(path: Path) -> str:
    os.mkfifo(path)
    return "it is a FIFO, a device or a socket, not a file"


def _directory(path: Path) -> str:
    path.mkdir()
    return "it is a directory, not a file"


def _huge_file(path: Path) -> str:
    with path.open("wb") as file:
        file.truncate(10_000_000_000)  # a sparse file
    return "it has more than 1048576 bytes"


@pytest.mark.parametrize("make", [_fifo, _directory, _huge_file])
@on_uvloop
async def test_keys_in_what_is_no_file_of_keys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Callable[[Path], str]
) -> None:
    path = tmp_path / "a folder" / "keys.json"
    path.parent.mkdir()
    expected = make(path)
    async with serving(token_configs(path.as_uri())) as broker:
        assert (await log_in_with_token(broker, token_message()))[1] == 58
    assert f"cannot read the keys of tokens from {path.as_uri()}: {expected}" in caplog.text


def test_a_change_of_configs_waits_for_no_file_of_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = key_file(tmp_path / "keys.json")
    disk_answers = threading.Event()

    def stuck(source: jwks.KeySource) -> bytes:
        disk_answers.wait()
        raise OSError("the disk")

    async def scene() -> None:
        async with serving(token_configs(keys.as_uri())) as broker:
            security = broker.broker.security
            monkeypatch.setattr(jwks.KeySource, "_read", stuck)
            monkeypatch.setattr(jwks, "JWKS_TIMEOUT_S", 3600)
            changes = {"connections.max.reauth.ms": "5000"}
            assert security.check_changes(changes) is None
            security.reload(changes)
            assert (await log_in_with_token(broker, token_message()))[1] == 0

    try:
        run(asyncio.wait_for(scene(), 60))
    finally:
        disk_answers.set()


def test_keys_from_elsewhere_are_not_used_after_a_change(tmp_path: Path) -> None:
    def source(name: str) -> jwks.KeySource:
        url = (tmp_path / name).as_uri()
        return jwks.KeySource(url, refresh_ms=3_600_000, backoff_ms=1000, max_backoff_ms=1000)

    key_file(tmp_path / "keys.json")
    before, same, other = source("keys.json"), source("keys.json"), source("none.json")
    before.start()
    wait_until(before.present, 30, "the keys")
    (tmp_path / "keys.json").unlink()
    try:
        for one in (same, other):
            one.start(before)
            asyncio.run(one.tried())
        assert same.present() is before.present()
        assert other.present() is None
    finally:
        for one in (before, same, other):
            one.close()


def test_tokens_with_any_audience_or_issuer_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "keys.json").as_uri(),
    }
    expected = {
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "https://issuer",
    }
    authentication.SaslListener("INSIDE", Config({**settings, **expected}), Catalog())
    assert warnings(caplog) == []
    authentication.SaslListener("INSIDE", Config({**settings, **UNVERIFIED}), Catalog())
    for claim in ("audience", "issuer"):
        assert f"listener INSIDE accepts OAUTHBEARER tokens with any {claim}" in caplog.text


@pytest.mark.parametrize("url", ["ftp://host/keys", "file:", "file://host/keys", "keys.json"])
def test_urls_of_keys_that_are_refused(url: str) -> None:
    config = Config(
        {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": url,
            **UNVERIFIED,
        }
    )
    with pytest.raises(ConfigError, match=r"jwks.endpoint.url: expected"):
        authentication.SaslListener("SASL_PLAINTEXT", config, Catalog())


@on_uvloop
async def test_unsecured_tokens_only_if_asked_for() -> None:
    name = "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class"
    given = configs(sasl_enabled_mechanisms="OAUTHBEARER")
    given[name] = authentication._UNSECURED
    async with serving(given) as broker:
        claims = {"sub": "ann", "exp": time.time() + 60}
        token = jwt.encode(claims, "", "none")
        message = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
        assert (await log_in_with_token(broker, message))[1] == 0


# Many at a time -----------------------------------------------------------------------------------


@pytest.mark.slow
@on_uvloop
async def test_a_thousand_logins_stall_nobody() -> None:
    async with serving(configs()) as broker:
        add_user(broker, "user", "pencil")
        honest = await logged_in(broker)
        scram = ScramClient(MECHANISMS["SCRAM-SHA-256"], "user", "pencil")
        stalls: list[float] = []

        async def log_in() -> None:
            client = await connected(broker)
            await client.ask(SASL_HANDSHAKE, 1, mechanism="SCRAM-SHA-256")
            first = await client.ask(SASL_AUTHENTICATE, 2, auth_bytes=scram.first())
            final = await asyncio.to_thread(scram.final, bytes(first.auth_bytes).decode())
            last = await client.ask(SASL_AUTHENTICATE, 2, auth_bytes=final)
            assert last.error_code == 0
            client.close()

        for _ in range(20):
            logins = [asyncio.create_task(log_in()) for _ in range(50)]
            while not all(one.done() for one in logins):
                began = time.perf_counter()
                await honest.ask(METADATA, 1, topics=[])
                stalls.append(time.perf_counter() - began)
            await asyncio.gather(*logins)
        assert len(stalls) > 20


class _Work:
    """Counts calls of functions, and the bytes that they were given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[tuple[str, int]] = []
        for owner, name in (
            (Mechanism, "digest"),
            (Mechanism, "hmac"),
            (Credential, "parse"),
            (hmac, "compare_digest"),
        ):
            monkeypatch.setattr(owner, name, self._counting(name, getattr(owner, name)))

    def _counting(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def count(*arguments: Any) -> Any:
            # The time of a comparison is that of its second value.
            self.done.append((name, len(arguments[-1])))
            return function(*arguments)

        return count

    def take(self) -> list[tuple[str, int]]:
        done, self.done = self.done, []
        return done


NAMES = ("user", "usex")
"""A known and an unknown user, of the same length."""


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
def test_scram_does_as_much_for_an_unknown_user(
    mechanism: Mechanism, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the time of an answer does not tell who exists: each step hashes, reads and compares as
    many times, and as many bytes.
    """
    catalog = Catalog()
    add_users(catalog, [NewUser("user", "pencil", mechanism)])
    work = _Work(monkeypatch)
    done = []
    for name in NAMES:
        find = partial(find_credential, catalog, mechanism)
        login = ScramServer(mechanism, find, "server", UnknownUsers(mechanism, bytes(16), {}))
        login.respond(f"n,,n={name},r=client".encode(), 0)
        first = work.take()
        proof = base64.b64encode(bytes(len(mechanism.digest(b"")))).decode()
        work.take()
        step = login.respond(f"c=biws,r=clientserver,p={proof}".encode(), 0)
        assert isinstance(step, Failure)
        done.append((first, work.take()))
    catalog.close()
    assert done[0] == done[1]
    first, last = done[0]
    assert [name for name, _ in first] == ["parse", "hmac"]
    assert [name for name, _ in last] == ["hmac", "digest", "compare_digest", "hmac"]


def test_unknown_users_of_a_listener_stay_after_a_restart(tmp_path: Path) -> None:
    """They have the salts and iterations of their names, and iterations that users have."""
    mechanism = MECHANISMS["SCRAM-SHA-256"]
    config = Config({"sasl.enabled.mechanisms": mechanism.name})
    names = [f"user-{number}" for number in range(50)]

    def challenges() -> set[str]:
        catalog = Catalog(tmp_path / "headrace.db")
        add_users(catalog, [NewUser("user", "pencil", mechanism, iterations=8192)])
        listener = authentication.SaslListener("SASL_PLAINTEXT", config, catalog)
        seen = set()
        for name in names:
            login = listener._scram_server(mechanism)
            step = login.respond(f"n,,n={name},r=client".encode(), 0)
            assert isinstance(step, Challenge)
            seen.add(f"{name},{step.token.decode().partition(',')[2]}")
        catalog.close()
        return seen

    first = challenges()
    assert all(challenge.endswith(",i=8192") for challenge in first)
    assert challenges() == first


def test_plain_does_as_much_for_an_unknown_user(monkeypatch: pytest.MonkeyPatch) -> None:
    work = _Work(monkeypatch)
    done = []
    for name in NAMES:
        step = PlainServer({"user": "a long password"}).respond(f"\0{name}\0wrong".encode(), 0)
        assert isinstance(step, Failure)
        done.append(work.take())
    assert done[0] == done[1] == [("compare_digest", len("wrong"))]


def test_keys_are_read_again_after_an_answer_that_is_not_http(tmp_path: Path) -> None:
    document = Path(key_set(tmp_path).removeprefix("file://")).read_bytes()
    with socket.create_server(("127.0.0.1", 0)) as endpoint:
        endpoint.settimeout(30)
        url = f"http://127.0.0.1:{endpoint.getsockname()[1]}/keys"
        source = jwks.KeySource(url, refresh_ms=3_600_000, backoff_ms=1, max_backoff_ms=1)
        source.start()
        try:
            for answer in (b"nonsense\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n" + document):
                asking, _ = endpoint.accept()
                with asking:
                    asking.recv(65_536)
                    asking.sendall(answer)
            wait_until(source.present, 30, "the keys")
        finally:
            source.close()


@pytest.mark.parametrize(
    ("times_ms", "fails"),
    [
        ((0, 100, 100), False),
        ((-1, 100, 100), False),
        ((3_600_000, 0, 100), True),
        ((3_600_000, 100, -1), True),
    ],
)
def test_keys_are_not_read_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times_ms: tuple[int, int, int], fails: bool
) -> None:
    document = b"" if fails else Path(key_set(tmp_path).removeprefix("file://")).read_bytes()
    reads: list[jwks.KeySource] = []

    def read(source: jwks.KeySource) -> bytes:
        reads.append(source)
        return document

    monkeypatch.setattr(jwks.KeySource, "_read", read)
    refresh_ms, backoff_ms, max_backoff_ms = times_ms
    source = jwks.KeySource(
        "http://x/", refresh_ms=refresh_ms, backoff_ms=backoff_ms, max_backoff_ms=max_backoff_ms
    )
    source.start()
    try:
        wait_until(lambda: reads, 30, "the first read")
        time.sleep(0.3)
        assert len(reads) <= 10
    finally:
        source.close()


def test_keys_that_are_read_again_only_when_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks, "MIN_JWKS_INTERVAL_S", 0)
    keys, longest_ms = key_file(tmp_path / "keys.json"), 2**63 - 1
    source = jwks.KeySource(
        keys.as_uri(), refresh_ms=longest_ms, backoff_ms=longest_ms, max_backoff_ms=longest_ms
    )
    source.start()
    try:
        first = wait_until(source.present, 30, "the keys")
        key_file(keys, "two")
        source.refresh()
        wait_until(lambda: source.present() is not first, 30, "the new keys")
    finally:
        source.close()


def test_a_refused_configuration_leaves_no_thread_behind(tmp_path: Path) -> None:
    config = Config(
        {
            "sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN",
            "sasl.oauthbearer.jwks.endpoint.url": key_set(tmp_path),
            **UNVERIFIED,
        }
    )

    def readers() -> list[threading.Thread]:
        return [one for one in threading.enumerate() if one.name == "headrace-jwks"]

    before = readers()
    with pytest.raises(ConfigError, match="PLAIN needs its users"):
        authentication.SaslListener("SASL_PLAINTEXT", config, Catalog())
    wait_until(lambda: set(readers()) <= set(before), 30, "the thread to end")
