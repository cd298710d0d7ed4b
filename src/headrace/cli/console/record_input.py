"""Records from lines: in the format of Kafka's console producer, or as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isinf
from typing import Any

from headrace.cli.errors import BadUsage

Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class NewRecord:
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


_DEFAULTS: Mapping[str, str] = {
    "parse.key": "false",
    "parse.headers": "false",
    "key.separator": "\t",
    "headers.delimiter": "\t",
    "headers.separator": ",",
    "headers.key.separator": ":",
    "null.marker": "",
    "ignore.error": "false",
}


class LineReader:
    """A reader of lines such as ``h1:v1,h2:v2<TAB>key<TAB>value``.

    :param properties: name → value, as in ``--reader-property`` of Kafka's console producer
    :raises BadUsage: a name is unknown, or separators cannot be told apart
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        if unknown := sorted(properties.keys() - _DEFAULTS.keys()):
            raise BadUsage(
                f"unknown reader property {unknown[0]}; there are: {', '.join(_DEFAULTS)}"
            )
        chosen = {**_DEFAULTS, **properties}
        self._parse_key, self._parse_headers, self._ignore_error = (
            chosen[name].strip().lower() == "true"
            for name in ("parse.key", "parse.headers", "ignore.error")
        )
        self._key_separator = chosen["key.separator"].encode()
        self._delimiter = chosen["headers.delimiter"].encode()
        self._separator = chosen["headers.separator"].encode()
        self._header_separator = chosen["headers.key.separator"].encode()
        self._null = chosen["null.marker"].encode()
        separators = [self._delimiter, self._separator, self._header_separator]
        if self._parse_headers and len(set(separators)) < len(separators):
            raise BadUsage(
                "headers.delimiter, headers.separator and headers.key.separator must differ"
            )
        if not all([self._key_separator, *separators]):
            raise BadUsage("a separator cannot be empty")

    def record(self, line: bytes) -> NewRecord:
        """Return the record of a line.

        :raises MalformedLine: a separator is missing
        """
        headers: Headers = []
        key = None
        if self._parse_headers:
            text, line = self._split(line, self._delimiter, "headers delimiter")
            if text is not None and not self._is_null(text):
                headers = [self._header(one) for one in text.split(self._separator)]
        if self._parse_key:
            key, line = self._split(line, self._key_separator, "key separator")
        return NewRecord(
            None if key is None or self._is_null(key) else key,
            None if self._is_null(line) else line,
            headers,
        )

    def _is_null(self, data: bytes) -> bool:
        return bool(self._null) and data == self._null

    def _split(self, line: bytes, separator: bytes, what: str) -> tuple[bytes | None, bytes]:
        before, found, after = line.partition(separator)
        if found:
            return before, after
        if self._ignore_error:
            return None, line
        raise MalformedLine(f"no {what} found")

    def _header(self, text: bytes) -> tuple[str, bytes | None]:
        name, found, value = text.partition(self._header_separator)
        if not found and not self._ignore_error:
            raise MalformedLine("no header key separator found")
        if self._is_null(name):
            raise MalformedLine("a header key cannot be null")
        try:
            key = _header_key(name.decode())
        except UnicodeDecodeError:
            raise MalformedLine("a header key is not UTF-8") from None
        return key, None if not found or self._is_null(value) else value


_FIELDS = frozenset(
    ("topic", "partition", "offset", "timestamp", "timestampType", "deliveryCount", "headers")
    + ("key", "keyBase64", "value", "valueBase64")
)
"""What ``headrace consume --json`` and ``headrace console-share-consumer --json`` print."""
_HEADER_FIELDS = frozenset(("key", "value", "valueBase64"))
_MAX_SHOWN = 40


