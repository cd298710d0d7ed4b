"""A broker in this process with a clock that is moved by hand, and the checks of what it does.

A conversation is a stream of bytes on one connection. After it, the broker must have answered every
whole request once and in order, or closed the connection, or still be working on a request that may
wait; and it must not have logged an error.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import shutil
import struct
import tempfile
import traceback
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

from kio.serial import entity_reader
from kio.serial.errors import OutOfBoundValue

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.broker.server import Server
from headrace.handlers import APIS
from headrace.net.connection import Connection
from headrace.net.listener_security import ListenerSecurity
from headrace.net.listeners import Listener
from headrace.protocol.record_batch import build, headers, records
from headrace.protocol.schema import schema_of
from headrace.topics import catalog
from tests.kio_messages import response_type
from tests.simulation.loop import EPOCH_MS, VirtualLoop
from tests.wire_client import decode, encode, request_message

PRODUCE, API_VERSIONS = 0, 18
HONEST_TOPIC = "honest"
"""A topic whose name no fuzzed request has."""

HONEST_CONFIGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "segment.bytes": "1048576",
    "max.message.bytes": "1048588",
}
CONFIGS = {
    "offsets.topic.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "socket.request.max.bytes": "1000000",
    "log.cleaner.backoff.ms": "60000",
}
_MIN_REQUEST_BYTES, _MAX_REQUEST_BYTES = 8, 1_000_000
_SHARED_MEMORY = Path("/dev/shm")


class Finding(AssertionError):
    """Something that the broker must not do.

    :ivar signature: equal for findings with the same cause
    """

    def __init__(self, signature: str, detail: str) -> None:
        super().__init__(f"{signature}\n{detail}")
        self.signature = signature
        self.detail = detail


class ErrorLog(logging.Handler):
    """A log handler that collects what must not be logged: errors, tracebacks, skipped records."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if (
            record.levelno >= logging.ERROR
            or record.exc_info
            or "skipped the record" in str(record.msg)
        ):
            self.records.append(record)


def place_of(error: BaseException) -> str:
    """Return the type of an exception and the function of the broker that raised it."""
    stack = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in stack if "src/headrace" in frame.filename] or list(stack)
    return f"{type(error).__name__} in {Path(ours[-1].filename).name}:{ours[-1].name}"


def raised(where: str, error: BaseException) -> Finding:
    """Return the finding for an exception that nothing has caught."""
    text = "".join(traceback.format_exception(error))
    return Finding(f"raised {where}: {place_of(error)}", text[-4000:])


def finding_of(record: logging.LogRecord) -> Finding:
    """Return the finding for a log line, with the place where an exception was raised."""
    where = ""
    detail = record.getMessage()[:2000]
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        where = place_of(error)
        detail += "\n" + "".join(traceback.format_exception(error))[-3000:]
    said = re.sub(r"\d+", "N", str(record.msg))[:60]
    api = str(record.args[0]) if record.args and isinstance(record.args, tuple) else ""
    return Finding(f"logged: {said} [{api[:40]}] {where}", detail)


@dataclass(frozen=True, slots=True)
class Expected:
    """A whole request in a stream of bytes."""

    api_key: int
    api_version: int
    correlation_id: int


def requests_in(stream: bytes) -> tuple[list[Expected], bool, bool]:
    """Cut a stream as the broker must: return the whole requests in it, whether a size in it is out
    of range, and whether its end is incomplete.
    """
    found, position = [], 0
    while position + 4 <= len(stream):
        (size,) = struct.unpack_from(">i", stream, position)
        if not _MIN_REQUEST_BYTES <= size <= _MAX_REQUEST_BYTES:
            return found, True, False
        if position + 4 + size > len(stream):
            break
        found.append(Expected(*struct.unpack_from(">hhi", stream, position + 4)))
        position += 4 + size
    return found, False, position < len(stream)


