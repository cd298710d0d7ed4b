"""Fuzz the TLS of a broker in this process: records of honest handshakes, spoilt by seed.

Each conversation has a seed of its own, made of that of the run and its number. It begins as an
honest client of TLS 1.2 or 1.3 does. Then its records are cut, changed, repeated, mixed with
others, or not sent at all. After each conversation:

    * the broker has closed the connection, unless the client keeps half a handshake open;
    * it has logged one line at most about it, without a traceback;
    * an honest client, and a new one now and then, are served;
    * no handshake is left over, and the memory of the process has not grown.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import ssl
import struct
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import psutil

from headrace.log_lines import LIMITER
from tests.fuzz.ground import Finding
from tests.security.serving import Client, Serving, run, serving
from tests.throwaway_ca import ThrowawayCA

KEPT: Sequence[int] = (0, 1, 2, 3)
"""Seeds that every run plays first: those that once found something, and a few for a beginning."""

HOST = "sni.example.headrace"
ALERT, HANDSHAKE, APPLICATION_DATA = 21, 22, 23
TYPES = (0, 20, ALERT, HANDSHAKE, APPLICATION_DATA, 24, 255)
MOST_OPEN = 40
"""Connections that stay open, each with a part of a handshake."""
HONEST_EVERY, NEW_CLIENT_EVERY = 20, 100
WARM_UP = 200
"""Conversations after which the memory of the process is measured first."""
MAX_GROWTH_BYTES = 64 * 1024 * 1024
CLOSES_WITHIN_S = 20
TURNS = 8
"""Turns of the event loop in which the broker reads what was sent, and answers."""
API_VERSIONS = 18
REQUEST = b"\0\0\0\x0d\0\x12\0\0\0\0\0\7\0\3raw"


def record(kind: int, payload: bytes, version: int = 0x0303, length: int | None = None) -> bytes:
    """Return a TLS record.

    :param length: what it claims; None for the length of the payload
    """
    claimed = len(payload) if length is None else length
    return struct.pack(">BHH", kind, version, claimed & 0xFFFF) + payload


def records(data: bytes) -> list[bytes]:
    """Cut sound bytes into records."""
    found, position = [], 0
    while position + 5 <= len(data):
        end = position + 5 + int.from_bytes(data[position + 3 : position + 5], "big")
        found.append(data[position:end])
        position = end
    return found


# How bytes are spoilt -----------------------------------------------------------------------------

Spoil = Callable[[random.Random, bytes], bytes]


def _cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def _flip(rng: random.Random, data: bytes) -> bytes:
    spoilt = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 10))):
        spoilt[rng.randrange(len(spoilt))] = rng.randrange(256)
    return bytes(spoilt)


def _flip_inside(rng: random.Random, data: bytes) -> bytes:
    """Change bytes behind the header of the first record."""
    return data[:5] + _flip(rng, data[5:]) if len(data) > 5 else data


def _insert(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.choice((1, 5, 500))) + data[at:]


def _delete(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + data[at + rng.choice((1, 4, 50)) :]


def _lengths(rng: random.Random, data: bytes) -> bytes:
    """Have a record claim another length."""
    length = rng.choice((0, 1, 0x4000, 0x4001, 0x4100, 0xFFFF))
    return data[:3] + struct.pack(">H", length) + data[5:]


def _message_length(rng: random.Random, data: bytes) -> bytes:
    """Have a message of a handshake claim another length, of up to 16 MiB."""
    length = rng.choice((0, 1, 0xFFFF, 131_000, 0xFFFFFF))
    return data[:6] + length.to_bytes(3, "big") + data[9:]


def _fragments(rng: random.Random, data: bytes) -> bytes:
    """Send the messages in small records, some of them empty or of other types."""
    pieces = []
    for one in records(data):
        kind, payload = one[0], one[5:]
        size = rng.choice((1, 3, 50))
        for start in range(0, len(payload), size):
            pieces.append(record(kind, payload[start : start + size]))
            if rng.random() < 0.02:
                pieces.append(record(rng.choice(TYPES), b""))
    return b"".join(pieces)


def _alerts(rng: random.Random, data: bytes) -> bytes:
    """Send alerts in front: warnings such as no_renegotiation and user_canceled, or any."""
    level, description = rng.choice(((1, 100), (1, 90), (1, 0), (2, 40), (rng.randrange(256), 200)))
    return record(ALERT, bytes((level, description))) * rng.choice((1, 5, 1000)) + data


def _again(rng: random.Random, data: bytes) -> bytes:
    """Repeat, as a renegotiation would."""
    return data * rng.choice((2, 3, 20))


def _garbage(rng: random.Random, data: bytes) -> bytes:
    return rng.randbytes(rng.choice((1, 5, 100, 20_000)))


def _records(rng: random.Random, data: bytes) -> bytes:
    """Send records of any type, version and content."""
    return b"".join(
        record(
            rng.choice(TYPES),
            rng.randbytes(rng.choice((0, 1, 4, 200))),
            rng.choice((0x0300, 0x0301, 0x0303, 0x0304, 0xFFFF)),
            rng.choice((None, None, 0xFFFF)),
        )
        for _ in range(rng.choice((1, 3, 100)))
    )


def _server_name(rng: random.Random, data: bytes) -> bytes:
    """Ask for a host with another name of the same length."""
    nonsense = rng.choice((b"\0", b"\n", b"'\"%s", b"..", b"\xff\xfe", b"\x1b[31m", b"xn--"))
    name = (nonsense * len(HOST))[: len(HOST)]
    return data.replace(HOST.encode(), name)


def _plain(rng: random.Random, data: bytes) -> bytes:
    hello_of_ssl_2 = b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + rng.randbytes(37)
    return rng.choice((REQUEST, b"GET / HTTP/1.1\r\n\r\n", hello_of_ssl_2, b"\0" * 9))


SPOILS: Mapping[str, Spoil] = {
    one.__name__[1:]: one
    for one in (
        _cut,
        _flip,
        _flip_inside,
        _insert,
        _delete,
        _lengths,
        _message_length,
        _fragments,
        _alerts,
        _again,
        _garbage,
        _records,
        _server_name,
        _plain,
    )
}


# A conversation -----------------------------------------------------------------------------------


class Attacker:
    """A client that knows TLS, on a plain socket.

    :param host: its own address
    """

    def __init__(self, rng: random.Random, address: tuple[str, int], host: str) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.maximum_version = rng.choice((ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3))
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=HOST)
        self._socket = socket.create_connection(address, source_address=(host, 0))
        self._socket.setblocking(False)
        self.sent = bytearray()
        self.is_closed = False
        """True if the broker has closed the connection."""

    def flight(self, *, with_data: bytes = b"") -> bytes:
        """Return the next bytes of an honest client; empty if it waits, or has given up."""
        with suppress(ssl.SSLError):
            self._tls.do_handshake()
            if with_data:
                self._tls.write(with_data)
        return self._outgoing.read()

    @property
    def is_complete(self) -> bool:
        """True if the client takes the handshake for complete."""
        return self._tls.version() is not None and self._tls.cipher() is not None

    async def send(self, data: bytes) -> None:
        """Send, and take what comes."""
        self.sent += data
        view = memoryview(data)
        while view and not self.is_closed:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                pass
            except OSError:
                self.is_closed = True
            await self._take()
        await self._take()

    async def _take(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)
        self._receive()

    def _receive(self) -> None:
        while not self.is_closed:
            try:
                received = self._socket.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError:
                received = b""
            if received:
                self._incoming.write(received)
            self.is_closed = not received

    async def end(self, *, reset: bool) -> None:
        """Close this side, and wait until the broker has closed its own.

        :raises Finding: when it does not
        """
        if not reset:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
            deadline = time.monotonic() + CLOSES_WITHIN_S
            while not self.is_closed:
                if time.monotonic() > deadline:
                    raise Finding("a connection stays open", self.sent.hex())
                await asyncio.sleep(0.001)
                self._receive()
        else:
            linger = struct.pack("ii", 1, 0)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._socket.close()
        for _ in range(TURNS):  # in which the broker notices
            await asyncio.sleep(0)


def _host(number: int) -> str:
    """Return an address for each conversation, by which its lines are known. Linux has all of
    127.0.0.0/8.
    """
    return f"127.{1 + number // 62_500}.{number // 250 % 250}.{1 + number % 250}"


# A run --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Report:
    """The result of a run.

    :ivar complete: conversations in which the client took the handshake for complete
    :ivar findings: the number of the conversation, and the finding
    """

    seed: int
    conversations: int = 0
    complete: int = 0
    lines: int = 0
    seconds: float = 0
    growth_bytes: int = 0
    findings: list[tuple[int, Finding]] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.conversations:,} connections with TLS, {self.complete:,} "
            f"handshakes, {self.lines:,} lines in the log, in {self.seconds:.0f} s; memory "
            f"+{self.growth_bytes / 1e6:.0f} MB, {len(self.findings)} findings"
        )


class _Lines(logging.Handler):
    """The warnings and errors of the broker."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[logging.LogRecord] = []

    def emit(self, one: logging.LogRecord) -> None:
        if one.name != "headrace.loop":  # which tells of a busy machine
            self.lines.append(one)


