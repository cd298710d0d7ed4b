"""A client that sends requests as they are given: any API, any version, or any bytes.

Requests are written by the names of their fields, with dicts for nested parts. Fields that a
version does not have are left out, so that one call serves all versions. Fields that are not given
have the default of Kafka's schema, or else zero, "" or no elements:

    with connection(bootstrap_servers) as client:
        response = client.ask(8, version, group_id="g", topics=[...])
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import select
import socket
import ssl
import struct
import typing
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from kio.index import KioIndexError
from kio.serial import entity_reader, entity_writer

from headrace.protocol.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT, build
from tests.encoding import string
from tests.kio_messages import request_type, response_type

PRODUCE, FETCH, API_VERSIONS, CREATE_TOPICS = 0, 1, 18, 19
CLIENT_ID = "raw"
MAGIC_POSITION = 16
HIGHEST_VERSION = 30
"""Beyond the highest version of every API."""

Sent = tuple[int, int, int]
"""API key, version and correlation id of a request."""


# --- bytes ---


def request_header(
    api_key: int, api_version: int, correlation_id: int, client_id: str = CLIENT_ID
) -> bytes:
    """Return a request header v1, which precedes the body of a request that is not flexible."""
    return struct.pack(">hhi", api_key, api_version, correlation_id) + string(client_id)


def frame(payload: bytes) -> bytes:
    """Return `payload` with its length in front."""
    return struct.pack(">i", len(payload)) + payload


def receive_exactly(sock: socket.socket, size: int) -> bytes:
    """Return `size` bytes from `sock`, or fewer when the peer closed."""
    received = bytearray()
    while len(received) < size:
        try:
            chunk = sock.recv(size - len(received))
        except ConnectionResetError:
            break
        if not chunk:
            break
        received += chunk
    return bytes(received)


def receive_frame(sock: socket.socket) -> bytes | None:
    """Return the payload of the next frame, or None when the peer closed instead."""
    head = receive_exactly(sock, 4)
    if len(head) < 4:
        return None
    size = struct.unpack(">i", head)[0]
    payload = receive_exactly(sock, size)
    return payload if len(payload) == size else None


def answers(host: str, port: int) -> bool:
    """Return whether a broker on `host:port` answers ApiVersions v0."""
    try:
        with socket.create_connection((host, port), timeout=2) as sock:
            sock.sendall(frame(request_header(API_VERSIONS, 0, 7)))
            reply = receive_frame(sock)
    except OSError:
        return False
    return reply is not None and struct.unpack(">ih", reply[:6]) == (7, 0)


def batch(
    values: Sequence[bytes],
    *,
    magic: int = 2,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    timestamp_ms: int = 1_700_000_000_000,
    transactional: bool = False,
    control: bool = False,
    key: bytes | None = None,
) -> bytes:
    """Return a record batch of `values`, all with one key or without, with base offset 0."""
    data = build(
        [(key, value) for value in values],
        timestamp_ms=timestamp_ms,
        attributes=TRANSACTIONAL_BIT * transactional + CONTROL_BIT * control,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return data[:MAGIC_POSITION] + bytes([magic]) + data[MAGIC_POSITION + 1 :]


def with_byte_changed(data: bytes, position: int) -> bytes:
    """Return `data` with all bits of one byte flipped."""
    changed = bytearray(data)
    changed[position] ^= 0xFF
    return bytes(changed)


# --- messages ---


class Field(NamedTuple):
    """A field of a message.

    :param nested: the class of its nested part, if any
    :param default: in Kafka's schema, or else zero, "" or no elements
    """

    nested: type | None
    is_duration: bool
    default: Any


_ZERO = {"string": "", "bool": False, "bytes": b"", "int": 0, "timedelta": timedelta(0)}
"""The values of fields without a default in the schema, by a part of their type's name."""


