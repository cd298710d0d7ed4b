"""Option parsing that all sources have in common."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from headrace.client import Cluster
from headrace.client.sasl import Sasl
from headrace.spark.errors import SourceError
from headrace.spark.option_parsing import KafkaOptions, Subscription, UserOptions

SERVER = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
PATTERN_NAMES = ("at1", "t1", "t11", "t2", "t3")
KNOWN = ("subscribe", "subscribePattern", "maxSize", "endsEarly", "when")


def given(**options: str) -> UserOptions:
    return UserOptions({**SERVER, **{k.replace("__", "."): v for k, v in options.items()}}, KNOWN)


def read_all(options: dict[str, str]) -> None:
    read = given(**{"subscribe": "" if "subscribePattern" in options else "a", **options})
    read.number("maxSize")
    read.boolean("endsEarly")
    read.choice("when", ("now", "later"), "now")
    read.subscription()
    read.kafka({"acks": "nothing is produced"})


def test_names_are_known_whatever_their_case() -> None:
    options = given(MAXSIZE=" 7 ", endsearly="TRUE", When="Later", checkpointLocation="x")
    assert options.number("maxSize") == 7
    assert options.boolean("endsEarly")
    assert options.choice("when", ("now", "later"), "now") == "later"
    assert options.text("subscribe") is None


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(SourceError, match=r"unknown option 'maxsizes': did you mean maxSize\?"):
        given(maxsizes="7")
    with pytest.raises(
        SourceError, match="known options are endsEarly, maxSize, subscribe, subscribePattern, when"
    ):
        given(xyz="7")


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"maxSize": "many"}, "option maxSize is 'many': use a whole number from 1"),
        ({"maxSize": "0"}, "option maxSize is '0'"),
        ({"endsEarly": "1"}, "option endsEarly is '1': use true, false"),
        ({"when": "soon"}, "option when is 'soon': use now, later"),
        ({"subscribe": " , "}, "set the option subscribe"),
        ({"subscribe": "a", "subscribePattern": "b"}, "not both"),
        ({"subscribePattern": "(a"}, "not a regular expression"),
        ({"kafka__bootstrap__servers": ""}, "set the option kafka.bootstrap.servers"),
        ({"kafka__bootstrap__servers": "here"}, "'here' is not HOST:PORT"),
        ({"kafka__acks": "1"}, "remove the option kafka.acks: nothing is produced"),
        (
            {"kafka__ssl__truststore__location": "x.jks"},
            "is for Java: use PEM files with kafka.ssl.ca.location",
        ),
    ],
)
def test_an_invalid_value_is_one_line_with_advice(options: dict[str, str], advice: str) -> None:
    with pytest.raises(SourceError) as caught:
        read_all(options)
    assert advice in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_pattern_matches_whole_names() -> None:
    topics = {name: SimpleNamespace(is_internal=name == "t3") for name in PATTERN_NAMES}
    cluster: Any = SimpleNamespace(all_topics=lambda: asyncio.sleep(0, topics))
    subscription = given(subscribePattern="t[0-9]").subscription()
    assert list(asyncio.run(subscription.existing(cluster))) == ["t1", "t2"]
    assert given(subscribe="b, a,b").subscription() == Subscription(("b", "a"))
    assert given().subscription(required=False) == Subscription()


def test_connections_have_the_client_id_and_the_timeouts_of_the_options() -> None:
    read = given().kafka().connections()
    assert (read.client_id, read.request_timeout_ms, read.connect_timeout_ms) == (
        "headrace-spark",
        30_000,
        10_000,
    )
    assert given().kafka().connections(timeout_ms=10_000).request_timeout_ms == 10_000
    chosen = given(
        kafka__client__id="etl",
        kafka__socket__timeout__ms="7000",
        kafka__socket__connection__setup__timeout__ms="3000",
    ).kafka()
    read = chosen.connections()
    assert (read.client_id, read.request_timeout_ms, read.connect_timeout_ms) == (
        "etl",
        7_000,
        3_000,
    )
    assert chosen.connections().cluster().timeout_ms == 7_000


def test_security_settings_apply_to_both_clients() -> None:
    kafka = given(
        kafka__fetch__min__bytes="5",
        kafka__group__id="g",
        kafka__security__protocol="SASL_PLAINTEXT",
        kafka__sasl__mechanism="SCRAM-SHA-256",
        kafka__sasl__jaas__config=(
            'org.apache.kafka.ScramLoginModule required username="me" password="a b=c";'
        ),
    ).kafka()
    assert kafka.connections().security.sasl == Sasl("SCRAM-SHA-256", "me", "a b=c")
    assert kafka.librdkafka == {
        "fetch.min.bytes": "5",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "me",
        "sasl.password": "a b=c",
    }
    kafka.check(_nothing)


async def _nothing(_: Cluster) -> None:
    """Have no wish of the cluster."""


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"fetch.min.byte": "5"}, 'No such configuration property: "fetch.min.byte"'),
        ({"security.protocol": "secret"}, "secret"),
        (
            {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"},
            "sasl.username and sasl.password",
        ),
        (
            {"security.protocol": "ssl", "ssl.ca.location": "/no/such.pem"},
            "kafka.ssl.ca.location cannot be used: No",
        ),
    ],
)
def test_settings_are_checked_without_connecting(settings: dict[str, str], advice: str) -> None:
    with pytest.raises(SourceError) as caught:
        KafkaOptions("127.0.0.1:1", settings).check(_nothing)
    assert advice in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"sasl.jaas.config": 'Module required username="ann" password="hush"'},
        {"sasl.jaas.config": 'Module required username="ann" password="hush'},
        {"sasl.mechanism": "PLAIN", "sasl.password": "hush"},
        {"security.protocol": "SSL", "ssl.key.pem": "hush", "ssl.key.password": "hush"},
        {"security.protocol": "SSL", "ssl.keystore.password": "hush"},
    ],
)
def test_errors_show_no_secrets(settings: dict[str, str]) -> None:
    settings = {"security.protocol": "SASL_SSL", **settings}
    options = {f"kafka.{name}": value for name, value in settings.items()}
    with pytest.raises(SourceError) as caught:
        UserOptions({**SERVER, **options}, KNOWN).kafka().check(_nothing)
    assert "hush" not in str(caught.value)


def test_options_of_a_table_and_of_sparks_own_source_are_told_apart() -> None:
    """Spark adds an option to those of CREATE TABLE, and passes none with SELECT and INSERT."""
    for options in ({}, {**SERVER, "provider": "kafka-ordered"}):
        with pytest.raises(SourceError, match="use CREATE TEMPORARY VIEW … USING to read"):
            UserOptions(options, KNOWN)
    with pytest.raises(SourceError, match="minOffsetsPerTrigger: use a trigger interval"):
        given(minOffsetsPerTrigger="7")


@pytest.mark.parametrize("password", [None, b"of the key"])
def test_a_key_that_spark_would_show_is_warned_of(
    caplog: pytest.LogCaptureFixture, password: bytes | None
) -> None:
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password)
    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )
    options = given(kafka__ssl__keystore__type="PEM", kafka__ssl__keystore__key=pem.decode())
    with contextlib.suppress(SourceError):  # there is no certificate for it
        options.kafka().check(_nothing)
    shown = "Spark shows it in plans and in its event log" in caplog.text
    assert shown == (password is None)
    assert "-----BEGIN" not in caplog.text
