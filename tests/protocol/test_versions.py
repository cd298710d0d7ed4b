"""Every version of every API: requests are upgraded to the latest version, and responses are
written in the version of the request.
"""

from __future__ import annotations

import dataclasses
import random
import struct
import typing
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from headrace.protocol.messages import Codec, codec, frame_of
from headrace.protocol.refusals import refuse_all
from headrace.protocol.skimmer import skimmer
from headrace.protocol.versions import adapt, adapt_sliced
from headrace.protocol.writer import nested_type
from kio.serial import entity_reader

from headrace.client.messages import encode_request
from headrace.errors import ErrorCode
from headrace.handlers import APIS, served
from headrace.net import wire as call_wire
from headrace.protocol import sliced_reader
from headrace.protocol.frames import BadFrame, NullInRequest, request_header
from headrace.protocol.schema import schema_of
from headrace.protocol.time_slices import run_now
from tests.protocol.kio_bytes import written

EVERY_VERSION = [
    (api.key, version) for api in APIS.values() for version in range(api.lowest, api.highest + 1)
]
OF_CALLS = [one for one in EVERY_VERSION if served(one[0]) is not None]
ADAPTED = [one for one in EVERY_VERSION if one not in OF_CALLS]
KNOWN_ID = uuid.uuid4()
CATALOG = SimpleNamespace(
    topics={"known": SimpleNamespace(topic_id=KNOWN_ID, name="known")},
    topics_by_id={KNOWN_ID: SimpleNamespace(topic_id=KNOWN_ID, name="known")},
)
VALUES: dict[str, Any] = {
    "error_code": ErrorCode.KAFKA_STORAGE_ERROR,
    "datetime_i64": datetime(2026, 11, 20, 12, 30, 15, 123000, UTC),
    "string": "known",
    "bytes": b"bytes",
    "records": b"records",
    "bool": True,
    "uuid": KNOWN_ID,
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
    wire = codec(key, version)
    flexible = wire.request_type.__header_schema__.__version__ >= 2
    return (
        struct.pack(">hhih", key, version, 77, 2)
        + b"me"
        + (b"\0" if flexible else b"")
        + written(request)
    )


def answered(key: int, version: int, pieces: list[bytes | memoryview]) -> Any:
    """Return the response that a client of this version reads from the frame, to its end."""
    frame = b"".join(pieces)
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    assert struct.unpack_from(">i", frame, 4)[0] == 77
    wire = codec(key, version)
    start = 9 if wire.response_type.__header_schema__.__version__ >= 1 else 8
    response, size = entity_reader(wire.response_type)(frame, start)
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


PASSED_OVER: dict[int, frozenset[str]] = {
    1: frozenset(
        (
            "cluster_id",
            "replica_id",
            "replica_state",
            "replica_directory_id",
            "high_watermark",
            "rack_id",
        )
    )
}
"""Fields that are for replicas, by api: they need not be kept."""


def fields_of(message: Any, key: int) -> list[dataclasses.Field[Any]]:
    return [
        field for field in dataclasses.fields(message) if field.name not in PASSED_OVER.get(key, ())
    ]


def assert_says_the_same(received: Any, sent: Any, key: int) -> None:
    """Every field of ``sent`` has its value in ``received``, whatever class that is of, at every
    depth.
    """
    for field in fields_of(sent, key):
        theirs, ours = getattr(sent, field.name), getattr(received, field.name)
        if not isinstance(theirs, tuple):
            theirs, ours = (theirs,), (ours,)
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            if dataclasses.is_dataclass(other):
                assert_says_the_same(mine, other, key)
            else:
                assert mine == other, field.name


def assert_has_shape(message: Any, message_type: Any, key: int) -> None:
    """All fields of the class are there, at every depth. The class itself may be an older one with
    the same fields.
    """
    hints = typing.get_type_hints(message_type)
    for field in fields_of(message_type, key):
        value = getattr(message, field.name)
        nested, many = nested_type(hints[field.name])
        for one in (
            (value if many else (value,)) if nested is not None and value is not None else ()
        ):
            assert_has_shape(one, nested, key)


@pytest.mark.parametrize(("key", "version"), ADAPTED)
def test_request_arrives_in_the_latest_shape(key: int, version: int) -> None:
    wire = codec(key, version)
    sent = filled(wire.request_type)
    frame = request_frame(key, version, sent)
    header = request_header(frame)
    assert header[:4] == (key, version, 77, "me")
    received = wire.read_request(frame, header.body_offset)
    assert_says_the_same(received, sent, key)
    latest = adapt(received, wire, APIS[key].highest, CATALOG).request
    assert_has_shape(latest, codec(key, APIS[key].highest).request_type, key)
    for field in dataclasses.fields(latest):
        if field.name not in {
            one.name for one in dataclasses.fields(codec(key, APIS[key].highest).request_type)
        }:
            continue
        value = getattr(latest, field.name)
        if field.name in {one.name for one in dataclasses.fields(sent)} and not isinstance(
            value, tuple
        ):
            assert value == getattr(sent, field.name) or dataclasses.is_dataclass(value)


@pytest.mark.parametrize(("key", "version"), ADAPTED)
def test_a_failure_is_told_where_the_client_looks(key: int, version: int) -> None:
    wire = codec(key, version)
    adapted = adapt(filled(wire.request_type), wire, APIS[key].highest, CATALOG)
    refused = refuse_all(
        adapted.request, codec(key, APIS[key].highest).refusal_type, ErrorCode.KAFKA_STORAGE_ERROR
    )
    response = answered(key, version, wire.write_response(77, adapted.to_response(refused)))
    assert set(errors_in(response)) == {ErrorCode.KAFKA_STORAGE_ERROR}


@pytest.mark.parametrize(("key", "version"), OF_CALLS)
def test_a_call_that_fails_tells_it_where_the_client_looks(key: int, version: int) -> None:
    api = APIS[key]
    frame = request_frame(key, version, filled(codec(key, version).request_type))
    header = request_header(frame)
    request = call_wire.read_request(api, frame, header)
    refused = api.refused(request, ErrorCode.KAFKA_STORAGE_ERROR)
    response = answered(key, version, call_wire.write_response(api, header, refused))
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
    wire = codec(key, version)
    frame = request_frame(key, version, filled(wire.request_type))
    body = request_header(frame).body_offset
    for end in range(body, len(frame) - 1, max((len(frame) - body) // 7, 1)):
        with pytest.raises(BadFrame):
            wire.read_request(frame[:end], body)


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_responses_are_written_as_kio_writes_them(key: int, version: int) -> None:
    for texts in ("given", "empty", "null"):
        response = filled(codec(key, version).response_type, texts)
        by_kio = written(response)
        frame = b"".join(codec(key, version).write_response(77, response))
        assert frame.endswith(by_kio)
        assert len(frame) - len(by_kio) in (8, 9)


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_requests_of_the_client_are_written_as_kio_writes_them(key: int, version: int) -> None:
    for texts in ("given", "empty", "null"):
        frame = request_frame(key, version, filled(codec(key, version).request_type, texts))
        body = written(filled(codec(key, version).request_type, texts))
        request = schema_of("request", key).message_type.read(version, body)
        assert encode_request(request, version, 77, "me") == struct.pack(">i", len(frame)) + frame


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_skimming_ends_where_the_request_ends(key: int, version: int) -> None:
    """Were it to stray, it would refuse good requests, or let through an array that it did not
    see."""
    request_type = codec(key, version).request_type
    frame = request_frame(key, version, filled(request_type))
    body = request_header(frame).body_offset + (request_type.__header_schema__.__version__ >= 2)
    assert skimmer(request_type)(frame, body, len(frame)) == len(frame)


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_noise_is_refused_or_read_and_never_ends_the_process(key: int, version: int) -> None:
    seed = key * 100 + version
    rng = random.Random(seed)
    whole = request_frame(key, version, filled(codec(key, version).request_type))
    body = request_header(whole).body_offset
    for _ in range(300):
        noise = bytearray(whole)
        for _ in range(rng.randint(1, 4) if len(noise) > body else 0):
            noise[rng.randrange(body, len(noise))] = rng.choice(
                (0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256))
            )
        if rng.random() < 0.3:
            noise[body:] = rng.randbytes(rng.randint(0, 60))
        try:
            codec(key, version).read_request(bytes(noise), body)
        except BadFrame:
            pass


@pytest.mark.parametrize("whole_item_bytes", [0, 4096])
@pytest.mark.parametrize(("key", "version"), ADAPTED)
def test_slices_read_and_upgrade_what_one_piece_does(
    key: int, version: int, whole_item_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sliced_reader, "WHOLE_ITEM_BYTES", whole_item_bytes)
    wire = codec(key, version)
    whole = request_frame(key, version, filled(wire.request_type))
    body = request_header(whole).body_offset
    request = wire.read_request(whole, body)
    assert in_slices(wire, whole, body) == request
    sliced = run_now(adapt_sliced(request, wire, APIS[key].highest, CATALOG))
    assert sliced.request == adapt(request, wire, APIS[key].highest, CATALOG).request
    rng = random.Random(key * 100 + version)
    for _ in range(100):
        noise = bytearray(whole)
        for _ in range(rng.randint(1, 3) if len(noise) > body else 0):
            noise[rng.randrange(body, len(noise))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        frame = bytes(noise)
        whole_read = outcome(wire.read_request, frame, body)
        assert outcome(in_slices, wire, frame, body) == whole_read


def in_slices(wire: Codec, frame: bytes, body: int) -> Any:
    return run_now(wire.read_request_sliced(memoryview(frame), body))


def outcome(read: Callable[..., Any], *arguments: Any) -> Any:
    """Return the request, or the kind of the error and the request in it."""
    try:
        return read(*arguments)
    except NullInRequest as error:
        return "null", error.request
    except BadFrame:
        return "bad"


def test_large_values_are_not_copied() -> None:
    blob = b"x" * 100_000
    pieces = frame_of([b"head", b"small", blob, b"end"])
    assert pieces[1] is blob
    assert b"".join(pieces) == struct.pack(">i", 100_012) + b"headsmall" + blob + b"end"


def test_small_frames_are_one_piece() -> None:
    assert frame_of([b"head", b"x" * 5000]) == [struct.pack(">i", 5004) + b"head" + b"x" * 5000]
