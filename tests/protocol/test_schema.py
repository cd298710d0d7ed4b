"""The compiler of messages beside kio, an independent witness: every message and version with
contents has the same bytes, and is read from them again.
"""

from __future__ import annotations

import ast
import io
import random
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.index import KioIndexError
from kio.serial import entity_reader, entity_writer

from headrace.protocol import schema as schemas
from headrace.protocol.primitives import NullArray
from headrace.protocol.schema import Schema, Structure, schema, snake_case
from scripts.schemas import stub
from tests.kio_messages import request_type, response_type
from tests.support import RUN_SEED

pytestmark = pytest.mark.pure

MESSAGES_OF_EACH = 5


class Maker:
    """What makes messages of random contents."""

    def __init__(self, seed: object) -> None:
        self._random = random.Random(str(seed))

    def message(self, of: Schema, structure: Structure, version: int) -> Any:
        message = structure.type()
        for field in structure.fields:
            if version in field.versions:
                value = self._value(of, field, version)
                setattr(message, field.name, value)
        return message

    def _value(self, of: Schema, field: schemas.Field, version: int) -> Any:
        if version in field.nullable and self._random.random() < 0.25:
            return None
        if not field.is_array:
            return self._item(of, field, version)
        items = [self._item(of, field, version) for _ in range(self._random.choice((0, 1, 3)))]
        is_number = field.type not in of.structures and field.type not in {"string", "bytes"}
        is_left_out = not items and version in field.tagged and field.default != "None"
        is_tuple = is_number or is_left_out or of.kind == "coordinator-value"
        return tuple(items) if is_tuple else items

    def _item(self, of: Schema, field: schemas.Field, version: int) -> Any:
        pick = self._random
        if field.type in of.structures:
            return self.message(of, of.structures[field.type], version)
        if field.name.endswith("error_code"):
            return pick.randrange(-1, 90)
        if field.name.endswith("_ms"):
            return pick.randrange(1 << 31)
        match field.type:
            case "bool":
                return pick.random() < 0.5
            case "uuid":
                return UUID(int=pick.getrandbits(128)) if pick.random() < 0.8 else None
            case "float64":
                return pick.random() * 1e9
            case "string":
                return "".join(pick.choice("abcé漢") for _ in range(pick.choice((0, 1, 5, 200))))
            case "bytes" | "records":
                return pick.randbytes(pick.choice((0, 3, 300)))
        bits = int(field.type.lstrip("uint"))
        lowest = 0 if field.type.startswith("u") else -1 << (bits - 1)
        return pick.randrange(lowest, lowest + (1 << bits))


