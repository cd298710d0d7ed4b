"""Read metrics in the OpenTelemetry protocol (OTLP, ``MetricsData`` version 1), which clients push.

The bytes are protobuf. Only what the metrics page shows is read: the points of gauges and sums,
with their attributes. docs/decisions/0014-telemetry-by-hand.md says why no library does this.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from typing import NamedTuple

from headrace.broker.limits import MAX_PUSHED_FIELDS, MAX_PUSHED_POINT_BYTES, MAX_PUSHED_POINTS

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}
_MAX_VARINT_BITS = 70
_DOUBLE, _INT64 = struct.Struct("<d"), struct.Struct("<q")

Value = int | memoryview
Attributes = tuple[tuple[str, str], ...]

# Field numbers of opentelemetry/proto/metrics/v1/metrics.proto and common/v1/common.proto
_RESOURCE_METRICS = 1
_SCOPE_METRICS = 2
_METRIC = 2
_NAME, _GAUGE, _SUM = 1, 5, 7
_POINT, _TEMPORALITY, _IS_MONOTONIC = 1, 2, 3
_AS_DOUBLE, _AS_INT, _ATTRIBUTE = 4, 6, 7
_KEY, _VALUE = 1, 2
_STRING_VALUE, _BOOL_VALUE, _INT_VALUE, _DOUBLE_VALUE = 1, 2, 3, 4
_DELTA = 1
_NOTHING = memoryview(b"")


class BadMetrics(ValueError):
    """Bytes that are not metrics in this format."""


class Point(NamedTuple):
    """A value of a metric.

    :param is_counter: True for a monotonic sum
    :param is_delta: True if the value is the change since the last push
    """

    name: str
    is_counter: bool
    is_delta: bool
    value: float
    attributes: Attributes


class Decoded(NamedTuple):
    """The points of a push, and the number of those that were not read."""

    points: list[Point]
    left_out: int


def decode(data: memoryview) -> Generator[None, None, Decoded]:
    """Return a generator that reads the points of a push. It yields after each field outside of
    points, and after each point.

    :raises BadMetrics: when the bytes are invalid, or have more than :data:`MAX_PUSHED_FIELDS`
    """
    reading = _decode(data)
    for _ in range(MAX_PUSHED_FIELDS):
        try:
            next(reading)
        except StopIteration as finished:
            decoded: Decoded = finished.value
            return decoded
        yield
    raise BadMetrics(f"more than {MAX_PUSHED_FIELDS} fields")


def _decode(data: memoryview) -> Generator[None, None, Decoded]:
    points: list[Point] = []
    left_out = 0
    for metric in _metrics(data):
        yield
        if metric is None:
            continue
        name, kind, container = "", 0, _NOTHING
        for number, value in _fields(metric):
            if number == _NAME:
                name = _text(value)
            elif number in (_GAUGE, _SUM):
                kind, container = number, _message(value)
            yield
        temporality = is_monotonic = 0
        found: list[memoryview] = []
        for number, value in _fields(container):
            if number == _POINT and len(points) + len(found) < MAX_PUSHED_POINTS:
                found.append(_message(value))
            elif number == _POINT:
                left_out += 1
            elif number == _TEMPORALITY:
                temporality = _number(value)
            elif number == _IS_MONOTONIC:
                is_monotonic = _number(value)
            yield
        is_counter = kind == _SUM and is_monotonic != 0
        is_delta = kind == _SUM and temporality == _DELTA
        for one in found:
            value_and_attributes = _point(one)
            if value_and_attributes is not None:
                points.append(Point(name, is_counter, is_delta, *value_and_attributes))
            yield
    return Decoded(points, left_out)


def _metrics(data: memoryview) -> Iterator[memoryview | None]:
    """Yield the metrics of a push, and None for each other field."""
    for number, value in _fields(data):
        resource = _message(value) if number == _RESOURCE_METRICS else _NOTHING
        for inner_number, inner in _fields(resource):
            scope = _message(inner) if inner_number == _SCOPE_METRICS else _NOTHING
            for innermost_number, innermost in _fields(scope):
                yield _message(innermost) if innermost_number == _METRIC else None
            yield None
        yield None


def _point(data: memoryview) -> tuple[float, Attributes] | None:
    """Read the value and the attributes of a data point; None without a value."""
    if len(data) > MAX_PUSHED_POINT_BYTES:
        raise BadMetrics(f"a data point of {len(data)} bytes")
    result: float | None = None
    attributes = []
    for number, value in _fields(data):
        if number == _AS_DOUBLE:
            result = _DOUBLE.unpack(_fixed(value))[0]
        elif number == _AS_INT:
            result = _INT64.unpack(_fixed(value))[0]
        elif number == _ATTRIBUTE:
            attributes.append(_attribute(_message(value)))
    return None if result is None else (result, tuple(attributes))


def _attribute(data: memoryview) -> tuple[str, str]:
    key = text = ""
    for number, value in _fields(data):
        if number == _KEY:
            key = _text(value)
        elif number == _VALUE:
            text = _any_value(_message(value))
    return key, text


def _any_value(data: memoryview) -> str:
    """Return a plain attribute value as text; empty for lists and maps."""
    for number, value in _fields(data):
        if number == _STRING_VALUE:
            return _text(value)
        if number == _BOOL_VALUE:
            return "true" if _number(value) else "false"
        if number == _INT_VALUE:
            unsigned = _number(value)
            return str(unsigned - (unsigned >> 63 << 64))
        if number == _DOUBLE_VALUE:
            return str(_DOUBLE.unpack(_fixed(value))[0])
    return ""


# Protobuf -----------------------------------------------------------------------------------------


def _fields(data: memoryview) -> Iterator[tuple[int, Value]]:
    """Yield the number and the value of each field of a message: an int, or the bytes of a fixed
    number, a string or a message.
    """
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        wire_type = tag & 7
        if wire_type == _VARINT:
            number, position = _varint(data, position)
            yield tag >> 3, number
            continue
        if wire_type == _BYTES:
            size, position = _varint(data, position)
        elif wire_type in _FIXED_BYTES:
            size = _FIXED_BYTES[wire_type]
        else:
            raise BadMetrics(f"wire type {wire_type}")
        if size > end - position:
            raise BadMetrics(f"a field of {size} bytes ends after its message")
        yield tag >> 3, data[position : position + size]
        position += size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    number = shift = 0
    try:
        while shift < _MAX_VARINT_BITS:
            byte = data[position]
            position += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number & 0xFFFF_FFFF_FFFF_FFFF, position
            shift += 7
    except IndexError:
        raise BadMetrics("a number is incomplete") from None
    raise BadMetrics("a number is longer than ten bytes")


def _message(value: Value) -> memoryview:
    if isinstance(value, int):
        raise BadMetrics("a number in place of a message")
    return value


def _fixed(value: Value) -> memoryview:
    data = _message(value)
    if len(data) != _DOUBLE.size:
        raise BadMetrics(f"a number of {len(data)} bytes")
    return data


def _number(value: Value) -> int:
    if not isinstance(value, int):
        raise BadMetrics("bytes in place of a number")
    return value


def _text(value: Value) -> str:
    try:
        return str(_message(value), "utf-8")
    except UnicodeDecodeError as error:
        raise BadMetrics(str(error)) from None
