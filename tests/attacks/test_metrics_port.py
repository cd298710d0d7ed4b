"""The metrics port under attack: an honest scrape is answered, whatever others do."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from headrace import Broker
from headrace.broker.embedded import new_event_loop
from headrace.broker.metrics.server import MAX_SCRAPE_CONNECTIONS, MetricsAccess, MetricsServer
from headrace.http import server as http_server
from headrace.http.server import MAX_UNSENT_BYTES, HttpServer
from tests.throwaway_ca import ThrowawayCA

ATTACKERS = 100
GET = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
LARGE_BYTES = 8_000_000


@contextlib.contextmanager
def attackers(at: tuple[str, int], sent: bytes) -> Iterator[list[socket.socket]]:
    """Connections from another address that send something, and read nothing."""
    with contextlib.ExitStack() as stack:
        sockets = []
        for _ in range(ATTACKERS):
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.bind(("127.0.0.2", 0))
            sock.connect(at)
            with contextlib.suppress(OSError):  # closed for another one
                sock.sendall(sent)
            sockets.append(sock)
        yield sockets


@pytest.mark.broker
@pytest.mark.parametrize(
    "sent", [b"", b"GET /metr", GET[:-2], GET], ids=["nothing", "part", "headers", "all"]
)
def test_connections_that_do_not_go_on_keep_no_scrape_out(sent: bytes) -> None:
    with Broker(metrics_port=0) as broker:
        host, _, port = broker.metrics_url.split("/")[2].rpartition(":")
        with attackers((host, int(port)), sent):
            for _ in range(3):
                with urllib.request.urlopen(broker.metrics_url, timeout=20) as page:
                    assert b"headrace_build_info" in page.read()


def served(
    page: Callable[[], Awaitable[bytes]],
    talk: Callable[[HttpServer], Awaitable[None]],
    access: MetricsAccess | None = None,
) -> None:
    """Serve a page while `talk` runs."""

    async def run() -> None:
        server = MetricsServer(page, access)
        await server.start("127.0.0.1", 0)
        assert server.http is not None
        try:
            await talk(server.http)
        finally:
            await server.close()
        assert len(server.http._connections) == 0

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run())


async def scrape(server: HttpServer) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(GET)
    async with asyncio.timeout(5):
        received = await reader.read(-1)
    writer.close()
    return received


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01", b"\x16\x03\x01\xff"])
def test_half_handshakes_are_bounded_in_number(tmp_path: Path, sent: bytes) -> None:
    ca = ThrowawayCA(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ca.issue("metrics").both)
    trusting = ssl.create_default_context(cafile=ca.certificate)

    async def page() -> bytes:
        return b"a page"

    async def talk(server: HttpServer) -> None:
        in_thread = asyncio.get_running_loop().run_in_executor
        with contextlib.ExitStack() as stack:
            attack = attackers(("127.0.0.1", server.port), sent)
            sockets = await in_thread(None, stack.enter_context, attack)
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting)
            writer.write(GET)
            async with asyncio.timeout(20):
                assert (await reader.read(-1)).endswith(b"a page")
            writer.close()
            assert 0 < len(server._handshakes or ()) <= MAX_SCRAPE_CONNECTIONS
            for given_up in sockets[: ATTACKERS - MAX_SCRAPE_CONNECTIONS]:
                given_up.settimeout(20)
                with contextlib.suppress(ConnectionError):
                    assert await in_thread(None, given_up.recv, 1) == b""

    served(page, talk, MetricsAccess(tls=context))


def test_pages_for_readers_that_do_not_read_are_bounded() -> None:
    async def large_page() -> bytes:
        return b"x" * LARGE_BYTES

    async def talk(server: HttpServer) -> None:
        connect = asyncio.get_running_loop().run_in_executor
        with contextlib.ExitStack() as stack:
            slow = attackers(("127.0.0.1", server.port), GET)
            await connect(None, stack.enter_context, slow)
            for _ in range(3):
                assert len(await scrape(server)) > LARGE_BYTES
                assert (
                    http_server._unsent_bytes(server._in(http_server._State.SENDING))
                    <= MAX_UNSENT_BYTES
                )
                assert len(server._connections) <= MAX_SCRAPE_CONNECTIONS

    served(large_page, talk)


def test_requests_that_wait_share_one_page() -> None:
    made = 0
    all_wait = asyncio.Event()

    async def slow_page() -> bytes:
        nonlocal made
        made += 1
        await all_wait.wait()
        return b"page %d" % made

    async def talk(server: HttpServer) -> None:
        scrapes = asyncio.gather(*(scrape(server) for _ in range(8)))
        while len(server._connections) < 8:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        all_wait.set()
        pages = await scrapes
        assert all(page.endswith((b"page 1", b"page 2")) for page in pages)
        shared = made
        assert shared <= 2
        assert (await scrape(server)).endswith(b"page %d" % (shared + 1))

    served(slow_page, talk)


def test_a_page_that_fails_ends_its_request_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = 0

    async def page() -> bytes:
        nonlocal made
        made += 1
        if made < 10:
            raise RuntimeError("no page")
        return b"a page"

    async def talk(server: HttpServer) -> None:
        for _ in range(9):
            assert (await scrape(server)).startswith(b"HTTP/1.1 500 ")
        assert (await scrape(server)).endswith(b"a page")

    served(page, talk)
    lines = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(lines) == 1


def test_a_request_byte_by_byte_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEAD_S", 0.3)

    async def page() -> bytes:
        return b""

    async def talk(server: HttpServer) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        with contextlib.suppress(ConnectionError, RuntimeError):  # uvloop raises it once closed
            for _ in range(250):
                writer.write(b"X")
                await writer.drain()
                await asyncio.sleep(0.02)
        assert len(server._connections) == 0
        with contextlib.suppress(ConnectionError):
            assert await reader.read(-1) == b""

    served(page, talk)
