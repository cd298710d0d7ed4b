"""headrace's own connections with TLS and logins, against an Apache Kafka that has listeners for them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from headrace.admin import AdminClient
from headrace.cli.main import main
from headrace.spark.log_reader import OffsetRange, read
from headrace.spark.option_parsing import KafkaOptions
from tests.clients.confluent import PATIENCE_S, create_topic, produce, share_from_earliest
from tests.conftest import JAVA_MISSING
from tests.peer import KafkaPeer
from tests.support import free_port_pair, wait_until

pytestmark = [
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed: it makes the certificates"),
]

NAME, PASSWORD = "b=o,b", "pa,ss=wörd"
LOGIN = "org.apache.kafka.common.security"


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def _certificates(folder: Path) -> None:
    """ca.pem signs keystore.pem, of the broker at 127.0.0.1, and client.pem with client.key."""
    key = ["-newkey", "rsa:2048", "-nodes"]
    _openssl(folder, "req", "-x509", *key, "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1")
    for who in ("broker", "client"):
        _openssl(folder, "req", *key, "-subj", f"/CN={who}", "-keyout", f"{who}.key", "-out", f"{who}.csr")
        _openssl(
            folder, "x509", "-req", "-in", f"{who}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", "2", "-extfile", "names", "-out", f"{who}.pem",
        )  # fmt: skip
    _openssl(folder, "pkcs8", "-topk8", "-nocrypt", "-in", "broker.key", "-out", "broker.p8")
    (folder / "keystore.pem").write_text((folder / "broker.p8").read_text() + (folder / "broker.pem").read_text())


class SecureKafka:
    """Where its listeners are, and the folder of certificates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "kafka").mkdir()
        _certificates(folder)
        secure, tls = free_port_pair(), free_port_pair()
        self.sasl, self.sasl_tls, self.tls = (f"127.0.0.1:{port}" for port in (secure, secure + 1, tls))
        self.peer = KafkaPeer(folder / "kafka", heap="512m")
        advertised = (
            f"PLAINTEXT://{self.peer.bootstrap_servers},SASL_PLAINTEXT://{self.sasl},SASL_SSL://{self.sasl_tls},"
            f"SSL://{self.tls}"
        )
        self.peer.configs = {
            "listeners": f"{advertised},CONTROLLER://127.0.0.1:{self.peer.port + 1}",
            "advertised.listeners": advertised,
            "listener.security.protocol.map": ",".join(
                f"{name}:{name}" for name in ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL")
            )
            + ",CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "keystore.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(folder / "ca.pem"),
            "listener.name.ssl.ssl.client.auth": "required",
        }
        for listener in ("sasl_plaintext", "sasl_ssl"):
            prefix = f"listener.name.{listener}"
            plain = f'{LOGIN}.plain.PlainLoginModule required user_ann="s3cret";'
            self.peer.configs[f"{prefix}.plain.sasl.jaas.config"] = plain
            for mechanism in ("scram-sha-256", "scram-sha-512"):
                self.peer.configs[f"{prefix}.{mechanism}.sasl.jaas.config"] = (
                    f"{LOGIN}.scram.ScramLoginModule required;"
                )


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    if shutil.which("java") is None:
        pytest.skip(JAVA_MISSING)
    secure = SecureKafka(tmp_path_factory.mktemp("secure"))
    with secure.peer, AdminClient({"bootstrap.servers": secure.peer.bootstrap_servers}) as admin:
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            credential = UserScramCredentialUpsertion(NAME, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            admin.alter_user_scram_credentials([credential])[NAME].result(PATIENCE_S)
        yield secure


def _listing(servers: str, **configs: str) -> Any:
    """The error of listing share groups, or None when it works."""
    named = {name.replace("_", "."): value for name, value in configs.items()}
    with AdminClient({"bootstrap.servers": servers, "log_level": 0, **named}) as admin:
        try:
            result = admin.list_share_groups(request_timeout=20).result(PATIENCE_S)
        except KafkaException as refused:
            return refused.args[0]
        return result.errors[0].args[0] if result.errors else None


def _scram(mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    return {"sasl_mechanism": mechanism, "sasl_username": NAME, "sasl_password": password}


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram(kafka: SecureKafka, mechanism: str) -> None:
    def works() -> bool:  # credentials take a moment to reach the broker
        return _listing(kafka.sasl, security_protocol="sasl_plaintext", **_scram(mechanism)) is None

    wait_until(works, PATIENCE_S, "the credentials to be known")
    error = _listing(kafka.sasl, security_protocol="sasl_plaintext", **_scram(mechanism, "wrong"))
    assert error.code() == KafkaError._AUTHENTICATION
    assert f"does not let '{NAME}' in" in error.str()


def test_plain(kafka: SecureKafka) -> None:
    ann = {"security_protocol": "sasl_plaintext", "sasl_mechanism": "PLAIN", "sasl_username": "ann"}
    assert _listing(kafka.sasl, **ann, sasl_password="s3cret") is None
    assert _listing(kafka.sasl, **ann, sasl_password="wrong").code() == KafkaError._AUTHENTICATION


def test_tls_with_a_client_certificate(kafka: SecureKafka) -> None:
    assert (
        _listing(
            kafka.tls,
            security_protocol="ssl",
            ssl_ca_location=str(kafka.folder / "ca.pem"),
            ssl_certificate_location=str(kafka.folder / "client.pem"),
            ssl_key_location=str(kafka.folder / "client.key"),
        )
        is None
    )


def test_a_broker_that_nobody_vouches_for_is_not_spoken_to(kafka: SecureKafka) -> None:
    ann = {
        "security_protocol": "sasl_ssl",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "ann",
        "sasl_password": "s3cret",
    }
    error = _listing(kafka.sasl_tls, **ann)
    assert error.code() == KafkaError._AUTHENTICATION
    assert "certificate" in error.str()
    assert _listing(kafka.sasl_tls, **ann, ssl_ca_location=str(kafka.folder / "ca.pem")) is None


def test_records_are_read_over_tls_with_a_login(kafka: SecureKafka, topic_name: str) -> None:
    create_topic(kafka.peer.bootstrap_servers, topic_name)
    produce(kafka.peer.bootstrap_servers, topic_name, [b"one", b"two"])
    settings = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": "s3cret",
        "ssl.ca.location": str(kafka.folder / "ca.pem"),
    }
    (rows,) = read(KafkaOptions(kafka.sasl_tls, settings), [OffsetRange(topic_name, 0, 0, 2)])
    assert rows.column("value").to_pylist() == [b"one", b"two"]


@pytest.fixture
def command_config(kafka: SecureKafka, tmp_path: Path) -> Path:
    """A properties file as Kafka's own tools want it, for the listener with TLS and login."""
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={LOGIN}.plain.PlainLoginModule required \\\n  username="ann" password="s3cret";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={kafka.folder / 'ca.pem'}\n"
    )
    return file


def test_commands_understand_a_file_for_kafkas_own_tools(
    kafka: SecureKafka, command_config: Path, group_id: str, topic_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(kafka.peer.bootstrap_servers, topic_name)
    share_from_earliest(kafka.peer.bootstrap_servers, group_id)
    produce(kafka.peer.bootstrap_servers, topic_name, [b"over TLS"])
    secure = ["--bootstrap-server", kafka.sasl_tls, "--command-config", str(command_config)]
    console = ["console-share-consumer", "--topic", topic_name, "--group", group_id, "--max-messages", "1", *secure]
    assert main(console) == 0, capsys.readouterr()
    assert capsys.readouterr().out == "over TLS\n"
    assert main(["share-groups", "list", *secure]) == 0, capsys.readouterr()
    assert group_id in capsys.readouterr().out.split()
