"""TLS: keys of all forms, certificates of clients, reloading, and connections that go wrong."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import shutil
import ssl
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from headrace import ConfigError
from headrace.broker import server as server_module
from headrace.net.tls.key_material import key_store
from headrace.net.tls.transport import MAX_TLS_RECORD_BYTES, TLS_SEND_BYTES
from tests.security.serving import Serving, on_uvloop, serving, warnings
from tests.throwaway_ca import ThrowawayCA

pytestmark = pytest.mark.broker

API_VERSIONS, METADATA, INCREMENTAL_ALTER_CONFIGS = 18, 3, 44
BROKER_RESOURCE, SET = 4, 0


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> ThrowawayCA:
    authority = ThrowawayCA(tmp_path_factory.mktemp("ca"))
    authority.issue("broker", "CN=broker,O=Headrace")
    authority.issue("locked", password="hu=sh")
    authority.issue("duke", "CN=Duke,OU=Java\\, Soft,C=US")
    authority.issue("expired", days=-1)
    return authority


def path(ca: ThrowawayCA, name: str) -> Path:
    return ca.certificate.with_name(name)


def configs(ca: ThrowawayCA, **more: object) -> dict[str, object]:
    return {
        "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": path(ca, "broker.both"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": ca.certificate,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def context(ca: ThrowawayCA, certificate: str | None = None) -> ssl.SSLContext:
    """Return the context of a client."""
    made = ssl.create_default_context(cafile=ca.certificate)
    if certificate is not None:
        made.load_cert_chain(path(ca, f"{certificate}.both"))
    return made


async def assert_is_served(scene: Serving, tls: ssl.SSLContext, name: str = "SSL") -> None:
    client = await scene.connect(name, tls)
    response = await client.ask(API_VERSIONS, 0)
    assert response.error_code == 0
    client.close()


INLINE = {"ssl_keystore_location": None, "ssl_truststore_location": None}


def forms(ca: ThrowawayCA, form: str) -> dict[str, object]:
    key = path(ca, "locked.key").read_text()
    certificate = path(ca, "locked.pem").read_text()
    made: dict[str, dict[str, object]] = {
        "file": configs(ca),
        "locked file": configs(
            ca, ssl_keystore_location=path(ca, "locked.both"), ssl_key_password="hu=sh"
        ),
        "inline": configs(
            ca,
            ssl_keystore_key=key,
            ssl_keystore_certificate_chain=certificate,
            ssl_truststore_certificates=ca.certificate.read_text(),
            ssl_key_password="hu=sh",
            **INLINE,
        ),
        "inline on one line": configs(
            ca,
            ssl_keystore_key=" ".join(key.split("\n")),
            ssl_keystore_certificate_chain=" ".join(certificate.split("\n")),
            ssl_truststore_certificates=" ".join(ca.certificate.read_text().split("\n")),
            ssl_key_password="hu=sh",
            **INLINE,
        ),
        "PKCS12": configs(
            ca,
            ssl_keystore_type="PKCS12",
            ssl_keystore_location=path(ca, "locked.p12"),
            ssl_keystore_password="hu=sh",
        ),
        "PKCS12 as JKS": configs(
            ca,
            ssl_keystore_type="JKS",
            ssl_keystore_location=path(ca, "locked.p12"),
            ssl_keystore_password="hu=sh",
        ),
        "of one listener": configs(
            ca,
            ssl_keystore_location="/nowhere",
            listener_name_ssl_ssl_keystore_location=path(ca, "broker.both"),
        ),
    }
    return {name: value for name, value in made[form].items() if value is not None}


@pytest.mark.parametrize(
    "form",
    [
        "file",
        "locked file",
        "inline",
        "inline on one line",
        "PKCS12",
        "PKCS12 as JKS",
        "of one listener",
    ],
)
@on_uvloop
async def test_forms_of_keys(ca: ThrowawayCA, form: str) -> None:
    async with serving(forms(ca, form)) as broker:
        await assert_is_served(broker, context(ca))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ssl_keystore_location": "/nowhere"}, "cannot read /nowhere: No such file"),
        ({"ssl_keystore_location": "locked.both"}, "is ssl.key.password right"),
        (
            {"ssl_keystore_location": "locked.both", "ssl_key_password": "s3cret"},
            "is ssl.key.password right",
        ),
        ({"ssl_keystore_location": "ca.pem"}, "cannot be loaded"),
        ({"ssl_truststore_location": "broker.key"}, "no valid certificates"),
        (
            {"ssl_keystore_type": "PKCS12", "ssl_keystore_location": "locked.p12"},
            "cannot be read as PKCS12",
        ),
        (
            {"ssl_keystore_type": "JKS", "ssl_keystore_location": "old.jks"},
            "keytool -importkeystore -srckeystore .*old.jks -destkeystore .*old.p12 "
            "-deststoretype PKCS12",
        ),
        ({"ssl_enabled_protocols": "TLSv1.1"}, "ssl.enabled.protocols has TLSv1.1"),
        ({"ssl_cipher_suites": "TLS_RSA_WITH_NOTHING"}, "OpenSSL does not have"),
        ({"ssl_cipher_suites": "TLS_AES_128_GCM_SHA256"}, "all or none"),
        ({"ssl_principal_mapping_rules": "RULE:x"}, "Invalid rule"),
    ],
)
@on_uvloop
async def test_what_cannot_be_served_refuses_the_start(
    ca: ThrowawayCA, change: dict[str, str], message: str
) -> None:
    path(ca, "old.jks").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    location = "ssl_keystore_location", "ssl_truststore_location"
    given = {
        name: path(ca, value) if name in location and value[0] != "/" else value
        for name, value in change.items()
    }
    with pytest.raises(ConfigError, match=message) as refused:
        async with serving(configs(ca, **given)):
            pass
    assert "s3cret" not in str(refused.value)


@on_uvloop
async def test_versions_and_cipher_suites(ca: ThrowawayCA) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    async with serving(configs(ca, ssl_cipher_suites=suite)) as broker:
        client = await broker.connect("SSL", context(ca))
        cipher = client.writer.get_extra_info("cipher")
        assert cipher[:2] == ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLSv1.2")
        client.close()
    async with serving(configs(ca, ssl_enabled_protocols="TLSv1.3")) as broker:
        old = context(ca)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await broker.connect("SSL", old)
        await assert_is_served(broker, context(ca))


@pytest.mark.parametrize(
    ("client_auth", "certificate", "principal"),
    [
        ("none", "duke", "User:ANONYMOUS"),
        ("requested", None, "User:ANONYMOUS"),
        ("requested", "duke", "User:CN=Duke,OU=Java\\, Soft,C=US"),
        ("required", "duke", "User:CN=Duke,OU=Java\\, Soft,C=US"),
        ("required", None, None),
        ("required", "expired", None),
        ("requested", "expired", None),
    ],
)
@on_uvloop
async def test_certificates_of_clients(
    ca: ThrowawayCA, client_auth: str, certificate: str | None, principal: str | None
) -> None:
    async with serving(configs(ca, ssl_client_auth=client_auth)) as broker:
        try:
            client = await broker.connect("SSL", context(ca, certificate))
            await client.ask(API_VERSIONS, 0)
        except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
            assert principal is None
        else:
            assert str(broker.connection.session.client.principal) == principal


@on_uvloop
async def test_names_of_certificates_are_mapped(ca: ThrowawayCA) -> None:
    rules = "RULE:^CN=(.*?),OU=.*$/$1/L"
    given = configs(ca, ssl_client_auth="required", ssl_principal_mapping_rules=rules)
    async with serving(given) as broker:
        client = await broker.connect("SSL", context(ca, "duke"))
        await client.ask(API_VERSIONS, 0)
        assert str(broker.connection.session.client.principal) == "User:duke"
        stranger = await broker.connect("SSL", context(ca, "broker"))
        assert await stranger.is_closed()


@on_uvloop
async def test_metadata_names_the_listener_that_was_asked(ca: ThrowawayCA) -> None:
    async with serving(configs(ca)) as broker:
        for name, tls in (("SSL", context(ca)), ("PLAINTEXT", None)):
            client = await broker.connect(name, tls)
            response = await client.ask(METADATA, 1, topics=[])
            (one,) = response.brokers
            assert (one.host, one.port) == broker.address(name)
            client.close()


# Reloading ----------------------------------------------------------------------------------------


async def served_subject(scene: Serving, ca: ThrowawayCA) -> object:
    client = await scene.connect("SSL", context(ca))
    await client.ask(API_VERSIONS, 0)
    client.close()
    certificate = client.writer.get_extra_info("peercert")
    return dict(one[0] for one in certificate["subject"])["commonName"]


@on_uvloop
async def test_changed_files_are_used_for_new_connections(
    ca: ThrowawayCA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.net.listener_security.TLS_FILE_CHECK_S", 0.02)
    store = tmp_path / "store.pem"
    shutil.copy(path(ca, "broker.both"), store)
    ca.issue("renewed")
    given = configs(ca, ssl_keystore_location=store, ssl_allow_dn_changes="true")
    async with serving(given) as broker:
        before = await broker.connect("SSL", context(ca))
        assert await served_subject(broker, ca) == "broker"
        store.write_text("half a fi")
        await asyncio.sleep(0.1)
        assert await served_subject(broker, ca) == "broker"
        os.replace(path(ca, "renewed.both"), store)
        async with asyncio.timeout(20):
            while await served_subject(broker, ca) != "renewed":
                await asyncio.sleep(0.02)
        await before.ask(API_VERSIONS, 0)  # what is open stays open


@on_uvloop
async def test_a_file_that_may_be_read_later(
    ca: ThrowawayCA,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A new certificate that belongs to another user at first."""
    monkeypatch.setattr("headrace.net.listener_security.TLS_FILE_CHECK_S", 0.02)
    store = tmp_path / "store.pem"
    shutil.copy(path(ca, "broker.both"), store)
    ca.issue("granted")
    read = Path.read_bytes

    def permitted(file: Path) -> bytes:
        if not file.stat().st_mode & stat.S_IRUSR:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return read(file)

    monkeypatch.setattr(Path, "read_bytes", permitted)
    given = configs(ca, ssl_keystore_location=store, ssl_allow_dn_changes="true")
    async with serving(given) as broker, asyncio.timeout(20):
        os.chmod(path(ca, "granted.both"), 0)
        os.replace(path(ca, "granted.both"), store)
        while "Permission denied" not in caplog.text:
            await asyncio.sleep(0.02)
        assert await served_subject(broker, ca) == "broker"
        store.chmod(0o600)
        while await served_subject(broker, ca) != "granted":
            await asyncio.sleep(0.02)


