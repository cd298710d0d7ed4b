"""Requests written by hand: what a client library would refuse to send.

Either byte by byte, in old versions that are a few lines of struct, or in any version by the names
of the fields (`Connection.ask`), with dicts for the nested parts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import select
import socket
import struct
import typing
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import crc32c
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from headrace.protocol.primitives import record_bytes, string, varint
from tests.support import frame, receive_frame, request_header

TRANSACTIONAL, CONTROL = 0x10, 0x20
"""The bits of a batch's attributes that say so."""


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
    """A record batch of `values`, all with one key or without, uncompressed, base offset 0."""
    records, key_bytes = b"", b"".join(record_bytes(key))
    for delta, value in enumerate(values):
        body = (
            b"\0"
            + varint(0)
            + varint(delta)
            + key_bytes
            + b"".join(record_bytes(value))
            + varint(0)
        )
        records += varint(len(body)) + body
    attributes = TRANSACTIONAL * transactional + CONTROL * control
    checked = (
        struct.pack(
            ">hiqqqhii",
            attributes,
            len(values) - 1,
            timestamp_ms,
            timestamp_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            len(values),
        )
        + records
    )
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, magic, crc32c.crc32c(checked)) + checked


def with_byte_changed(data: bytes, position: int) -> bytes:
    """`data` with one byte flipped."""
    changed = bytearray(data)
    changed[position] ^= 0xFF
    return bytes(changed)


@functools.cache
def fields_of(message_class: type) -> Mapping[str, tuple[type | None, bool]]:
    """Of each field the class of its nested part, if it has one, and whether it is a time."""
    hints = typing.get_type_hints(message_class)
    found = {}
    for field in dataclasses.fields(message_class):
        pending, nested = [hints[field.name]], None
        while pending:
            hint = pending.pop()
            if isinstance(hint, type) and dataclasses.is_dataclass(hint):
                nested = hint
            pending += [one for one in typing.get_args(hint) if one is not Ellipsis]
        found[field.name] = nested, "timedelta" in str(field.metadata.get("kafka_type"))
    return found


def message(message_class: type, **values: Any) -> Any:
    """A message or a part of one: dicts become its parts, numbers its times in ms."""
    built = {}
    for name, value in values.items():
        nested, is_time = fields_of(message_class)[name]
        if nested is not None and isinstance(value, Mapping):
            value = message(nested, **value)
        elif nested is not None and value is not None:
            value = tuple(message(nested, **one) for one in value)
        elif isinstance(value, list | tuple):
            value = tuple(value)
        elif is_time:
            value = timedelta(milliseconds=value)
        built[name] = value
    return message_class(**built)


class Connection:
    """One connection on which requests are sent as they are given."""

    def __init__(
        self, bootstrap_servers: str, timeout_s: float = 30, client_id: str = "raw"
    ) -> None:
        host, port = bootstrap_servers.rsplit(":", 1)
        self.client_id = client_id
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self._correlation_id = 0

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Go away without a word: the peer gets a TCP reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_request(self, api_key: int, api_version: int, body: bytes) -> int:
        """Send a request and return its correlation id."""
        self._correlation_id += 1
        header = request_header(api_key, api_version, self._correlation_id, self.client_id)
        self.send(frame(header + body))
        return self._correlation_id

    def receive(self) -> bytes | None:
        """The next response, from its correlation id on; None when the broker closed the
        connection.
        """
        return receive_frame(self.socket)

    def call(self, api_key: int, api_version: int, body: bytes) -> bytes:
        """Send a request and return the body of its response."""
        correlation_id = self.send_request(api_key, api_version, body)
        response = self.receive()
        assert response is not None, "the broker closed the connection"
        assert struct.unpack(">i", response[:4])[0] == correlation_id
        return response[4:]

    def send_message(self, api_key: int, api_version: int, **fields: Any) -> tuple[int, int, int]:
        """Send a request by its fields without waiting; what is returned goes to
        `receive_message`."""
        request_class = load_request_schema(api_key, api_version)
        body = io.BytesIO()
        if request_class.__header_schema__.__version__ >= 2:
            body.write(b"\0")
        entity_writer(request_class)(body, message(request_class, **fields))
        return api_key, api_version, self.send_request(api_key, api_version, body.getvalue())

    def has_response(self, within_s: float) -> bool:
        """Whether something to receive comes within this time."""
        readable, _, _ = select.select([self.socket], [], [], within_s)
        return bool(readable)

    def receive_message(self, sent: tuple[int, int, int]) -> Any:
        """The response to a request that was sent: they come in the order of the requests."""
        api_key, api_version, correlation_id = sent
        response = self.receive()
        assert response is not None, "the broker closed the connection"
        assert struct.unpack(">i", response[:4])[0] == correlation_id
        response_class = load_response_schema(api_key, api_version)
        read, _ = entity_reader(response_class)(
            response, 5 if response_class.__header_schema__.__version__ else 4
        )
        return read

    def ask(self, api_key: int, api_version: int, **fields: Any) -> Any:
        """Send a request by its fields and return the response, a message of kio's classes."""
        return self.receive_message(self.send_message(api_key, api_version, **fields))

    def api_versions(self) -> dict[int, tuple[int, int]]:
        """Ask ApiVersions v0: api key → lowest and highest version."""
        body = self.call(18, 0, b"")
        code, count = struct.unpack_from(">hi", body)
        assert code == 0
        return {
            key: (low, high)
            for key, low, high in struct.iter_unpack(">hhh", body[6 : 6 + 6 * count])
        }

    def produce(
        self,
        topic: str,
        records: bytes | None,
        partition: int = 0,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> tuple[int, int]:
        """Produce v3 of one partition: its error code and base offset."""
        size = (
            struct.pack(">i", -1) if records is None else struct.pack(">i", len(records)) + records
        )
        of_topic = string(topic) + struct.pack(">ii", 1, partition) + size
        body = self.call(
            0, 3, string(transactional_id) + struct.pack(">hii", acks, 30_000, 1) + of_topic
        )
        at = 4 + 2 + len(topic) + 4 + 4
        code, base_offset = struct.unpack_from(">hq", body, at)
        return code, base_offset

    def send_fetch(self, topic: str, offset: int, max_wait_ms: int, partition: int = 0) -> int:
        """Send Fetch v4 that waits for one byte at `offset`."""
        return self.send_request(
            1,
            4,
            struct.pack(">iiiibi", -1, max_wait_ms, 1, 1 << 20, 0, 1)
            + string(topic)
            + struct.pack(">iiqi", 1, partition, offset, 1 << 20),
        )


@contextlib.contextmanager
def connection(bootstrap_servers: str, client_id: str = "raw") -> Iterator[Connection]:
    """A connection that is closed at the end."""
    opened = Connection(bootstrap_servers, client_id=client_id)
    try:
        yield opened
    finally:
        opened.close()