@functools.cache
def fields_of(message_class: type) -> Mapping[str, Field]:
    """Return the fields of a message."""
    hints = typing.get_type_hints(message_class)
    found = {}
    for field in dataclasses.fields(message_class):
        kafka_type = str(field.metadata.get("kafka_type"))
        zero = next((value for kind, value in _ZERO.items() if kind in kafka_type), None)
        pending, nested = [hints[field.name]], None
        while pending:
            hint = pending.pop()
            if isinstance(hint, type) and dataclasses.is_dataclass(hint):
                nested = hint
            if typing.get_origin(hint) is tuple:
                zero = ()
            pending += [one for one in typing.get_args(hint) if one is not Ellipsis]
        default = zero if field.default is dataclasses.MISSING else field.default
        found[field.name] = Field(nested, "timedelta" in kafka_type, default)
    return found


@functools.cache
def names_in_any_version(api_key: int) -> frozenset[str]:
    """Return the names of all fields, nested ones too, that any version of a request has."""
    names: set[str] = set()
    pending: list[type] = []
    for version in range(HIGHEST_VERSION + 1):
        with contextlib.suppress(KioIndexError):
            pending.append(request_type(api_key, version))
    while pending:
        fields = fields_of(pending.pop())
        names |= fields.keys()
        pending += [field.nested for field in fields.values() if field.nested is not None]
    return frozenset(names)