class Wire:
    """A connection to the broker, and the transport that the broker writes to."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self.received = bytearray()
        self.sent = bytearray()
        self.is_open = True
        self.is_paused = False
        self.is_full = False
        self._connection = Connection(
            ground.server.shared, ground.server.listeners[0], ListenerSecurity()
        )
        self._connection.connection_made(self)

    @property
    def is_waiting(self) -> bool:
        """True while a request waits for something, or the client is throttled."""
        return self._connection.session.task is not None

    def send(self, data: bytes) -> None:
        """Deliver bytes, as many at a time as the broker takes; what it does not read is lost."""
        position, connection = 0, self._connection
        while position < len(data) and self.is_open:
            if self.is_paused:
                self._ground.loop.advance(1)
                if self.is_paused and self.is_waiting:
                    return
                continue
            buffer = connection.get_buffer(-1)
            taken = min(len(buffer), len(data) - position)
            buffer[:taken] = data[position : position + taken]
            self.sent += data[position : position + taken]
            position += taken
            del buffer
            try:
                connection.buffer_updated(taken)
            except Exception as error:  # the loop closes the connection then, and logs it
                self.cut()
                raise raised("by the connection", error) from error

    def cut(self) -> None:
        """Break the connection."""
        if self.is_open:
            self.is_open = False
            self._connection.connection_lost(None)

    def responses(self) -> Iterator[bytes]:
        """Yield the responses that were received, without their sizes."""
        data, position = bytes(self.received), 0
        while position < len(data):
            (size,) = struct.unpack_from(">i", data, position)
            response = data[position + 4 : position + 4 + size]
            if size < 4 or len(response) < size:
                raise Finding("half a response", data[position : position + 100].hex())
            yield response
            position += 4 + size

    # The transport

    def write(self, data: bytes | memoryview) -> None:
        if self.is_open:
            self.received += data

    def send_views(self, views: Sequence[bytes | memoryview]) -> int:
        for view in views:
            self.write(view)
        return sum(map(len, views))

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._ground.loop.call_soon(self._connection.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        return not self.is_open

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


class Ground:
    """A broker with some topics, an honest client, and the checks.

    :param seed: of the ids that the broker draws
    """

    def __init__(self, seed: int = 0, configs: Mapping[str, str] = CONFIGS) -> None:
        self._ids = random.Random(f"ids of {seed}")
        self._configs = configs
        parent = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
        self.path = Path(tempfile.mkdtemp(prefix="headrace-fuzz-", dir=parent))
        self.errors = ErrorLog()
        self._logger = logging.getLogger("headrace")
        self._logged_before = self._logger.level, self._logger.propagate
        self._logger.addHandler(self.errors)
        self._logger.propagate = False
        self._logger.setLevel(logging.WARNING)
        self._patch = mock.patch.object(catalog, "uuid4", side_effect=self._uuid)
        self._patch.start()
        self._now_ms = EPOCH_MS
        self.honest_values: list[bytes] = []
        self.start()
        for name, partitions, configs_of_topic in (
            ("t0", 1, {}),
            ("t1", 2, {}),
            ("compacted", 1, {"cleanup.policy": "compact"}),
            ("dlq.letters", 1, {"errors.deadletterqueue.group.enable": "true"}),
            (HONEST_TOPIC, 1, HONEST_CONFIGS),
        ):
            self.broker.catalog.create_topic(name, partitions, configs_of_topic)

    def _uuid(self) -> UUID:
        return UUID(int=self._ids.getrandbits(128), version=4)

    # Life -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the broker on its directory."""
        self.loop = VirtualLoop(self._now_ms, lambda: True)
        asyncio._set_running_loop(self.loop)
        loop = self.loop
        self.broker = Broker(Config(self._configs), self.path, clock_ms=lambda: loop.now_ms)
        self.broker.logs.directory.sync = False  # threads would bring in chance
        self.server = Server(self.broker, [Listener("broker", 9092)])
        self.broker.start()
        self.loop.settle()

    def stop(self) -> None:
        """Stop the broker."""
        for connection in list(self.server.connections):
            connection.connection_lost(None)
        self.loop.settle()
        self.broker.close()
        self._now_ms = self.loop.now_ms
        self.loop.kill()
        asyncio._set_running_loop(None)

    def close(self) -> None:
        """Stop the broker if it runs, and delete its files."""
        try:
            self.stop()
        finally:
            asyncio._set_running_loop(None)
            self._patch.stop()
            self._logger.removeHandler(self.errors)
            self._logger.setLevel(self._logged_before[0])
            self._logger.propagate = self._logged_before[1]
            shutil.rmtree(self.path, ignore_errors=True)

    def __enter__(self) -> Ground:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The honest client ----------------------------------------------------------------------------

    def ask(self, api_key: int, api_version: int, **fields: Any) -> Any:
        """Send a request on a connection of its own and return its response."""
        wire = Wire(self)
        wire.send(encode(request_message(api_key, api_version, **fields), 1, "honest"))
        self.loop.settle()
        (response,) = wire.responses()
        wire.cut()
        return decode(api_key, api_version, response)

    def produce_honestly(self) -> None:
        """Produce one record to the honest topic."""
        value = b"honest %d" % len(self.honest_values)
        data = build([(None, value)], timestamp_ms=self.loop.now_ms)
        part = {"index": 0, "records": data}
        topic = {"name": HONEST_TOPIC, "partition_data": [part]}
        response = self.ask(PRODUCE, 3, acks=-1, timeout=1000, topic_data=[topic])
        (answer,) = response.responses[0].partition_responses
        if (answer.error_code, answer.base_offset) != (0, len(self.honest_values)):
            raise Finding("an honest produce request was refused", str(answer))
        self.honest_values.append(value)

    def check_honest_data(self) -> None:
        """Compare the honest topic with what was produced.

        :raises Finding: when a record is missing or changed
        """
        part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 30}
        topic = {"topic": HONEST_TOPIC, "partitions": [part]}
        response = self.ask(1, 4, max_bytes=1 << 30, isolation_level=1, topics=[topic])
        (answer,) = response.responses[0].partitions
        data = bytes(answer.records or b"")
        found = [
            record.value
            for position, header in headers(data)
            for record in records(data[position : position + header.size_bytes])
        ]
        if found != self.honest_values:
            raise Finding(
                "honest records are lost or changed",
                f"{len(found)} of {len(self.honest_values)}; error {answer.error_code}",
            )

    # Checks ---------------------------------------------------------------------------------------

    def check_log(self) -> None:
        """Raise what the broker has logged.

        :raises Finding: for the first error
        """
        failures, self.loop.failures = self.loop.failures, []
        logged, self.errors.records = self.errors.records, []
        if logged:
            raise finding_of(logged[0])
        for failure in failures:
            error = failure.get("exception")
            if error is None:
                raise Finding("an error on the event loop", str(failure))
            raise raised("on the event loop", error)

    def check(self, wire: Wire, patience_ms: int = 0) -> list[tuple[Expected, Any]]:
        """Let the broker finish the conversation on a connection, and check its answers.

        :param patience_ms: the time to wait for requests that may wait
        :returns: the requests with their decoded responses
        :raises Finding: when something is wrong
        """
        self.loop.advance(patience_ms)
        self.check_log()
        expected, is_bad, is_half = requests_in(bytes(wire.sent))
        answered = match(expected, wire)
        if wire.is_open and is_bad:
            raise Finding("a frame size out of range does not close", wire.sent[:200].hex())
        unanswered = [one for one in expected[answered.consumed :] if one.api_key != PRODUCE]
        if unanswered and wire.is_open and not wire.is_waiting and not wire.is_paused:
            raise Finding(
                f"no answer to api {unanswered[0].api_key}",
                f"{unanswered[0]} after {answered.consumed} of {len(expected)}, half={is_half}",
            )
        return answered.pairs

    def check_restart(self) -> None:
        """Stop and start the broker: everything that it has written can be read.

        :raises Finding: when the start logs an error or skips a record, or honest data is lost
        """
        self.stop()
        self.start()
        self.check_log()
        self.check_honest_data()


