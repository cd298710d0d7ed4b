"""Request frames from the schemas: sound ones with odd values, and flawed ones."""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from tests.encoding import string
from tests.fuzz import batches
from tests.fuzz.schema import Field, Schema, Version
from tests.fuzz.words import TOPICS, Words
from tests.kio_messages.fields import FIXED_FORMATS

Given = Mapping[str, Any]
"""Values by field name; mappings for nested messages, sequences for arrays."""

_PACKERS = {kind: struct.Struct(">" + code).pack for kind, code in FIXED_FORMATS.items()}
_INT16, _INT32 = struct.Struct(">h").pack, struct.Struct(">i").pack
_MAX_ITEMS = 400
"""Elements of all arrays of one request."""

_CHANCE_OF_DUPLICATE = 0.1


def unsigned_varint(value: int) -> bytes:
    """Return a varint as compact lengths have it."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class FrameWriter:
    """Writes request frames, with some of the flaws that a schema does not allow.

    :param words: where values come from
    """

    def __init__(self, words: Words) -> None:
        self.words = words
        self.rng = words.rng
        self._out = bytearray()
        self._flaws = 0.0
        self._items = 0
        self.is_sound = True
        """Whether the last frame was written as its schema says."""

    def frame(
        self,
        version: Version,
        correlation_id: int,
        given: Given | None = None,
        flaws: float = 0.0,
    ) -> bytes:
        """Return a frame with its size.

        :param given: values of fields; others are drawn
        :param flaws: the probability of a flaw in each field
        """
        self._out = out = bytearray()
        self._flaws, self._items, self.is_sound = flaws, 0, True
        out += struct.pack(">hhi", version.api_key, version.api_version, correlation_id)
        out += self._client_id()
        if version.has_tagged_header:
            self._tags(())
        self._message(version.schema, given or {})
        return struct.pack(">i", len(out)) + bytes(out)

    # Flaws ----------------------------------------------------------------------------------------

    def _flaw(self) -> bool:
        """Return whether to make a flaw here."""
        if self._flaws and self.rng.random() < self._flaws:
            self.is_sound = False
            return True
        return False

    def _client_id(self) -> bytes:
        dice = self.rng.random()
        if dice < 0.9:
            return string("fuzz")
        if dice < 0.95:
            return _INT16(-1)
        return string(self.words.string("client_id")[:200])

    # Messages -------------------------------------------------------------------------------------

    def _message(self, schema: Schema, given: Given) -> None:
        tagged = []
        for field in schema.fields:
            if field.tag is None:
                self._field(schema, field, given)
            elif field.name in given or self.rng.random() < 0.05:
                tagged.append(field)
        if schema.is_flexible:
            self._tags([(field, schema, given) for field in tagged])

    def _tags(self, tagged: Sequence[tuple[Field, Schema, Given]]) -> None:
        """Write tagged fields: those given, sometimes unknown ones, with flaws in sizes."""
        rng = self.rng
        values: list[tuple[int, bytes]] = []
        outer = self._out
        for field, schema, given in tagged:
            self._out = bytearray()
            self._field(schema, field, given)
            values.append((field.tag or 0, bytes(self._out)))
        self._out = outer
        if rng.random() < 0.02:
            values.append((rng.choice((7, 10_000, (1 << 31) - 1)), rng.randbytes(rng.randrange(9))))
        if values and self._flaw():
            values.append(values[0])
        count = len(values)
        if self._flaw():
            count = rng.choice((count + 1, 100, (1 << 31) - 1, (1 << 35) - 1))
        outer += unsigned_varint(count)
        for tag, value in sorted(values):
            size = len(value)
            if self._flaw():
                size = rng.choice((0, size + 1, 1 << 28, (1 << 32) - 1))
            outer += unsigned_varint(tag) + unsigned_varint(size) + value

    def _field(self, schema: Schema, field: Field, given: Given) -> None:
        if field.is_array:
            self._array(schema, field, given)
        elif field.nested is not None:
            value = given.get(field.name, {})
            if field.is_nullable and (value is None or self.rng.random() < 0.5):
                self._out += b"\xff"
                return
            if field.is_nullable:
                self._out += b"\x01"
            self._message(field.nested, value or {})
        elif field.name in given:
            self._plain(schema, field, given[field.name])
        else:
            self._plain(schema, field, self._drawn(field))

    def _array(self, schema: Schema, field: Field, given: Given) -> None:
        rng, items = self.rng, given.get(field.name, ...)
        if items is None or (items is ... and field.is_nullable and rng.random() < 0.15):
            self._length(schema, -1)
            return
        if self._flaw():
            # null where there must be an array, a negative count, or one that is too high
            self._length(schema, rng.choice((-1, -1, -1, -2, 1, 100, 1 << 16, (1 << 31) - 1)))
            return
        if items is ...:
            count = rng.choice((0, 1, 1, 1, 1, 2, 3)) if rng.random() < 0.97 else 40
            count = min(count, _MAX_ITEMS - self._items)
            items = [self._element(field) for _ in range(count)]
            if items and rng.random() < _CHANCE_OF_DUPLICATE:
                items.append(items[0])
        self._items += len(items)
        count = len(items)
        if self._flaw():
            count += rng.choice((1, -1, 2, 1000))
        self._length(schema, max(count, 0))
        for item in items:
            if field.nested is not None:
                self._message(field.nested, item)
            else:
                self._plain(schema, field, item)

    def _element(self, field: Field) -> Any:
        if field.nested is None:
            return self._drawn(field)
        if field.name in ("topics", "topic_data", "v3_and_below_topics") and (
            self.rng.random() < 0.7
        ):
            name = self.rng.choice(TOPICS)
            return {"name": name, "topic": name}
        return {}

    def _drawn(self, field: Field) -> Any:
        """Return a value for a field that is not given."""
        words, kind, name = self.words, field.kind, field.name
        if field.is_nullable and not field.is_array and self.rng.random() < 0.2:
            return None
        if kind == "string":
            return words.string(name)
        if kind == "uuid":
            return words.uuid(name)
        if kind == "bool":
            return self.rng.random() < 0.5
        if kind == "records":
            producer_id = words.number("producer_id", "int64")
            return batches.records(self.rng, producer_id, words.number("producer_epoch", "int16"))
        if kind == "bytes":
            return self._blob(name)
        if kind == "float64":
            return words.float()
        return words.number(name, kind)

    def _blob(self, name: str) -> bytes:
        """Return the bytes of a subscription or an assignment: usually sound ones."""
        rng = self.rng
        topics = rng.sample(TOPICS, rng.randrange(3))
        if name == "metadata":
            data = struct.pack(">hi", rng.choice((0, 1, 2, 3)), len(topics))
            data += b"".join(map(string, topics)) + _INT32(-1)
            data += _INT32(0) + _INT32(-1) + _INT16(-1)
        else:
            data = struct.pack(">hi", 0, len(topics))
            data += b"".join(string(topic) + struct.pack(">ii", 1, 0) for topic in topics)
            data += _INT32(-1)
        dice = rng.random()
        if dice < 0.7:
            return data
        if dice < 0.85:
            return mutated(rng, data)
        return rng.randbytes(rng.randrange(40))

    # Plain values ---------------------------------------------------------------------------------

    def _plain(self, schema: Schema, field: Field, value: Any) -> None:
        kind = field.kind
        if kind == "string":
            self._string(schema, field, value)
        elif kind in ("bytes", "records"):
            self._bytes(schema, field, value)
        elif kind == "uuid":
            self._out += (value or UUID(int=0)).bytes
        else:
            self._out += _PACKERS[kind](0 if value is None else value)

    def _string(self, schema: Schema, field: Field, value: str | None) -> None:
        out, rng = self._out, self.rng
        data = None if value is None else value.encode()
        if data is None and not field.is_nullable:
            data = b""
        length = -1 if data is None else len(data)
        if self._flaw():
            flaw = rng.randrange(4)
            if flaw == 0:
                data, length = None, -1
            elif flaw == 1:
                length = rng.choice((-2, -(1 << 15), (1 << 15) - 1, length + 1))
            elif flaw == 2:
                data = rng.choice((b"\xff\xfe", b"\xc3", b"\xed\xa0\x80"))
                length = len(data)
            else:
                data = b"y" * 40_000
                length = len(data)
        if schema.is_flexible:
            out += unsigned_varint(max(length + 1, 0))
        else:
            out += _INT16(max(min(length, (1 << 15) - 1), -(1 << 15)))
        out += data or b""

    def _bytes(self, schema: Schema, field: Field, value: bytes | None) -> None:
        length = -1 if value is None else len(value)
        if self._flaw():
            length = self.rng.choice((-1, -2, length + 1, (1 << 31) - 1))
        self._length(schema, length)
        self._out += value or b""

    def _length(self, schema: Schema, length: int) -> None:
        if schema.is_flexible:
            self._out += unsigned_varint(length + 1 if length >= -1 else (1 << 32) + length)
        else:
            self._out += _INT32(length)


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Return bytes with a few changes that know nothing of their structure."""
    spoiled = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        if not spoiled:
            break
        at, how = rng.randrange(len(spoiled)), rng.randrange(7)
        if how <= 1:
            spoiled[at] ^= 1 << rng.randrange(8)
        elif how == 2:
            spoiled[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif how == 3:
            del spoiled[at:]
        elif how == 4:
            del spoiled[at : at + rng.randrange(1, 9)]
        elif how == 5:
            spoiled[at:at] = rng.randbytes(rng.randrange(1, 9))
        else:
            spoiled += rng.choice((bytes(9), rng.randbytes(rng.randrange(1, 40))))
    return bytes(spoiled)


def mutated_frame(rng: random.Random, frame: bytes) -> bytes:
    """Return a frame with changes after its api key and version, and a size that usually fits."""
    start = 8 if rng.random() < 0.9 else 4
    payload = frame[4:start] + mutated(rng, frame[start:])
    size = len(payload)
    if rng.random() < 0.05:
        size = rng.choice((size + 1, size - 1, 0, -1, 7, (1 << 31) - 1, 100 * 1024 * 1024 + 1))
    return struct.pack(">i", size) + payload