class Fuzzer:
    """Holds conversations with one broker."""

    def __init__(self, scene: Serving, trusted: ssl.SSLContext, report: Report) -> None:
        self._scene, self._trusted, self._report = scene, trusted, report
        self._log = _Lines()
        self._open: list[Attacker] = []
        self._failures: list[str] = []
        self._lines: Counter[str] = Counter()
        """The lines about each host."""
        self._honest: Client | None = None
        self._memory = 0
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: self._failures.append(str(context))
        )

    async def run(self, conversations: int, seconds: float | None) -> None:
        """Hold so many conversations, or for so many seconds."""
        report, started = self._report, time.monotonic()
        self._honest = await self._scene.connect("SSL", self._trusted)
        logger = logging.getLogger("headrace")
        logger.addHandler(self._log)
        try:
            for number in range(conversations):
                if seconds is not None and time.monotonic() - started > seconds:
                    break
                try:
                    await self.converse(number)
                except Finding as finding:
                    print(f"conversation {number}: {finding}", flush=True)
                    report.findings.append((number, finding))
            await self._end_open()
        finally:
            logger.removeHandler(self._log)
            report.seconds = time.monotonic() - started

    async def converse(self, number: int) -> None:
        """Hold one conversation and check it.

        :raises Finding: when it has done harm
        """
        report = self._report
        rng = random.Random(f"{report.seed} {number}")
        attacker = Attacker(rng, self._scene.address("SSL"), _host(number))
        report.conversations += 1
        await self._speak(rng, attacker)
        report.complete += attacker.is_complete
        if not attacker.is_closed and rng.random() < 0.1:
            self._open.append(attacker)
            if len(self._open) > MOST_OPEN:
                await self._open.pop(0).end(reset=rng.random() < 0.5)
        else:
            await attacker.end(reset=rng.random() < 0.2)
        await self._check(attacker, number)

    async def _speak(self, rng: random.Random, attacker: Attacker) -> None:
        spoilt_flight = rng.choice((0, 0, 0, 1, 1, 2))
        for number in range(4):
            data = attacker.flight(with_data=REQUEST if number else b"")
            if number == spoilt_flight:
                for name in rng.sample(sorted(SPOILS), rng.choice((1, 1, 2))):
                    data = SPOILS[name](rng, data or REQUEST)
            await attacker.send(data)
            if attacker.is_closed:
                return

    async def _check(self, attacker: Attacker, number: int) -> None:
        lines, self._log.lines = self._log.lines, []
        self._report.lines += len(lines)
        for one in lines:
            host = one.getMessage().partition("from /")[2].partition(":")[0]
            self._lines[host] += 1
            if self._lines[host] > 1:
                raise Finding("more than one line", f"{one.getMessage()}, {attacker.sent.hex()}")
            if one.exc_info or "\n" in one.getMessage():
                raise Finding("a line is not one", f"{one.getMessage()}, {attacker.sent.hex()}")
        if self._failures:
            raise Finding("the event loop has an error", str(self._failures.pop()))
        assert self._honest is not None
        if number % HONEST_EVERY == 0:
            assert (await self._honest.ask(API_VERSIONS, 0)).error_code == 0
        if number % NEW_CLIENT_EVERY == 0:
            client = await self._scene.connect("SSL", self._trusted)
            assert (await client.ask(API_VERSIONS, 0)).error_code == 0
            client.close()
        if number == WARM_UP:
            self._memory = psutil.Process().memory_info().rss

    async def _end_open(self) -> None:
        """End all conversations, and check that nothing is left over."""
        for attacker in self._open:
            await attacker.end(reset=False)
        self._open.clear()
        server, deadline = self._scene.server, time.monotonic() + CLOSES_WITHIN_S
        while len(server._handshakes or ()) or len(server.connections) > 1:
            if time.monotonic() > deadline:
                raise Finding("handshakes are left over", str(len(server._handshakes or ())))
            await asyncio.sleep(0.01)
        if self._memory:
            self._report.growth_bytes = psutil.Process().memory_info().rss - self._memory
        if self._report.growth_bytes > MAX_GROWTH_BYTES:
            finding = Finding("memory grows", f"by {self._report.growth_bytes} bytes")
            self._report.findings.append((-1, finding))


def fuzz(folder: Path, seed: int, conversations: int, seconds: float | None = None) -> Report:
    """Hold so many conversations with a new broker; return what was found."""
    ca = ThrowawayCA(folder)
    store = ca.issue("broker").both
    report = Report(seed)

    async def scene() -> None:
        configs: dict[str, object] = {
            "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": store,
        }
        trusted = ssl.create_default_context(cafile=ca.certificate)
        async with serving(configs) as broker:
            with mock.patch.object(LIMITER, "admit", return_value=0):  # every line counts
                await Fuzzer(broker, trusted, report).run(conversations, seconds)

    run(scene())
    return report