@on_uvloop
async def test_a_key_store_is_changed_by_kafka_configs(ca: ThrowawayCA) -> None:
    name = "listener.name.ssl.ssl.keystore.location"

    async def alter(broker: Serving, key: str, value: object) -> int:
        client = await broker.connect("PLAINTEXT")
        change = {"name": key, "config_operation": SET, "value": str(value)}
        resource = {"resource_type": BROKER_RESOURCE, "resource_name": "1", "configs": [change]}
        response = await client.ask(
            INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False
        )
        client.close()
        return int(response.responses[0].error_code)

    ca.issue("other")
    named = "CN=broker,O=Headrace"
    ca.issue("spelled", "CN=Broker,O=HEADRACE", hosts=["::1", "127.0.0.1", "localhost"])
    ca.issue("turned", "O=Headrace,CN=broker")
    ca.issue("fewer", named, hosts=["127.0.0.1"])
    ca.issue("more", named, hosts=["localhost", "127.0.0.1", "::1", "broker"])
    async with serving(configs(ca)) as broker:
        for accepted in ("spelled", "broker", "more"):
            assert await alter(broker, name, path(ca, f"{accepted}.both")) == 0
        for refused in ("other", "turned", "fewer", "broker"):
            assert await alter(broker, name, path(ca, f"{refused}.both")) == 42
        assert await served_subject(broker, ca) == "broker"
    async with serving(configs(ca, ssl_allow_san_changes="true")) as broker:
        assert await alter(broker, name, path(ca, "fewer.both")) == 0
        assert await alter(broker, name, path(ca, "other.both")) == 42
    async with serving(configs(ca, ssl_allow_dn_changes="true")) as broker:
        assert await alter(broker, name, path(ca, "fewer.both")) == 42
        assert await alter(broker, name, path(ca, "other.both")) == 0
        assert await served_subject(broker, ca) == "other"
        assert await alter(broker, name, "/nowhere") == 42  # INVALID_REQUEST
        assert await alter(broker, "ssl.keystore.location", path(ca, "other.both")) == 42
        assert await served_subject(broker, ca) == "other"


