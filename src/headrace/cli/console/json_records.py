"""Records as JSON objects: what ``headrace consume`` prints and ``headrace produce`` reads."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from math import isinf
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.patterns import meant

if TYPE_CHECKING:
    from headrace.client.records import Record


Headers = list[tuple[str, bytes | None]]

_FIELDS = ("topic", "partition", "offset", "timestamp_ms", "timestamp_type", "delivery_count")
_CONTENT = ("key", "value", "headers")
_MAX_SHOWN = 40


class NewRecord(NamedTuple):
    """A record to produce.

    :param partition: None if the partitioner chooses
    :param timestamp_ms: since the epoch; None for now
    """

    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None = None
    timestamp_ms: int | None = None


class MalformedLine(ValueError):
    """A line is not a record; the text says why."""


def record_fields(record: Record, *, parse: bool = False) -> dict[str, Any]:
    """Return the object of a record.

    :param parse: a value that is JSON becomes what it means, not its text
    """
    fields = {name: getattr(record, name) for name in _FIELDS}
    if not record.delivery_count:  # it was not read in a share group
        del fields["delivery_count"]
    value = json_bytes(record.value)
    if parse and isinstance(value, str):
        try:
            value = json.loads(value, parse_constant=_no_number, parse_float=_finite)
        except (ValueError, RecursionError):
            pass
    headers = [[name, json_bytes(content)] for name, content in record.headers]
    return {**fields, "key": json_bytes(record.key), "value": value, "headers": headers}


def json_bytes(data: bytes | None) -> str | dict[str, str] | None:
    """Return bytes as JSON: a text if they are UTF-8, else ``{"base64": …}``."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def read_record(line: bytes, *, keep_partitions: bool) -> NewRecord | None:
    """Return the record of a line, None for a blank one.

    A value that is no string is stored as JSON. Headers may be an object, too: name → value. Where
    a record was (``topic``, ``offset``, ``timestamp_type``, ``delivery_count``) is ignored.

    :param keep_partitions: use ``partition``
    :raises MalformedLine: it is not such an object
    """
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise MalformedLine("it is not UTF-8: JSON lines are") from None
    if not text.strip():
        return None
    try:
        return _record(text, keep_partitions)
    except RecursionError:
        raise MalformedLine("its JSON is nested too deeply") from None


def _record(text: str, keep_partitions: bool) -> NewRecord:
    advice = "to send the line itself as the value, leave out --json"
    try:
        fields = json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise MalformedLine(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except MalformedLine:
        raise
    except ValueError:  # Python's limit of digits
        raise MalformedLine("a number has too many digits: give it as a string") from None
    if not isinstance(fields, dict):
        raise MalformedLine(f'not a JSON object such as {{"key": "k", "value": "v"}}; {advice}')
    for name in fields:
        if name not in _FIELDS + _CONTENT:
            hint = meant(name, _FIELDS + _CONTENT) or advice
            raise MalformedLine(f"unknown field {_shown(name)}; {hint}")
    if "value" not in fields:
        raise MalformedLine(f"no field 'value'; {advice}; a tombstone is \"value\": null")
    timestamp_ms = _number(fields, "timestamp_ms", 2**63, least=-1)
    if timestamp_ms == 0:
        raise MalformedLine("timestamp_ms is 0, which librdkafka takes for the present time")
    return NewRecord(
        _bytes("key", fields.get("key")),
        _bytes("value", fields["value"]),
        _headers(fields.get("headers")),
        _number(fields, "partition", 2**31) if keep_partitions else None,
        None if timestamp_ms == -1 else timestamp_ms,  # Kafka's for none
    )


def _no_number(text: str) -> None:
    raise MalformedLine(f'{text} is not JSON: give it as a string, "{text}"')


def _finite(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise MalformedLine(f"the number {_shown(text)} is too large: give it as a string")
    return number


def _shown(text: str) -> str:
    return repr(text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…")


def _headers(headers: Any) -> Headers:
    """Read headers: a list of names and values, an object from names to values, or None."""
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    if pairs is None:
        return []
    if not isinstance(pairs, list) or not all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[0], str)
        for pair in pairs
    ):
        raise MalformedLine('headers is neither {"NAME": "VALUE", …} nor [["NAME", "VALUE"], …]')
    return [(header_name(name), _bytes("a header", value)) for name, value in pairs]


def header_name(name: str) -> str:
    """Return the name of a header.

    :raises MalformedLine: librdkafka cannot send it
    """
    _bytes("the name of a header", name)
    if "\0" in name:
        raise MalformedLine("the name of a header has a NUL, at which librdkafka would cut it")
    return name


def _bytes(what: str, value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, dict) and value.keys() == {"base64"}:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (TypeError, ValueError):
            raise MalformedLine(f"{what} is not Base64") from None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise MalformedLine(f"{what} has half a surrogate pair") from None


def _number(fields: Mapping[str, Any], name: str, end: int, least: int = 0) -> int | None:
    """Return a number below ``end``; None if it is missing."""
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise MalformedLine(f"{name} is not a number from {least} on")
    if value >= end:
        raise MalformedLine(f"{name} is too large")
    return value
