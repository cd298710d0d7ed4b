"""The records of coordinators as bytes, by Kafka's own definitions of their keys and values.

A key is ``int16 record type`` and the fields of its definition; a value is ``int16 version`` and
the fields of this version.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from .primitives import INT16
from .schema import Message, Schema, schema, type_of_record

KEYS_KEPT = 20_000
"""The number of decoded keys that are cached for each topic: keys repeat when a log is replayed."""


KEPT_KEY_BYTES = 512
"""The longest key that is cached."""

PLAIN_OFFSET = struct.Struct(">hqiBq3s16s")
"""A committed offset of version 4 with a topic id and without metadata, as most are, which is read
and written at once in a third of the time: version, offset, leader epoch, length of the metadata,
commit timestamp, one tagged field, topic id.
"""
NO_METADATA = 1
"""The length of an empty text, as a compact string has it."""

TOPIC_ID_TAG = b"\1\0\x10"
"""One tagged field, with tag 0 and 16 bytes."""


@dataclass(eq=False)
class RecordType:
    """A type of coordinator records.

    :param name: Kafka's name for it; the definitions are those of ``NameKey`` and ``NameValue``
    :param version: the version in which values are written; all versions are read
    """

    name: str
    version: int

    @cached_property
    def key(self) -> Schema:
        """The definition of its keys."""
        return schema(f"{self.name}Key")

    @cached_property
    def value(self) -> Schema:
        """The definition of its values."""
        return schema(f"{self.name}Value")

    def encode_key(self, *fields: Any) -> bytes:
        """Return a key as bytes."""
        definition = self.key
        message: Message = definition.message_type(*fields)
        return INT16.pack(definition.key) + message.encoded(0)

    def encode_value(self, value: Any, version: int | None = None) -> bytes:
        """Return a value as bytes.

        :param value: its message, or what has the fields of one
        :param version: another version than the usual one
        """
        if version is None:
            version = self.version
        pieces = [INT16.pack(version)]
        self.value.writer(version)(pieces.append, value)
        return b"".join(pieces)

    def read_value(self, data: bytes) -> Any:
        """Return the message of a value.

        :raises KeyError: the version is unknown
        :raises ValueError, IndexError, struct.error: the bytes are none
        """
        (version,) = INT16.unpack_from(data)
        return self.value.message_type.read(version, data, INT16.size)


class RawRecord(NamedTuple):
    """A record as its definitions have it.

    :param key: the fields of the key, in order
    :param value: the message of the value; None for a tombstone
    """

    type: RecordType
    key: tuple[Any, ...]
    value: Any


class RecordTypes:
    """The record types of an internal topic, by name.

    :param description: of its records, for error texts
    :param versions: the versions in which values are written, by the names of the types
    :ivar by_number: the types by their numbers in keys
    """

    def __init__(self, description: str, versions: Mapping[str, int]) -> None:
        self._description = description
        self._by_name = {name: RecordType(name, version) for name, version in versions.items()}
        self.by_number = {type_of_record(name): item for name, item in self._by_name.items()}
        self._read_key = lru_cache(KEYS_KEPT)(self._key)

    def __getitem__(self, name: str) -> RecordType:
        return self._by_name[name]

    def decode(self, key: bytes, value: bytes | None) -> RawRecord | None:
        """Read a record; return None for a record type that is not one of these.

        :raises ValueError: the bytes are no such record
        """
        try:
            is_long = len(key) > KEPT_KEY_BYTES
            record_type, fields = (self._key if is_long else self._read_key)(key)
            if record_type is None:
                return None
            message = None if value is None else record_type.read_value(value)
        except (struct.error, LookupError, ValueError) as error:
            raise ValueError(f"not a {self._description}: {error}") from error
        return RawRecord(record_type, fields, message)

    def _key(self, key: bytes) -> tuple[RecordType | None, tuple[Any, ...]]:
        """Return the type of a record, or None, and the fields of its key."""
        (number,) = INT16.unpack_from(key)
        record_type = self.by_number.get(number)
        if record_type is None:
            return None, ()
        message = record_type.key.message_type.read(0, key, INT16.size)
        return record_type, message.field_values()
