"""One client connection: frames in, responses out, in the order of the requests.

The requests of one connection are served one after the other, as in Kafka, so responses keep their
order. An idle connection has no buffer: all connections receive into one shared buffer, and only an
incomplete frame is copied to a buffer of its own.

A connection is served while its client reads: as soon as the socket does not take an answer whole,
no further request is served. What all connections take together is bounded in ``flow.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cached_property, partial
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode
from headrace.handlers import APIS, Served, served
from headrace.handlers.api_18_api_versions import supported
from headrace.log_lines import LimitedLog, get_logger
from headrace.net import wire
from headrace.net.api import served_versions
from headrace.net.call import Call, Client, CloseConnection, failed, serve
from headrace.net.waiting import Waiting
from headrace.protocol.file_range import Piece, joined
from headrace.protocol.frames import (
    SIZE,
    BadFrame,
    BadFrameSize,
    RequestHeader,
    other_protocol,
    request_header,
    whole_frames,
)
from headrace.protocol.request_templates import RequestTemplates
from headrace.security.access import UNLIMITED, AnyAccess
from headrace.security.principal import ANONYMOUS, Principal

from .call import RECEIVE_BUFFER_BYTES, SLICED_REQUEST_BYTES
from .client_quotas import Quotas
from .connection_counts import ConnectionCounts
from .flow import MAX_UNSENT_BYTES, AnswerMemory, RequestMemory, Turns
from .listener_security import ListenerSecurity
from .listeners import Listener
from .request_charge import Mute, RequestCharge
from .requests import IncompleteFrame, RequestQueue
from .unsent import FileReadError, Unsent

if TYPE_CHECKING:
    from headrace.security.login import Login

    from .login_requests import LoginRequests

LOGIN_TIMEOUT_S = 30.0
"""The time for a TLS handshake, and the time for a SASL login. Then the connection is closed."""

MIN_REQUEST_BYTES = 8
"""The shortest request header: api key, version, correlation id."""

MIN_TOKEN_BYTES = 2
"""The shortest message of a login as a frame of its own: as much as an API key. ``\\0a\\0b`` is the
shortest one that succeeds.
"""

MAX_QUEUED_REQUESTS = 64
"""The number of unserved requests of one connection above which nothing is read from it."""

MAX_QUEUED_BYTES = 8 * 1024 * 1024
"""The bytes of unserved requests above which nothing is read from a connection."""

SEND_AT_BYTES = 64 * 1024
"""Answers to requests that came together are sent together, up to this size."""

SEND_BUFFER_BYTES = 256 * 1024
"""The buffer for records on their way from a file to a socket; one for all connections."""

AWAIT_SOCKET_BYTES = 4096
"""The bytes that are given to a full socket, to learn when it takes more. A client that does not
read its records costs this memory.
"""

COUNTED_REQUEST_BYTES = 16 * 1024
"""A smaller request does not count in ``queued.max.request.bytes`` while it is being served."""

MAX_PRODUCE_TEMPLATES = 1000
"""Request templates of Produce on one connection: one for each partition. One more discards all."""

log = LimitedLog(get_logger("headrace.server"))

_PRODUCE, _API_VERSIONS = 0, 18
_API_KEY_LOW_BYTE = 1
_API_KEY_IN_FRAME = SIZE.size + _API_KEY_LOW_BYTE
_QUICK = frozenset((0, 1, 8, 12, 18, 68, 76, 78, 79))
"""The APIs whose requests take little time and never wait in line: Produce, Fetch, OffsetCommit,
heartbeats, ApiVersions, ShareFetch and ShareAcknowledge.
"""


class Connections:
    """The open connections of a broker, and the state that they share.

    :ivar connections: the open connections
    :ivar counts: how many of them each client address has
    :ivar request_bytes: valid sizes of a request
    :ivar token_bytes: valid sizes of a frame with a message of a login and nothing else
    :ivar whole_frame_bytes: the same, including the size field
    :ivar receive_buffer: the buffer that all connections receive into, one after the other
    :ivar received: the same memory, read only
    :ivar send_buffer: the buffer for records on their way from a file to a socket
    :ivar request_memory: the memory of requests that are not served yet
    :ivar answer_memory: the memory of answers that are not sent yet
    :ivar turns: the connections with more requests than fit into a slice of time
    """

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.metrics = broker.metrics
        self.connections = broker.metrics.connections
        self.counts = ConnectionCounts(broker.config)
        self.connection_ids = count(1)
        self.max_request_bytes = broker.config.get_int("socket.request.max.bytes")
        self.request_bytes = range(MIN_REQUEST_BYTES, self.max_request_bytes + 1)
        self.token_bytes = range(MIN_TOKEN_BYTES, self.max_request_bytes + 1)
        self.whole_frame_bytes = range(
            SIZE.size + MIN_REQUEST_BYTES, SIZE.size + self.max_request_bytes + 1
        )
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.received = self.receive_buffer.toreadonly()
        self.send_buffer = memoryview(bytearray(SEND_BUFFER_BYTES))
        self.request_memory = RequestMemory(
            broker.metrics.request_memory,
            broker.config.get_int("queued.max.request.bytes"),
            self.receive_buffer,
        )
        self.answer_memory = AnswerMemory(broker.metrics.response_memory, MAX_UNSENT_BYTES)
        self.turns = Turns(broker.clock.now_ms)
        self.access_control = broker.access_control
        if self.access_control is not None:
            self.access_control.on_change = self._forget_templates
        self.quotas: Quotas | None = None
        """The client quotas, while users or client ids have any."""
        broker.quotas.on_change = self._choose_quotas
        self._choose_quotas()

    @cached_property
    def logins(self) -> LoginRequests:
        """The service of the requests of logins."""
        from .login_requests import LoginRequests

        return LoginRequests(self.broker)

    def _choose_quotas(self) -> None:
        """Charge requests while users or client ids have quotas."""
        quotas = self.broker.quotas if self.broker.quotas.limits_requests else None
        if quotas is not self.quotas:
            self.quotas = quotas
            for connection in self.connections:
                connection.charge_to(quotas)

    def _forget_templates(self) -> None:
        """Forget the templates of all connections: they serve only what was allowed."""
        for connection in self.connections:
            connection.forget_templates()

    def access_of(self, principal: Principal, host: str) -> AnyAccess:
        """Return the access of a client."""
        if self.access_control is None:
            return UNLIMITED
        return self.access_control.access_of(principal, host)


class Connection(asyncio.BufferedProtocol):
    """One client's connection."""

    __slots__ = (
        "_answers",
        "_charge",
        "_client",
        "_fd",
        "_held_request_bytes",
        "_is_at_end",
        "_is_blocked",
        "_is_closing",
        "_is_full",
        "_is_in_turns",
        "_is_paused",
        "_login",
        "_login_timer",
        "_queue",
        "_security",
        "_task_bytes",
        "_templates",
        "_unsent",
        "connection_id",
        "frame",
        "host",
        "last_active",
        "listener",
        "port",
        "principal",
        "shared",
        "task",
        "transport",
    )

    def __init__(
        self, shared: Connections, listener: Listener, security: ListenerSecurity | None = None
    ) -> None:
        self.shared = shared
        self.listener = listener
        self._security = security
        self._login: Login | None = None
        """The login of a client, None on a listener without SASL."""
        self._login_timer: asyncio.TimerHandle | None = None
        self.connection_id = next(shared.connection_ids)
        self.transport: Any = None
        self.host = "/"
        self.port = 0
        self.principal = ANONYMOUS
        self.last_active = 0.0
        self.task: Waiting | Mute | None = None
        self.frame: IncompleteFrame | None = None
        self._client: Client | None = None
        self._charge: RequestCharge | None = None
        """The use of client quotas, None while there are none."""
        if shared.quotas is not None:
            self.charge_to(shared.quotas)
        self._templates: RequestTemplates | None = None
        """Of Produce requests, once one was served."""
        self._queue = RequestQueue()
        self._task_bytes = 0
        """The size of the request that waits for its answer, if it is large."""
        self._held_request_bytes = 0
        self._is_paused = False
        self._is_in_turns = False
        self._answers: list[Piece] = []
        self._unsent = Unsent()
        self._fd = -1
        self._is_full = False
        """True while the socket takes no more."""
        self._is_blocked = False
        """True while answers are unsent, because the socket is full or others have their turn."""
        self._is_closing = False
        self._is_at_end = False
        """True when the client sends no more, but waits for answers."""

    # Receiving ------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(high=0)
        fileno = getattr(transport.get_extra_info("socket"), "fileno", None)
        self._fd = -1 if fileno is None else fileno()
        peer = transport.get_extra_info("peername")
        if peer:
            self.host, self.port = f"/{peer[0]}", peer[1]
        self.last_active = perf_counter()
        self.shared.connections.add(self)
        self.shared.metrics.connections_accepted += 1
        limit = self.shared.broker.config.get_int("max.connections")
        host_limit = self.shared.counts.opened(self.host[1:])
        listener_limit = self.shared.counts.opened_on(self.listener.name)
        if len(self.shared.connections) > limit:
            self._close("max.connections=%d is reached", limit)
        elif listener_limit is not None:
            self._close("its listener has the maximum of %d connections", listener_limit)
        elif host_limit is not None:
            self._close("it has the maximum of %d connections", host_limit)
        elif self._security is not None:
            self._secure(self._security)

    def _secure(self, security: ListenerSecurity) -> None:
        """Wait for a login, or take the principal from the certificate of the client."""
        if security.sasl is not None:
            self._login = security.sasl.new_login()
            self._login_timer = asyncio.get_running_loop().call_later(
                LOGIN_TIMEOUT_S, self._end_slow_login
            )
            return
        if security.tls is None:
            return
        try:
            certificate = self.transport.get_extra_info("peer_certificate")
            self.principal = security.tls.principal(certificate)
        except ValueError as error:
            self._close("%s", error)

    def get_buffer(self, sizehint: int) -> memoryview:
        frame = self.frame
        return self.shared.request_memory.room if frame is None else frame.room()

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active = perf_counter()
        shared = self.shared
        shared.metrics.received_bytes += nbytes
        frame = self.frame
        if frame is None:
            data = shared.received
            if (
                self.task is None
                and not self._is_blocked
                and not self._queue.count
                and SIZE.unpack_from(data)[0] + SIZE.size == nbytes in shared.whole_frame_bytes
                and (not shared.turns.is_spent or data[_API_KEY_IN_FRAME] in _QUICK)
            ):
                # exactly one request, as from most clients
                self._request(data[SIZE.size : nbytes])
                if self._answers:
                    self._send()
                if nbytes > COUNTED_REQUEST_BYTES and self._count_task(nbytes):
                    self._count_memory()
                return
            self._split(nbytes)
            self._serve()
            return
        frame.received_bytes += nbytes
        if frame.received_bytes == frame.size_bytes:
            self._end_frame(frame)
        elif frame.is_full:
            self._grow(frame)

    def _split(self, end: int) -> None:
        """Queue the whole frames that have arrived, and begin the incomplete one after them."""
        data = self.shared.received
        try:
            count, position = whole_frames(data, end, self._frame_bytes)
        except BadFrameSize as error:
            self._refuse_frame(error.size_bytes)
            return
        self._queue.add(data[:position], count)
        if position < end:
            self._begin_frame(data[position:end])

    @property
    def _frame_bytes(self) -> range:
        """The valid sizes of the next frame: the token of a login may be shorter than a request."""
        takes_token = self._login is not None and self._login.takes_tokens
        return self.shared.token_bytes if takes_token else self.shared.request_bytes

    def _begin_frame(self, start: memoryview) -> None:
        size_bytes = 0
        if len(start) >= SIZE.size:
            (size_bytes,) = SIZE.unpack_from(start)
            if size_bytes not in self._frame_bytes or self._is_too_large(size_bytes):
                self._refuse_frame(size_bytes)
                return
        self.frame = IncompleteFrame(start, SIZE.size + size_bytes)

    def _end_frame(self, frame: IncompleteFrame) -> None:
        self.frame = None
        self.shared.request_memory.leave(self)
        whole = frame.whole()
        if len(whole) == SIZE.size:  # only the size was incomplete
            self._begin_frame(whole)
        else:
            self._queue.add(whole, 1)
        self._serve()

    def _grow(self, frame: IncompleteFrame) -> None:
        """Let an incomplete frame grow, or wait until there is memory for that."""
        memory = self.shared.request_memory
        if memory.admits(self, frame.next_capacity - frame.capacity):
            frame.grow()
        self._count_memory()
        self._regulate()

    def memory_granted(self) -> None:
        """Receive more of the incomplete frame, which had to wait for memory."""
        if self.frame is not None:
            self.frame.grow()
        self._count_memory()
        self._regulate()

    @property
    def is_receiving(self) -> bool:
        """True unless the broker does not read from the connection now."""
        return not self._is_paused

    def _count_task(self, size_bytes: int) -> bool:
        """Count the request that was served last, if it waits for its answer; return whether it
        does.
        """
        if not self.is_waiting:
            return False
        self._task_bytes = size_bytes
        return True

    def _count_memory(self) -> None:
        """Account for the memory of the requests that are not answered yet."""
        frame = self.frame
        held = self._queue.size_bytes + self._task_bytes
        if frame is not None:
            held += frame.capacity
        if held != self._held_request_bytes:
            self._held_request_bytes = held
            self.shared.request_memory.hold(self, held)

    def _refuse_frame(self, size_bytes: int) -> None:
        """Close the connection of a client whose next four bytes are no valid size of a request."""
        protocol = other_protocol(SIZE.pack(size_bytes))
        if protocol is not None:
            self._close("it speaks %s, and this port Kafka's protocol", protocol)
        elif size_bytes < self._frame_bytes.start:
            self._close("a request of %d bytes is too small", size_bytes)
        elif size_bytes > self.shared.max_request_bytes:
            self._close(
                "a request of %d bytes; socket.request.max.bytes is %d",
                size_bytes,
                self.shared.max_request_bytes,
            )
        else:
            self._close("a request of %d bytes is too large before a login", size_bytes)

    # Serving --------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Serve the queued requests, unless the connection waits for its turn."""
        self._serve_queue(self.shared.turns.end_ms())

    def serve_until(self, end_ms: int) -> None:
        """Send unsent answers and serve queued requests until a time: the connection's turn has
        come.
        """
        self._is_in_turns = False
        self._push(end_ms)
        self._after_push(end_ms)

    def _serve_queue(self, end_ms: int) -> None:
        """Serve queued requests until one has to wait, the client does not read its answers, or
        the time is over.

        :param end_ms: a steady time
        """
        queue, answers, turns = self._queue, self._answers, self.shared.turns
        now_ms = turns.now_ms
        collected = 0
        while (
            queue.count
            and self.task is None
            and not self._is_blocked
            and not self._is_closing
            and not self._is_in_turns
        ):
            if turns.is_spent and now_ms() > end_ms and not queue.is_next_in(_QUICK):
                self._wait_for_turn()
                break
            before = len(answers)
            frame = queue.next()
            self._request(frame)
            if len(frame) > COUNTED_REQUEST_BYTES:
                self._count_task(len(frame))
            collected += sum(map(len, answers[before:]))
            if collected > SEND_AT_BYTES:
                self._send()
                collected = 0
            if queue.count and now_ms() > end_ms:
                self._wait_for_turn()
        if answers:
            self._send()
        if queue.count:
            queue.keep(self.shared.receive_buffer.obj)
        self._count_memory()
        if queue.count or self._is_paused:
            self._regulate()
        if self._is_at_end:
            self._close_at_end()

    def _wait_for_turn(self) -> None:
        if not self._is_in_turns:
            self._is_in_turns = True
            self.shared.turns.add(self)

    def _regulate(self) -> None:
        """Stop receiving while too many requests wait, or one waits for memory; continue
        afterwards.
        """
        queue, memory = self._queue, self.shared.request_memory
        paused = (
            self._is_closing
            or queue.count > MAX_QUEUED_REQUESTS
            or queue.size_bytes > MAX_QUEUED_BYTES
            or (queue.count > 0 and memory.is_spent)
            or (self.frame is not None and self.frame.is_full)
            or self.is_muted
        )
        if paused != self._is_paused and self.transport is not None and not self._is_at_end:
            self._is_paused = paused
            (self.transport.pause_reading if paused else self.transport.resume_reading)()

    def _request(self, frame: memoryview) -> None:
        if self._login is not None and self._belongs_to_login(frame):
            self._log_in(self._login, frame)
            return
        if self._charge is not None:
            self._charge.begin(len(frame))
        started = self.last_active
        if (
            self._templates is not None
            and self._charge is None
            and frame[_API_KEY_LOW_BYTE] == _PRODUCE
        ):
            try:
                answer = self._templates.try_serve(frame)
            except Exception as error:
                answer = error
            if answer is not None:
                self._answer_templated(frame, started, answer)
                return
        try:
            header = request_header(frame)
            if header.api_key not in APIS:
                raise BadFrame(f"api key {header.api_key} is not served")
            version = header.api_version
            lowest, highest = served_versions(header.api_key, self.shared.broker.config)
            if not lowest <= version <= highest:
                if header.api_key != _API_VERSIONS:
                    name = APIS[header.api_key].name
                    raise BadFrame(f"{name} {lowest}-{highest} is served, not {version}")
                self._unsupported_api_versions(header)
                return
        except BadFrame as error:
            self._close("%s", error)
            return
        self._call(served(header.api_key), frame, header, started)

    # Calls ----------------------------------------------------------------------------------------

    def _call(
        self, called: Served, frame: memoryview, header: RequestHeader, started: float
    ) -> None:
        """Serve a request, and answer it or wait for its response."""
        api, handle = called
        client = self._client
        if client is None:
            client = self._client = self._new_client()
        if self._charge is not None:
            self._charge.resume()
            self._name_charge(self._charge, header)
        if SLICED_REQUEST_BYTES < len(frame) <= RECEIVE_BUFFER_BYTES and not api.is_quick:
            frame = memoryview(bytes(frame))  # it may be in the buffer of all connections
        self.shared.turns.end_ms()  # the slice begins
        call = Call(self.shared.broker, api, client, header.api_version, header.client_id)
        steps = serve(call, handle, frame, header)
        try:
            awaited = steps.send(None)
        except StopIteration as end:
            self._end_call(header, started, end.value)
            self.shared.turns.served()
            if header.api_key == _PRODUCE and call.request is not None:
                self._remember(frame, header, call)
        except Exception as error:
            self._fail_call(error)
        else:
            self._pause_charge()
            done = partial(self._resume, header, started)
            self.task = Waiting(steps, awaited, done, self._charge)

    def _new_client(self) -> Client:
        listener = self.listener
        return Client(
            self.host[1:],
            self.port,
            self.connection_id,
            listener.name,
            listener.advertised_host or listener.host,
            listener.advertised_port or listener.port,
            self.principal,
            self.shared.access_of(self.principal, self.host[1:]),
            self._charge,
        )

    def _end_call(
        self, header: RequestHeader, started: float, answer: tuple[list[Piece] | None, Any]
    ) -> None:
        pieces, response = answer
        if self.transport is not None:
            throttle_ms = 0
            if self._charge is not None:
                size_bytes = 0 if pieces is None else sum(map(len, pieces))
                throttle_ms = self._settle(self._charge, header, size_bytes)
            if pieces is not None:  # Produce with acks=0 has no answer
                if throttle_ms:
                    api = APIS[header.api_key]
                    pieces = wire.throttled(api, header, response, pieces, throttle_ms)
                self._answers += pieces
        self.shared.metrics.requests[header.api_key].answered(started, response)

    def _fail_call(self, error: BaseException) -> None:
        if isinstance(error, BadFrame | CloseConnection):
            self._close("%s", error)
        else:
            log.error(self.host, "cannot answer a request of %s", self.host, exc_info=error)
            self.abandon()

    def _resume(self, header: RequestHeader, started: float, answer: Any) -> None:
        """Answer a request that had to wait, and serve the next."""
        self.task = None
        self._task_bytes = 0
        if isinstance(answer, BaseException):
            self._fail_call(answer)
            return
        self._end_call(header, started, answer)
        self._serve()

    # The login ------------------------------------------------------------------------------------

    def _belongs_to_login(self, frame: memoryview) -> bool:
        assert self._login is not None
        return self._login.intercepts(frame[0] << 8 | frame[1], self.shared.turns.now_ms())

    def _is_too_large(self, size_bytes: int) -> bool:
        """Return whether a request is larger than allowed before the login."""
        return (
            self._login is not None
            and self._login.principal is None
            and self._security is not None
            and self._security.sasl is not None
            and size_bytes > self._security.sasl.max_receive_bytes
        )

    def _log_in(self, login: Login, frame: memoryview) -> None:
        """Serve a request of a login."""
        assert self._security is not None
        assert self._security.sasl is not None
        if self._is_too_large(len(frame)):
            self._refuse_frame(len(frame))
            return
        try:
            outcome = self.shared.logins.serve(login, frame, self._new_client())
        except BadFrame as error:
            self._fail_login((), str(error))
            return
        except Exception as error:
            log.error(self.host, "a login from %s failed", self.host, exc_info=error)
            self.abandon()
            return
        if outcome.failure is not None:
            self._fail_login(outcome.pieces, outcome.failure)
            return
        self._answers += outcome.pieces
        if login.is_complete and login.principal is not None:
            self.principal = login.principal
            self._client = None
            if self._login_timer is not None:
                self._login_timer.cancel()
                self._login_timer = None

    def _fail_login(self, pieces: Sequence[Piece], reason: str) -> None:
        """Close the connection of a failed login, with its answer, after
        ``connection.failed.authentication.delay.ms``. Nothing is read meanwhile.
        """
        assert self._security is not None
        assert self._security.sasl is not None
        message = "closing the connection from %s: its login has failed: %s"
        log.warning(self.host, message, self.host, reason)
        self.shared.metrics.failed_logins += 1
        self._send()
        self._queue.clear()
        self._is_closing = True
        self._regulate()
        delay_s = self._security.sasl.failure_delay_ms / 1000
        if self._login_timer is not None:
            self._login_timer.cancel()
        self._login_timer = asyncio.get_running_loop().call_later(
            delay_s, self._end_failed_login, pieces
        )

    def _end_failed_login(self, pieces: Sequence[Piece]) -> None:
        if self.transport is not None:
            self._answers += pieces
            self._send()
            if not self._unsent:
                self.transport.close()

    def _end_slow_login(self) -> None:
        self._login_timer = None
        message = "closing the connection from %s: it has not logged in within %g s"
        log.warning(self.host, message, self.host, LOGIN_TIMEOUT_S)
        self.abandon()

    # Templates ------------------------------------------------------------------------------------

    def forget_templates(self) -> None:
        """Forget the templates of requests."""
        self._templates = None

    def _remember(self, frame: memoryview, header: RequestHeader, call: Call) -> None:
        """Make a template of a Produce request that was served, if the whole request is allowed. So
        templates need no authorization.
        """
        from headrace.handlers.produce_templates import is_allowed, make_template

        if self._templates is None:
            make = partial(make_template, self.shared.broker)
            self._templates = RequestTemplates(make, MAX_PRODUCE_TEMPLATES)
        self._templates.remember(frame, header, call, is_allowed)

    def _answer_templated(
        self, frame: memoryview, started: float, answer: bytes | Exception
    ) -> None:
        """Answer a Produce request that was served by a template."""
        if isinstance(answer, Exception):
            header = request_header(frame)
            api, client = APIS[_PRODUCE], self._client or self._new_client()
            call = Call(self.shared.broker, api, client, header.api_version, header.client_id)
            response = failed(call, wire.read_request(api, frame, header), answer)
            answer = joined(wire.write_response(api, header, response))
        self._answers.append(answer)
        self.shared.metrics.requests[_PRODUCE].took(started)

    # Client quotas --------------------------------------------------------------------------------

    def charge_to(self, quotas: Quotas | None) -> None:
        """Charge the requests from now on to quotas; None for none. A client that is throttled
        stays so.
        """
        self._charge = None if quotas is None else RequestCharge(quotas)
        self._client = None

    @property
    def is_muted(self) -> bool:
        """True while the client is throttled: nothing is read from it, and no request served."""
        return isinstance(self.task, Mute)

    @property
    def is_waiting(self) -> bool:
        """True while a request waits for its answer."""
        return self.task is not None and not self.is_muted

    def _pause_charge(self) -> None:
        """Note that the present request waits."""
        if self._charge is not None:
            self._charge.pause()

    def _name_charge(self, charge: RequestCharge, header: RequestHeader) -> None:
        charge.user, charge.client_id = self.principal.name, header.client_id or ""

    def _settle(self, charge: RequestCharge, header: RequestHeader, answer_bytes: int) -> int:
        """Charge the present request, and mute a client that exceeds a quota: its answer is sent,
        then it has to wait (KIP-219). Return its throttle time in ms.

        :param answer_bytes: the size of the answer, 0 if there is none
        """
        throttle_ms = charge.settle(header.api_key, answer_bytes)
        if not throttle_ms or self._is_closing:
            return 0
        self.shared.metrics.throttled_requests += 1
        self.task = Mute(throttle_ms, self._unmute)
        self._regulate()
        return throttle_ms

    def _unmute(self) -> None:
        self.task = None
        self._serve()

    # Sending --------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Send all answers with one system call, if the socket takes them."""
        answers = self._answers
        if not answers or self.transport is None:
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
                if self._fd < 0:
                    self._push_without_socket()
                    if unsent and now_ms() > end_ms:
                        unsent.forget_data()
                        self._wait_for_turn()
                        break
                elif not unsent.write_to(self._fd, self.shared.send_buffer):
                    unsent.forget_data()
                    self.transport.write(unsent.take(AWAIT_SOCKET_BYTES))
                elif unsent and now_ms() > end_ms:
                    unsent.forget_data()
                    self._wait_for_turn()
                    break
        except FileReadError as error:
            log.error(self.host, "cannot send records to %s: %s", self.host, error)
            self.abandon()
            return
        except OSError:  # the client is gone
            self.abandon()
            return
        held_bytes = unsent.held_bytes
        if self._is_full and self.transport is not None:
            held_bytes += self.transport.get_write_buffer_size()
        self._is_blocked = self._is_full or bool(unsent)
        self.shared.answer_memory.hold(self, held_bytes)

    def _push_without_socket(self) -> None:
        """Hand unsent answers to a transport with TLS, or to one that is no socket."""
        send_views = getattr(self.transport, "send_views", None)
        if send_views is None:
            self.transport.writelines(self._unsent.take_all())
        else:
            self._unsent.send_to(send_views, self.shared.send_buffer)
            if self._is_full:
                self._unsent.forget_data()

    def pause_writing(self) -> None:
        self._is_full = self._is_blocked = True
        if not self._unsent and self.transport is not None:
            self.shared.answer_memory.hold(self, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._is_full = False
        self.last_active = perf_counter()  # a client that reads is not idle
        if self.transport is None or self._is_in_turns:
            return
        end_ms = self.shared.turns.end_ms()
        self._push(end_ms)
        self._after_push(end_ms)

    def _after_push(self, end_ms: int) -> None:
        """Continue with requests if all answers are sent."""
        if self._is_blocked or self.transport is None:
            return
        if self._is_closing:
            self.transport.close()
        else:
            self._serve_queue(end_ms)

    def _unsupported_api_versions(self, header: RequestHeader) -> None:
        """Answer an ApiVersions request of an unknown version in version 0, which all clients can
        read (KIP-511).
        """
        response = supported(ErrorCode.UNSUPPORTED_VERSION, self.shared.broker)
        header = header._replace(api_version=0)
        self._answers += wire.write_response(APIS[_API_VERSIONS], header, response)

    # The end --------------------------------------------------------------------------------------

    def _close(self, reason: str, *values: object) -> None:
        """Close the connection when the answers before this are sent."""
        log.warning(self.host, f"closing the connection from %s: {reason}", self.host, *values)
        self._queue.clear()
        self._is_closing = True
        self._send()
        if self._unsent:
            self._regulate()
        elif self.transport is not None:
            self.transport.close()

    def stop_serving(self) -> None:
        """Serve no further request and answer none that waits; the connection stays open."""
        self._queue.clear()
        self._answers.clear()
        self._unsent.clear()
        self._is_closing = True
        if self.task is not None:
            self.task.cancel()
            self.task = None
        self._regulate()

    def abandon(self) -> None:
        """Close the connection at once; nothing more is sent."""
        self._queue.clear()
        self._answers.clear()
        self._unsent.clear()
        self._is_closing = True
        if self.transport is not None:
            self.transport.abort()

    def eof_received(self) -> bool:
        """Stop receiving; return True to stay open for requests and answers that are left."""
        self._is_at_end = self._is_paused = True
        return bool(self._unsent) or (self._queue.count > 0 and self.task is None)

    def _close_at_end(self) -> None:
        """Close the connection of a client that sends no more, when everything is answered."""
        is_done = self.is_waiting or not (self._queue.count or self._unsent)
        if is_done and self.transport is not None:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.frame is not None:
            log.info(
                self.host,
                "%s disconnected after %d of %d bytes of a request",
                self.host,
                self.frame.received_bytes,
                self.frame.size_bytes,
            )
        self.transport = None
        if self._login_timer is not None:
            self._login_timer.cancel()
        self._queue.clear()
        self._answers.clear()
        self._unsent.clear()
        self.frame = None
        self._is_closing = True
        self._task_bytes = 0
        self.shared.request_memory.leave(self)
        self._count_memory()
        self.shared.answer_memory.hold(self, 0)
        if self.task is not None:
            self.task.cancel()
        self.shared.connections.discard(self)
        self.shared.counts.closed(self.host[1:], self.listener.name)
        self.shared.broker.disconnected(self.connection_id)