class JsonReader:
    """A reader of JSON objects, as ``headrace consume --json`` prints them: ``key``, ``value``,
    ``headers``, ``timestamp``; bytes in Base64 under ``keyBase64`` and ``valueBase64``. A value
    that is not a string is stored as JSON. Headers may be an object, too: name → value.

    Where a record was (``topic``, ``offset``, ``timestampType``, ``deliveryCount``) is ignored.

    :param keep_partitions: use ``partition``, too
    """

    def __init__(self, *, keep_partitions: bool) -> None:
        self._keep_partitions = keep_partitions

    def record(self, line: bytes) -> NewRecord | None:
        """Return the record of a line, None for a blank one.

        :raises MalformedLine: it is not such an object
        """
        try:
            text = line.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise MalformedLine("it is not UTF-8: JSON lines are") from None
        if not text.strip():
            return None
        try:
            return self._record(text)
        except RecursionError:
            raise MalformedLine("its JSON is nested too deeply") from None

    def _record(self, text: str) -> NewRecord:
        try:
            fields = json.loads(
                text,
                object_pairs_hook=_without_duplicates,
                parse_constant=_no_number,
                parse_float=_finite,
            )
        except json.JSONDecodeError as error:
            raise MalformedLine(f"not JSON: {error.msg} at character {error.pos + 1}") from None
        except MalformedLine:
            raise
        except ValueError:  # Python's limit of digits
            raise MalformedLine("a number has too many digits: give it as a string") from None
        if not isinstance(fields, dict):
            raise MalformedLine(
                'not a JSON object such as {"key": "k", "value": "v"}; to send the line itself as '
                "the value, leave out --json"
            )
        _refuse_unknown(fields, _FIELDS, "to send the line itself as the value, leave out --json")
        if not fields.keys() & {"value", "valueBase64"}:
            raise MalformedLine(
                "no field 'value'; to send the line itself as the value, leave out --json; "
                'a tombstone is "value": null'
            )
        return NewRecord(
            _bytes(fields, "key"),
            _bytes(fields, "value"),
            _headers(fields.get("headers")),
            _number(fields, "partition", 2**31) if self._keep_partitions else None,
            _timestamp_ms(fields),
        )


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise MalformedLine(f"the field {_shown(twice)} occurs twice in an object: leave one out")
    return fields


def _no_number(text: str) -> None:
    raise MalformedLine(f'{text} is not JSON: give it as a string, "{text}"')


def _finite(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise MalformedLine(f"the number {_shown(text)} is too large: give it as a string")
    return number


def _refuse_unknown(fields: Mapping[str, Any], known: frozenset[str], advice: str) -> None:
    unknown = next((name for name in fields if name not in known), None)
    if unknown is None:
        return
    from difflib import get_close_matches  # loaded for an error message only

    near = get_close_matches(unknown, known, 1)
    hint = f"did you mean '{near[0]}'?" if near else advice
    raise MalformedLine(f"unknown field {_shown(unknown)}; {hint}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…")


def _headers(headers: Any) -> Headers:
    """Read headers: a list of objects, an object from names to values, or None."""
    if headers is None:
        return []
    if isinstance(headers, dict):
        headers = [{"key": name, "value": value} for name, value in headers.items()]
    if not isinstance(headers, list) or not all(isinstance(header, dict) for header in headers):
        raise MalformedLine('headers is not {"NAME": "VALUE", …} or [{"key": …, "value": …}, …]')
    return [_header(header) for header in headers]


def _header(header: Mapping[str, Any]) -> tuple[str, bytes | None]:
    _refuse_unknown(header, _HEADER_FIELDS, "a header has key and value")
    name = _name(header)
    if not header.keys() & {"value", "valueBase64"}:
        raise MalformedLine('a header has no value; a null one is "value": null')
    return name, _bytes(header, "value")


def _bytes(fields: Mapping[str, Any], name: str) -> bytes | None:
    """Return a key or a value; None for null, and for a key that is missing."""
    encoded_name = f"{name}Base64"
    if encoded_name in fields:
        if name in fields:
            raise MalformedLine(f"both {name} and {encoded_name}: leave one out")
        encoded = fields[encoded_name]
        if encoded is None:
            raise MalformedLine(f'{encoded_name} is null: give "{name}": null')
        try:
            return base64.b64decode(encoded, validate=True)
        except (TypeError, ValueError):
            raise MalformedLine(f"{encoded_name} is not Base64") from None
    value = fields.get(name)
    if value is None:
        return None
    return _utf8(name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _utf8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise MalformedLine(f"{name} has half a surrogate pair") from None


def _name(header: Mapping[str, Any]) -> str:
    name = header.get("key")
    if not isinstance(name, str):
        raise MalformedLine("a header has no key")
    _utf8("a header key", name)
    return _header_key(name)


def _header_key(key: str) -> str:
    if "\0" in key:
        raise MalformedLine("a header key has a NUL, at which librdkafka would cut it")
    return key


def _timestamp_ms(fields: Mapping[str, Any]) -> int | None:
    """Return the timestamp; None if the record has none, which is -1 in Kafka."""
    if fields.get("timestamp") == -1:
        return None
    timestamp_ms = _number(fields, "timestamp", 2**63)
    if timestamp_ms == 0:
        raise MalformedLine("timestamp is 0, which librdkafka takes for the present time")
    return timestamp_ms


def _number(fields: Mapping[str, Any], name: str, end: int) -> int | None:
    """Return a number from 0 on, below ``end``; None if it is missing."""
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise MalformedLine(f"{name} is not a number from 0 on")
    if value >= end:
        raise MalformedLine(f"{name} is too large")
    return value
