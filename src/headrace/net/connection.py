"""One client connection: the line between a socket and a :class:`~headrace.net.session.Session`.

An idle connection has no buffer: all connections receive into one shared buffer, and only an
incomplete frame is copied to a buffer of its own.

A connection is served while its client reads: as soon as the socket does not take an answer whole,
no further request is served. What all connections take together is bounded in ``flow.py``.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import count
from time import perf_counter
from typing import Any

from . import log
from .api import Apis
from .call import RECEIVE_BUFFER_BYTES, Client
from .connection_limits import ConnectionLimits
from .flow import MAX_UNSENT_BYTES, AnswerMemory, RequestMemory
from .listener_security import ListenerSecurity
from .listeners import Listener
from .requests import IncompleteFrame
from .services import Services
from .session import COUNTED_REQUEST_BYTES, SEND_AT_BYTES, Progress, Session, Sessions, State
from .unsent import FileReadError, Unsent

MAX_QUEUED_REQUESTS = 64
"""The number of unserved requests of one connection above which nothing is read from it."""

MAX_QUEUED_BYTES = 8 * 1024 * 1024
"""The bytes of unserved requests above which nothing is read from a connection."""

SEND_BUFFER_BYTES = 256 * 1024
"""The buffer for records on their way from a file to a socket; one for all connections."""

AWAIT_SOCKET_BYTES = 4096
"""The bytes that are given to a full socket, to learn when it takes more. A client that does not
read its records costs this memory.
"""


class Connections:
    """The open connections of a broker, and the state that they share.

    :param most: the connections that the process has file descriptors for
    :ivar connections: the open connections
    :ivar limits: how many of them there may be
    :ivar receive_buffer: the buffer that all connections receive into, one after the other
    :ivar send_buffer: the buffer for records on their way from a file to a socket
    :ivar request_memory: the memory of requests that are not served yet
    :ivar answer_memory: the memory of answers that are not sent yet
    """

    def __init__(self, services: Services, apis: Apis, most: int) -> None:
        self.services = services
        self.metrics = services.metrics
        self.connections = services.metrics.connections
        self.limits = ConnectionLimits(services, most)
        self.connection_ids = count(1)
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.send_buffer = memoryview(bytearray(SEND_BUFFER_BYTES))
        self.request_memory = RequestMemory(
            services.metrics.request_memory,
            services.config.get_int("queued.max.request.bytes"),
            self.receive_buffer,
        )
        self.answer_memory = AnswerMemory(services.metrics.response_memory, MAX_UNSENT_BYTES)
        self.sessions = Sessions(services, apis, self.receive_buffer.toreadonly())
        self.turns = self.sessions.turns
        if services.access_control is not None:
            services.access_control.on_change = self._forget_templates
        services.quotas.on_change = self._choose_quotas
        self._choose_quotas()

    def _choose_quotas(self) -> None:
        """Charge requests while users or client ids have quotas."""
        quotas = self.services.quotas if self.services.quotas.limits_requests else None
        if quotas is not self.sessions.quotas:
            self.sessions.quotas = quotas
            for connection in self.connections:
                connection.session.charge_to(quotas)

    def _forget_templates(self) -> None:
        for connection in self.connections:
            connection.session.forget_templates()


@dataclass(slots=True, eq=False, repr=False)
class Connection(asyncio.BufferedProtocol):
    """One client's connection."""

    shared: Connections
    _listener: Listener
    _security: ListenerSecurity
    session: Session = field(init=False)
    transport: Any = None
    last_active: float = 0.0
    is_receiving: bool = True
    """False while nothing is read."""
    _is_in_turns: bool = False
    _unsent: Unsent = field(default_factory=Unsent)
    _fd: int = -1
    _is_full: bool = False
    """True while the socket takes no more."""
    _is_blocked: bool = False
    """True while answers are unsent, because the socket is full or others have their turn."""
    _is_at_end: bool = False
    """True when the client sends no more, but waits for answers."""

    @property
    def frame(self) -> IncompleteFrame | None:
        """The incomplete frame."""
        return self.session.frame

    # Receiving ------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(high=0)
        sock = transport.get_extra_info("socket")
        self._fd = -1 if sock is None else sock.fileno()
        shared, listener = self.shared, self._listener
        peer = transport.get_extra_info("peername")
        host = peer[0] if peer else ""
        client = Client(host, next(shared.connection_ids), listener)
        session = self.session = Session(shared.sessions, client, self.advance)
        self.last_active = perf_counter()
        shared.connections.add(self)
        shared.metrics.connections_accepted += 1
        exceeded = shared.limits.opened(host, listener.name)
        if exceeded is not None:
            session.close(*exceeded)
        else:
            session.secure(self._security, transport.get_extra_info("peer_certificate"))
        self._regulate()

    def get_buffer(self, sizehint: int) -> memoryview:
        frame = self.session.frame
        return self.shared.request_memory.room if frame is None else frame.room()

    def buffer_updated(self, nbytes: int) -> None:
        session, shared = self.session, self.shared
        self.last_active = session.started = perf_counter()
        shared.metrics.received_bytes += nbytes
        frame = session.frame
        if frame is None:
            if not self._is_blocked and session.receive_request(nbytes):
                if session.answers:
                    self._send()
                if nbytes > COUNTED_REQUEST_BYTES:
                    self._count_memory()
                if session.is_throttled or session.state is not State.OPEN:
                    self._regulate()
                return
            session.receive(nbytes)
        else:
            frame.received_bytes += nbytes
            if frame.received_bytes < frame.size_bytes:
                if frame.is_full:  # it grows, or waits until there is memory for that
                    if shared.request_memory.admits(self, frame.next_capacity - frame.capacity):
                        self.memory_granted()
                    else:
                        self._regulate()
                return
            session.end_frame(frame)
            shared.request_memory.leave(self)
        self.advance()

    def memory_granted(self) -> None:
        """Receive more of the incomplete frame, which had to wait for memory."""
        if self.session.frame is not None:
            self.session.frame.grow()
        self._count_memory()
        self._regulate()

    def _count_memory(self) -> None:
        """Account for the memory of the requests that are not answered yet."""
        self.shared.request_memory.hold(self, self.session.held_bytes)

    # Serving --------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Serve queued requests and send answers, unless the connection waits for its turn."""
        session = self.session
        if session.is_idle and self.is_receiving and not self._is_blocked:  # nothing else to do
            if session.answers:
                self._send()
            self._count_memory()
        else:
            self._advance(self.shared.turns.end_ms())

    def serve_until(self, end_ms: int) -> None:
        """Send unsent answers and serve queued requests until a time: the connection's turn has
        come, or its socket takes more.
        """
        self._is_in_turns = False
        self._push(end_ms)
        if not self._is_blocked:
            self._advance(end_ms)

    def _advance(self, end_ms: int) -> None:
        """Serve queued requests until one has to wait, the client does not read its answers, or
        the time is over.

        :param end_ms: a steady time
        """
        session = self.session
        while True:
            is_stopped = self._is_blocked or self._is_in_turns
            progress = Progress.DONE if is_stopped else session.serve(end_ms)
            if session.answers:
                self._send()
            if progress is Progress.LATE:
                self._wait_for_turn()
            if progress is not Progress.COLLECTED:
                break
        if session.queue.count:
            session.queue.keep(self.shared.receive_buffer.obj)
        self._count_memory()
        self._regulate()
        if self._is_at_end:  # the client sends no more: close when everything is answered
            is_done = session.is_waiting or not (session.queue.count or self._unsent)
            if is_done and self.transport is not None:
                self.transport.close()

    def _wait_for_turn(self) -> None:
        if not self._is_in_turns:
            self._is_in_turns = True
            self.shared.turns.add(self.serve_until)

    def _regulate(self) -> None:
        """Stop receiving while too many requests wait, or one waits for memory; continue
        afterwards. Close the connection if its session is at its end.
        """
        session, transport = self.session, self.transport
        if transport is None:
            return
        if session.state is State.GONE:
            self.abandon()
            return
        if session.state is State.CLOSING and not self._unsent:
            transport.close()
            return
        queue, frame = session.queue, session.frame
        is_receiving = not (
            session.state is not State.OPEN
            or queue.count > MAX_QUEUED_REQUESTS
            or queue.size_bytes > MAX_QUEUED_BYTES
            or (queue.count > 0 and self.shared.request_memory.is_spent)
            or (frame is not None and frame.is_full)
            or session.is_throttled
        )
        if is_receiving != self.is_receiving and not self._is_at_end:
            self.is_receiving = is_receiving
            (transport.resume_reading if is_receiving else transport.pause_reading)()

    # Sending --------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Send all answers with one system call, if the socket takes them."""
        answers = self.session.answers
        if self.transport is None:
            return
        if len(answers) == 1 and len(answers[0]) <= SEND_AT_BYTES and not self._unsent:
            answer = answers.pop()
            self.shared.metrics.sent_bytes += len(answer)
            self.transport.write(answer)
            return
        size_bytes = sum(map(len, answers))
        self.shared.metrics.sent_bytes += size_bytes
        self._unsent.add(answers)
        answers.clear()
        if self._is_blocked:
            return
        turns = self.shared.turns
        end_ms = turns.end_ms()
        if turns.is_spent and size_bytes > SEND_AT_BYTES and turns.now_ms() > end_ms:
            self._unsent.forget_data()
            self._is_blocked = True
            self._wait_for_turn()
        else:
            self._push(end_ms)

    def _push(self, end_ms: int) -> None:
        """Write unsent answers until the socket takes no more, or the time is over."""
        unsent, now_ms = self._unsent, self.shared.turns.now_ms
        try:
            while unsent and not self._is_full:
                if self._fd < 0:  # a transport with TLS
                    unsent.send_to(self.transport.send_views, self.shared.send_buffer)
                elif not unsent.write_to(self._fd, self.shared.send_buffer):
                    unsent.forget_data()
                    self.transport.write(unsent.take(AWAIT_SOCKET_BYTES))
                    continue
                if unsent and now_ms() > end_ms:
                    unsent.forget_data()
                    self._wait_for_turn()
                    break
        except FileReadError as error:
            address = self.session.address
            log.error(address, "cannot send records to %s: %s", address, error)
            self.abandon()
            return
        except OSError:  # the client is gone
            self.abandon()
            return
        held_bytes = unsent.held_bytes
        if self._is_full:
            unsent.forget_data()
            if self.transport is not None:
                held_bytes += self.transport.get_write_buffer_size()
        self._is_blocked = self._is_full or bool(unsent)
        self.shared.answer_memory.hold(self, held_bytes)

    def pause_writing(self) -> None:
        self._is_full = self._is_blocked = True
        if not self._unsent and self.transport is not None:
            self.shared.answer_memory.hold(self, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._is_full = False
        self.last_active = perf_counter()  # a client that reads is not idle
        if self.transport is not None and not self._is_in_turns:
            self.serve_until(self.shared.turns.end_ms())

    # The end --------------------------------------------------------------------------------------

    def stop_serving(self) -> None:
        """Serve no further request and answer none that waits; the connection stays open."""
        self.session.hold()
        self._unsent.clear()
        self._regulate()

    def abandon(self) -> None:
        """Close the connection at once; nothing more is sent."""
        session = self.session
        session.queue.clear()
        session.answers.clear()
        session.state = State.GONE
        self._unsent.clear()
        if self.transport is not None:
            self.transport.abort()

    def eof_received(self) -> bool:
        """Stop receiving; return True to stay open for requests and answers that are left."""
        self._is_at_end, self.is_receiving = True, False
        return bool(self._unsent) or (self.session.queue.count > 0 and self.session.task is None)

    def connection_lost(self, exc: Exception | None) -> None:
        client, shared = self.session.client, self.shared
        self.transport = None
        self._unsent.clear()
        self.session.end()
        shared.request_memory.leave(self)
        self._count_memory()
        shared.answer_memory.hold(self, 0)
        shared.connections.discard(self)
        shared.limits.closed(client.host, client.listener.name)
        shared.services.disconnected(client.connection_id)
