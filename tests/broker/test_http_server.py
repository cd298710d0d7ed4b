"""The HTTP server of the page, the metrics and the exporter: what it reads, and its limits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.http import server as http_server
from headrace.http.failed_logins import (
    FAILED_LOGINS_S,
    MAX_COUNTED_LOGINS,
    MAX_DELAYED_LOGINS,
    MAX_FAILED_LOGINS,
    FailedLogins,
)
from headrace.http.hosts import Hosts
from headrace.http.messages import MAX_BODY_BYTES, Refused, Request, Response, parse_head
from headrace.http.server import MAX_BODIES, HttpServer
from headrace.log_lines import log_unhandled
from tests.support import story

GET = b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /x HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("host", "is_admitted"),
    [
        ("127.0.0.1", True),
        ("127.0.0.1:80", True),
        ("[::1]:9380", True),
        ("localhost:1", True),
        ("LOCALHOST.", True),
        ("queues.example.org", True),
        ("evil.example.org:9380", False),
        ("", False),
        ("127.0.0.1.evil.org", False),
        ("[::1].evil.com", False),
        ("[127.0.0.1]evil.com", False),
        ("[127.0.0.1]", False),
        ("[localhost]", False),
        ("[::1]/x?", False),
        ("[::1%lo]", False),
        ("::1", False),
        ("localhost:", False),
        ("localhost:1:1", False),
        ("localhost evil.com", False),
        ("evil.com@localhost", False),
        ("localhost\n", False),
    ],
)
def test_hosts(host: str, is_admitted: bool) -> None:
    assert Hosts(["queues.example.org"]).admits(host) is is_admitted


@pytest.mark.parametrize(
    "lines",
    [
        b"GET  /x HTTP/1.1\r\nHost: h",
        b"GET /x HTTP/2.0\r\nHost: h",
        b"GET http://h/x HTTP/1.1\r\nHost: h",
        b"get /x HTTP/1.1\r\nHost: h",
        b"GET /x HTTP/1.1",
        b"GET /x HTTP/1.1\r\nHost: h\r\nHost: h",
        b"GET /x HTTP/1.1\r\nHost: h\r\n folded: x",
        b"GET /x HTTP/1.1\r\nHost : h",
        b"GET /x HTTP/1.1\r\nHost: h\r\nx: a\nb: c",
        b"GET /x HTTP/1.1\r\nHost: h\r\nx: a\x00",
        b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1",
        b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: +1",
        b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 1, 1",
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(lines: bytes) -> None:
    with pytest.raises(Refused) as refused:
        parse_head(lines + b"\r\n\r\n")
    assert refused.value.status == 400


@pytest.mark.parametrize(
    "lines",
    [
        b"Transfer-Encoding: chunked",
        b"Content-Length: 1\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\r\nContent-Length: 1",
        b"Transfer-Encoding: xchunked",
        b"Transfer-Encoding: gzip, chunked",
    ],
)
def test_a_body_without_a_length_is_refused(lines: bytes) -> None:
    with pytest.raises(Refused) as refused:
        parse_head(POST + lines + b"\r\n\r\n")
    assert refused.value.status == 411


@given(st.binary(max_size=300))
def test_any_bytes_are_a_request_or_refused(rest: bytes) -> None:
    for begin in (b"", b"POST / HTTP/1.1\r\nHost: h\r\n"):
        with contextlib.suppress(Refused):
            parse_head(begin + rest + b"\r\n\r\n")


@asynccontextmanager
async def serving(
    answer: Callable[[Request], Awaitable[Response]] | None = None, **limits: int
) -> AsyncIterator[HttpServer]:
    """Serve on a free port; by default the answer is the body."""

    async def echo(request: Request) -> Response:
        return Response.plain(200, request.body.decode())

    asyncio.get_running_loop().set_exception_handler(log_unhandled)
    limits = {"max_connections": 8, "max_requests": 4, **limits}
    server = HttpServer(answer or echo, Hosts(), **limits)
    await server.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.close()
    assert len(server._connections) == 0


async def connect(server: HttpServer, sent: bytes = b"", address: str = "127.0.0.1") -> Any:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", server.port, local_addr=(address, 0)
    )
    writer.write(sent)
    return reader, writer


async def exchange(server: HttpServer, sent: bytes, address: str = "127.0.0.1") -> bytes:
    """Send bytes, and return all that comes until the server closes, or an answer is there."""
    reader, writer = await connect(server, sent, address)
    try:
        head: bytes = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        body: bytes = await reader.readexactly(length)
        return head + body
    finally:
        writer.close()


@story
async def test_a_connection_is_not_idle_while_its_response_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that reads the last bytes late gets them: an idle connection would be closed."""
    monkeypatch.setattr(http_server, "IDLE_S", 0.2)
    size_bytes = 60_000  # less than asyncio would keep without a pause

    async def answer(request: Request) -> Response:
        return Response(200, bytes(size_bytes))

    async with serving(answer) as server:
        (acceptor,) = server._acceptors
        acceptor.listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(client, ("127.0.0.1", server.port))
            await loop.sock_sendall(client, GET)
            await asyncio.sleep(0.1)
            assert http_server._unsent_bytes(server._in(http_server._State.SENDING)) > 0
            await asyncio.sleep(0.4)
            received = b""
            while part := await loop.sock_recv(client, 65536):
                received += part
    assert len(received.partition(b"\r\n\r\n")[2]) == size_bytes


