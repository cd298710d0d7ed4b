"""An asyncio transport with TLS on a non-blocking socket.

asyncio's own TLS cannot say how much of an answer the socket takes, which bounds the memory of
clients that do not read. Here at most :data:`TLS_SEND_BYTES` wait for the socket, beside what
``write`` was given.

OpenSSL gets one record at a time. Given more, it would read on while messages without data arrive,
such as key updates of TLS 1.3, and hold the event loop for as long as a client sends them.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from time import perf_counter
from typing import Any

from headrace.net.acceptor import Connected
from headrace.protocol.frames import other_protocol

from . import log

TLS_RECORD_BYTES = 16 * 1024
"""The most bytes of data in a TLS record."""

MAX_TLS_RECORD_BYTES = 5 + TLS_RECORD_BYTES + 2048
"""The most bytes of an encrypted TLS record with its header (RFC 5246, section 6.2.3)."""

TLS_RECEIVE_BYTES = 32 * 1024
"""The bytes that one system call receives from a connection with TLS, and the most that wait in it
to be decrypted.
"""

TLS_SEND_BYTES = 2 * TLS_RECORD_BYTES
"""The encrypted bytes that are sent with one system call. At most these, and one record more, wait
for a full socket.
"""

TLS_RECORDS_PER_TURN = 64
"""The TLS records of one connection that are read in one turn of the event loop: up to 1 MiB of
data. A record without data ends its turn.
"""

MAX_EMPTY_TLS_RECORDS = 100
"""The TLS records without data, such as key updates, that a connection may send beyond those with
data. One more closes it.
"""

HANDSHAKE_PIECE_BYTES = 4096
"""The bytes that OpenSSL gets at a time in a handshake: the memory they pass through is kept."""

HANDSHAKE_SLICE_S = 0.004
"""The time for TLS handshakes in one turn of the event loop. Each takes about a millisecond with a
key of 2048 bits.
"""

_NOTHING = memoryview(b"")
_HEADER_BYTES = 5
_CHANGE_CIPHER_SPEC, _APPLICATION_DATA = 20, 23
"""The lowest and the highest type of a record (RFC 8446, section 5.1)."""
_MAX_PIECES = 64
"""The pieces that are sent with one system call."""


class Handshakes:
    """The TLS handshakes of all connections: bounded in number and in the time of each turn of the
    event loop.

    :param timeout_s: the time for a handshake
    :param limit: the handshakes that may be open. One more ends the oldest
    :ivar buffer: these connections receive into it, one after the other
    """

    def __init__(self, timeout_s: float, limit: int) -> None:
        self.buffer = memoryview(bytearray(TLS_RECEIVE_BYTES))
        self._loop = asyncio.get_running_loop()
        self._timeout_s = timeout_s
        self._limit = limit
        self._open: dict[TlsTransport, tuple[asyncio.TimerHandle, Callable[[], None]]] = {}
        """When they are given up, and what is called at their end; the first one first."""
        self._ready: deque[TlsTransport] = deque()
        self._is_scheduled = False

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, transport: TlsTransport, ended: Callable[[], None]) -> None:
        """Count a handshake. If there are too many, the oldest one is given up.

        :param ended: called when it is complete or has failed
        """
        timeout_s, reason = self._timeout_s, "it is not complete after %g s"
        timer = self._loop.call_later(timeout_s, transport.give_up, reason, timeout_s)
        self._open[transport] = timer, ended
        if len(self._open) > self._limit:
            next(iter(self._open)).give_up("%d other handshakes have begun since", self._limit)

    def end(self, transport: TlsTransport) -> None:
        """Forget a handshake that is complete or has failed, unless that was done before."""
        if transport in self._open:
            timer, ended = self._open.pop(transport)
            timer.cancel()
            ended()

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
        """Abort the connections of all handshakes, as the broker stops."""
        for transport in list(self._open):
            transport.abort()


class TlsTransport(asyncio.Transport):
    """One connection with TLS.

    :param sock: an accepted, non-blocking socket; it belongs to the transport from now on
    :param connected: makes the protocol, after the handshake
    :param ended: called when the handshake is complete or has failed
    """

    _other_protocol: str | None = None
    """What the client speaks instead of TLS, if that is known."""
    _protocol: Any = None
    _arrived = _NOTHING
    """The bytes that OpenSSL has not got: less than a header, unless the turn is over."""
    _missing_bytes = 0
    """The bytes of the present record that OpenSSL has not got."""
    _has_record = False
    """True while OpenSSL has a whole record that is not read to its end."""
    _records_left = 0
    """The records that may be read in this turn of the event loop."""
    _empty_records = 0
    """Records without data, less those with data."""
    _is_drained = False
    """True if the socket had nothing more."""
    _is_at_end = False
    """True when the client sends no more."""
    _unsent_bytes = 0
    _is_reading = False
    _is_paused = False
    _is_read_scheduled = False
    _is_stalled = False
    """True while nothing is read, because TLS has to answer first, and the socket is full."""
    _is_complete = False
    """True when the handshake is complete."""
    _is_closing = False
    _is_closed = False
    _is_broken = False
    """True when nothing can be sent any more."""
    _is_full = False

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
        self._socket = sock
        self._fd = sock.fileno()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._connected = connected
        self._handshakes = handshakes
        self._unsent: deque[bytes | memoryview] = deque()
        """The encrypted bytes that wait for the socket."""
        handshakes.begin(self, ended)
        self._watch_reading(True)

    # The handshake --------------------------------------------------------------------------------

    def continue_handshake(self) -> None:
        """Take as many steps of the handshake as possible without waiting."""
        if self._is_closed:
            return
        self._begin_turn()
        try:
            self._is_complete = self._is_complete or self._shake_hands()
        except OSError as error:
            self._flush()  # the alert
            if self._other_protocol is not None:
                self.give_up("it speaks %s, and this port TLS", self._other_protocol)
            else:
                self.give_up("%s", getattr(error, "reason", None) or error)
            return
        if not self._flush():
            return
        if not self._is_complete:
            if self._records_left:
                self._watch_reading(True)
            else:
                self._handshakes.take_step(self)
            return
        self._has_record = False
        self._handshakes.end(self)
        self._protocol = self._connected()
        self._protocol.connection_made(self)
        if not self._is_paused:
            self.resume_reading()

    def _shake_hands(self) -> bool:
        """Take steps of the handshake for what has arrived; return True if it is complete.

        :raises OSError: when it fails
        """
        try:
            while self._feed(HANDSHAKE_PIECE_BYTES):
                try:
                    self._tls.do_handshake()
                except ssl.SSLWantReadError:
                    continue
                return True
            if self._is_at_end:
                self._incoming.write_eof()
                self._tls.do_handshake()
            return False
        finally:
            self._leave_buffer()

    def give_up(self, reason: str, *values: object) -> None:
        """Close a connection whose handshake fails."""
        self._log_end(f"the TLS handshake has failed: {reason}", *values)
        self._close_socket()

    def _log_end(self, reason: str, *values: object) -> None:
        host = self._peer[0]
        log.warning(host, f"closing the connection from /%s: {reason}", host, *values)

    # Receiving ------------------------------------------------------------------------------------

    def _readable(self) -> None:
        if self._protocol is None:
            self._watch_reading(False)
            self._handshakes.take_step(self)
        elif not self._is_read_scheduled:
            self._read()

    def _read(self) -> None:
        """Give the protocol what has arrived, as much as one turn of the event loop may take."""
        self._begin_turn()
        while self._is_reading:
            try:
                # no name for the buffer: the protocol may enlarge it while it is not in use
                received, is_all = self._receive_into(self._protocol.get_buffer(-1))
            except OSError as error:
                self._flush()  # the alert
                self._lose(error)
                return
            if self._outgoing.pending and not self._flush():
                self._is_stalled = True
                self._watch_reading(False)
            if received:
                self._protocol.buffer_updated(received)
            if self._is_at_end and self._is_reading:
                self._watch_reading(False)
                if not self._protocol.eof_received():
                    self.close()
                return
            if is_all:
                return
            if not self._records_left:
                break
        if self._is_reading:
            self._schedule_read()

    def _schedule_read(self) -> None:
        """Read in the next turn: decrypted bytes may wait, which no poll sees."""
        if not self._is_read_scheduled:
            self._is_read_scheduled = True
            self._loop.call_soon(self._read_more)

    def _read_more(self) -> None:
        self._is_read_scheduled = False
        if self._is_reading:
            self._read()

    def _begin_turn(self) -> None:
        self._records_left = TLS_RECORDS_PER_TURN
        self._is_drained = False

    def _receive_into(self, room: memoryview) -> tuple[int, bool]:
        """Decrypt records into a buffer, as many as it and the turn have room for.

        :returns: the number of bytes, and whether no further record has arrived
        :raises OSError: when the connection is lost
        """
        received = 0
        try:
            while received < len(room):
                if not self._has_record:
                    if not self._feed(MAX_TLS_RECORD_BYTES):
                        break
                    continue
                try:
                    # typeshed knows only the form that returns bytes
                    part: Any = self._tls.read(len(room) - received, room[received:])
                except ssl.SSLWantReadError:
                    self._has_record = False
                    self._count_empty_record()
                    break
                except OSError:
                    if received:
                        break  # the next read fails, too
                    raise
                if not part:
                    self._is_at_end = True
                    break
                received += part
                self._has_record = received == len(room) and self._tls.pending() > 0
                if self._empty_records:
                    self._empty_records -= 1
        finally:
            self._leave_buffer()
        return received, received < len(room) and self._records_left > 0

    def _count_empty_record(self) -> None:
        """End the turn: a key update takes as long as 16 KiB of data.

        :raises ConnectionAbortedError: the client has sent too many of them
        """
        self._records_left = 0
        self._empty_records += 1
        if self._empty_records > MAX_EMPTY_TLS_RECORDS:
            self._log_end("it sends TLS messages without data")
            raise ConnectionAbortedError

    def _feed(self, most_bytes: int) -> bool:
        """Give OpenSSL what has arrived of a record, or the next part of it; return False if that
        is nothing, or the turn is over.
        """
        if not self._records_left:
            return False
        least_bytes = 1 if self._missing_bytes else _HEADER_BYTES
        while len(self._arrived) < least_bytes:
            if not self._receive():
                return False
        if not self._missing_bytes:
            self._missing_bytes = _record_bytes(self._arrived)
            if not self._missing_bytes:
                self._refuse()
                return True
        piece = self._arrived[: min(self._missing_bytes, most_bytes)]
        self._incoming.write(piece)
        self._arrived = self._arrived[len(piece) :]
        self._missing_bytes -= len(piece)
        if not self._missing_bytes:
            self._has_record = True
            self._records_left -= 1
        return True

    def _refuse(self) -> None:
        """Give OpenSSL the bytes that are not a TLS record, and nothing after them: its
        next read raises the error.
        """
        self._other_protocol = other_protocol(self._arrived)
        if self._arrived[0] == 0:  # of the size of a request below 16 MB
            self._other_protocol = "Kafka's protocol without TLS"
        self._incoming.write(self._arrived)
        self._incoming.write_eof()
        self._arrived = _NOTHING
        self._has_record = True

    def _receive(self) -> bool:
        """Receive bytes behind those that wait; return False if there are none.

        :raises OSError: when the connection is lost
        """
        if self._is_drained or self._is_at_end:
            return False
        buffer, held = self._handshakes.buffer, len(self._arrived)
        buffer[:held] = self._arrived
        try:
            received = self._socket.recv_into(buffer[held:])
        except BlockingIOError:
            self._is_drained = True
            return False
        self._arrived = buffer[: held + received]
        self._is_drained = held + received < len(buffer)
        self._is_at_end = not received
        return received > 0

    def _leave_buffer(self) -> None:
        """Copy what waits: the buffer belongs to all connections."""
        if not self._arrived:
            self._arrived = _NOTHING
        elif self._arrived.obj is self._handshakes.buffer.obj:
            self._arrived = memoryview(bytes(self._arrived))

    def pause_reading(self) -> None:
        self._is_paused = True
        self._watch_reading(False)

    def resume_reading(self) -> None:
        self._is_paused = False
        if self._is_closing or self._is_stalled:
            return
        self._watch_reading(True)
        self._schedule_read()

    def is_reading(self) -> bool:
        return self._is_reading

    # Sending --------------------------------------------------------------------------------------

    def send_views(self, views: Sequence[bytes | memoryview]) -> int:
        """Send what the socket takes now, and return the number of bytes. A broken connection takes
        everything. Do not call it while writing is paused.

        The last bytes may wait in the transport for the socket. Then the protocol's
        ``pause_writing`` was called.
        """
        if self._is_broken:
            return sum(map(len, views))
        sent = 0
        for view in views:
            view = memoryview(view)
            for start in range(0, len(view), TLS_RECORD_BYTES):
                sent += self._encrypt(view[start : start + TLS_RECORD_BYTES])
                if self._unsent_bytes >= TLS_SEND_BYTES and not self._flush():
                    return sent
        self._flush()
        return sent

    def write(self, data: Any) -> None:
        view = memoryview(data)
        sent = 0 if self._unsent else self.send_views((view,))
        for start in range(sent, len(view), TLS_RECORD_BYTES):
            self._encrypt(view[start : start + TLS_RECORD_BYTES])

    def _encrypt(self, data: memoryview) -> int:
        """Encrypt the data of one record, and return its size. A broken connection drops it."""
        if not self._is_broken:
            try:
                self._tls.write(data)
            except OSError as error:
                self._break(error)
            self._take_encrypted()
        return len(data)

    def _take_encrypted(self) -> None:
        """Take what OpenSSL has to send. It waits for :meth:`_flush`: record by record, as the
        memory of OpenSSL keeps the largest size that it had.
        """
        piece = self._outgoing.read()
        if piece:
            self._unsent.append(piece)
            self._unsent_bytes += len(piece)

    def _flush(self) -> bool:
        """Send what OpenSSL has to send; return False if some of it waits for the socket."""
        self._take_encrypted()
        unsent = self._unsent
        while unsent:
            pieces = list(islice(unsent, _MAX_PIECES))
            sent = 0
            if not self._is_broken:
                try:
                    sent = self._socket.sendmsg(pieces)
                except BlockingIOError:
                    pass
                except OSError as error:
                    self._break(error)
            self._unsent_bytes -= sent
            for piece in pieces:
                if sent < len(piece):
                    unsent[0] = memoryview(piece)[sent:]
                    if not self._is_closed:
                        self._loop.add_writer(self._fd, self._writable)
                    if self._protocol is not None and not self._is_full:
                        self._is_full = True
                        self._protocol.pause_writing()
                    return False
                sent -= len(piece)
                unsent.popleft()
        return True

    def _break(self, error: OSError) -> None:
        self._is_broken = True
        self._loop.call_soon(self._lose, error)

    def _writable(self) -> None:
        if not self._flush():
            return
        self._loop.remove_writer(self._fd)
        if self._protocol is None:
            self._handshakes.take_step(self)
            return
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

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Leave the limit at 0: writing is paused while bytes wait for the socket."""

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    # The end --------------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername":
            return self._peer
        if name == "peer_certificate":
            return self._tls.getpeercert(binary_form=True)
        return default

    def can_write_eof(self) -> bool:
        """Return False: TLS ends both directions at once."""
        return False

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """Close the connection when everything is sent."""
        if self._is_closing:
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
            self._tls.unwrap()
        except OSError:
            pass  # the client has not answered the alert
        self._flush()
        self._lose(None)

    def _lose(self, error: OSError | None) -> None:
        if self._is_closed:
            return
        self._close_socket()
        if self._protocol is not None:
            self._loop.call_soon(self._protocol.connection_lost, error)

    def _close_socket(self) -> None:
        self._is_closing = self._is_closed = self._is_broken = True
        self._handshakes.end(self)
        self._watch_reading(False)
        self._loop.remove_writer(self._fd)
        self._unsent.clear()
        self._unsent_bytes = 0
        self._arrived = _NOTHING
        self._socket.close()

    def _watch_reading(self, is_watched: bool) -> None:
        if is_watched and not self._is_reading and not self._is_closed:
            self._is_reading = True
            self._loop.add_reader(self._fd, self._readable)
        elif not is_watched and self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._fd)


def _record_bytes(data: memoryview) -> int:
    """Return the size of the record that begins here, with its header; 0 if this is no record.

    :param data: at least the header
    """
    if not _CHANGE_CIPHER_SPEC <= data[0] <= _APPLICATION_DATA:
        return 0
    size_bytes = _HEADER_BYTES + (data[3] << 8 | data[4])
    return size_bytes if size_bytes <= MAX_TLS_RECORD_BYTES else 0
