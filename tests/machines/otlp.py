"""Metrics in the OpenTelemetry protocol, as clients push them: protobuf by field numbers."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from headrace.protocol.primitives import unsigned_varint

DELTA, CUMULATIVE = 1, 2


def field(number: int, value: int | float | str | bytes) -> bytes:
    """Return a field of a message: a varint, a double, a string, or a message."""
    if isinstance(value, bool | int):
        return unsigned_varint(number << 3) + unsigned_varint(value)
    if isinstance(value, float):
        return unsigned_varint(number << 3 | 1) + struct.pack("<d", value)
    data = value.encode() if isinstance(value, str) else value
    return unsigned_varint(number << 3 | 2) + unsigned_varint(len(data)) + data


def point(value: float, **attributes: str | int | bool | float) -> bytes:
    """Return a NumberDataPoint."""
    data = unsigned_varint(3 << 3 | 1) + bytes(8)  # time_unix_nano
    if isinstance(value, int):
        data += unsigned_varint(6 << 3 | 1) + struct.pack("<q", value)
    else:
        data += field(4, value)
    for key, content in attributes.items():
        kind = {str: 1, bool: 2, int: 3, float: 4}[type(content)]
        data += field(7, field(1, key) + field(2, field(kind, content)))
    return data


def gauge(name: str, *points: bytes) -> bytes:
    """Return a Metric with a gauge."""
    return field(1, name) + field(3, "ms") + field(5, b"".join(field(1, one) for one in points))


def counter(name: str, *points: bytes, temporality: int = DELTA, monotonic: bool = True) -> bytes:
    """Return a Metric with a sum. Its properties follow its points, as Java writes them."""
    data = b"".join(field(1, one) for one in points)
    return field(1, name) + field(7, data + field(2, temporality) + field(3, monotonic))


def histogram(name: str) -> bytes:
    """Return a Metric with a histogram, which is not read."""
    return field(1, name) + field(9, field(1, b""))


def pushed(*metrics: bytes, resource: Mapping[str, str] | None = None) -> bytes:
    """Return MetricsData: each metric in resource metrics of its own, as Java writes them."""
    attributes = b"".join(
        field(1, field(1, key) + field(2, field(1, value)))
        for key, value in (resource or {}).items()
    )
    return b"".join(
        field(1, field(1, attributes) + field(2, field(1, b"") + field(2, metric)))
        for metric in metrics
    )
