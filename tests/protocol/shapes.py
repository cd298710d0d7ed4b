"""Requests of every API and version, made from the schemas, with one field of an odd shape.

The base request is valid; each case changes one field of it: a null, an empty or a repeated
element, a number at the end of its range, a name that no topic may have.
"""

from __future__ import annotations

import dataclasses
import struct
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from headrace.handlers import APIS
from headrace.protocol.primitives import compact_length, unsigned_varint
from headrace.protocol.record_batch import build
from tests.kio_messages import request_type
from tests.kio_messages.fields import FIXED_FORMATS, nested_type

NUMBERS = {
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
    "error_code": "int16",
    "uint16": "int16",
}

BASE: Mapping[str, Any] = {
    # text
    "name": "t",
    "topic": "t",
    "topic_name": "t",
    "topics_names": "t",
    "topic_names": "t",
    "group_id": "g",
    "groups_names": "g",
    "groups": "g",
    "group_ids": "g",
    "member_id": "m",
    "transactional_id": "x",
    "v3_and_below_transactional_id": "x",
    "transactional_ids": "x",
    "key": "g",
    "coordinator_keys": "g",
    "protocol_type": "consumer",
    "resource_name": "t",
    "configuration_keys": "retention.ms",
    "value": "1",
    "client_software_name": "app",
    "client_software_version": "1",
    "subscribed_topic_names": "t",
    "cluster_id": None,
    "rack_id": None,
    "instance_id": None,
    "group_instance_id": None,
    "server_assignor": None,
    "subscribed_topic_regex": None,
    "transactional_id_pattern": None,
    # numbers
    "acks": -1,
    "timeout": 1000,
    "timeout_ms": 1000,
    "session_timeout": 10_000,
    "rebalance_timeout": 10_000,
    "transaction_timeout": 10_000,
    "transaction_timeout_ms": 10_000,
    "num_partitions": 1,
    "replication_factor": 1,
    "count": 3,
    "resource_type": 2,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
    "max_records": 10,
    "batch_size": 10,
    "retention_time": -1,
    "replica_id": -1,
    "leader_epoch": -1,
    "current_leader_epoch": -1,
    "last_fetched_epoch": -1,
    "session_epoch": -1,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "response_partition_limit": 100,
    "producer_id": -1,
    "producer_epoch": -1,
    "acknowledge_types": 1,
    # other
    "records": build([(None, b"value")], timestamp_ms=1_700_000_000_000),
    "assignments": (),
    "cursor": None,
    "replica_state": None,
}
"""Values of a request that is served, by field name. Other numbers are 0, other texts "s"."""

DELETED = {
    20: {"name": "gone", "topic_names": "gone", "topic_id": UUID(int=2**127)},
    19: {"name": "new"},
}
"""Other names for requests that create and delete topics."""

TEXTS = {"empty": b"", "control characters": b"a\n\x1b[2J\0", "dots": b"..", "long": b"x" * 30_000}
UUIDS = {"zero": UUID(int=0), "reserved": UUID(int=1), "unknown": UUID(int=2**127 + 12345)}
NULL = "null"


class Field(NamedTuple):
    """A field of a request.

    :param path: the names from the request on, with dots
    :param nullable: True if Kafka's schema allows null
    """

    path: str
    kind: str
    nested: Any
    many: bool
    nullable: bool
    flexible: bool
    tag: int | None


class Case(NamedTuple):
    """A request body with one odd field."""

    api_key: int
    version: int
    path: str
    variant: str
    nullable: bool
    body: bytes

    def __str__(self) -> str:
        return f"{APIS[self.api_key].name} v{self.version} {self.path}: {self.variant}"


Write = Callable[[Field], bytes]


@cache
def fields_of(message_type: Any, path: str) -> Sequence[Field]:
    hints = typing.get_type_hints(message_type)
    found = []
    for field in dataclasses.fields(message_type):
        hint = hints[field.name]
        nested, many = nested_type(hint)
        kind = str(field.metadata.get("kafka_type", "struct"))
        found.append(
            Field(
                f"{path}.{field.name}" if path else field.name,
                NUMBERS.get(kind, kind),
                nested,
                many,
                type(None) in typing.get_args(hint) and kind != "uuid",
                message_type.__flexible__,
                field.metadata.get("tag"),
            )
        )
    return found


def length(count: int, flexible: bool, legacy: str) -> bytes:
    """Return the length of an array, a text or bytes; -1 for null."""
    return compact_length(count) if flexible else struct.pack(legacy, count)


