"""An asyncio transport with TLS on a non-blocking socket.

asyncio's own TLS copies all bytes through memory buffers and cannot say how much of an answer
the socket takes, which bounds the memory of clients that do not read. Here at most one TLS record
waits for the socket, beside what ``write`` was given.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from headrace.log_lines import LimitedLog, get_logger

from ..acceptor import Connected
from ..limits import (
    HANDSHAKE_SLICE_S,
    TLS_READS_PER_TURN,
    TLS_RECORD_BYTES,
)
from .read_watch import ReadWatch

log = LimitedLog(get_logger("headrace.tls"))


class Handshakes:
    """The TLS handshakes of all connections: bounded in number and in the time of each turn of the
    event loop.

    :param timeout_s: the time for a handshake
    :param limit: the handshakes that may be open. One more ends the oldest
    :ivar reads: bounds the time of each step, and of each read of these connections
    """

    def __init__(self, timeout_s: float, limit: int) -> None:
        self.reads = ReadWatch()
        self._loop = asyncio.get_running_loop()
        self._timeout_s = timeout_s
        self._limit = limit
        self._open: dict[TlsTransport, float] = {}
        """By the time when they began, the first one first."""
        self._ready: deque[TlsTransport] = deque()
        self._is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, transport: TlsTransport) -> None:
        """Count a handshake. If there are too many, the oldest one is given up."""
        self._open[transport] = perf_counter()
        if len(self._open) > self._limit:
            next(iter(self._open)).give_up("%d other handshakes have begun since", self._limit)
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout_s, self._expire)

    def end(self, transport: TlsTransport) -> None:
        """Forget a handshake that is complete or has failed."""
        self._open.pop(transport, None)

    def take_step(self, transport: TlsTransport) -> None:
        """Have a handshake continued in this turn of the event loop, or a later one."""
        self._ready.append(transport)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        end = perf_counter() + HANDSHAKE_SLICE_S
        ready = self._ready
        while ready:
            ready.popleft().continue_handshake()
            if perf_counter() > end:
                break
        self._is_scheduled = bool(ready)
        if ready:
            self._loop.call_soon(self._run)

    def close(self) -> None:
        """Give up all handshakes without a word: the broker stops."""
        self.reads.close()
        if self._timer is not None:
            self._timer.cancel()
        for transport in list(self._open):
            transport.abort()

    def _expire(self) -> None:
        self._timer = None
        oldest = perf_counter() - self._timeout_s
        for transport, began in list(self._open.items()):
            if began > oldest:
                delay_s = began - oldest
                self._timer = self._loop.call_later(delay_s, self._expire)
                return
            transport.give_up("it is not complete after %g s", self._timeout_s)


class TlsTransport(asyncio.Transport):
    """One connection with TLS.

    :param sock: an accepted, non-blocking socket; it belongs to the transport from now on
    :param connected: makes the protocol, after the handshake
    :param ended: called when the handshake is complete or has failed
    """

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        connected: Connected,
        handshakes: Handshakes,
        ended: Callable[[], None],
    ) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._peer = sock.getpeername()
        self._socket = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        self._fd = self._socket.fileno()
        self._connected = connected
        self._handshakes = handshakes
        self._ended: Callable[[], None] | None = ended
        self._protocol: Any = None
        self._unsent: deque[bytes | memoryview] = deque()
        self._unsent_bytes = 0
        self._is_reading = False
        self._is_writing = False
        self._is_paused = False
        self._is_stalled = False
        """True while nothing is read, because TLS has to answer first, and the socket is full."""
        self._is_closing = False
        self._is_closed = False
        self._is_broken = False
        """True when nothing can be sent any more."""
        self._high_water = 64 * 1024
        self._is_full = False
        handshakes.begin(self)
        self._watch_reading(True)

    # The handshake --------------------------------------------------------------------------------

    def continue_handshake(self) -> None:
        """Take as many steps of the handshake as possible without waiting."""
        if self._is_closed:
            return
        reads = self._handshakes.reads
        reads.begin(self._socket)
        try:
            try:
                self._socket.do_handshake()
            finally:
                reads.end()
        except ssl.SSLWantReadError:
            self._watch_writing(False)
            self._watch_reading(True)
            return
        except ssl.SSLWantWriteError:
            self._watch_writing(True)
            return
        except (OSError, ValueError) as error:
            self.give_up("%s", getattr(error, "reason", None) or error)
            return
        self._watch_writing(False)
        self._end_handshake()
        self._protocol = self._connected()
        self._protocol.connection_made(self)
        if not self._is_closed and not self._is_closing and not self._is_paused:
            self._watch_reading(True)
            self._read()

    def give_up(self, reason: str, *values: object) -> None:
        """Close a connection whose handshake fails."""
        log.warning(
            self._peer[0],
            f"closing the connection from /%s: the TLS handshake has failed: {reason}",
            self._peer[0],
            *values,
        )
        self._close_socket()

    def _end_handshake(self) -> None:
        self._handshakes.end(self)
        if self._ended is not None:
            self._ended()
            self._ended = None

    # Receiving ------------------------------------------------------------------------------------

    def _readable(self) -> None:
        if self._protocol is None:
            self._watch_reading(False)
            self._handshakes.take_step(self)
        else:
            self._read()

    def _read(self) -> None:
        for _ in range(TLS_READS_PER_TURN):
            if not self._is_reading:
                return
            try:
                # no name for the buffer: the protocol may enlarge it while it is not in use
                received, is_all = self._receive_into(self._protocol.get_buffer(-1))
            except ssl.SSLWantReadError:
                return
            except ssl.SSLWantWriteError:
                self._is_stalled = True
                self._watch_reading(False)
                self._watch_writing(True)
                return
            except (OSError, ValueError) as error:
                self._lose(error)
                return
            if not received:
                self._end_of_input()
                return
            self._protocol.buffer_updated(received)
            if is_all:
                return
        if self._is_reading:
            self._loop.call_soon(self._read_more)

    def _read_more(self) -> None:
        if self._is_reading and self._protocol is not None:
            self._read()

    def _receive_into(self, room: memoryview) -> tuple[int, bool]:
        """Decrypt what has arrived into a buffer.

        :returns: the number of bytes, 0 at the end of input; and whether there is no more, as far
            as the polling of the socket can tell
        """
        received = self._receive(room)
        while received:
            if received == len(room):
                return received, False
            if received % TLS_RECORD_BYTES and not self._socket.pending():
                break  # not a full record, so probably the last one
            try:
                more = self._receive(room[received:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            if not more:
                return received, False  # the next read tells that, too
            received += more
        return received, True

    def _receive(self, room: memoryview) -> int:
        """Decrypt a record.

        :raises ConnectionAbortedError: the client has sent nothing but messages without data
        """
        reads = self._handshakes.reads
        reads.begin(self._socket)
        try:
            return self._socket.recv_into(room)
        finally:
            if reads.end():
                log.warning(
                    self._peer[0],
                    "closing the connection from /%s: it sends TLS messages without data",
                    self._peer[0],
                )
                raise ConnectionAbortedError

    def _end_of_input(self) -> None:
        self._watch_reading(False)
        if not self._protocol.eof_received():
            self.close()

    def pause_reading(self) -> None:
        self._is_paused = True
        self._watch_reading(False)

    def resume_reading(self) -> None:
        self._is_paused = False
        if self._is_closed or self._is_closing or self._is_stalled:
            return
        self._watch_reading(True)
        if self._protocol is not None:
            self._loop.call_soon(self._read_more)  # decrypted bytes may wait, which no poll sees

    def is_reading(self) -> bool:
        return self._is_reading

    # Sending --------------------------------------------------------------------------------------

    def send_views(self, views: Sequence[bytes | memoryview]) -> int:
        """Send what the socket takes now; return how many bytes that are. Of a broken connection
        that is everything. Do not call it while writing is paused.

        The last record may wait in the transport for the socket. Then the protocol's
        ``pause_writing`` was called.
        """
        if self._is_broken:
            return sum(map(len, views))
        sent = 0
        for view in views:
            view = memoryview(view)
            for start in range(0, len(view), TLS_RECORD_BYTES):
                record = view[start : start + TLS_RECORD_BYTES]
                sent += len(record)
                if not self._send_record(record):
                    return sent
        return sent

    def write(self, data: Any) -> None:
        view = memoryview(data)
        taken = 0 if self._unsent else self.send_views((view,))
        if taken < len(view) and not self._is_broken:
            rest = bytes(view[taken:])
            self._unsent.append(rest)
            self._unsent_bytes += len(rest)
        self._check_full()

    def writelines(self, pieces: Any) -> None:
        for piece in pieces:
            self.write(piece)

    def _send_record(self, record: memoryview) -> bool:
        """Send one record; return False if it is kept, because the socket is full."""
        try:
            taken = self._socket.send(record)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            taken = 0
        except (OSError, ValueError) as error:
            self._is_broken = True
            self._loop.call_soon(self._lose, error)
            return False
        if taken == len(record):
            return True
        # OpenSSL has encrypted the record, so exactly these bytes have to follow.
        self._unsent.appendleft(bytes(record[taken:]))
        self._unsent_bytes += len(record) - taken
        self._watch_writing(True)
        self._check_full()
        return False

    def _writable(self) -> None:
        if self._protocol is None:
            self._watch_writing(False)
            self._handshakes.take_step(self)
            return
        while self._unsent:
            first = self._unsent.popleft()
            record = memoryview(first)[:TLS_RECORD_BYTES]
            self._unsent_bytes -= len(record)
            if len(first) > len(record):
                self._unsent.appendleft(memoryview(first)[len(record) :])
            if not self._send_record(record):
                return
        self._watch_writing(False)
        if self._is_closing:
            self._shut_down()
            return
        if self._is_full:
            self._is_full = False
            self._protocol.resume_writing()
        if self._is_stalled:
            self._is_stalled = False
            if not self._is_paused:
                self.resume_reading()

    def _check_full(self) -> None:
        if not self._is_full and self._unsent_bytes > self._high_water:
            self._is_full = True
            self._protocol.pause_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_water = 64 * 1024 if high is None else high

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def can_write_eof(self) -> bool:
        return False

    # The end --------------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername":
            return self._peer
        if name == "peer_certificate":
            return self._socket.getpeercert(binary_form=True)
        if name == "cipher":
            return self._socket.cipher()
        return default

    def is_closing(self) -> bool:
        return self._is_closing or self._is_closed

    def close(self) -> None:
        """Close the connection when everything is sent."""
        if self._is_closing or self._is_closed:
            return
        self._is_closing = True
        self._watch_reading(False)
        if not self._unsent:
            self._shut_down()

    def abort(self) -> None:
        """Close the connection at once."""
        self._lose(None)

    def _shut_down(self) -> None:
        try:
            self._socket.unwrap()
        except (OSError, ValueError):
            pass  # the client has not answered the alert, or is gone
        self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if self._is_closed:
            return
        protocol = self._protocol
        self._close_socket()
        if protocol is not None:
            lost = error if isinstance(error, OSError) else None
            self._loop.call_soon(protocol.connection_lost, lost)

    def _close_socket(self) -> None:
        if self._is_closed:
            return
        self._is_closed = self._is_broken = True
        self._end_handshake()
        self._watch_reading(False)
        self._watch_writing(False)
        self._unsent.clear()
        self._unsent_bytes = 0
        self._socket.close()

    def _watch_reading(self, wanted: bool) -> None:
        if wanted and not self._is_reading and not self._is_closed:
            self._is_reading = True
            self._loop.add_reader(self._fd, self._readable)
        elif not wanted and self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._fd)

    def _watch_writing(self, wanted: bool) -> None:
        if wanted and not self._is_writing and not self._is_closed:
            self._is_writing = True
            self._loop.add_writer(self._fd, self._writable)
        elif not wanted and self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._fd)
