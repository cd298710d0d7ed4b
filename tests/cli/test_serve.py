"""`headrace serve` as a process: output, signals, exit status."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from headrace.log import directory_lock
from tests.support import ROOT
from tests.wire_client import answers

pytestmark = pytest.mark.broker

Serve = Callable[..., subprocess.Popen[str]]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200"}
HEADRACE = (sys.executable, "-m", "headrace")
ANY_PORT = ("--listen", "127.0.0.1:0")


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start `headrace serve` with options, in an empty working directory."""
    started: list[subprocess.Popen[str]] = []

    def start(*options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*HEADRACE, "serve", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=ENVIRONMENT,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def addresses(process: subprocess.Popen[str]) -> list[str]:
    """Return the addresses in the readiness line."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("headrace is listening on "), line
    return line.removeprefix("headrace is listening on ").strip().split(", ")


def reachable(address: str) -> bool:
    host, _, port = address.rpartition(":")
    return answers(host.strip("[]"), int(port))


def failure(*arguments: str, cwd: Path | None = None) -> tuple[int, str]:
    """Return the exit status and the only line on stderr of a command that fails."""
    ended = subprocess.run(
        [*HEADRACE, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=ENVIRONMENT,
        timeout=60,
    )
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    return ended.returncode, line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_listens_and_stops_when_told(
    serve: Serve, number: signal.Signals, tmp_path: Path
) -> None:
    process = serve(*ANY_PORT)
    (address,) = addresses(process)
    assert reachable(address)
    process.send_signal(number)
    rest, errors = process.communicate(timeout=5)
    assert (process.returncode, rest) == (0, "")
    assert "Traceback" not in errors
    assert (tmp_path / "headrace-data" / "headrace.db").exists()


def test_it_says_where_the_metrics_are(serve: Serve) -> None:
    process = serve(*ANY_PORT, "--ephemeral", "--metrics-port", "0")
    addresses(process)
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line.startswith("metrics are at http://127.0.0.1:")
    with urllib.request.urlopen(line.removeprefix("metrics are at "), timeout=10) as page:
        assert b"headrace_build_info" in page.read()


def test_a_metrics_port_in_use_is_a_failure(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, line = failure(
            "serve", *ANY_PORT, "--ephemeral", "--metrics-port", str(port), cwd=tmp_path
        )
    assert status == 1
    assert f"cannot serve metrics on 127.0.0.1:{port}: Address already in use" in line


def test_it_stops_with_clients_connected_and_waiting(serve: Serve) -> None:
    process = serve(*ANY_PORT, "--ephemeral")
    (address,) = addresses(process)
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port))) as idle,
        socket.create_connection((host, int(port))) as half,
    ):
        half.sendall(b"\0\0\1\0half a request")
        process.terminate()
        process.communicate(timeout=5)
        assert process.returncode == 0
        assert idle.recv(1) == b""


def test_connections_are_closed_last(serve: Serve, tmp_path: Path) -> None:
    """A client that learns of the stop finds nothing half done: the directory is free already."""
    process = serve(*ANY_PORT, "--data-dir", "data")
    (address,) = addresses(process)
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as idle:
        idle.sendall(b"\0\0\1\0half a request")
        process.terminate()
        with suppress(ConnectionResetError):  # if the broker had not read the half request
            assert idle.recv(1) == b""
        os.close(directory_lock.take(str(tmp_path / "data")))
    process.communicate(timeout=5)
    assert process.returncode == 0


def test_it_listens_on_several_addresses(serve: Serve) -> None:
    both = addresses(serve(*ANY_PORT, *ANY_PORT, "--ephemeral"))
    assert len(set(both)) == 2
    assert all(map(reachable, both))


def test_clients_are_told_what_is_advertised(serve: Serve) -> None:
    process = serve("--listen", "0.0.0.0:0", "--advertise", "localhost:0", "--ephemeral")
    port = addresses(process)[0].rpartition(":")[2]
    metadata = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"}).list_topics(timeout=20)
    assert [(node.host, node.port) for node in metadata.brokers.values()] == [
        ("localhost", int(port))
    ]


def test_configs_come_from_the_file_and_the_command_line_wins(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text(
        "# mine\nnum.partitions=3\nmessage.max.bytes = 5000\nmetadata.log.dir=/x\n"
        "zookeeper.connect=a:1\nconfluent.license=x\n"
    )
    process = serve(
        *ANY_PORT, "--ephemeral", "--config", "server.properties", "-c", "num.partitions=4"
    )
    admin = AdminClient({"bootstrap.servers": addresses(process)[0]})
    admin.create_topics([NewTopic("t", -1, -1)])["t"].result(20)
    assert len(admin.list_topics("t", timeout=20).topics["t"].partitions) == 4
    process.terminate()
    _, errors = process.communicate(timeout=10)
    (told,) = (line for line in errors.splitlines() if "no effect" in line)
    assert told.endswith("metadata.log.dir")
    assert (
        "confluent.license (of Confluent Server); zookeeper.connect (of Apache Kafka before 4.0)"
        in errors
    )


def test_the_password_of_a_variable_logs_in_and_is_not_shown(serve: Serve, tmp_path: Path) -> None:
    """Its text does not, and neither a description nor the log has the password."""
    provider = "org.apache.kafka.common.config.provider.DirectoryConfigProvider"
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    variable = "${dir:secrets:bob}"
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "bob").write_text("pass${dir:secrets:word}")
    (tmp_path / "server.properties").write_text(
        "listeners=SASL_PLAINTEXT://127.0.0.1:0\nsasl.enabled.mechanisms=PLAIN\n"
        f"log.dirs=mounted\nconfig.providers=dir\nconfig.providers.dir.class={provider}\n"
        f'{name}={login} user_bob="{variable}";\n'
    )
    process = serve("--config", "server.properties")
    address = addresses(process)[0].removeprefix("SASL_PLAINTEXT://")

    def admin(password: str) -> AdminClient:
        return AdminClient(
            {
                "bootstrap.servers": address,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "bob",
                "sasl.password": password,
                "log_level": 0,
            }
        )

    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    right = admin("pass${dir:secrets:word}")
    described = right.describe_configs([resource])[resource].result(20)
    assert described[name].is_sensitive
    assert described[name].value is None
    with pytest.raises(KafkaException):
        admin(variable).list_topics(timeout=2)
    process.terminate()
    _, errors = process.communicate(timeout=10)
    assert "pass$" not in errors
    assert (tmp_path / "mounted" / "format").exists()
    assert not (tmp_path / "headrace-data").exists()


def test_topics_outlive_the_broker_when_they_have_a_directory(serve: Serve, tmp_path: Path) -> None:
    data_dir = str(tmp_path / "deep" / "data")
    process = serve(*ANY_PORT, "--data-dir", data_dir)
    admin = AdminClient({"bootstrap.servers": addresses(process)[0]})
    admin.create_topics([NewTopic("t", 7, 1)])["t"].result(20)
    process.kill()
    process.wait()
    process = serve(*ANY_PORT, "--data-dir", data_dir)
    metadata = AdminClient({"bootstrap.servers": addresses(process)[0]}).list_topics(timeout=20)
    assert len(metadata.topics["t"].partitions) == 7


def test_a_second_broker_on_the_same_directory_is_told_who_holds_it(
    serve: Serve, tmp_path: Path
) -> None:
    process = serve(*ANY_PORT, "--data-dir", "data")
    (address,) = addresses(process)
    status, line = failure("serve", *ANY_PORT, "--data-dir", "data", cwd=tmp_path)
    assert status == 1
    assert line.startswith("headrace serve: ")
    assert str(tmp_path / "data") in line
    assert str(process.pid) in line
    assert address in line
    assert reachable(address)


def test_a_port_in_use_is_a_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, line = failure("serve", "--listen", f"127.0.0.1:{port}", "--ephemeral")
    assert status == 1
    assert line == f"headrace serve: cannot listen on 127.0.0.1:{port}: Address already in use"


def test_a_listener_whose_host_cannot_exist_is_a_failure() -> None:
    status, line = failure("serve", "-c", "listeners=PLAINTEXT://a..b:0", "--ephemeral")
    assert status == 1
    assert line.startswith("headrace serve: cannot listen on a..b:0: ")


def test_a_damaged_catalog_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "headrace.db").write_bytes(b"garbage" * 1000)
    status, line = failure("serve", *ANY_PORT, "--data-dir", str(tmp_path))
    assert status == 1
    assert "headrace.db is damaged" in line


def test_a_catalog_of_another_version_is_a_failure(serve: Serve, tmp_path: Path) -> None:
    process = serve(*ANY_PORT, "--data-dir", "data")
    addresses(process)
    process.terminate()
    process.communicate(timeout=10)
    with sqlite3.connect(tmp_path / "data" / "headrace.db") as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    status, line = failure("serve", *ANY_PORT, "--data-dir", "data", cwd=tmp_path)
    assert status == 1
    assert "another headrace" in line


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["pour"], "pour"),
        (["serve", "--listen", "nowhere"], "HOST:PORT"),
        (["serve", "--port", "1"], "--port"),
        (["serve", "--ephemeral", "--data-dir", "x"], "not allowed with"),
        (["serve", "-c", "num.partitions"], "KEY=VALUE"),
        (
            ["serve", "-c", "num.partition=3"],
            "unknown config num.partition; did you mean num.partitions?",
        ),
        (["serve", "-c", "num.partitions=0"], "Value must be at least 1"),
        (["serve", "--config", "/no/such/file"], "/no/such/file"),
        (
            ["serve", *ANY_PORT, "-c", "listeners=SASL_SSL://127.0.0.1:0"],
            "--listen and the config listeners both name addresses",
        ),
        (
            ["serve", "-c", "listeners=C://127.0.0.1:0", "-c", "controller.listener.names=C"],
            "without a listener for clients",
        ),
        (["serve", "--listen", "0.0.0.0:0"], "--advertise"),
        (["serve", *ANY_PORT, "--metrics-tls", "x"], "take --metrics-port"),
        (["serve", *ANY_PORT, "--metrics-users", "x"], "take --metrics-port"),
        (
            ["serve", *ANY_PORT, *ANY_PORT, *ANY_PORT, *["--advertise", "a:1"] * 2],
            "once for each --listen",
        ),
    ],
)
def test_bad_usage_is_said_in_one_line(
    arguments: list[str], complaint: str, tmp_path: Path
) -> None:
    status, line = failure(*arguments, cwd=tmp_path)
    assert status == 2
    assert line.startswith("headrace")
    assert complaint in line
    assert not list(tmp_path.iterdir())


def test_the_version_is_told() -> None:
    told = subprocess.run(
        [*HEADRACE, "--version"], capture_output=True, text=True, env=ENVIRONMENT, check=True
    )
    assert told.stdout.startswith("headrace ")


def test_starting_loads_nothing_that_only_other_parts_need() -> None:
    program = (
        "import sys, headrace, headrace.cli.broker_process\n"
        "from headrace.cli.main import main\n"
        "with headrace.Broker() as broker: pass\n"
        "print(sorted({'typer', 'rich', 'click', 'pandas', 'numpy', 'pyarrow', 'pyspark', "
        "'confluent_kafka', "
        "'structlog', 'prometheus_client', 'headrace.groups', 'headrace.share', "
        "'headrace.transactions.transaction', "
        "'cramjam', 're2'} & sys.modules.keys()))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=ENVIRONMENT, check=True
    )
    assert loaded.stdout.strip() == "[]"