@story
async def test_a_response_has_its_date() -> None:
    async with serving() as server:
        head, _, _ = (await exchange(server, GET)).partition(b"\r\n\r\n")
        (date,) = [line[6:] for line in head.split(b"\r\n") if line.startswith(b"date: ")]
        assert parsedate_to_datetime(date.decode()).tzinfo is not None


@story
async def test_the_expectation_of_a_client_is_in_any_case() -> None:
    async with serving() as server:
        reader, writer = await connect(
            server, POST + b"Content-Length: 1\r\nExpect: 100-Continue\r\n\r\n"
        )
        assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
        writer.close()


@story
async def test_requests_follow_each_other_until_one_is_refused() -> None:
    async with serving() as server:
        reader, writer = await connect(server, GET * 2 + POST + b"Content-Length: 2\r\n\r\nab")
        for body in (b"\n", b"\n", b"ab\n"):
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK")
            assert await reader.readexactly(len(body)) == body
        both = POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        writer.write(both + GET)
        writer.write_eof()
        rest = await reader.read()
        assert rest.startswith(b"HTTP/1.1 411 ")
        assert rest.count(b"HTTP/1.1") == 1
        writer.close()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (GET.replace(b"localhost", b"evil.com"), b"421"),
        (GET.replace(b"localhost", b"[::1].evil.com"), b"421"),
        (POST + b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1), b"413"),
        (CHUNKED + b"200000\r\n" + b"a" * 0x200000, b"411"),
        (b"GET /" + b"x" * 100_000, b"431"),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"400"),
    ],
)
@story
async def test_a_refused_request_gets_its_answer(sent: bytes, status: bytes) -> None:
    async with serving() as server:
        assert (await exchange(server, sent)).startswith(b"HTTP/1.1 " + status)


@story
async def test_connections_that_do_not_go_on_keep_nobody_out() -> None:
    async with serving() as server:
        attackers = []
        for sent in (b"", b"GET /x", POST + b"Content-Length: 9\r\n\r\nx", GET) * 5:
            attackers.append(await connect(server, sent))
            assert (await exchange(server, GET)).startswith(b"HTTP/1.1 200")
            assert len(server._connections) <= 8
        for _, writer in attackers:
            writer.close()


@story
async def test_one_that_has_sent_a_request_outlives_strangers() -> None:
    async with serving() as server:
        reader, writer = await connect(server, GET)
        assert (await reader.readuntil(b"\r\n\r\n\n")).startswith(b"HTTP/1.1 200")
        strangers = [await connect(server) for _ in range(20)]
        assert await strangers[0][0].read() == b""  # closed, and not the one from before
        writer.write(GET)
        assert (await reader.readuntil(b"\r\n\r\n\n")).startswith(b"HTTP/1.1 200")
        for _, stranger in (*strangers, (reader, writer)):
            stranger.close()


@story
async def test_addresses_are_served_in_turn() -> None:
    go_on, begun = asyncio.Event(), []

    async def slow(request: Request) -> Response:
        begun.append(request.address)
        await go_on.wait()
        return Response.plain(200, "")

    async with serving(slow, max_connections=100) as server:
        flood = [asyncio.ensure_future(exchange(server, GET, "127.0.0.2")) for _ in range(30)]
        while len(server._connections) < 30 or len(begun) < 2:
            await asyncio.sleep(0.01)
        assert begun == ["127.0.0.2"] * 2  # half of the places
        visits = [asyncio.ensure_future(exchange(server, GET)) for _ in range(3)]
        while len(begun) < 4:
            await asyncio.sleep(0.01)
        go_on.set()
        for answer in await asyncio.gather(*visits, *flood):
            assert answer.startswith(b"HTTP/1.1 200")
    assert begun[:4] == ["127.0.0.2"] * 2 + ["127.0.0.1"] * 2


@story
async def test_a_request_waits_for_its_turn_in_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on = asyncio.Event()

    async def slow(_: Request) -> Response:
        await go_on.wait()
        return Response.plain(200, "")

    monkeypatch.setattr(http_server, "TURN_S", 0.1)
    async with serving(slow) as server:
        waiting = [asyncio.ensure_future(exchange(server, GET)) for _ in range(2)]
        while len(server._connections) < 2:
            await asyncio.sleep(0.01)
        strangers = [await connect(server) for _ in range(20)]
        assert (await exchange(server, GET)).startswith(b"HTTP/1.1 503")
        go_on.set()
        for answer in await asyncio.gather(*waiting):
            assert answer.startswith(b"HTTP/1.1 200")
        for _, writer in strangers:
            writer.close()


