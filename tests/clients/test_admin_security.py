"""headrace's own connections with TLS and logins, against an Apache Kafka with such listeners."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from headrace.admin import AdminClient
from headrace.cli.main import main
from headrace.client import ClientError, RangeConsumer
from headrace.client.cluster import Cluster
from headrace.client.config import read_config
from headrace.spark.lag.source import LagOptions, LagReader
from headrace.spark.option_parsing import KafkaOptions
from headrace.spark.reader.log_reader import read
from headrace.spark.reader.ranges import OffsetRange
from tests.clients.confluent import PATIENCE_S, create_topic, produce, share_from_earliest
from tests.secure_kafka import LOGIN, NAME, PASSWORD, SecureKafka
from tests.support import wait_until

pytestmark = [pytest.mark.java, pytest.mark.slow]


def _listing(servers: str, **configs: str) -> Any:
    """Return the error of listing share groups, or None."""
    named = {name.replace("_", "."): value for name, value in configs.items()}
    with AdminClient({"bootstrap.servers": servers, "log_level": 0, **named}) as admin:
        try:
            result = admin.list_all_groups(request_timeout=20).result(PATIENCE_S)
        except KafkaException as refused:
            return refused.args[0]
        return result.errors[0].args[0] if result.errors else None


def _scram(mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    return {"sasl_mechanism": mechanism, "sasl_username": NAME, "sasl_password": password}


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram(secure_kafka: SecureKafka, mechanism: str) -> None:
    def works() -> bool:  # credentials take a moment to reach the broker
        return (
            _listing(secure_kafka.sasl, security_protocol="sasl_plaintext", **_scram(mechanism))
            is None
        )

    wait_until(works, PATIENCE_S, "the credentials to be known")
    error = _listing(
        secure_kafka.sasl, security_protocol="sasl_plaintext", **_scram(mechanism, "wrong")
    )
    assert error.code() == KafkaError._AUTHENTICATION
    assert f"refuses the login of '{NAME}'" in error.str()


def test_plain(secure_kafka: SecureKafka) -> None:
    ann = {"security_protocol": "sasl_plaintext", "sasl_mechanism": "PLAIN", "sasl_username": "ann"}
    assert _listing(secure_kafka.sasl, **ann, sasl_password="s3cret") is None
    assert (
        _listing(secure_kafka.sasl, **ann, sasl_password="wrong").code()
        == KafkaError._AUTHENTICATION
    )


@pytest.mark.parametrize("form", ["files", "password", "inline"])
def test_tls_with_a_client_certificate(secure_kafka: SecureKafka, form: str) -> None:
    assert _listing(secure_kafka.tls, **secure_kafka.with_certificate(form)) is None


@pytest.mark.parametrize("form", [None, "stranger"])
def test_a_client_without_a_certificate_is_told_so(
    secure_kafka: SecureKafka, form: str | None
) -> None:
    error = _listing(secure_kafka.tls, **secure_kafka.with_certificate(form))
    assert error.code() == KafkaError._AUTHENTICATION
    assert "check ssl.certificate.location and ssl.key.location" in error.str()
    assert "\n" not in error.str()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_asyncio_client_with_and_without_a_certificate(
    secure_kafka: SecureKafka, topic_name: str, group_id: str, version: ssl.TLSVersion
) -> None:
    """TLS 1.2 refuses during the handshake, TLS 1.3 after it."""
    create_topic(secure_kafka.peer.bootstrap_servers, topic_name)
    # by then the broker knows the topic
    produce(secure_kafka.peer.bootstrap_servers, topic_name, [b"one"])

    async def join(form: str | None) -> None:
        config = {"bootstrap.servers": secure_kafka.tls, **secure_kafka.with_certificate(form)}
        security = read_config(config).security
        assert security.tls is not None
        security.tls.minimum_version = security.tls.maximum_version = version
        cluster = Cluster(secure_kafka.tls, security=security)
        async with RangeConsumer(cluster, group_id, [topic_name]):
            pass

    asyncio.run(join("password"))
    with pytest.raises(
        ClientError, match=r"requires a client certificate .*ssl\.certificate\.location"
    ):
        asyncio.run(join(None))


def test_a_broker_that_nobody_vouches_for_is_not_spoken_to(secure_kafka: SecureKafka) -> None:
    ann = {
        "security_protocol": "sasl_ssl",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "ann",
        "sasl_password": "s3cret",
    }
    error = _listing(secure_kafka.sasl_tls, **ann)
    assert error.code() == KafkaError._AUTHENTICATION
    assert "certificate" in error.str()
    assert (
        _listing(secure_kafka.sasl_tls, **ann, ssl_ca_location=str(secure_kafka.folder / "ca.pem"))
        is None
    )


def test_records_are_read_over_tls_with_a_login(secure_kafka: SecureKafka, topic_name: str) -> None:
    create_topic(secure_kafka.peer.bootstrap_servers, topic_name)
    produce(secure_kafka.peer.bootstrap_servers, topic_name, [b"one", b"two"])
    settings = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": "s3cret",
        "ssl.ca.location": str(secure_kafka.folder / "ca.pem"),
    }
    (rows,) = read(
        KafkaOptions(secure_kafka.sasl_tls, settings), [OffsetRange(topic_name, 0, 0, 2)]
    )
    assert rows.column("value").to_pylist() == [b"one", b"two"]


def test_lag_is_told_over_tls_with_a_login(
    secure_kafka: SecureKafka, topic_name: str, group_id: str
) -> None:
    create_topic(secure_kafka.peer.bootstrap_servers, topic_name)
    produce(secure_kafka.peer.bootstrap_servers, topic_name, [b"one", b"two"])
    with AdminClient({"bootstrap.servers": secure_kafka.peer.bootstrap_servers}) as admin:
        start = [TopicPartition(topic_name, 0, 1)]
        for future in admin.alter_share_group_offsets(group_id, start).values():
            future.result(PATIENCE_S)
    options = LagOptions.parse(
        {
            "kafka.bootstrap.servers": secure_kafka.sasl_tls,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": "ann",
            "kafka.sasl.password": "s3cret",
            "kafka.ssl.ca.location": str(secure_kafka.folder / "ca.pem"),
            "groups": group_id,
        }
    )
    reader = LagReader(options)
    (task,) = reader.partitions()
    (rows,) = reader.read(task)
    assert rows.column("lag").to_pylist() == [1]
    assert rows.column("timeLagMs").to_pylist()[0] > 0


@pytest.fixture
def command_config(secure_kafka: SecureKafka, tmp_path: Path) -> Path:
    """Return a properties file of Kafka's own tools, for the listener with TLS and login."""
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={LOGIN}.plain.PlainLoginModule required \\\n  username="ann" '
        f'password="s3cret";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={secure_kafka.folder / 'ca.pem'}\n"
    )
    return file


def test_commands_understand_a_file_for_kafkas_own_tools(
    secure_kafka: SecureKafka,
    command_config: Path,
    group_id: str,
    topic_name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    create_topic(secure_kafka.peer.bootstrap_servers, topic_name)
    share_from_earliest(secure_kafka.peer.bootstrap_servers, group_id)
    produce(secure_kafka.peer.bootstrap_servers, topic_name, [b"over TLS"])
    secure = ["--bootstrap-server", secure_kafka.sasl_tls, "--command-config", str(command_config)]
    console = [
        *f"consume {topic_name} --share-group {group_id} --max 1".split(),
        *secure,
    ]
    assert main(console) == 0, capsys.readouterr()
    assert capsys.readouterr().out == "over TLS\n"
    assert main(["groups", "list", *secure]) == 0, capsys.readouterr()
    assert group_id in capsys.readouterr().out.split()
