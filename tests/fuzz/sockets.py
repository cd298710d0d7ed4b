"""Fuzz a broker in a process of its own over sockets, beside an honest producer and consumer."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from headrace.handlers import APIS
from tests.fuzz.conversations import TALKS, noise
from tests.fuzz.frames import FrameWriter, mutated_frame
from tests.fuzz.ground import HONEST_CONFIGS, HONEST_TOPIC
from tests.fuzz.schema import version_of
from tests.fuzz.words import Words
from tests.support import COMMON_CONFIGS, HeadraceProcess
from tests.wire_client import Connection, batch, connection

CONNECTIONS = 8
MAX_MEMORY_BYTES = 600 * 1024 * 1024
FORBIDDEN_LINES = ("Traceback", " failed: ", "skipped the record")
HONEST_FRAMES = 200
"""The frames between two records of the honest producer."""


class Attack:
    """Connections that send fuzzed conversations to a broker and read little of its answers."""

    def __init__(self, rng: random.Random, bootstrap_servers: str) -> None:
        self.rng = rng
        self.frames = 0
        self._address = bootstrap_servers.rsplit(":", 1)
        self._writer = FrameWriter(Words(rng))
        self._open: list[socket.socket] = []

    def converse(self) -> None:
        """Send a conversation on a new or an open connection, and read what has come."""
        rng = self.rng
        peer = self._connection()
        talk = rng.choice(TALKS)(self._writer.words)
        if rng.random() < 0.6:
            talk = noise(self._writer.words, rng.sample(sorted(APIS), rng.choice((1, 3, 50))))
        flaws, mutates = rng.choice((0.0, 0.01, 0.1)), rng.choice((0.0, 0.1, 0.5))
        for number, (api_key, given) in enumerate(talk):
            api = APIS[api_key]
            version = version_of(api_key, rng.randint(api.lowest, api.highest))
            frame = self._writer.frame(version, number, given, flaws)
            if rng.random() < mutates:
                frame = mutated_frame(rng, frame)
            self.frames += 1
            try:
                peer.sendall(frame[: rng.randrange(len(frame))] if rng.random() < 0.01 else frame)
                if rng.random() < 0.8:
                    peer.recv(1 << 20)
            except TimeoutError:
                pass  # a request that waits
            except OSError:
                self._close(peer)
                return
        if rng.random() < 0.3:
            self._close(peer)

    def _connection(self) -> socket.socket:
        if len(self._open) >= CONNECTIONS:
            return self.rng.choice(self._open)
        host, port = self._address
        peer = socket.create_connection((host, int(port)), timeout=10)
        peer.settimeout(0.01)
        self._open.append(peer)
        return peer

    def _close(self, peer: socket.socket) -> None:
        if peer in self._open:
            self._open.remove(peer)
        peer.close()

    def close(self) -> None:
        """Close all connections."""
        for peer in list(self._open):
            self._close(peer)


def check_honest_data(client: Connection, values: list[bytes]) -> None:
    """Compare the records of the honest topic with what was produced."""
    response = client.receive_to(client.send_fetch(HONEST_TOPIC, 0, 1000))
    for value in (values[0], values[-1]):
        assert value in response, f"{value!r} is lost"
    positions = [response.find(value) for value in values]
    assert -1 not in positions, f"{positions.count(-1)} of {len(values)} honest records are lost"


def run(
    folder: Path, seed: int, frames: int, tell: Callable[[str], None] | None = None
) -> dict[str, float]:
    """Send so many frames and check the broker, also after a restart.

    :returns: frames, seconds, and the growth of the broker's memory in MB
    """
    rng, started = random.Random(seed), time.monotonic()
    configs = {**COMMON_CONFIGS, "socket.request.max.bytes": "1000000"}
    server, values = HeadraceProcess(folder / "data", configs), []
    with server:
        with connection(server.bootstrap_servers) as honest:
            named = {name.replace(".", "_"): value for name, value in HONEST_CONFIGS.items()}
            honest.create_topic(HONEST_TOPIC, 1, **named)
            for topic in ("t0", "t1"):
                honest.create_topic(topic)
            process = psutil.Process(server.pid)
            before = process.memory_info().rss
            attack, told = Attack(rng, server.bootstrap_servers), started
            while attack.frames < frames:
                if attack.frames >= HONEST_FRAMES * len(values):
                    values.append(b"honest value %06d" % len(values))
                    told_offset = honest.produce(HONEST_TOPIC, batch([values[-1]]))
                    assert told_offset == (0, len(values) - 1), told_offset
                attack.converse()
                if tell is not None and time.monotonic() - told > 10:
                    told = time.monotonic()
                    tell(f"sockets, seed {seed}: {attack.frames:,} frames, {told - started:.0f} s")
            attack.close()
            check_honest_data(honest, values)
            growth = process.memory_info().rss - before
        assert server.process is not None
        assert server.process.poll() is None, "the broker has died"
    assert server.stop() == 0
    with server, connection(server.bootstrap_servers) as honest:
        check_honest_data(honest, values)
    bad = [line for line in server.output if any(word in line for word in FORBIDDEN_LINES)]
    assert not bad, "\n".join(bad[:20])
    assert growth < MAX_MEMORY_BYTES, f"memory grew by {growth / 1e6:.0f} MB"
    seconds = time.monotonic() - started
    return {"frames": attack.frames, "seconds": round(seconds), "grown MB": round(growth / 1e6)}
