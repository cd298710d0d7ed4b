"""Every version of every API as a client sees it: requests are read or refused, and a failure is
told where it looks.
"""

from __future__ import annotations

import dataclasses
import random
import struct
import typing
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kio.serial import entity_reader

from headrace.client.frames import encode_request
from headrace.handlers import APIS
from headrace.net import wire
from headrace.protocol.api import FetchResponse
from headrace.protocol.errors import ErrorCode
from headrace.protocol.frames import BadFrame, RequestHeader, request_header
from headrace.protocol.primitives import NullArray
from headrace.protocol.schema import schema_of
from headrace.protocol.time_slices import run_now
from tests.kio_messages import request_type, response_type
from tests.kio_messages.fields import nested_type
from tests.protocol.kio_bytes import written

EVERY_VERSION = [
    (api.key, version) for api in APIS.values() for version in range(api.lowest, api.highest + 1)
]
VALUES: dict[str, Any] = {
    "error_code": ErrorCode.KAFKA_STORAGE_ERROR,
    "datetime_i64": datetime(2026, 11, 20, 12, 30, 15, 123000, UTC),
    "string": "known",
    "bytes": b"bytes",
    "records": b"records",
    "bool": True,
    "uuid": uuid.uuid4(),
    "timedelta_i32": timedelta(milliseconds=1234),
    "timedelta_i64": timedelta(milliseconds=1234),
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 3,
    "int64": 4,
    "float64": 5.5,
}


def filled(message_type: Any, texts: str = "given") -> Any:
    """Return a message with every field set and one element in every array.

    :param texts: "empty" for empty texts, "null" for null where a text may be null
    """
    hints = typing.get_type_hints(message_type)
    fields = {}
    for field in dataclasses.fields(message_type):
        nested, many = nested_type(hints[field.name])
        kind = field.metadata.get("kafka_type")
        value = filled(nested, texts) if nested is not None else VALUES[kind]
        if kind == "string" and not many and texts != "given":
            is_nullable = type(None) in typing.get_args(hints[field.name])
            value = None if texts == "null" and is_nullable else ""
        fields[field.name] = (value,) if many else value
    return message_type(**fields)


def request_frame(key: int, version: int, request: Any) -> bytes:
    """Return a request's frame without its size, as kio writes it for a client."""
    flexible = type(request).__header_schema__.__version__ >= 2
    return (
        struct.pack(">hhih", key, version, 77, 2)
        + b"me"
        + (b"\0" if flexible else b"")
        + written(request)
    )


def answered(key: int, version: int, pieces: list[Any]) -> Any:
    """Return the response that a client of this version reads from the frame, to its end."""
    frame = b"".join(pieces)
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    assert struct.unpack_from(">i", frame, 4)[0] == 77
    message_type = response_type(key, version)
    start = 9 if message_type.__header_schema__.__version__ >= 1 else 8
    response, size = entity_reader(message_type)(frame, start)
    assert start + size == len(frame)
    return response


def errors_in(message: Any) -> list[int]:
    """All error codes anywhere in a message."""
    found = []
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if field.name in ("error_code", "partition_error_code"):
            found.append(int(getattr(value, "value", value)))  # a code, or a plain number
        elif dataclasses.is_dataclass(value):
            found += errors_in(value)
        elif isinstance(value, tuple):
            for one in value:
                found += errors_in(one) if dataclasses.is_dataclass(one) else []
    return found


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_a_failure_is_told_where_the_client_looks(key: int, version: int) -> None:
    api = APIS[key]
    frame = request_frame(key, version, filled(request_type(key, version)))
    header = request_header(frame)
    assert header[:4] == (key, version, 77, "me")
    request = wire.read_request(api, frame, header)
    refused = api.refused(request, ErrorCode.KAFKA_STORAGE_ERROR)
    response = answered(key, version, wire.write_response(api, header, refused))
    has_place = key != 35 or version >= 3  # DescribeLogDirs: of the request, from version 3 on
    assert set(errors_in(response)) == ({ErrorCode.KAFKA_STORAGE_ERROR} if has_place else set())


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\1\0",
        struct.pack(">hhi", 0, 3, 1),
        struct.pack(">hhih", 0, 3, 1, 50) + b"short",
        struct.pack(">hhih", 0, 3, 1, 2) + b"\xff\xfe",
    ],
)
def test_bad_header_is_refused(frame: bytes) -> None:
    with pytest.raises(BadFrame):
        request_header(frame)


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_a_cut_request_is_refused(key: int, version: int) -> None:
    frame = request_frame(key, version, filled(request_type(key, version)))
    header = request_header(frame)
    body = header.body_offset
    for end in range(body, len(frame) - 1, max((len(frame) - body) // 7, 1)):
        with pytest.raises(BadFrame):
            wire.read_request(APIS[key], frame[:end], header)


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_requests_of_the_client_are_written_as_kio_writes_them(key: int, version: int) -> None:
    for texts in ("given", "empty", "null"):
        message = filled(request_type(key, version), texts)
        frame = request_frame(key, version, message)
        request = schema_of("request", key).message_type.read(version, written(message))
        assert encode_request(request, version, 77, "me") == struct.pack(">i", len(frame)) + frame


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_noise_is_refused_or_read_and_never_ends_the_process(key: int, version: int) -> None:
    """In slices as in one piece."""
    api, rng = APIS[key], random.Random(key * 100 + version)
    sound = request_frame(key, version, filled(request_type(key, version)))
    header = request_header(sound)
    body = header.body_offset

    def in_slices(frame: bytes) -> Any:
        return run_now(wire.read_request_sliced(api, memoryview(frame), header))

    for _ in range(300):
        noise = bytearray(sound)
        for _ in range(rng.randint(1, 4) if len(noise) > body else 0):
            noise[rng.randrange(body, len(noise))] = rng.choice(
                (0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256))
            )
        if rng.random() < 0.3:
            noise[body:] = rng.randbytes(rng.randint(0, 60))
        frame = bytes(noise)
        assert outcome(lambda frame: wire.read_request(api, frame, header), frame) == outcome(
            in_slices, frame
        )


def outcome(read: Callable[[bytes], Any], frame: bytes) -> bytes | str:
    """Return the bytes of the request, or the kind of the error."""
    try:
        message = read(frame)
        return bytes(message.encoded(request_header(frame).api_version))
    except NullArray:
        return "null"
    except BadFrame:
        return "bad"


FETCH = APIS[1]
HEADER = RequestHeader(1, 12, 77, "me", 0)


def fetched(records: bytes) -> FetchResponse:
    partition = FetchResponse.PartitionData(records=records)
    topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])
    return FetchResponse(responses=[topic])


def test_large_values_are_not_copied() -> None:
    records = b"x" * 100_000
    response = fetched(records)
    pieces = wire.write_response(FETCH, HEADER, response)
    assert sum(piece is records for piece in pieces) == 1
    frame = b"".join(pieces)  # type: ignore[arg-type]
    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
    assert frame[9:] == response.encoded(12)


def test_small_frames_are_one_piece() -> None:
    (frame,) = wire.write_response(FETCH, HEADER, fetched(b"x" * 5000))
    assert len(frame) > 5000