@dataclass(slots=True)
class Answered:
    """Requests with their responses.

    :ivar consumed: the number of requests up to the last one with a response
    """

    pairs: list[tuple[Expected, Any]]
    consumed: int


def match(expected: list[Expected], wire: Wire) -> Answered:
    """Match the responses of a connection with its requests.

    :raises Finding: for a response that nobody asked for, in the wrong order, or that cannot be
        read to its end
    """
    waiting = deque(enumerate(expected, 1))
    pairs, consumed = [], 0
    for response in wire.responses():
        (correlation_id,) = struct.unpack_from(">i", response)
        while waiting:
            number, request = waiting.popleft()
            if request.correlation_id == correlation_id:
                break
            if request.api_key != PRODUCE:  # with acks=0 it has no response
                raise Finding(
                    f"no answer to api {request.api_key}",
                    f"{request}, but one to correlation id {correlation_id}",
                )
        else:
            raise Finding("a response that nobody asked for", f"correlation id {correlation_id}")
        consumed = number
        pairs.append((request, read_response(request, response)))
    return Answered(pairs, consumed)


def read_response(request: Expected, response: bytes) -> Any:
    """Decode a response to its last byte.

    :raises Finding: when it is not a response of this API and version
    """
    version = request.api_version
    if request.api_key == API_VERSIONS and not 0 <= version <= APIS[API_VERSIONS].highest:
        version = 0  # KIP-511
    message_type = response_type(request.api_key, version)
    start = 5 if message_type.__header_schema__.__version__ else 4
    try:
        # kio would allocate what an array claims, and end the process.
        schema_of("response", request.api_key).message_type.read(version, response, start)
        decoded, size = entity_reader(message_type)(response, start)
    except OutOfBoundValue:  # kio reads no time before 1970; -1 is "none"
        return None
    except Exception as error:
        raise Finding(
            f"a response of api {request.api_key} v{version} cannot be read",
            f"{type(error).__name__} {error}: {response[:300].hex()}",
        ) from error
    if start + size != len(response):
        raise Finding(
            f"a response of api {request.api_key} v{version} has bytes after its end",
            f"{len(response) - start - size} of {len(response)} bytes",
        )
    return decoded
