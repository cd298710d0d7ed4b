"""Formatting of records: as Kafka's default formatter does, or as JSON.

The properties are those of Kafka's ``--formatter-property``, with the same defaults.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite, isinf, isnan
from typing import Any
from uuid import UUID

from headrace.cli.errors import BadUsage
from headrace.cli.tables import json_line, terminal_text

_FLOAT_DIGITS = 9
"""The number of digits that tells all floats of four bytes apart."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """A record that was consumed.

    :param timestamp_type: ``CreateTime`` or ``LogAppendTime``
    :param timestamp_ms: since the epoch; -1 for none
    :param delivery_count: number of deliveries to a share group, including this one; else None
    """

    topic: str
    partition: int
    offset: int
    timestamp_type: str
    timestamp_ms: int
    delivery_count: int | None
    headers: tuple[tuple[str, bytes | None], ...]
    key: bytes | None
    value: bytes | None


class Undecodable(ValueError):
    """The bytes are malformed for the chosen deserializer."""


def _fixed(layout: str, name: str) -> Callable[[bytes], Any]:
    decoder = struct.Struct(layout)

    def decode(data: bytes) -> Any:
        if len(data) != decoder.size:
            raise Undecodable(f"{len(data)} bytes, but type {name} has {decoder.size}")
        return decoder.unpack(data)[0]

    return decode


def _float(data: bytes) -> float:
    """Return the number of the fewest digits among those that have these four bytes."""
    value: float = _fixed(">f", "float")(data)
    for digits in range(1, _FLOAT_DIGITS + 1):
        candidate = float(f"{value:.{digits}g}")
        with suppress(OverflowError):
            if struct.pack(">f", candidate) == data:
                return candidate
    return value


def _float_text(value: float) -> str:
    """Return the text of a number as Java prints it, such as ``1.0E10``."""
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, *others = map(str, digits)
    shown = f"{first}.{''.join(others) or 0}E{int(exponent) + len(others)}"
    return f"-{shown}" if sign else shown


def _boolean(data: bytes) -> bool:
    if data not in (b"\0", b"\1"):
        raise Undecodable("a boolean is one byte, 0 or 1")
    return data == b"\1"


def _uuid(data: bytes) -> str:
    try:
        return str(UUID(data.decode()))
    except ValueError:
        raise Undecodable("not the text of a UUID") from None


_RAW = (
    "StringDeserializer",
    "ByteArrayDeserializer",
    "BytesDeserializer",
    "ByteBufferDeserializer",
)
_DESERIALIZERS: Mapping[str, Callable[[bytes], Any] | None] = {
    **dict.fromkeys(_RAW),
    "ShortDeserializer": _fixed(">h", "short"),
    "IntegerDeserializer": _fixed(">i", "integer"),
    "LongDeserializer": _fixed(">q", "long"),
    "FloatDeserializer": _float,
    "DoubleDeserializer": _fixed(">d", "double"),
    "BooleanDeserializer": _boolean,
    "UUIDDeserializer": _uuid,
}

_DEFAULTS: Mapping[str, str] = {
    "print.timestamp": "false",
    "print.key": "false",
    "print.offset": "false",
    "print.delivery": "false",
    "print.epoch": "false",
    "print.partition": "false",
    "print.headers": "false",
    "print.value": "true",
    "key.separator": "\t",
    "line.separator": "\n",
    "headers.separator": ",",
    "null.literal": "null",
    "key.deserializer": "",
    "value.deserializer": "",
    "headers.deserializer": "",
}


class MessageFormatter:
    """A formatter of records as lines.

    :param properties: name → value, as in Kafka's ``--formatter-property``
    :param for_terminal: escape what is not printable in keys, values and headers of lines
    :raises BadUsage: a name or a deserializer is unknown
    """

    def __init__(
        self, properties: Mapping[str, str] | None = None, *, for_terminal: bool = False
    ) -> None:
        self._for_terminal = for_terminal
        given = dict(properties or {})
        if "header.deserializer" in given:  # the name in the help of Kafka's tool
            given["headers.deserializer"] = given.pop("header.deserializer")
        if unknown := sorted(given.keys() - _DEFAULTS.keys()):
            raise BadUsage(
                f"unknown formatter property {unknown[0]}; there are: {', '.join(_DEFAULTS)}"
            )
        chosen = {**_DEFAULTS, **given}
        self._shown = {
            name.removeprefix("print.") for name in chosen if chosen[name].strip().lower() == "true"
        }
        self._separator = chosen["key.separator"].encode()
        self._line_end = chosen["line.separator"].encode()
        self._header_separator = chosen["headers.separator"].encode()
        self._null = chosen["null.literal"].encode()
        self._decoders = {
            part: _decoder(chosen[f"{part}.deserializer"]) for part in ("key", "value", "headers")
        }

    @property
    def shows_headers(self) -> bool:
        """True if :meth:`line` has the headers."""
        return "headers" in self._shown

    def line(self, record: Delivered) -> bytes:
        """Format a record as Kafka's default formatter does, with the line separator.

        :raises Undecodable: a deserializer does not accept its bytes
        """
        shown, parts = self._shown, []
        if "timestamp" in shown:
            stamp = (
                f"{record.timestamp_type}:{record.timestamp_ms}"
                if record.timestamp_ms >= 0
                else "NO_TIMESTAMP"
            )
            parts.append(stamp.encode())
        if "partition" in shown:
            parts.append(b"Partition:%d" % record.partition)
        if "offset" in shown:
            parts.append(b"Offset:%d" % record.offset)
        if "delivery" in shown:
            count = record.delivery_count
            parts.append(b"Delivery:NOT_PRESENT" if count is None else b"Delivery:%d" % count)
        if "epoch" in shown:
            parts.append(b"Epoch:NOT_PRESENT")  # Kafka's tools never know it
        if "headers" in shown:
            headers = (
                self._shown_bytes(name.encode()) + b":" + self._text("headers", value)
                for name, value in record.headers
            )
            parts.append(self._header_separator.join(headers) or b"NO_HEADERS")
        if "key" in shown:
            parts.append(self._text("key", record.key))
        if "value" in shown:
            parts.append(self._text("value", record.value))
        return self._separator.join(parts) + self._line_end

    def json_line(self, record: Delivered) -> bytes:
        """Format a record as one line of JSON.

        Bytes that are not UTF-8 are in Base64, under ``keyBase64`` or ``valueBase64``.

        :raises Undecodable: a deserializer does not accept its bytes
        """
        count = record.delivery_count
        fields: dict[str, Any] = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "timestampType": record.timestamp_type,
            **({} if count is None else {"deliveryCount": count}),
            **self._json("key", "key", record.key),
            **self._json("value", "value", record.value),
            "headers": [
                {"key": name, **self._json("headers", "value", value)}
                for name, value in record.headers
            ],
        }
        return json_line(fields).encode() + b"\n"

    def _text(self, part: str, data: bytes | None) -> bytes:
        if data is None:
            return self._null
        decode = self._decoders[part]
        if decode is None:
            return self._shown_bytes(data)
        value = decode(data)
        if isinstance(value, float):
            return _float_text(value).encode()
        return (str(value).lower() if isinstance(value, bool) else str(value)).encode()

    def _shown_bytes(self, data: bytes) -> bytes:
        if not self._for_terminal:
            return data
        return terminal_text(data.decode(errors="backslashreplace")).encode()

    def _json(self, part: str, name: str, data: bytes | None) -> dict[str, Any]:
        decode = self._decoders[part]
        if data is None:
            return {name: None}
        if decode is not None:
            value = decode(data)
            # JSON has no numbers for them.
            is_number = not isinstance(value, float) or isfinite(value)
            return {name: value if is_number else _float_text(value)}
        try:
            return {name: data.decode()}
        except UnicodeDecodeError:
            return {f"{name}Base64": base64.b64encode(data).decode()}


def _decoder(name: str) -> Callable[[bytes], Any] | None:
    simple = name.strip().rpartition(".")[2]
    if simple and simple not in _DESERIALIZERS:
        raise BadUsage(f"unknown deserializer {name}; there are: {', '.join(_DESERIALIZERS)}")
    return _DESERIALIZERS[simple] if simple else None