@story
async def test_an_address_has_half_of_the_connections() -> None:
    async with serving() as server:
        reader, writer = await connect(server, GET)
        assert (await reader.readuntil(b"\r\n\r\n\n")).startswith(b"HTTP/1.1 200")
        for sent in (b"", GET, POST + b"Content-Length: 9\r\n\r\nx"):
            strangers = [await connect(server, sent, "127.0.0.2") for _ in range(20)]
            await asyncio.sleep(0.05)
            assert len(server._connections) <= 5
            writer.write(GET)
            assert (await reader.readuntil(b"\r\n\r\n\n")).startswith(b"HTTP/1.1 200")
            for _, stranger in strangers:
                stranger.close()
        writer.close()


@story
async def test_an_answer_is_made_when_the_former_was_received() -> None:
    made = 0

    async def large(_: Request) -> Response:
        nonlocal made
        made += 1
        return Response(200, b"x" * 8_000_000)

    async with serving(large) as server:
        reader, writer = await connect(server, GET * 100)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert (await exchange(server, GET)).startswith(b"HTTP/1.1 200")
        assert made == 2
        writer.close()


@story
async def test_bodies_that_do_not_end_are_bounded_in_number_and_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(max_connections=100) as server:
        part = POST + b"Content-Length: 1000\r\n\r\nx"
        attackers = [await connect(server, part) for _ in range(MAX_BODIES + 1)]
        assert await attackers[0][0].read() == b""
        for name in ("BODY_S", "HEAD_S", "IDLE_S"):
            monkeypatch.setattr(http_server, name, 0.1)
        for sent in (part, b"GET", GET + b"GET"):
            reader, writer = await connect(server, sent)
            await reader.read()  # ends
            writer.close()
        for _, writer in attackers:
            writer.close()


@story
async def test_the_work_for_a_client_that_has_gone_ends() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> Response:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()
        return Response.plain(200, "")

    async with serving(slow) as server:
        _, writer = await connect(server, GET)
        await begun.wait()
        writer.close()
        await ended.wait()


@story
async def test_a_change_goes_on_without_its_client() -> None:
    begun, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def change(request: Request) -> Response:
        begun.set()
        await go_on.wait()
        ended.set()
        return Response.plain(200, "")

    async with serving(change) as server:
        _, writer = await connect(server, POST + b"Content-Length: 1\r\n\r\nx")
        await begun.wait()
        writer.close()
        await writer.wait_closed()
        await asyncio.sleep(0.05)
        go_on.set()
        await ended.wait()


@story
async def test_clients_that_go_at_any_moment_leave_no_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def large(request: Request) -> Response:
        return Response.plain(200, "x" * 1_000_000)

    async with serving(large) as server:
        for sent in (b"", b"GET", GET, POST + b"Content-Length: 9\r\n\r\nx", CHUNKED + b"9\r\n"):
            for _ in range(20):
                _, writer = await connect(server, sent)
                writer.transport.abort()
        assert (await exchange(server, GET)).startswith(b"HTTP/1.1 200")
        await asyncio.sleep(0.05)
    assert [one for one in caplog.messages if "slow" not in one] == []


@story
async def test_failures_are_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(request: Request) -> Response:
        raise RuntimeError("broken")

    async with serving(broken) as server:
        for _ in range(20):
            assert (await exchange(server, GET)).startswith(b"HTTP/1.1 500")
    assert len(caplog.records) == 1


def test_wrong_passwords_are_counted_by_address_and_user_in_bounded_memory() -> None:
    now_s = 0.0
    failures = FailedLogins(lambda: now_s)
    for _ in range(MAX_FAILED_LOGINS):
        assert not failures.count("10.0.0.1", "ann")
    assert failures.count("10.0.0.1", None)
    assert failures.count("10.0.0.2", "ann")
    assert not failures.count("10.0.0.2", "bob")
    now_s = FAILED_LOGINS_S
    assert not failures.count("10.0.0.1", "ann")
    for number in range(2 * MAX_COUNTED_LOGINS):
        failures.count(f"10.1.{number >> 8}.{number & 255}", None)
    assert len(failures) == MAX_COUNTED_LOGINS


@story
async def test_late_answers_are_bounded_in_number() -> None:
    failures = FailedLogins()
    late = [asyncio.ensure_future(failures.delay()) for _ in range(MAX_DELAYED_LOGINS)]
    await asyncio.sleep(0)
    await failures.delay()  # at once
    assert not any(one.done() for one in late)
    for one in late:
        one.cancel()
