"""Real clients with TLS and logins."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.asymmetric import rsa

import headrace
import headrace.admin
from headrace.client.config import read_config
from headrace.handlers import APIS
from tests.clients.toolchains import go_programs, run
from tests.peer import java_program, run_tool
from tests.security.oauth import (
    AUDIENCE,
    CLIENT_ID,
    CLIENT_SECRET,
    key_set,
    token,
    token_endpoint,
)
from tests.support import story, unique
from tests.throwaway_ca import ThrowawayCA

pytestmark = [pytest.mark.broker]

MODULES = "org.apache.kafka.common.security"
DESCRIBE_CLIENT_QUOTAS = 48
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER, PASSWORD = "b=o,b", "pa,ss=wörd"
PLAIN_USER = "ann"
"""For kafka-python, which does not escape names in SCRAM."""


class Secured(NamedTuple):
    """A broker with listeners of all kinds."""

    broker: headrace.Broker
    ca: ThrowawayCA
    folder: Path

    def tls(self, listener: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self.broker.listeners[listener],
            "security.protocol": listener,
            "ssl.ca.location": str(self.ca.certificate),
        }

    def mutual(self) -> dict[str, str]:
        return self.tls("SSL") | {
            "ssl.certificate.location": str(self.folder / "client.pem"),
            "ssl.key.location": str(self.folder / "client.key"),
        }

    def sasl(self, listener: str, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
        return self.tls(listener) | {
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": password,
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    ca = ThrowawayCA(folder)
    ca.issue("broker")
    ca.issue("client")
    users = "".join(f" 'user_{name}'=\"{PASSWORD}\"" for name in (USER, PLAIN_USER))
    plain = f"{MODULES}.plain.PlainLoginModule required{users};"
    config: dict[str, object] = {
        "listeners": ",".join(
            f"{name}://127.0.0.1:0" for name in ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": folder / "broker.both",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": ca.certificate,
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join((*MECHANISMS, "OAUTHBEARER")),
        "sasl.oauthbearer.jwks.endpoint.url": key_set(folder),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.allow.unverified.issuer": True,
        "connections.max.reauth.ms": 3000,
        "group.initial.rebalance.delay.ms": 0,
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        config[f"listener.name.{listener}.plain.sasl.jaas.config"] = plain
    with headrace.Broker(config=config, users={USER: PASSWORD, PLAIN_USER: PASSWORD}) as broker:
        yield Secured(broker, ca, folder)


def produce_and_consume(config: dict[str, Any], topic: str) -> bytes:
    producer = Producer(config)
    producer.produce(topic, b"value")
    assert producer.flush(20) == 0
    consumer = Consumer(config | {"group.id": unique("g"), "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        value: bytes = message.value()
        return value
    finally:
        consumer.close()


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka(secured: Secured, listener: str, mechanism: str) -> None:
    assert produce_and_consume(secured.sasl(listener, mechanism), unique("t")) == b"value"


def test_librdkafka_with_a_certificate(secured: Secured) -> None:
    assert produce_and_consume(secured.mutual(), unique("t")) == b"value"


def test_librdkafka_with_a_token(secured: Secured) -> None:
    def refresh(_: str) -> tuple[str, float]:
        return token(), time.time() + 600

    config = secured.tls("SASL_SSL") | {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": refresh}
    assert produce_and_consume(config, unique("t")) == b"value"


def test_librdkafka_authenticates_again(secured: Secured) -> None:
    """Sessions last three seconds; records are produced beyond them without an error."""
    errors: list[KafkaError] = []
    config = secured.sasl("SASL_SSL", "SCRAM-SHA-512") | {"error_cb": errors.append}
    producer = Producer(config)
    topic = unique("t")
    delivered = []
    for _ in range(20):
        producer.produce(topic, b"x", on_delivery=lambda error, _: delivered.append(error))
        producer.flush(20)
        time.sleep(0.25)
    assert delivered == [None] * 20
    assert errors == []


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_with_a_wrong_password(secured: Secured, mechanism: str) -> None:
    errors: list[KafkaError] = []
    config = secured.sasl("SASL_SSL", mechanism, "wrong") | {"error_cb": errors.append}
    client = AdminClient(config)
    with pytest.raises(KafkaException):
        client.list_topics(timeout=2)
    client.poll(1)
    assert KafkaError._AUTHENTICATION in [error.code() for error in errors]


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
@story
async def test_aiokafka(secured: Secured, listener: str, mechanism: str) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=secured.broker.listeners[listener],
        security_protocol=listener,
        sasl_mechanism=mechanism,
        sasl_plain_username=USER,
        sasl_plain_password=PASSWORD,
        ssl_context=ssl.create_default_context(cafile=secured.ca.certificate)
        if listener == "SASL_SSL"
        else None,
    )
    await producer.start()
    try:
        sent = await producer.send_and_wait(unique("t"), b"value")
        assert sent.offset == 0
    finally:
        await producer.stop()


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(secured: Secured, listener: str, mechanism: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=secured.broker.listeners[listener],
        security_protocol=listener,
        sasl_mechanism=mechanism,
        sasl_plain_username=PLAIN_USER,
        sasl_plain_password=PASSWORD,
        ssl_cafile=str(secured.ca.certificate),
    )
    try:
        assert producer.send(unique("t"), b"value").get(20).offset == 0
    finally:
        producer.close(5)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_own_clients(secured: Secured, mechanism: str) -> None:
    with headrace.admin.AdminClient(secured.sasl("SASL_SSL", mechanism)) as client:
        assert client.list_all_groups(request_timeout=20).result().errors == []


def properties(path: Path, **configs: str) -> str:
    lines = (f"{name.replace('_', '.')}={value}\n" for name, value in configs.items())
    path.write_text("".join(lines), encoding="latin-1", errors="backslashreplace")
    return str(path)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("password", [PASSWORD, "wrong"])
def test_franz_go(secured: Secured, mechanism: str, password: str) -> None:
    program, at = str(go_programs() / "franz"), secured.broker.listeners["SASL_SSL"]
    trusted = str(secured.ca.certificate)
    said = run([program, "secure", at, unique("t"), trusted, mechanism, USER, password])
    assert said.split() == (["consumed", "value"] if password == PASSWORD else ["refused", "true"])


@pytest.mark.java
@pytest.mark.slow
def test_java_with_tokens(secured: Secured, kafka_libs: Path, tmp_path: Path) -> None:
    """Tokens from a file and from an endpoint; the broker has the keys from a JWKS file."""

    def config(name: str, url: str, **more: str) -> str:
        return properties(
            tmp_path / f"{name}.properties",
            bootstrap_servers=secured.broker.listeners["SASL_SSL"],
            security_protocol="SASL_SSL",
            ssl_truststore_type="PEM",
            ssl_truststore_location=str(secured.ca.certificate),
            sasl_mechanism="OAUTHBEARER",
            sasl_jaas_config=f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;",
            sasl_login_callback_handler_class=(
                f"{MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"
            ),
            sasl_oauthbearer_token_endpoint_url=url,
            **more,
        )

    tokens = {
        "file": token(),
        "other-audience": token(audience="others"),
        "other-key": token(key=rsa.generate_private_key(65537, 2048)),
    }
    urls = {}
    for name, text in tokens.items():
        path = tmp_path / f"{name}.jwt"
        path.write_text(text)
        urls[name] = path.as_uri()
    with token_endpoint() as endpoint:
        files = [config(name, url) for name, url in urls.items()]
        credentials = {
            "sasl_oauthbearer_client_credentials_client_id": CLIENT_ID,
            "sasl_oauthbearer_client_credentials_client_secret": CLIENT_SECRET,
        }
        files.append(config("endpoint", endpoint, **credentials))
        allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
        seen = outcomes(
            files,
            f"{allowed}.urls={','.join((endpoint, *urls.values()))}",
            f"{allowed}.files={','.join(str(tmp_path / f'{name}.jwt') for name in tokens)}",
        )
    refused = 'SaslAuthenticationException: {"status":"invalid_token"}'
    assert seen == {
        "file": "right",
        "endpoint": "right",
        "other-audience": refused,
        "other-key": refused,
    }


def outcomes(files: list[str], *options: str) -> dict[str, str]:
    """Run the Java client with each configuration; return the outcomes by the names of files."""
    done = subprocess.run(
        java_program("SecureClient", unique("t"), *files, options=options),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    lines = (line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    seen = {name: outcome for name, outcome in lines if not name[0].isdecimal()}
    assert len(seen) == len(files), done.stdout
    return seen


@pytest.mark.java
@pytest.mark.slow
def test_java(secured: Secured, kafka_libs: Path, tmp_path: Path) -> None:
    def common(listener: str) -> dict[str, str]:
        return {
            "bootstrap_servers": secured.broker.listeners[listener],
            "security_protocol": listener,
            "ssl_truststore_type": "PEM",
            "ssl_truststore_location": str(secured.ca.certificate),
        }

    def login(listener: str, mechanism: str, password: str) -> dict[str, str]:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        escaped = "".join(one if one.isascii() else f"\\u{ord(one):04x}" for one in password)
        line = f'{MODULES}.{module} required username="{USER}" password="{escaped}";'
        return common(listener) | {"sasl_mechanism": mechanism, "sasl_jaas_config": line}

    store = secured.folder / "client.both"
    files = [
        properties(tmp_path / f"{mechanism}.properties", **login("SASL_SSL", mechanism, PASSWORD))
        for mechanism in MECHANISMS
    ]
    files += [
        properties(tmp_path / f"wrong-{one}.properties", **login("SASL_SSL", one, "wrong"))
        for one in ("PLAIN", "SCRAM-SHA-512")
    ]
    certificate = {"ssl_keystore_type": "PEM", "ssl_keystore_location": str(store)}
    files.append(properties(tmp_path / "mutual.properties", **common("SSL"), **certificate))
    files.append(properties(tmp_path / "anonymous.properties", **common("SSL")))
    seen = outcomes(files)
    credentials = "Authentication failed during authentication due to invalid credentials with"
    assert seen == {
        **dict.fromkeys((*MECHANISMS, "mutual"), "right"),
        "wrong-PLAIN": (
            "SaslAuthenticationException: Authentication failed: Invalid username or password"
        ),
        "wrong-SCRAM-SHA-512": (
            f"SaslAuthenticationException: {credentials} SASL mechanism SCRAM-SHA-512"
        ),
        "anonymous": seen["anonymous"],
    }
    assert "SslAuthenticationException" in seen["anonymous"]


@pytest.mark.java
@pytest.mark.slow
def test_kafka_configs_on_users(secured: Secured, kafka_libs: Path, tmp_path: Path) -> None:
    """`kafka-configs --entity-type users`, unmodified."""
    escaped = "".join(one if one.isascii() else f"\\u{ord(one):04x}" for one in PASSWORD)
    line = f'{MODULES}.scram.ScramLoginModule required username="{USER}" password="{escaped}";'
    config = properties(
        tmp_path / "admin.properties",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_jaas_config=line,
    )
    base = [
        *("org.apache.kafka.tools.ConfigCommand", "--command-config", config),
        *("--bootstrap-server", secured.broker.listeners["SASL_PLAINTEXT"]),
        *("--entity-type", "users"),
    ]

    def configs(*words: str) -> str:
        done = run_tool(*base, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    named = "--entity-name", "carol"
    add = "SCRAM-SHA-256=[iterations=8192,password=carol's]"
    assert "Completed updating config for user carol" in configs(
        *named, "--alter", "--add-config", add
    )
    admin = AdminClient(secured.sasl("SASL_SSL", "SCRAM-SHA-512"))
    (info,) = (
        admin.describe_user_scram_credentials(["carol"])["carol"].result(20).scram_credential_infos
    )
    assert info.iterations == 8192
    if DESCRIBE_CLIENT_QUOTAS in APIS:  # the tool asks for both
        described = configs(*named, "--describe")
        assert "SCRAM credential configs for user-principal 'carol' are" in described
        assert "SCRAM-SHA-256=iterations=8192" in described
    configs(*named, "--alter", "--delete-config", "SCRAM-SHA-256")
    assert "carol" not in admin.describe_user_scram_credentials().result(20)


def test_a_password_is_hashed_beside_the_event_loop(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    pbkdf2 = hashlib.pbkdf2_hmac

    def recorded(*args: Any) -> bytes:
        threads.append(threading.current_thread())
        return pbkdf2(*args)

    async def log_in() -> None:
        conf = secured.sasl("SASL_PLAINTEXT", "SCRAM-SHA-512")
        async with read_config(conf).cluster() as cluster:
            await cluster.metadata()

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", recorded)
    asyncio.run(log_in())
    assert threads
    assert threading.current_thread() not in threads
