"""The settings of librdkafka that our own connections take and refuse."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
from confluent_kafka import KafkaError

from headrace.admin import AdminClient
from headrace.admin.results import kafka_error
from headrace.client import (
    ApiMissing,
    AuthenticationFailed,
    ClientError,
    ConnectionFailed,
    RequestRefused,
)
from headrace.client.config import JAVA_NAMES, read_config
from headrace.client.errors import UnsupportedSetting
from headrace.client.java_properties import from_java
from headrace.client.sasl import PLAINTEXT, Sasl

HERE: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:9092"}
TLS = {"security.protocol": "ssl"}
LOCKED = "-----BEGIN ENCRYPTED PRIVATE KEY-----"


def test_defaults_are_those_of_librdkafka() -> None:
    found = read_config(HERE)
    assert (found.bootstrap_servers, found.client_id, found.security) == (
        "127.0.0.1:9092",
        "rdkafka",
        PLAINTEXT,
    )
    assert (found.request_timeout_ms, found.connect_timeout_ms) == (60_000, 30_000)


def test_what_is_configured_is_honoured() -> None:
    config = {
        **HERE,
        "client.id": "me",
        "socket.timeout.ms": "1500",
        "socket.connection.setup.timeout.ms": 1000,
    }
    found = read_config(config)
    assert (found.client_id, found.request_timeout_ms, found.connect_timeout_ms) == (
        "me",
        1500,
        1000,
    )


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (["a:1", "b:2"], "a:1,b:2"),
        ("a, b:2", "a:9092,b:2"),
        ("PLAINTEXT://a:1,[::1]:2,[::1]", "a:1,[::1]:2,[::1]:9092"),
    ],
)
def test_bootstrap_servers_may_be_written_in_many_ways(given: Any, read: str) -> None:
    assert read_config({"bootstrap.servers": given}).bootstrap_servers == read


def test_logins_are_read() -> None:
    login = {"sasl.username": "ann", "sasl.password": "s3cret"}
    config = {
        **HERE,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "scram-sha-512",
        **login,
    }
    security = read_config(config).security
    assert security.sasl == Sasl("SCRAM-SHA-512", "ann", "s3cret")
    assert security.tls is None


def test_tls_checks_certificates_and_names_unless_told_otherwise() -> None:
    strict = read_config({**HERE, "security.protocol": "ssl"}).security.tls
    assert strict is not None
    assert (strict.check_hostname, strict.verify_mode) == (True, ssl.CERT_REQUIRED)
    nameless = read_config(
        {**HERE, "security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "none"}
    )
    assert nameless.security.tls is not None
    assert (nameless.security.tls.check_hostname, nameless.security.tls.verify_mode) == (
        False,
        ssl.CERT_REQUIRED,
    )
    blind = read_config(
        {**HERE, "security.protocol": "ssl", "enable.ssl.certificate.verification": False}
    )
    assert blind.security.tls is not None
    assert blind.security.tls.verify_mode == ssl.CERT_NONE


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"security.protocol": "quic"}, "security.protocol is 'quic'"),
        ({"security.protocol": "sasl_plaintext"}, "sasl.mechanism GSSAPI is not supported"),
        (
            {"security.protocol": "sasl_ssl", "sasl.mechanism": "GSSAPI"},
            "GSSAPI is not supported",
        ),
        (
            {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN"},
            "sasl.username and sasl.password must be set",
        ),
        (
            {"security.protocol": "ssl", "ssl.keystore.location": "/x.p12"},
            "ssl.keystore.location is not supported",
        ),
        (
            {"security.protocol": "ssl", "ssl.ca.location": "/missing.pem"},
            "^ssl.ca.location cannot be used: No such",
        ),
        ({**TLS, "ssl.ca.pem": "no PEM"}, "^ssl.ca.pem cannot be used: "),
        (
            {"bootstrap.servers": "b:1", "socket.timeout.ms": "5s"},
            "^socket.timeout.ms is '5s', not a",
        ),
        (
            {"bootstrap.servers": "b:1", "socket.connection.setup.timeout.ms": ""},
            "^socket.connection.setup.timeout.ms is '', not a number of milliseconds$",
        ),
        (
            {**TLS, "ssl.certificate.pem": "x"},
            "^ssl.certificate.pem is set alone: also set ssl.key.location or ssl.key.pem",
        ),
        (
            {**TLS, "ssl.key.location": "/x"},
            "^ssl.key.location is set alone: also set ssl.certificate.location or",
        ),
        (
            {**TLS, "ssl.certificate.location": "/missing", "ssl.key.pem": "x"},
            "^ssl.certificate.location cannot .*: No",
        ),
        (
            {**TLS, "ssl.certificate.pem": "x", "ssl.key.pem": LOCKED},
            "^ssl.key.pem is encrypted: set ssl.key.password",
        ),
        (
            {**TLS, "ssl.certificate.pem": "x", "ssl.key.pem": "x"},
            "cannot be used: they are not PEM$",
        ),
        (
            {**TLS, "ssl.certificate.pem": "x", "ssl.key.pem": LOCKED, "ssl.key.password": "x"},
            "cannot be used: they are not PEM, or ssl.key.password is wrong$",
        ),
        ({**TLS, "ssl.cipher.suites": "none such"}, "^ssl.cipher.suites cannot be used"),
        ({"bootstrap.servers": ""}, "no broker given"),
    ],
)
def test_what_is_not_supported_is_refused(config: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UnsupportedSetting, match=complaint) as refused:
        read_config({**HERE, **config})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", JAVA_NAMES)
def test_a_name_of_java_says_which_to_use(name: str) -> None:
    with pytest.raises(UnsupportedSetting, match=f"{name} is for Kafka's Java clients: use "):
        read_config({**HERE, name: "1"})


def test_javas_names_for_pem_are_understood() -> None:
    stores = {"ssl.truststore.type": "PEM", "ssl.keystore.type": "pem", "ssl.key.password": "p"}
    files = {"ssl.truststore.location": "/ca", "ssl.keystore.location": "/me"}
    assert from_java({**stores, **files}) == {
        "ssl.ca.location": "/ca",
        "ssl.certificate.location": "/me",
        "ssl.key.location": "/me",
        "ssl.key.password": "p",
    }
    texts = {
        "ssl.truststore.certificates": "A",
        "ssl.keystore.certificate.chain": "C",
        "ssl.keystore.key": "K",
    }
    inline = {
        "ssl.ca.pem": "A",
        "ssl.certificate.pem": "C",
        "ssl.key.pem": "K",
        "ssl.key.password": "p",
    }
    assert from_java({**stores, **texts}) == inline
    assert from_java(files) == files, "of another type"


def test_new_credentials_are_used_by_our_connections_too() -> None:
    login = {
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": "old",
        "log_level": 0,
    }
    with AdminClient(
        {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "sasl_plaintext", **login}
    ) as admin:
        admin.set_sasl_credentials("bob", "new")
        assert admin._cluster.security.sasl == Sasl("PLAIN", "bob", "new")


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (
            RequestRefused("x", 69, "Group g not found."),
            KafkaError.GROUP_ID_NOT_FOUND,
            "Group g not found: correct the group's id or type",
        ),
        (
            RequestRefused("x", 68),
            KafkaError.NON_EMPTY_GROUP,
            "The group is not empty: stop its members first",
        ),
        (ConnectionFailed("gone"), KafkaError._TRANSPORT, "gone"),
        (AuthenticationFailed("no"), KafkaError._AUTHENTICATION, "no"),
        (ApiMissing("old"), KafkaError.UNSUPPORTED_VERSION, "old"),
        (ClientError("other"), KafkaError._FAIL, "other"),
    ],
)
def test_errors_keep_their_code_and_text(error: ClientError, code: int, text: str) -> None:
    translated = kafka_error(error)
    assert (translated.code(), translated.str()) == (code, text)
