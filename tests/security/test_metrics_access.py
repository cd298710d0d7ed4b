"""The metrics port with a host, TLS and users of its own; the warning about open listeners."""

from __future__ import annotations

import base64
import logging
import socket
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headrace.broker.metrics.server import MetricsAccess, basic_credentials
from headrace.net.open_ports import is_loopback
from tests.security.serving import on_uvloop, serving, warnings
from tests.support import HeadraceProcess
from tests.throwaway_ca import ThrowawayCA

pytestmark = pytest.mark.broker


def basic(user: str) -> str:
    return f"Authorization: Basic {base64.b64encode(user.encode()).decode()}"


@pytest.mark.parametrize(
    ("header", "is_admitted"),
    [
        ("", False),
        (basic("prometheus:s3:cret"), True),
        (basic("prometheus:s3:cret").replace("Basic", "bASIC"), True),
        ("basic x", False),
        (basic("prometheus:wrong"), False),
        (basic(""), False),
        ("Bearer prometheus:s3:cret", False),
        ("Basic %%%", False),
        (basic("other:ü"), True),
    ],
)
def test_who_is_admitted(header: str, is_admitted: bool) -> None:
    access = MetricsAccess(users=(b"prometheus:s3:cret", "other:ü".encode()))
    given = basic_credentials(header.removeprefix("Authorization: ").encode())
    assert access.admits(given) == is_admitted
    assert "s3" not in repr(access)


def test_metrics_over_https_for_users(tmp_path: Path) -> None:
    ca = ThrowawayCA(tmp_path)
    store = ca.issue("metrics").both
    users = tmp_path / "users"
    users.write_text("# who\nprometheus:s3cret\n")
    server = HeadraceProcess()
    server.command = (
        *HeadraceProcess.command,
        *("--metrics-port", "0", "--metrics-host", "localhost"),
        *("--metrics-tls", str(store), "--metrics-users", str(users)),
    )
    with server:
        (line,) = [line for line in server.output if line.startswith("metrics are at ")]
        url = line.removeprefix("metrics are at ")
        assert url.startswith("https://localhost:")
        context = ssl.create_default_context(cafile=ca.certificate)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(url, context=context, timeout=20)
        name, value = basic("prometheus:wrong").split(": ")
        wrong = urllib.request.Request(url, headers={name: value})
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(wrong, context=context, timeout=20)
        name, value = basic("prometheus:s3cret").split(": ")
        request = urllib.request.Request(url, headers={name: value})
        with urllib.request.urlopen(request, context=context, timeout=20) as response:
            assert b"headrace_metrics_failed_logins_total 1" in response.read()
        address = "localhost", urlsplit(url).port
        with (
            socket.create_connection(address, 20) as connection,
            context.wrap_socket(connection, server_hostname="localhost") as nonsense,
        ):
            nonsense.sendall(b"nonsense\r\n\r\n" + bytes(8 << 20))  # all is received: no reset
            assert nonsense.recv(100).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("option", "content", "message"),
    [
        ("--metrics-tls", "x", "cannot use the key and certificates"),
        ("--metrics-users", "", "no lines of the form NAME:PASSWORD"),
        ("--metrics-users", "s3cret", "no lines of the form NAME:PASSWORD"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, option: str, content: str, message: str) -> None:
    path = tmp_path / "file"
    path.write_text(content)
    server = HeadraceProcess()
    server.command = (*HeadraceProcess.command, "--metrics-port", "0", option, str(path))
    with pytest.raises(RuntimeError, match=message):
        server.start()
    assert server.process is not None
    assert server.process.returncode == 2


def test_loopback() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "", "::", "10.0.0.1", "broker.example.com")))


@pytest.mark.parametrize(
    ("listeners", "is_warned"),
    [("PLAINTEXT://127.0.0.1:0", False), ("PLAINTEXT://0.0.0.0:0", True)],
)
@on_uvloop
async def test_an_open_listener_is_named_once(
    listeners: str, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    advertised = "PLAINTEXT://127.0.0.1:9092"
    caplog.set_level(logging.WARNING)
    async with serving({"listeners": listeners, "advertised.listeners": advertised}):
        pass
    assert [("PLAINTEXT" in line) for line in warnings(caplog)] == [True] * is_warned