def fitted(api_key: int, api_version: int, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those values that this version of a request has fields for.

    :raises AssertionError: when no version of the request has a field of that name
    """

    def fit(message_class: type, values: Mapping[str, Any]) -> dict[str, Any]:
        fields, kept = fields_of(message_class), {}
        for name, value in values.items():
            if name not in fields:
                assert name in names_in_any_version(api_key), f"{message_class}: no field {name}"
                continue
            nested = fields[name].nested
            if nested is not None and isinstance(value, Mapping):
                value = fit(nested, value)
            elif nested is not None and value is not None:
                value = [fit(nested, one) for one in value]
            kept[name] = value
        return kept

    return fit(request_type(api_key, api_version), values)


def message(message_class: type, **values: Any) -> Any:
    """Return a message or a part of one: dicts become nested parts, numbers durations in ms.

    Fields that are left out get their default.
    """
    fields = fields_of(message_class)
    built = {name: field.default for name, field in fields.items()}
    for name, value in values.items():
        nested, is_duration, _ = fields[name]
        if nested is not None and isinstance(value, Mapping):
            value = message(nested, **value)
        elif nested is not None and value is not None:
            value = tuple(message(nested, **one) for one in value)
        elif isinstance(value, list | tuple):
            value = tuple(value)
        elif is_duration and not isinstance(value, timedelta):
            value = timedelta(milliseconds=value)
        built[name] = value
    return message_class(**built)


def request_message(api_key: int, api_version: int, **fields: Any) -> Any:
    """Return a request of kio's classes. Fields that the version does not have are left out."""
    request_class = request_type(api_key, api_version)
    return message(request_class, **fitted(api_key, api_version, fields))


def request_frame(api_key: int, api_version: int, correlation_id: int = 1, **fields: Any) -> bytes:
    """Return the frame of a request."""
    return encode(request_message(api_key, api_version, **fields), correlation_id)


def encode(request: Any, correlation_id: int, client_id: str = CLIENT_ID) -> bytes:
    """Return the frame of a request of kio's classes."""
    request_class = type(request)
    out = io.BytesIO()
    out.write(
        request_header(
            request_class.__api_key__, request_class.__version__, correlation_id, client_id
        )
    )
    if request_class.__header_schema__.__version__ >= 2:
        out.write(b"\0")
    entity_writer(request_class)(out, request)
    return frame(out.getvalue())


def decode(api_key: int, api_version: int, payload: bytes) -> Any:
    """Return the response in a frame, which starts with the correlation id."""
    response_class = response_type(api_key, api_version)
    start = 5 if response_class.__header_schema__.__version__ else 4
    response, _ = entity_reader(response_class)(payload, start)
    return response


def prepare_socket(bootstrap_servers: str, plain: socket.socket) -> socket.socket:
    """Return the socket for requests to an address; `tests.logins` replaces this function."""
    return plain


class Connection:
    """One connection, on which requests are sent as they are given."""

    def __init__(
        self, bootstrap_servers: str, timeout_s: float = 30, client_id: str = CLIENT_ID
    ) -> None:
        host, port = bootstrap_servers.rsplit(":", 1)
        plain = socket.create_connection((host, int(port)), timeout=timeout_s)
        self.socket = prepare_socket(bootstrap_servers, plain)
        self.client_id = client_id
        self._correlation_id = 0

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Close the connection with a TCP reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_body(self, api_key: int, api_version: int, body: bytes) -> Sent:
        """Send a request whose body is given as bytes."""
        self._correlation_id += 1
        header = request_header(api_key, api_version, self._correlation_id, self.client_id)
        self.send(frame(header + body))
        return api_key, api_version, self._correlation_id

    def send_message(self, api_key: int, api_version: int, **fields: Any) -> Sent:
        """Send a request by its fields; pass what is returned to `receive_message`."""
        request = request_message(api_key, api_version, **fields)
        self._correlation_id += 1
        self.send(encode(request, self._correlation_id, self.client_id))
        return api_key, api_version, self._correlation_id

    def has_response(self, within_s: float) -> bool:
        """Return whether something to receive comes within this time."""
        if isinstance(self.socket, ssl.SSLSocket) and self.socket.pending():
            return True
        poll = select.poll()  # select() refuses descriptors from 1,024 on
        poll.register(self.socket, select.POLLIN)
        return bool(poll.poll(within_s * 1000))

    def receive(self) -> bytes | None:
        """Return the next response from its correlation id on, or None when the broker closed the
        connection.
        """
        return receive_frame(self.socket)

    def receive_to(self, sent: Sent) -> bytes:
        """Return the response to a request, from its correlation id on. Responses come in the order
        of the requests.
        """
        response = self.receive()
        assert response is not None, "the broker closed the connection"
        assert struct.unpack(">i", response[:4])[0] == sent[2]
        return response

    def receive_message(self, sent: Sent) -> Any:
        """Return the response to a request as a message of kio's classes."""
        return decode(sent[0], sent[1], self.receive_to(sent))

    def call(self, api_key: int, api_version: int, body: bytes) -> bytes:
        """Send a request whose body is given as bytes; return its response without the correlation
        id.
        """
        return self.receive_to(self.send_body(api_key, api_version, body))[4:]

    def ask(self, api_key: int, api_version: int, **fields: Any) -> Any:
        """Send a request by its fields and return the response, a message of kio's classes."""
        return self.receive_message(self.send_message(api_key, api_version, **fields))

    def api_versions(self) -> dict[int, tuple[int, int]]:
        """Return the lowest and highest version of each API that the broker serves."""
        response = self.ask(API_VERSIONS, 0)
        assert response.error_code == 0
        return {int(one.api_key): (one.min_version, one.max_version) for one in response.api_keys}

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> UUID:
        """Create a topic and return its id.

        :param configs: of the topic, with underscores for dots
        """
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": [
                {"name": key.replace("_", "."), "value": value} for key, value in configs.items()
            ],
        }
        response = self.ask(CREATE_TOPICS, 7, topics=[topic], timeout=30_000)
        (created,) = response.topics
        assert created.error_code == 0, created
        topic_id: UUID = created.topic_id
        return topic_id

    def produce(
        self,
        topic: str,
        records: bytes | None,
        partition: int = 0,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> tuple[int, int]:
        """Produce to one partition (v3) and return its error code and base offset."""
        response = self.ask(
            PRODUCE,
            3,
            transactional_id=transactional_id,
            acks=acks,
            timeout=30_000,
            topic_data=[
                {"name": topic, "partition_data": [{"index": partition, "records": records}]}
            ],
        )
        ((one,),) = (topic.partition_responses for topic in response.responses)
        return int(one.error_code), one.base_offset

    def send_fetch(self, topic: str, offset: int, max_wait_ms: int, partition: int = 0) -> Sent:
        """Send a Fetch (v4) that waits for one byte at `offset`."""
        wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        return self.send_message(
            FETCH,
            4,
            max_wait=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[{"topic": topic, "partitions": [wanted]}],
        )


@contextlib.contextmanager
def connection(
    bootstrap_servers: str, timeout_s: float = 30, client_id: str = CLIENT_ID
) -> Iterator[Connection]:
    """A connection that is closed at the end."""
    opened = Connection(bootstrap_servers, timeout_s, client_id)
    try:
        yield opened
    finally:
        opened.close()
