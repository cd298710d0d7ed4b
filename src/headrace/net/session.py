"""The session of one client: bytes of requests in, pieces of responses out, in the order of the
requests. It knows no socket: a line carries the bytes.

The requests of one session are served one after the other, as in Kafka, so responses keep their
order.
"""

from __future__ import annotations

from asyncio import TimerHandle, get_running_loop
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.coordinators.waiting import Deferred, Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.file_range import Piece, joined
from headrace.protocol.frames import (
    SIZE,
    BadFrame,
    BadFrameSize,
    RequestHeader,
    frame_ends,
    other_protocol,
    request_header,
)
from headrace.protocol.request_templates import RequestTemplates
from headrace.security.principal import Principal

from . import log, wire
from .api import Api, Apis, served_versions
from .call import (
    RECEIVE_BUFFER_BYTES,
    SLICED_REQUEST_BYTES,
    Call,
    Client,
    CloseConnection,
    failure,
    serve,
)
from .client_quotas import Quotas, RequestCharge
from .flow import Turns
from .listener_security import ListenerSecurity
from .requests import IncompleteFrame, RequestQueue
from .services import Services

if TYPE_CHECKING:
    from headrace.security.login import Login

    from .authentication import SaslListener

LOGIN_TIMEOUT_S = 30.0
"""The time for a TLS handshake, and the time for a SASL login. Then the connection is closed."""

MIN_REQUEST_BYTES = 8
"""The shortest request header: api key, version, correlation id."""

MIN_TOKEN_BYTES = 2
"""The shortest message of a login as a frame of its own: as much as an API key. ``\\0a\\0b`` is the
shortest one that succeeds.
"""

SEND_AT_BYTES = 64 * 1024
"""Answers to requests that came together are sent together, up to this size."""

COUNTED_REQUEST_BYTES = 16 * 1024
"""A smaller request does not count in ``queued.max.request.bytes`` while it is being served."""

MAX_PRODUCE_TEMPLATES = 1000
"""Request templates of Produce on one session: one for each partition. One more discards all."""
MAX_COMMIT_TEMPLATES = 16
"""Those of OffsetCommit: one for each assignment that a consumer commits."""

_PRODUCE = 0
_API_KEY_LOW_BYTE = 1
_API_KEY_IN_FRAME = SIZE.size + _API_KEY_LOW_BYTE


class State(Enum):
    """Whether a session is served."""

    OPEN = "open"
    HELD = "held"
    """Nothing more is served; the line stays open."""
    CLOSING = "closing"
    """The line is to be closed when the answers are sent."""
    GONE = "gone"
    """The line is to be closed at once."""


class Progress(Enum):
    """Why serving has stopped."""

    DONE = "done"
    """No request can be served now."""
    COLLECTED = "collected"
    """The answers are worth sending before more is served."""
    LATE = "late"
    """The time is over; requests are left."""


class Sessions:
    """What the sessions of a broker share.

    :ivar request_bytes: valid sizes of a request
    :ivar received: the memory that all lines receive into, one after the other; read only
    :ivar turns: the lines with more requests than fit into a slice of time
    :ivar quotas: the client quotas, while users or client ids have any
    """

    def __init__(self, services: Services, apis: Apis, received: memoryview) -> None:
        self.services = services
        self.apis = apis
        self.metrics = services.metrics
        self.received = received
        self.max_request_bytes = services.config.get_int("socket.request.max.bytes")
        self.request_bytes = range(MIN_REQUEST_BYTES, self.max_request_bytes + 1)
        self.turns = Turns(services.clock.now_ms)
        self.quotas: Quotas | None = None