@on_uvloop
async def test_secrets_are_not_described(ca: ThrowawayCA) -> None:
    given = configs(
        ca,
        listener_name_ssl_ssl_keystore_location=path(ca, "locked.both"),
        listener_name_ssl_ssl_key_password="hu=sh",
    )
    async with serving(given) as broker:
        client = await broker.connect("PLAINTEXT")
        resource = {"resource_type": 4, "resource_name": "1", "configuration_keys": None}
        response = await client.ask(
            32, 4, resources=[resource], include_synonyms=True, include_documentation=True
        )
        (result,) = response.results
        found = {one.name: one for one in result.configs}
        password = found["listener.name.ssl.ssl.key.password"]
        assert (password.value, password.is_sensitive) == (None, True)
        location = found["listener.name.ssl.ssl.keystore.location"]
        assert location.value == str(path(ca, "locked.both"))
        assert "hu=sh" not in repr(response)


# What goes wrong ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"\0\0\0\x0e\0\x12\0\0\0\0\0\7\0\3raw", "it speaks Kafka's protocol without TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "it speaks HTTP, and this port TLS"),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", "it speaks SSH, and this port TLS"),
        (b"\x16\x03\x01\xff\xff" + b"\0" * 100_000, ""),  # a record that is too large
        (b"\x16\x03\x01\0\4\1\0\0\0", ""),  # an empty ClientHello
        (b"\x15\x03\x03\0\2\2\x28", ""),  # an alert
        (b"\x80\x1c\1\3\3\0\3\0\0\0\x10\0\xc0\x2b" + b"\0" * 16, ""),  # a hello of SSLv2
        (random.Random(1).randbytes(500), ""),
    ],
)
@on_uvloop
async def test_no_tls_on_a_port_with_tls(
    ca: ThrowawayCA, sent: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with serving(configs(ca)) as broker:
        client = await broker.connect("SSL")
        client.writer.write(sent)
        with suppress(ConnectionResetError):
            await asyncio.wait_for(client.reader.read(), 20)  # an alert at most, then the end
        await assert_is_served(broker, context(ca))
    (line,) = warnings(caplog)
    assert f"the TLS handshake has failed: {reason}" in line


@pytest.mark.parametrize(
    ("version", "command", "said"),
    [
        ("-tls1_2", b"R\n", b"no renegotiation"),
        ("-tls1_3", b"K\n", b"KEYUPDATE"),
        ("-tls1_3", b"k\n", b"KEYUPDATE"),
    ],
    ids=["a renegotiation", "key updates with answers", "key updates"],
)
@on_uvloop
async def test_a_client_that_renegotiates(
    ca: ThrowawayCA, version: str, command: bytes, said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A renegotiation is refused with an alert. Keys of TLS 1.3 may change."""
    caplog.set_level(logging.WARNING)
    async with serving(configs(ca)) as broker:
        host, port = broker.address("SSL")
        client = await asyncio.create_subprocess_exec(
            *("openssl", "s_client", "-connect", f"{host}:{port}", version),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert client.stdin is not None
        assert client.stdout is not None
        await client.stdout.readuntil(b"Verify return code")
        # It takes a command for each time it reads.
        for _ in range(50 if version == "-tls1_3" else 1):
            client.stdin.write(command)
            await asyncio.wait_for(client.stdout.readuntil(said), 20)
        with suppress(RuntimeError, OSError):  # a refused renegotiation may have ended it
            client.stdin.write(b"Q\n")
        await asyncio.wait_for(client.stdout.read(), 20)
        await asyncio.wait_for(client.wait(), 20)
        await assert_is_served(broker, context(ca))
    assert len(warnings(caplog)) <= 1


@on_uvloop
async def test_tls_on_a_port_without(ca: ThrowawayCA, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with serving(configs(ca)) as broker:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await broker.connect("PLAINTEXT", context(ca))
    assert len(warnings(caplog)) == 1


@on_uvloop
async def test_half_a_handshake_ends_after_a_time(
    ca: ThrowawayCA, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "LOGIN_TIMEOUT_S", 0.3)
    async with serving(configs(ca)) as broker:
        silent = await broker.connect("SSL")
        half = await broker.connect("SSL")
        half.writer.write(b"\x16\x03\x01\x02\x00\x01")
        assert await silent.is_closed()
        assert await half.is_closed()
        assert broker.server.shared.limits.beginning == 0


@on_uvloop
async def test_thousands_of_handshakes_end_the_oldest(
    ca: ThrowawayCA, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "MAX_HANDSHAKES", 50)
    async with serving(configs(ca)) as broker:
        clients = []
        for number in range(200):
            client = await broker.connect("SSL")
            client.writer.write(b"\x16\x03\x01")
            clients.append(client)
            if number % 40 == 0:
                await assert_is_served(broker, context(ca))
        async with asyncio.timeout(20):
            while broker.server.shared.limits.beginning > 50:
                await asyncio.sleep(0.01)
        for client in clients[:100]:
            assert await client.is_closed()
        await assert_is_served(broker, context(ca))


@on_uvloop
async def test_a_client_that_does_not_read_holds_few_records(ca: ThrowawayCA) -> None:
    """Records of a fetch wait in their file, not in memory."""
    async with serving(configs(ca)) as broker:
        client = await broker.connect("SSL", context(ca))
        await client.ask(API_VERSIONS, 0)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.writer.write(b"\0\0\0\x0d\0\x12\0\0\0\0\0\7\0\3raw" * 40_000)
        async with asyncio.timeout(60):
            while not broker.connection._is_blocked:
                await asyncio.sleep(0.01)
        held_bytes = broker.connection.transport.get_write_buffer_size()
        assert held_bytes <= TLS_SEND_BYTES + MAX_TLS_RECORD_BYTES
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(3000):
            await client.frame()


@on_uvloop
async def test_a_client_may_close_its_side(ca: ThrowawayCA) -> None:
    async with serving(configs(ca)) as broker:
        client = await broker.connect("SSL", context(ca))
        await client.ask(API_VERSIONS, 0)
        client.close()
        async with asyncio.timeout(20):
            while broker.server.connections:
                await asyncio.sleep(0.01)


@on_uvloop
async def test_the_broker_stops_while_handshakes_are_open(ca: ThrowawayCA) -> None:
    async with serving(configs(ca)) as broker:
        half = await broker.connect("SSL")
        half.writer.write(b"\x16\x03")
        whole = await broker.connect("SSL", context(ca))
        await whole.ask(API_VERSIONS, 0)
    assert await half.is_closed()
    assert await whole.is_closed()


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_a_key_that_others_can_read_is_told(
    ca: ThrowawayCA, tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    store = tmp_path / "store.pem"
    shutil.copy(path(ca, "broker.both"), store)
    store.chmod(mode)
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
    key_store(settings.get)
    told = [record.getMessage() for record in caplog.records]
    line = f"Other users can read the private key in {store}: chmod 600 {store}"
    assert told == ([line] if mode & 0o077 else [])
