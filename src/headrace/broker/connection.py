"""One client connection: frames in, responses out, in the order of the requests.

The requests of one connection are served one after the other, as in Kafka, so responses keep their
order. An idle connection has no buffer: all connections receive into one shared buffer, and only an
incomplete frame is copied to a buffer of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from time import perf_counter
from typing import Any

from headrace import handlers
from headrace.coordinators.runtime import Deferred
from headrace.errors import ErrorCode, StorageError
from headrace.handlers import APIS, TEMPLATED
from headrace.handlers.api_18_api_versions import supported
from headrace.handlers.context import CloseConnection, RequestContext
from headrace.log_lines import LimitedLog, get_logger, summary
from headrace.protocol.frames import (
    SIZE,
    BadFrame,
    BadFrameSize,
    RequestHeader,
    cut_frames,
    request_header,
)
from headrace.protocol.messages import Codec, codec
from headrace.protocol.refusals import refuse_all
from headrace.protocol.request_templates import RequestTemplates
from headrace.protocol.versions import Adapted, adapt

from .broker import Broker
from .connection_counts import ConnectionCounts
from .limits import MAX_QUEUED_BYTES, MAX_QUEUED_REQUESTS, MIN_REQUEST_BYTES, RECEIVE_BUFFER_BYTES

log = LimitedLog(get_logger("headrace.server"))

_API_VERSIONS = 18
_API_KEY_LOW_BYTE = 1
_NO_TEMPLATES: Mapping[int, RequestTemplates] = {}


@dataclass(frozen=True, slots=True)
class Listener:
    """An address to listen on, and the address that is advertised to clients.

    :param port: 0 picks a free port
    :param advertised_host: None for ``host``
    :param advertised_port: None for the port of the listening socket
    """

    host: str
    port: int
    advertised_host: str | None = None
    advertised_port: int | None = None


class Connections:
    """The open connections of a broker, and the state that they share.

    :ivar connections: the open connections
    :ivar counts: how many of them each client address has
    :ivar request_bytes: valid sizes of a request
    :ivar whole_frame_bytes: the same, including the size field
    :ivar receive_buffer: the buffer that all connections receive into, one after the other
    :ivar received: the same memory, read only
    """

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.metrics = broker.metrics
        self.connections = broker.metrics.connections
        self.counts = ConnectionCounts(broker.config)
        self.connection_ids = count(1)
        self.max_request_bytes = broker.config.get_int("socket.request.max.bytes")
        self.request_bytes = range(MIN_REQUEST_BYTES, self.max_request_bytes + 1)
        self.whole_frame_bytes = range(
            SIZE.size + MIN_REQUEST_BYTES, SIZE.size + self.max_request_bytes + 1
        )
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.received = self.receive_buffer.toreadonly()


class Connection(asyncio.BufferedProtocol):
    """One client's connection."""

    __slots__ = (
        "_answers",
        "_context",
        "_frame",
        "_frame_used",
        "_paused",
        "_requests",
        "_templated",
        "_templates",
        "_writable",
        "connection_id",
        "host",
        "last_active",
        "listener",
        "shared",
        "task",
        "transport",
    )

    def __init__(self, shared: Connections, listener: Listener) -> None:
        self.shared = shared
        self.listener = listener
        self.connection_id = next(shared.connection_ids)
        self.transport: Any = None
        self.host = "/"
        self.last_active = 0.0
        self.task: asyncio.Task[None] | Deferred[Any] | None = None
        self._frame: bytearray | None = None  # an incomplete frame
        self._frame_used = 0
        self._context: RequestContext | None = None
        self._templates = _NO_TEMPLATES
        self._templated: tuple[bytes, float] = b"", 0.0
        """The templated request that waits for its answer: its frame and when it arrived."""
        self._answers: list[bytes | memoryview] = []
        self._requests: deque[memoryview] = deque()
        self._writable = True
        self._paused = False

    # Receiving ------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.host = f"/{peer[0]}" if peer else "/"
        self.last_active = perf_counter()
        self.shared.connections.add(self)
        self.shared.metrics.connections_accepted += 1
        limit = self.shared.broker.config.get_int("max.connections")
        host_limit = self.shared.counts.opened(self.host[1:])
        if len(self.shared.connections) > limit:
            self._close("max.connections=%d is reached", limit)
        elif host_limit is not None:
            self._close("it has the maximum of %d connections", host_limit)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is None:
            return self.shared.receive_buffer
        return memoryview(self._frame)[self._frame_used :]

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active = perf_counter()
        shared = self.shared
        shared.metrics.received_bytes += nbytes
        if self._frame is None:
            data, served_at_once = shared.received, self.task is None and self._writable
            if (
                served_at_once
                and SIZE.unpack_from(data)[0] + SIZE.size == nbytes in shared.whole_frame_bytes
            ):
                # exactly one request, as from most clients
                self._request(data[SIZE.size : nbytes])
                if self._answers:
                    self._send()
                return
            self._split(nbytes)
            self._serve()
            if self._requests:
                self._keep_waiting()
            return
        self._frame_used += nbytes
        if self._frame_used < len(self._frame):
            return
        frame, self._frame = self._frame, None
        if len(frame) == SIZE.size:  # only the size was incomplete
            self._begin_frame(frame)
            return
        self._requests.append(memoryview(frame).toreadonly()[SIZE.size :])
        self._serve()

    def _keep_waiting(self) -> None:
        """Copy the requests that have to wait out of the shared buffer."""
        buffer = self.shared.receive_buffer.obj
        for i, frame in enumerate(self._requests):
            if frame.obj is buffer:
                self._requests[i] = memoryview(bytes(frame))

    def _split(self, end: int) -> None:
        """Queue the whole frames that have arrived, and begin the incomplete one after them."""
        data = self.shared.received
        try:
            position = cut_frames(data, end, self.shared.request_bytes, self._requests.append)
        except BadFrameSize as error:
            self._refuse_frame(error.size_bytes)
            return
        if position < end:
            self._begin_frame(data[position:end])

    def _begin_frame(self, start: memoryview | bytearray) -> None:
        if len(start) < SIZE.size:
            frame = bytearray(SIZE.size)
        else:
            (size,) = SIZE.unpack_from(start)
            if size not in self.shared.request_bytes:
                self._refuse_frame(size)
                return
            frame = bytearray(SIZE.size + size)
        frame[: len(start)] = start
        self._frame, self._frame_used = frame, len(start)

    def _refuse_frame(self, size: int) -> None:
        self._close(
            "a request of %d bytes; socket.request.max.bytes is %d",
            size,
            self.shared.max_request_bytes,
        )

    # Serving --------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Serve the received requests until one has to wait, or the client does not read its
        responses.
        """
        requests = self._requests
        while requests and self.task is None and self._writable and self.transport is not None:
            self._request(requests.popleft())
        if self._answers:
            self._send()
        if requests or self._paused:
            self._regulate()

    def _regulate(self) -> None:
        """Stop receiving while too many requests wait; continue afterwards."""
        requests = self._requests
        paused = len(requests) > MAX_QUEUED_REQUESTS or sum(map(len, requests)) > MAX_QUEUED_BYTES
        if paused != self._paused and self.transport is not None:
            self._paused = paused
            (self.transport.pause_reading if paused else self.transport.resume_reading)()

    def _request(self, frame: memoryview) -> None:
        started = self.last_active
        templates = self._templates.get(frame[_API_KEY_LOW_BYTE])
        if templates is not None:
            try:
                answer = templates.try_serve(frame)
            except Exception as error:
                answer = error
            if answer is not None:
                if isinstance(answer, Deferred):
                    self.task = answer
                    self._templated = bytes(frame), started
                    answer.waiter = self._finish_templated
                else:
                    self._answer_templated(frame, started, answer)
                return
        try:
            header = request_header(frame)
            api = APIS.get(header.api_key)
            if api is None:
                raise BadFrame(f"api key {header.api_key} is not served")
            version = header.api_version
            if not api.lowest <= version <= api.highest:
                if header.api_key != _API_VERSIONS:
                    raise BadFrame(
                        f"{api.name} {api.lowest}-{api.highest} is served, not {version}"
                    )
                self._unsupported_api_versions(header)
                return
            wire, adapted = self._read(frame, header)
        except BadFrame as error:
            self._close("%s", error)
            return
        context = self._context_of(header, adapted.legacy)
        try:
            response = handlers.handler(header.api_key)(
                self.shared.broker, adapted.request, context
            )
        except CloseConnection as reason:
            self._close("%s", reason)
            return
        except Exception as error:
            response = self._failed(error, adapted.request, header)
        if isinstance(response, Deferred):
            self.task = response
            response.waiter = partial(self._finish, adapted, header, wire, started)
        elif hasattr(response, "__await__"):
            finish = partial(self._finish, adapted, header, wire, started)
            self.task = asyncio.get_running_loop().create_task(_wait(response, finish))
        else:
            self._answer(response, adapted, header, wire)
            self.shared.metrics.requests[header.api_key].answered(started, response)
        if header.api_key in TEMPLATED:
            self._remember(frame, header, adapted.request)

    def _remember(self, frame: memoryview, header: RequestHeader, request: Any) -> None:
        """Make a template of a request that was served."""
        templates = self._templates.get(header.api_key)
        if templates is None:
            templates = handlers.request_templates(header.api_key, self.shared.broker)
            self._templates = {**self._templates, header.api_key: templates}
        templates.remember(frame, header, request)

    def _read(self, frame: bytes | memoryview, header: RequestHeader) -> tuple[Codec, Adapted]:
        wire = codec(header.api_key, header.api_version)
        request = wire.read_request(frame, header.body_offset)
        return wire, adapt(request, wire, APIS[header.api_key].highest, self.shared.broker.catalog)

    def _answer_templated(
        self, frame: bytes | memoryview, started: float, answer: bytes | Exception
    ) -> None:
        """Answer a request that was served by a template."""
        if isinstance(answer, Exception):
            header = request_header(frame)
            wire, adapted = self._read(frame, header)
            self._answer(self._failed(answer, adapted.request, header), adapted, header, wire)
        elif self.transport is not None:
            self._answers.append(answer)
        self.shared.metrics.requests[frame[_API_KEY_LOW_BYTE]].took(started)

    def _finish_templated(self, answer: bytes | Exception) -> None:
        self.task = None
        frame, started = self._templated
        if isinstance(answer, bytes):
            metrics = self.shared.metrics
            metrics.sent_bytes += len(answer)
            metrics.requests[frame[_API_KEY_LOW_BYTE]].took(started)
            self.transport.write(answer)
        else:
            self._answer_templated(frame, started, answer)
            self._send()
        if self._requests or self._paused:
            self._serve()

    def _context_of(self, header: RequestHeader, legacy: Mapping[str, Any]) -> RequestContext:
        """Return the context of a request. Most requests share it with the request before."""
        known = self._context
        asked = (header.api_version, header.client_id)
        if (
            known is not None
            and (known.api_version, known.client_id) == asked
            and not known.legacy
            and not legacy
        ):
            return known
        self._context = RequestContext(
            api_version=header.api_version,
            client_id=header.client_id,
            client_host=self.host,
            connection_id=self.connection_id,
            listener_host=self.listener.advertised_host or self.listener.host,
            listener_port=self.listener.advertised_port or self.listener.port,
            legacy=legacy,
        )
        return self._context

    def _finish(
        self, adapted: Adapted, header: RequestHeader, wire: Codec, started: float, answer: Any
    ) -> None:
        """Answer a request that had to wait."""
        self.task = None
        if isinstance(answer, Exception):
            answer = self._failed(answer, adapted.request, header)
        self._answer(answer, adapted, header, wire)
        self.shared.metrics.requests[header.api_key].answered(started, answer)
        self._serve()

    def _answer(self, response: Any, adapted: Adapted, header: RequestHeader, wire: Codec) -> None:
        if response is None or self.transport is None:  # Produce with acks=0 has no answer
            return
        try:
            pieces = wire.write_response(header.correlation_id, adapted.to_response(response))
        except Exception as error:
            api, version = APIS[header.api_key], header.api_version
            message = "cannot write the response to %s v%d of client %s at %s"
            log.error(
                self.host, message, api.name, version, header.client_id, self.host, exc_info=error
            )
            self.abandon()
            return
        self._answers += pieces

    def _send(self) -> None:
        """Send all responses in one system call."""
        answers = self._answers
        if not answers or self.transport is None:
            return
        if len(answers) == 1:
            answer = answers.pop()
            self.shared.metrics.sent_bytes += len(answer)
            self.transport.write(answer)
        else:
            self._answers = []
            self.shared.metrics.sent_bytes += sum(map(len, answers))
            self.transport.writelines(answers)

    def _failed(self, error: Exception, request: Any, header: RequestHeader) -> Any:
        """Return the response to a request whose handler raised: the error everywhere in it."""
        api = APIS[header.api_key]
        self.shared.metrics.requests[header.api_key].failures += 1
        if isinstance(error, StorageError):
            code = api.storage_error
            message = "%s of client %s at %s: %s"
            log.error(self.host, message, api.name, header.client_id, self.host, error)
        else:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            log.error(
                self.host,
                "%s v%d of client %s at %s failed: %s",
                api.name,
                header.api_version,
                header.client_id,
                self.host,
                summary(request),
                exc_info=error,
            )
        return refuse_all(request, codec(api.key, api.highest).refusal_type, code)

    def _unsupported_api_versions(self, header: RequestHeader) -> None:
        """Answer an ApiVersions request of an unknown version in version 0, which all clients can
        read (KIP-511).
        """
        response = supported(ErrorCode.UNSUPPORTED_VERSION)
        self._answers += codec(_API_VERSIONS, 0).write_response(header.correlation_id, response)

    # The end --------------------------------------------------------------------------------------

    def _close(self, reason: str, *values: object) -> None:
        log.warning(self.host, f"closing the connection from %s: {reason}", self.host, *values)
        self._requests.clear()
        self._send()
        if self.transport is not None:
            self.transport.close()  # responses before this are still sent

    def abandon(self) -> None:
        """Close the connection at once; nothing more is sent."""
        self._requests.clear()
        if self.transport is not None:
            self.transport.abort()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._serve()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._frame is not None:
            log.info(
                self.host,
                "%s disconnected after %d of %d bytes of a request",
                self.host,
                self._frame_used,
                len(self._frame),
            )
        self.transport = None
        self._requests.clear()
        self._frame = None
        if self.task is not None:
            self.task.cancel()
        self.shared.connections.discard(self)
        self.shared.counts.closed(self.host[1:])
        self.shared.broker.disconnected(self.connection_id)


async def _wait(response: Awaitable[Any], finish: Callable[[Any], None]) -> None:
    try:
        answer = await response
    except Exception as error:
        answer = error
    finish(answer)
