"""The client configuration of commands."""

from __future__ import annotations

import asyncio
import socket
from argparse import ArgumentParser
from pathlib import Path

import pytest

from headrace.cli.client_options import (
    client_config,
    client_options,
)
from headrace.cli.errors import BadUsage
from headrace.cli.main import main
from headrace.client.config import check_access, read_config
from headrace.client.errors import ConnectionFailed


def config_of(*arguments: str) -> dict[str, str]:
    parser = ArgumentParser()
    client_options(parser)
    return client_config(parser.parse_args(arguments))


def test_the_broker_is_the_local_one_unless_named() -> None:
    assert config_of() == {"bootstrap.servers": "127.0.0.1:9092"}
    assert config_of("--bootstrap-server", "a:1,b:2") == {"bootstrap.servers": "a:1,b:2"}


def test_a_file_may_speak_as_librdkafka_or_as_kafka(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "bootstrap.servers=ignored:1\nsasl.mechanism=SCRAM-SHA-256\ndefault.api.timeout.ms=5000\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="ann" password=\'s3 cret;\' tokenauth="false";\n'
        "ssl.truststore.type=PEM\nssl.truststore.location=/ca.pem\n"
    )
    assert config_of("--command-config", str(file)) == {
        "bootstrap.servers": "127.0.0.1:9092",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "ann",
        "sasl.password": "s3 cret;",
        "socket.timeout.ms": "5000",
        "ssl.ca.location": "/ca.pem",
    }


def test_a_file_that_cannot_be_read_is_bad_usage(tmp_path: Path) -> None:
    with pytest.raises(BadUsage, match="cannot read"):
        config_of("--command-config", str(tmp_path / "missing"))


def test_unsupported_security_is_bad_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_SSL\n")
    assert main(["groups", "list", "--command-config", str(file)]) == 2
    assert "GSSAPI is not supported" in capsys.readouterr().err


def test_where_nobody_listens_is_said_at_once() -> None:
    with pytest.raises(
        ConnectionFailed,
        match=r"no broker answers at 127\.0\.0\.1:1: .*; no broker answers at 127\.0\.0\.1:2",
    ):
        asyncio.run(check_access(read_config({"bootstrap.servers": "127.0.0.1:1,127.0.0.1:2"})))


def test_a_broker_that_is_not_there_ends_it_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["groups", "list", "--bootstrap-server", "127.0.0.1:1"]) == 1
    assert capsys.readouterr().err == (
        "headrace groups list: no broker answers at 127.0.0.1:1: Connection refused\n"
    )
    assert main(["groups", "list", "-b", ""]) == 2


def test_a_host_that_is_not_there_is_said_without_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_host(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", no_host)
    complaint = "no broker answers at nowhere:1: Name or service not known"
    with pytest.raises(ConnectionFailed) as raised:
        asyncio.run(check_access(read_config({"bootstrap.servers": "nowhere:1"})))
    assert str(raised.value) == complaint