@dataclass(slots=True, eq=False, repr=False)
class Session:
    """One client's requests and their responses.

    :param client: who sends the requests; another object when something about it changes
    :param _advance: called when what the session waited for is there: send answers, and have
        further requests served
    :ivar answers: pieces of responses to send
    :ivar queue: whole requests that wait
    :ivar frame: the incomplete request after them
    :ivar task: the request that waits for its answer, or the timer of a client that is throttled
    :ivar task_bytes: the size of the request that waits for its answer, if it is large
    :ivar started: when the request that is served now has arrived
    """

    shared: Sessions
    client: Client
    _advance: Callable[[], None]
    state: State = State.OPEN
    _sasl: SaslListener | None = None
    _login: Login | None = None
    """The login of a client, None on a listener without SASL."""
    _login_timer: TimerHandle | None = None
    _templates: dict[int, RequestTemplates] | None = None
    """Of Produce and OffsetCommit requests, by the key of the API, once one was served."""
    queue: RequestQueue = field(default_factory=RequestQueue)
    frame: IncompleteFrame | None = None
    task: Waiting | Deferred[Any] | TimerHandle | None = None
    task_bytes: int = 0
    started: float = 0.0
    answers: list[Piece] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.charge_to(self.shared.quotas)

    @property
    def address(self) -> str:
        """The client in the log."""
        return self.client.address

    @property
    def is_waiting(self) -> bool:
        """True while a request waits for its answer."""
        return isinstance(self.task, Waiting | Deferred)

    @property
    def is_throttled(self) -> bool:
        """True while nothing is served, as the client exceeds a quota."""
        return self.task is not None and not self.is_waiting

    @property
    def is_idle(self) -> bool:
        """True if there is no request."""
        return self.task is None and not self.queue.count and self.state is State.OPEN

    @property
    def held_bytes(self) -> int:
        """The memory of the requests that are not answered yet."""
        held = self.queue.size_bytes + self.task_bytes
        return held if self.frame is None else held + self.frame.capacity

    # Receiving ------------------------------------------------------------------------------------

    def receive_request(self, nbytes: int) -> bool:
        """Serve what has arrived if it is exactly one request, as from most clients, and none is
        before it. Return whether it was.
        """
        shared, data = self.shared, self.shared.received
        if (
            self.task is not None
            or self.queue.count
            or not SIZE.unpack_from(data)[0] == nbytes - SIZE.size in shared.request_bytes
            or self.state is not State.OPEN
            or (shared.turns.is_spent and data[_API_KEY_IN_FRAME] not in shared.apis.quick)
        ):
            return False
        self._request(data[SIZE.size : nbytes])
        return True

    def receive(self, nbytes: int) -> None:
        """Queue the whole frames that have arrived, and begin the incomplete one after them."""
        data = self.shared.received
        try:
            ends = [0, *frame_ends(data, nbytes, self._frame_bytes)]
        except BadFrameSize as error:
            self._refuse_frame(error.size_bytes)
            return
        self.queue.add(data[: ends[-1]], len(ends) - 1)
        if ends[-1] < nbytes:
            self._begin_frame(data[ends[-1] : nbytes])

    def end_frame(self, frame: IncompleteFrame) -> None:
        """Queue the incomplete frame, which has arrived."""
        self.frame = None
        data = frame.whole()
        if len(data) == SIZE.size:  # only the size was incomplete
            self._begin_frame(data)
        else:
            self.queue.add(data, 1)

    @property
    def _frame_bytes(self) -> range:
        """The valid sizes of the next frame: the token of a login may be shorter than a request."""
        if self._login is not None and self._login.takes_tokens:
            return range(MIN_TOKEN_BYTES, self.shared.request_bytes.stop)
        return self.shared.request_bytes

    def _begin_frame(self, start: memoryview) -> None:
        size_bytes = 0
        if len(start) >= SIZE.size:
            (size_bytes,) = SIZE.unpack_from(start)
            if size_bytes not in self._frame_bytes or self._is_too_large(size_bytes):
                self._refuse_frame(size_bytes)
                return
        self.frame = IncompleteFrame(start, SIZE.size + size_bytes)

    def _refuse_frame(self, size_bytes: int) -> None:
        """Close the line of a client whose next four bytes are no valid size of a request."""
        protocol = other_protocol(SIZE.pack(size_bytes))
        if protocol is not None:
            self.close("it speaks %s, and this port Kafka's protocol", protocol)
        elif size_bytes < self._frame_bytes.start:
            self.close("a request of %d bytes is too small", size_bytes)
        elif size_bytes > self.shared.max_request_bytes:
            self.close(
                "a request of %d bytes; socket.request.max.bytes is %d",
                size_bytes,
                self.shared.max_request_bytes,
            )
        else:
            self.close("a request of %d bytes is too large before a login", size_bytes)

    # Serving --------------------------------------------------------------------------------------

    def serve(self, end_ms: int) -> Progress:
        """Serve queued requests until one has to wait, or :class:`Progress` says why not.

        :param end_ms: a steady time
        """
        queue, answers, turns = self.queue, self.answers, self.shared.turns
        collected = 0
        while queue.count and self.task is None and self.state is State.OPEN:
            is_late = turns.is_spent and turns.now_ms() > end_ms
            if is_late and not queue.is_next_in(self.shared.apis.quick):
                return Progress.LATE
            before = len(answers)
            self._request(queue.next())
            if queue.count and turns.now_ms() > end_ms:
                return Progress.LATE
            collected += sum(map(len, answers[before:]))
            if collected > SEND_AT_BYTES:
                return Progress.COLLECTED
        return Progress.DONE

    def _request(self, frame: memoryview) -> None:
        if self._login is not None and self._login.intercepts(
            frame[0] << 8 | frame[1], self.shared.turns.now_ms()
        ):
            self._log_in(self._login, frame)
            return
        charge = self.client.charge
        if charge is not None:
            charge.begin(len(frame))
        if self._templates is not None and charge is None:
            templates = self._templates.get(frame[_API_KEY_LOW_BYTE])
            if templates is not None and self._serve_templated(templates, frame):
                return
        try:
            header = request_header(frame)
            try:
                api = self.shared.apis[header.api_key]
            except KeyError:
                raise BadFrame(f"api key {header.api_key} is not served") from None
            version = header.api_version
            lowest, highest = served_versions(header.api_key, self.shared.services.config)
            if not lowest <= version <= highest:
                if api.unserved is None:
                    raise BadFrame(f"{api.name} {lowest}-{highest} is served, not {version}")
                call = self._new_call(api, header)
                self.answers += wire.write_response(
                    api, header._replace(api_version=0), api.unserved(call)
                )
                return
        except BadFrame as error:
            self.close("%s", error)
            return
        self._call(api, frame, header)

    def _call(self, api: Api, frame: memoryview, header: RequestHeader) -> None:
        """Serve a request, and answer it or wait for its response."""
        call, started = self._new_call(api, header), self.started
        charge = self.client.charge
        if charge is not None:
            charge.user, charge.client_id = self.client.principal.name, header.client_id or ""
        if SLICED_REQUEST_BYTES < len(frame) <= RECEIVE_BUFFER_BYTES and not api.is_quick:
            frame = memoryview(bytes(frame))  # it may be in the buffer of all lines
        turns = self.shared.turns
        turns.end_ms()  # the slice begins
        steps = serve(call, frame, header)
        try:
            awaited = steps.send(None)
        except StopIteration as end:
            self._end_call(call, header, started, end.value)
            turns.served()
            if api.key == _PRODUCE:
                self._remember(frame, header, call)
        except Exception as error:
            self._fail_call(error)
        else:
            if isinstance(awaited, Deferred):  # of a handler, so that the group may be used
                self._remember(frame, header, call)  # the frame will be gone at the answer
            if charge is not None:
                charge.pause()
            if len(frame) > COUNTED_REQUEST_BYTES:
                self.task_bytes = len(frame)
            done = partial(self._resume, call, header, started)
            self.task = Waiting(steps, awaited, done, charge)

    def _new_call(self, api: Api, header: RequestHeader) -> Call:
        services, client = self.shared.services, self.client
        return Call(services, api, client, header.api_version, header.client_id)

    def _end_call(
        self,
        call: Call,
        header: RequestHeader,
        started: float,
        answer: tuple[list[Piece] | None, Any],
    ) -> None:
        pieces, response = answer
        if self.state is not State.GONE:
            throttle_ms, charge = 0, call.client.charge
            # Another one if quotas have come or gone while the request was waiting.
            if charge is not None and charge is self.client.charge:
                throttle_ms = charge.settle(header.api_key, sum(map(len, pieces or ())))
            if throttle_ms and self.state is State.OPEN:
                # A client that exceeds a quota has to wait when its answer is sent (KIP-219).
                self.shared.metrics.throttled_requests += 1
                self.task = get_running_loop().call_later(throttle_ms / 1000, self._unmute)
                if pieces is not None:
                    pieces = wire.throttled(call.api, header, response, pieces, throttle_ms)
            self.answers += pieces or ()  # Produce with acks=0 has no answer
        self.shared.metrics.requests[call.api.key].answered(started, response)

    def _fail_call(self, error: BaseException) -> None:
        if isinstance(error, BadFrame | CloseConnection):
            self.close("%s", error)
        else:
            log.error(self.address, "cannot answer a request of %s", self.address, exc_info=error)
            self.state = State.GONE

    def _resume(self, call: Call, header: RequestHeader, started: float, answer: Any) -> None:
        """Answer a request that had to wait, and serve the next."""
        self.task = None
        self.task_bytes = 0
        if isinstance(answer, BaseException):
            self._fail_call(answer)
        else:
            self._end_call(call, header, started, answer)
        self._advance()

    # The login ------------------------------------------------------------------------------------

    def secure(self, security: ListenerSecurity, certificate: Any) -> None:
        """Wait for a login, or take the principal from the certificate of the client."""
        principal, sasl = self.client.principal, security.sasl
        if sasl is not None:
            self._sasl, self._login = sasl, sasl.new_login()
            self._login_timer = get_running_loop().call_later(LOGIN_TIMEOUT_S, self._end_slow_login)
        elif security.tls is not None:
            try:
                principal = security.tls.principal(certificate)
            except ValueError as error:
                self.close("%s", error)
        self._identify(principal, is_logging_in=sasl is not None)

    def _identify(self, principal: Principal, *, is_logging_in: bool = False) -> None:
        """Serve the client as a principal, with its permissions."""
        client, control = self.client, self.shared.services.access_control
        access = client.access if control is None else control.access_of(principal, client.host)
        self.client = replace(
            client, principal=principal, access=access, is_logging_in=is_logging_in
        )

    def _is_too_large(self, size_bytes: int) -> bool:
        """Return whether a request is larger than allowed before the login."""
        return (
            self.client.is_logging_in
            and self._sasl is not None
            and size_bytes > self._sasl.max_receive_bytes
        )

    def _log_in(self, login: Login, frame: memoryview) -> None:
        """Serve a request of a login."""
        if self._is_too_large(len(frame)):
            self._refuse_frame(len(frame))
            return
        # Imported here, as most brokers have no logins.
        from .login_requests import serve_login

        shared = self.shared
        try:
            pieces, failure = serve_login(shared.services, shared.apis, login, frame, self.client)
        except BadFrame as error:
            pieces, failure = (), str(error)
        except Exception as error:
            log.error(self.address, "a login from %s failed", self.address, exc_info=error)
            self.state = State.GONE
            return
        if failure is not None:
            self._fail_login(pieces, failure)
            return
        self.answers += pieces
        if login.is_complete and login.principal is not None:
            self._identify(login.principal)
            self._stop_login_timer()

    def _fail_login(self, pieces: Sequence[Piece], reason: str) -> None:
        """Close the line of a failed login, with its answer, after
        ``connection.failed.authentication.delay.ms``. Nothing is read meanwhile.
        """
        assert self._sasl is not None
        self._log_end("its login has failed: %s", reason)
        self.shared.metrics.failed_logins += 1
        self.queue.clear()
        self.state = State.HELD
        self._stop_login_timer()
        self._login_timer = get_running_loop().call_later(
            self._sasl.failure_delay_ms / 1000, self._end_failed_login, pieces
        )

    def _end_failed_login(self, pieces: Sequence[Piece]) -> None:
        self.answers += pieces
        self.state = State.CLOSING
        self._advance()

    def _end_slow_login(self) -> None:
        self._log_end("it has not logged in within %g s", LOGIN_TIMEOUT_S)
        self.state = State.GONE
        self._advance()

    def _stop_login_timer(self) -> None:
        if self._login_timer is not None:
            self._login_timer.cancel()
            self._login_timer = None

    # Templates ------------------------------------------------------------------------------------

    def forget_templates(self) -> None:
        """Forget the templates of requests: they serve only what was allowed."""
        self._templates = None

    def _remember(self, frame: memoryview, header: RequestHeader, call: Call) -> None:
        """Make a template of a request, if its API has templates."""
        api = call.api
        if api.template is None or call.request is None or call.client.charge is not None:
            return  # a client that is charged is served by none
        if self._templates is None:
            self._templates = {}
        if api.key not in self._templates:
            most = MAX_PRODUCE_TEMPLATES if api.key == _PRODUCE else MAX_COMMIT_TEMPLATES
            self._templates[api.key] = RequestTemplates(api.template, most)
        self._templates[api.key].remember(frame, header, call)

    def _serve_templated(self, templates: RequestTemplates, frame: memoryview) -> bool:
        """Serve a request by its template; return False if it has none."""
        try:
            answer = templates.try_serve(frame)
        except Exception as error:
            answer = error
        if isinstance(answer, Deferred):
            answer.waiter = partial(self._end_templated, bytes(frame), self.started)
            self.task = answer
        elif answer is not None:
            self._answer_templated(frame, self.started, answer)
        return answer is not None

    def _end_templated(self, frame: bytes, started: float, answer: Any) -> None:
        self.task = None
        self._answer_templated(memoryview(frame), started, answer)
        self._advance()

    def _answer_templated(
        self, frame: memoryview, started: float, answer: bytes | ErrorCode | Exception
    ) -> None:
        if not isinstance(answer, bytes):
            header = request_header(frame)
            api = self.shared.apis[header.api_key]
            request = wire.read_request(api, frame, header)
            if isinstance(answer, Exception):
                answer = failure(self._new_call(api, header), request, answer)
            answer = joined(wire.write_response(api, header, api.refused(request, answer)))
        self.answers.append(answer)
        self.shared.metrics.requests[frame[_API_KEY_LOW_BYTE]].took(started)

    # Client quotas --------------------------------------------------------------------------------

    def charge_to(self, quotas: Quotas | None) -> None:
        """Charge the requests from now on to quotas; None for none. A client that is throttled
        stays so.
        """
        charge = None if quotas is None else RequestCharge(quotas.machine, quotas.now_ms)
        self.client = replace(self.client, charge=charge)

    def _unmute(self) -> None:
        self.task = None
        self._advance()

    # The end --------------------------------------------------------------------------------------

    def close(self, reason: str, *values: object) -> None:
        """Have the line closed when the answers before this are sent."""
        self._log_end(reason, *values)
        self.queue.clear()
        self.state = State.CLOSING

    def _log_end(self, reason: str, *values: object) -> None:
        message = f"closing the connection from %s: {reason}"
        log.warning(self.address, message, self.address, *values)

    def hold(self) -> None:
        """Serve no further request and answer none that waits; the line stays open."""
        self.queue.clear()
        self.answers.clear()
        self.state = State.HELD
        if self.task is not None:
            self.task.cancel()
            self.task = None

    def end(self) -> None:
        """Forget everything: the line is closed."""
        if self.frame is not None:
            log.info(
                self.address,
                "%s disconnected after %d of %d bytes of a request",
                self.address,
                self.frame.received_bytes,
                self.frame.size_bytes,
            )
        self._stop_login_timer()
        self.hold()
        self.frame = None
        self.task_bytes = 0
        self.state = State.GONE