class Shape:
    """The requests, or other messages, of one version.

    :param topic_id: the id of the topic that requests are about
    :param message_type: kio's class of the messages; None for requests
    :param base: values of the valid message by field name, besides those of requests
    """

    def __init__(
        self,
        api_key: int,
        version: int,
        topic_id: UUID,
        message_type: Any = None,
        base: Mapping[str, Any] | None = None,
    ) -> None:
        self.api_key, self.version = api_key, version
        self._type = message_type or request_type(api_key, version)
        self._base = {**BASE, "topic_id": topic_id, **DELETED.get(api_key, {}), **(base or {})}

    def body(self, path: str | None = None, odd: Write | None = None) -> bytes:
        """Return a body, with the field at `path` written by `odd`. Of a path with arrays, the
        first element.
        """
        header = b"\0" if self._type.__header_schema__.__flexible__ else b""
        return header + self._struct(self._type, "", path, odd)

    def fields(self) -> Iterator[Field]:
        """Yield all fields, nested ones too."""
        pending = list(fields_of(self._type, ""))
        while pending:
            field = pending.pop()
            yield field
            if field.nested is not None:
                pending += fields_of(field.nested, field.path)

    def cases(self) -> Iterator[Case]:
        """Yield the valid request, and all requests with one odd field."""
        yield Case(self.api_key, self.version, "", "valid", True, self.body())
        for field in self.fields():
            for variant, write in self._variants(field):
                body = self.body(field.path, write)
                yield Case(self.api_key, self.version, field.path, variant, field.nullable, body)

    def _variants(self, field: Field) -> Iterator[tuple[str, Write]]:
        flexible = field.flexible
        if field.many:
            yield NULL, lambda field: length(-1, flexible, ">i")
            yield "empty", lambda field: length(0, flexible, ">i")
            for variant, count in (("one", 1), ("repeated", 2)):
                yield (
                    variant,
                    lambda field, count=count: (
                        length(count, flexible, ">i") + self._one(field, None, None) * count
                    ),
                )
        elif field.nested is not None:
            if field.tag is None:
                yield NULL, lambda field: b"\xff"
                yield "present", lambda field: b"\1" + self._one(field, None, None)
            else:
                yield "present", lambda field: self._one(field, None, None)
        elif field.kind == "string":
            yield NULL, lambda field: length(-1, flexible, ">h")
            for variant, text in TEXTS.items():
                yield (
                    variant,
                    lambda field, text=text: length(len(text), flexible, ">h") + text,
                )
        elif field.kind in ("bytes", "records"):
            yield NULL, lambda field: length(-1, flexible, ">i")
            for data in (b"", b"\0", b"\xff" * 100):
                yield (
                    f"{len(data)} bytes",
                    lambda field, data=data: length(len(data), flexible, ">i") + data,
                )
        elif field.kind == "uuid":
            for variant, value in UUIDS.items():
                yield variant, lambda field, value=value: value.bytes
        elif field.kind == "bool":
            yield "2", lambda field: b"\2"
        elif field.kind == "float64":
            for real in (-1.0, 0.0, 5e-324, 1e308, float("inf"), float("nan")):
                yield str(real), lambda field, real=real: struct.pack(">d", real)
        else:
            bits = int(field.kind.removeprefix("int"))
            for number in (-1, 0, 1, -(1 << bits - 1), (1 << bits - 1) - 1):
                yield (
                    str(number),
                    lambda field, number=number: number.to_bytes(bits // 8, "big", signed=True),
                )

    def _struct(self, message_type: Any, at: str, path: str | None, odd: Write | None) -> bytes:
        parts, tagged = [], {}
        for field in fields_of(message_type, at):
            if field.tag is None:
                parts.append(self._field(field, path, odd))
            elif path is not None and f"{path}.".startswith(f"{field.path}."):
                tagged[field.tag] = self._field(field, path, odd)
        if message_type.__flexible__:
            parts.append(bytes([len(tagged)]))
            for tag, data in sorted(tagged.items()):
                parts.append(unsigned_varint(tag) + compact_length(len(data) - 1) + data)
        return b"".join(parts)

    def _field(self, field: Field, path: str | None, odd: Write | None) -> bytes:
        if field.path == path:
            assert odd is not None
            return odd(field)
        inside = path is not None and path.startswith(f"{field.path}.")
        base = self._base.get(field.path.rpartition(".")[2])
        if field.many:
            if base == () and not inside:
                return length(0, field.flexible, ">i")
            return length(1, field.flexible, ">i") + self._one(field, path, odd)
        if field.nested is not None and field.nullable and field.tag is None:
            return b"\1" + self._one(field, path, odd) if inside else b"\xff"
        return self._one(field, path, odd)

    def _one(self, field: Field, path: str | None, odd: Write | None) -> bytes:
        """Return one element of an array, or the value of another field."""
        if field.nested is not None:
            return self._struct(field.nested, field.path, path, odd)
        name = field.path.rpartition(".")[2]
        if field.kind == "string":
            text = self._base.get(name, "s")
            data = b"" if text is None else text.encode()
            size = -1 if text is None and field.nullable else len(data)
            return length(size, field.flexible, ">h") + data
        if field.kind in ("bytes", "records"):
            data = self._base.get(name, b"")
            return length(len(data), field.flexible, ">i") + data
        if field.kind == "uuid":
            return bytes(self._base["topic_id"].bytes)
        if field.kind == "bool":
            return b"\0"
        if field.kind == "float64":
            return struct.pack(">d", 1.0)
        return struct.pack(">" + FIXED_FORMATS[field.kind], self._base.get(name, 0))
