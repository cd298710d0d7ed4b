"""Records from lines: in the format of Kafka's console producer, or as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
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


class JsonReader:
    """A reader of JSON objects, as ``headrace consume --json`` prints them: ``key``, ``value``,
    ``headers``, ``timestamp``; bytes in Base64 under ``keyBase64`` and ``valueBase64``. A value
    that is not a string is stored as JSON. Other fields are ignored.

    :param keep_partitions: use ``partition``, too
    """

    def __init__(self, *, keep_partitions: bool) -> None:
        self._keep_partitions = keep_partitions

    def record(self, line: bytes) -> NewRecord:
        """Return the record of a line.

        :raises MalformedLine: it is not such an object
        """
        try:
            return self._record(line)
        except RecursionError:
            raise MalformedLine("its JSON is nested too deeply") from None

    def _record(self, line: bytes) -> NewRecord:
        try:
            found = json.loads(line)
        except ValueError as error:
            raise MalformedLine(f"not JSON: {error}") from None
        if not isinstance(found, dict):
            raise MalformedLine("not a JSON object")
        headers = found.get("headers") or []
        if not isinstance(headers, list) or not all(isinstance(one, dict) for one in headers):
            raise MalformedLine('headers is not a list of {"key": …, "value": …}')
        return NewRecord(
            _field(found, "key"),
            _field(found, "value"),
            [(_name(one), _field(one, "value")) for one in headers],
            _number(found, "partition", 2**31) if self._keep_partitions else None,
            _timestamp_ms(found),
        )


def _field(found: Mapping[str, Any], name: str) -> bytes | None:
    if (encoded := found.get(f"{name}Base64")) is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (TypeError, ValueError):
            raise MalformedLine(f"{name}Base64 is not Base64") from None
    value = found.get(name)
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


def _timestamp_ms(found: Mapping[str, Any]) -> int | None:
    """Return the timestamp; None if the record has none, which is -1 in Kafka."""
    if found.get("timestamp") == -1:
        return None
    timestamp_ms = _number(found, "timestamp", 2**63)
    if timestamp_ms == 0:
        raise MalformedLine("timestamp is 0, which librdkafka takes for the present time")
    return timestamp_ms


def _number(found: Mapping[str, Any], name: str, end: int) -> int | None:
    """Return a number from 0 on, below ``end``; None if it is missing."""
    value = found.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise MalformedLine(f"{name} is not a number from 0 on")
    if value >= end:
        raise MalformedLine(f"{name} is too large")
    return value
