"""CPU seconds for each GiB of a file that goes to a loopback socket: read and sent, or `sendfile`.

    python -m bench.file_ranges

One process sends 1 MiB at a time from the page cache, another one receives and forgets. The sender
does nothing else, so the difference is the most that a broker could save by not copying records
through its own memory (docs/decisions/0010).
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import statistics
import tempfile
from collections.abc import Callable

FILE_BYTES = 64 << 20
CHUNK_BYTES = 1 << 20
SENT_BYTES = 2 << 30
ROUNDS = 5

Send = Callable[[socket.socket, int, int], int]
"""Send up to a chunk of a file from an offset; return how many bytes were sent."""


def read_and_send(sock: socket.socket, fd: int, offset: int) -> int:
    data = os.pread(fd, CHUNK_BYTES, offset)
    sock.sendall(data)
    return len(data)


def send_file(sock: socket.socket, fd: int, offset: int) -> int:
    return os.sendfile(sock.fileno(), fd, offset, CHUNK_BYTES)


WAYS: dict[str, Send] = {"pread and send": read_and_send, "sendfile": send_file}


def _receive(port: int) -> None:
    buffer = bytearray(256 << 10)
    with socket.create_connection(("127.0.0.1", port)) as sock:
        while sock.recv_into(buffer):
            pass


def cpu_seconds_per_gib(send: Send, fd: int) -> float:
    """Return the sender's CPU seconds for each GiB."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        receiver = multiprocessing.Process(target=_receive, args=(listener.getsockname()[1],))
        receiver.start()
        sock, _ = listener.accept()
    with sock:
        before = os.times()
        sent_bytes = 0
        while sent_bytes < SENT_BYTES:
            sent_bytes += send(sock, fd, sent_bytes % FILE_BYTES)
        after = os.times()
    receiver.join()
    spent = after.user - before.user + after.system - before.system
    return spent / (sent_bytes / (1 << 30))


def main() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(os.urandom(FILE_BYTES))
        file.flush()
        runs: dict[str, list[float]] = {name: [] for name in WAYS}
        for _ in range(ROUNDS):
            for name, send in WAYS.items():
                runs[name].append(cpu_seconds_per_gib(send, file.fileno()))
    for name, values in runs.items():
        listed = ", ".join(f"{value:.2f}" for value in values)
        print(f"{name}: {statistics.median(values):.2f} s per GiB ({listed})")


if __name__ == "__main__":
    main()
