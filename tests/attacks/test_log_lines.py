"""The log of a broker under attack: no forged lines, no record bytes, and few lines."""

from __future__ import annotations

import logging
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import Broker
from headrace.handlers import APIS
from headrace.log_lines import (
    LIMITER,
    MAX_LIMITED_PEERS,
    MAX_VALUE_CHARS,
    LimitedLog,
    Limiter,
)
from tests.support import HeadraceProcess
from tests.wire_client import batch, connection, frame, request_header

pytestmark = pytest.mark.broker

FORGED = "x\n2026-01-01 00:00:00,000 INFO headrace: all is well\x1b[2J\u202e\x9b31m"
PRODUCE, DELETE_GROUPS = 0, 42


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """A broker whose handlers fail, with an error text that quotes the request."""

    async def fail(call: object, request: object) -> None:
        try:
            raise KeyError(request)
        except KeyError as error:
            raise RuntimeError(f"cannot serve {request!r}") from error

    with Broker() as broker:
        with connection(broker.bootstrap_servers) as client:
            client.create_topic("t")
        with monkeypatch.context() as patch:
            for api_key in (PRODUCE, DELETE_GROUPS):
                patch.setattr(APIS[api_key], "handle", fail)
            LIMITER.clear()
            yield broker


def text_of(caplog: pytest.LogCaptureFixture) -> str:
    """Return the lines as `headrace serve` writes them."""
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    return "\n".join(map(formatter.format, caplog.records))


def test_names_from_clients_forge_no_line(
    failing: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with connection(failing.bootstrap_servers, client_id=FORGED) as client:
        response = client.ask(DELETE_GROUPS, 2, groups_names=[FORGED, FORGED * 400])
    assert {one.error_code for one in response.results} == {-1}
    text = text_of(caplog)
    assert "\\n2026-01-01 00:00:00,000 INFO" in text
    assert "\n2026-01-01 00:00:00,000 INFO" not in text
    assert all(line.isprintable() for line in text.splitlines())
    (first, *traceback) = text.splitlines()
    assert len(first) < 4 * MAX_VALUE_CHARS
    assert traceback.count("Traceback (most recent call last):") == 2
    assert all(len(line) < 4 * MAX_VALUE_CHARS for line in traceback)


def test_record_bytes_are_never_logged(failing: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """Before, one failing produce of 900 kB logged 902 kB."""
    records = batch([b"secret-" * 130_000])
    with connection(failing.bootstrap_servers) as client:
        assert client.produce("t", records) == (-1, -1)
    text = text_of(caplog)
    assert "Produce v3" in text or "produce v3" in text
    assert "secret-" not in text
    assert len(text) < 10_000


def test_a_failure_says_which_request_failed(
    failing: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with connection(failing.bootstrap_servers, client_id="app-7") as client:
        client.ask(DELETE_GROUPS, 2, groups_names=["a", "b"])
    (record,) = caplog.records
    line = record.getMessage()
    for part in ("delete_groups v2", "app-7", "/127.0.0.1", "groups_names: 2"):
        assert part in line


def test_failures_are_logged_once_a_second_and_counted(
    failing: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with connection(failing.bootstrap_servers) as client:
        began = time.monotonic()
        for _ in range(300):
            client.ask(DELETE_GROUPS, 2, groups_names=["a"])
        seconds = time.monotonic() - began
    LIMITER.report()
    assert "more lines because of" in caplog.records[-1].getMessage()
    assert len(caplog.records) <= seconds + 3
    left_out = [record.args[0] for record in caplog.records if "more lines" in record.getMessage()]
    assert sum(left_out) + (len(caplog.records) - len(left_out)) == 300


GARBAGE = {
    "a size": struct.pack(">i", -5) + b"hello",
    "an api key": frame(request_header(999, 0, 1)),
    "a version": frame(request_header(3, 99, 1) + struct.pack(">i", 0)),
    "a body": frame(request_header(3, 1, 1) + struct.pack(">i", 5) + b"\x00"),
    "a client id": frame(struct.pack(">hhih", 3, 1, 1, 3) + b"\xff\xfe\n"),
    "half a request": struct.pack(">i", 100) + b"half",
}


def test_garbage_is_logged_once_a_second_for_each_kind(tmp_path: Path) -> None:
    """Before, garbage filled the log with 1.2 MB a second."""
    with HeadraceProcess() as server:
        quiet = len(server.output)
        began = time.monotonic()
        for i in range(600):
            with socket.create_connection(("127.0.0.1", server.port), timeout=10) as sock:
                sock.sendall(list(GARBAGE.values())[i % len(GARBAGE)])
                if i % len(GARBAGE) != len(GARBAGE) - 1:
                    try:
                        assert sock.recv(1) == b""
                    except ConnectionResetError:
                        pass
        seconds = time.monotonic() - began
    lines = server.output[quiet:]
    assert any("more lines because of" in line for line in lines)
    print(f"{len(lines)} lines, {sum(map(len, lines))} bytes in {seconds:.1f} s")
    assert len(lines) <= len(GARBAGE) * (seconds + 2), lines


def test_many_peers_do_not_grow_the_memory_of_lines() -> None:
    limiter = Limiter()
    logger = logging.getLogger("headrace.many_peers")
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    logger.propagate = False
    log = LimitedLog(logger.name, limiter)
    for i in range(100_000):
        log.warning(f"/10.{i >> 16}.{i >> 8 & 255}.{i & 255}", "closing: %d", i)
    assert len(limiter) <= MAX_LIMITED_PEERS + 1
    assert len(lines) <= 30 * (MAX_LIMITED_PEERS + 1)