def run(steps: Any) -> Any:
    """Return what a generator returns."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize("name", schemas.names())
def test_a_message_is_read_from_its_bytes_and_kio_agrees(name: str) -> None:
    of = schema(name)
    maker = Maker((RUN_SEED, name))
    for version in range(of.versions.first, of.versions.last + 1):
        for _ in range(MESSAGES_OF_EACH):
            message = maker.message(of, of.structures[name], version)
            encoded = message.encoded(version)
            copy = of.message_type.read(version, memoryview(encoded))
            assert copy == message
            if of.kind == "coordinator-value":
                assert of.filled(message.as_tuple()) == message
            pieces: list[Any] = []
            run(of.sliced_writer(version)(pieces.append, message))
            assert b"".join(pieces) == encoded
            sliced, end = run(of.sliced_reader(version)(encoded, 0, len(encoded)))
            assert (sliced, end) == (message, len(encoded))
            assert by_kio(of, version, encoded) == encoded


def by_kio(of: Schema, version: int, encoded: bytes) -> bytes:
    """Return what kio writes after it has read a message; the same bytes where it knows none, as of
    coordinator records.
    """
    try:
        kind = kio_class(of, version)
    except (KioIndexError, ModuleNotFoundError):
        return encoded
    entity, _ = entity_reader(kind)(encoded, 0)
    out = io.BytesIO()
    entity_writer(kind)(out, entity)
    return out.getvalue()


def kio_class(of: Schema, version: int) -> Any:
    """Return kio's class of a message.

    :raises KioIndexError, ModuleNotFoundError: it has none
    """
    if of.kind == "request":
        return request_type(of.key, version)
    if of.kind == "response":
        return response_type(of.key, version)
    module = import_module(f"kio.schema.{snake_case(of.name)}.v{version}.{of.kind}")
    return getattr(module, of.name)


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("api.pyi", ["request", "response"]),
        ("stored.pyi", ["coordinator-key", "coordinator-value", "data"]),
    ],
)
def test_the_stubs_are_those_of_the_table(name: str, kinds: list[str]) -> None:
    kept = Path(schemas.__file__).with_name(name).read_text()
    assert ast.dump(ast.parse("\n".join(stub(kinds)))) == ast.dump(ast.parse(kept))


@pytest.mark.parametrize("name", ["MetadataRequest", "OffsetCommitRequest", "ShareFetchRequest"])
def test_bytes_that_end_early_or_claim_too_much_are_refused(name: str) -> None:
    of = schema(name)
    maker = Maker((RUN_SEED, name))
    for version in range(of.versions.first, of.versions.last + 1):
        message = maker.message(of, of.structures[name], version)
        encoded = message.encoded(version)
        for end in range(len(encoded)):
            with pytest.raises((ValueError, IndexError, schemas.struct.error)):
                of.message_type.read(version, encoded[:end])


def test_an_array_that_claims_more_items_than_bytes_allocates_nothing() -> None:
    claim = b"\xff\xff\xff\xff\x07"
    with pytest.raises(ValueError, match="topics claims"):
        schema("MetadataRequest").message_type.read(13, claim + bytes(100))


def test_null_is_refused_where_the_schema_has_none_and_can_be_let_pass() -> None:
    fetch = schema("FetchRequest")
    message = fetch.message_type()
    encoded = message.encoded(13)
    start = len(encoded) - 4  # topics, forgotten topics, rack id, tags
    null = encoded[:start] + b"\0" + encoded[start + 1 :]
    with pytest.raises(NullArray, match="topics is null"):
        fetch.message_type.read(13, null)
    read = fetch.reader(13, allow_nulls=True)
    assert read(null, 0, len(null))[0].topics is None


@pytest.mark.parametrize("allow_nulls", [False, True])
def test_the_items_of_an_array_that_may_be_null_are_not(allow_nulls: bool) -> None:
    heartbeat = schema("ConsumerGroupHeartbeatRequest")
    encoded = heartbeat.message_type(subscribed_topic_names=["t"]).encoded(1)
    null = encoded.replace(b"\2\2t", b"\2\0")
    assert len(null) == len(encoded) - 1
    with pytest.raises(ValueError, match="subscribed_topic_names claims -1"):
        heartbeat.reader(1, allow_nulls=allow_nulls)(null, 0, len(null))
    with pytest.raises(NullArray, match="subscribed_topic_names is null"):
        heartbeat.message_type(subscribed_topic_names=[None]).encoded(1)


@pytest.mark.parametrize("version", [1, 4])
def test_an_array_that_is_shared_is_written_once(version: int) -> None:
    response = schema("DescribeConfigsResponse")
    result, config = (
        response.structures[name].type
        for name in ("DescribeConfigsResult", "DescribeConfigsResourceResult")
    )
    configs = [config(name="retention.ms", value="5"), config(name="flush.ms")]
    shared = response.encode(version, configs)
    assert len(shared) == 2

    def written(array: Any) -> bytes:
        results = [result(resource_name=name, configs=array) for name in ("t", "u")]
        message = response.message_type(results=results)
        pieces: list[Any] = []
        for _ in response.sliced_writer(version)(pieces.append, message):
            pass
        data: bytes = message.encoded(version)
        assert b"".join(pieces) == data
        return data

    assert written(shared) == written(configs)
    assert written(response.encode(version, [])) == written([])


@pytest.mark.parametrize("version", [1, 4])
def test_messages_for_people_are_cut_off_at_the_longest_string(version: int) -> None:
    response = schema("DescribeConfigsResponse")
    result = response.structures["DescribeConfigsResult"].type
    message = response.message_type(results=[result(error_message="€" * 20_000)])
    (read,) = response.message_type.read(version, message.encoded(version)).results
    assert read.error_message == "€" * (0x7FFF // 3)
