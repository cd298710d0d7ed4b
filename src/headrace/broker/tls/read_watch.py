"""A bound for the time of one read of a TLS connection.

OpenSSL reads on while messages without data arrive, such as key updates of TLS 1.3, and Python
cannot tell it to stop. A client that sends them without end would hold the event loop, and all
other clients. A thread looks after the reads: Python lets it run while OpenSSL reads.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from ..limits import MAX_TLS_READ_S, TLS_READ_CHECK_S

_DRAIN_BYTES = 1 << 20
_MAX_DRAINS = 64


class ReadWatch:
    """Ends the connection whose read takes too much time of the processor.

    Make it on the thread of the event loop. The thread of the watch begins with the first read.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._reads = 0
        self._is_ended = False
        self._now_s = _processor_clock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, sock: socket.socket) -> None:
        """Note that a read begins."""
        if self._thread is None and not self._stop.is_set():
            self._thread = threading.Thread(target=self._run, name="headrace-tls", daemon=True)
            self._thread.start()
        self._reads += 1
        self._socket = sock

    def end(self) -> bool:
        """Note that the read is over; return True if the watch has ended the connection."""
        with self._lock:
            self._socket = None
            is_ended, self._is_ended = self._is_ended, False
            return is_ended

    def close(self) -> None:
        """Watch no more."""
        self._stop.set()

    def _run(self) -> None:
        seen, began_s = 0, 0.0
        while not self._stop.wait(TLS_READ_CHECK_S):
            with self._lock, suppress(OSError):
                if self._socket is None:
                    continue
                now_s = self._now_s()
                if self._reads != seen:
                    seen, began_s = self._reads, now_s
                elif now_s - began_s >= MAX_TLS_READ_S and not self._is_ended:
                    self._is_ended = True
                    _end(self._socket)


def _processor_clock() -> Callable[[], float]:
    """Return a clock of what this thread uses of the processor, if the system has one: a busy
    machine ends no connection.
    """
    if hasattr(time, "pthread_getcpuclockid"):
        clock = time.pthread_getcpuclockid(threading.get_ident())
        return lambda: time.clock_gettime(clock)
    return time.monotonic


def _end(sock: socket.socket) -> None:
    """Close both directions, and drop what has arrived, so that OpenSSL finds the end. The client
    gets a reset when the socket is closed.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not that of SSLSocket
    for _ in range(_MAX_DRAINS):
        if not socket.socket.recv(sock, _DRAIN_BYTES):
            return
