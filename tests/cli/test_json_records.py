"""The lines of ``headrace produce --json``."""

from __future__ import annotations

import pytest

from headrace.cli.console.json_records import MalformedLine, NewRecord, read_record


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"[]", "Expected `object`, got `array`"),
        (b'"text"', "to send the line itself as the value, leave out --json"),
        (b"{", "Input data was truncated"),
        (b"\xff", "it is not UTF-8"),
        (b'{"id": 1}', "unknown field `id`; to send the line itself as the value, leave out --j"),
        (b'{"vlaue": "x"}', "unknown field `vlaue`; did you mean value?"),
        (b'{"value": "x", "Key": "k"}', "unknown field `Key`; did you mean key?"),
        (b"{}", "missing required field `value`; to send the line itself as the value, leave out"),
        (b'{"value": "x", "timestamp": 1}', "did you mean timestamp_ms?"),
        (b'{"value": {"base64": "!"}}', "Invalid base64 encoded string"),
        (b'{"value": {"base64": 5}}', "Expected `bytes`, got `int`"),
        (b'{"value": {"base64": null}}', "Expected `bytes`, got `null`"),
        (b'{"value": NaN}', "JSON is malformed: invalid character (byte 10)"),
        (b'{"value": [-Infinity]}', "JSON is malformed"),
        (b'{"value": "\\ud800"}', "truncated"),
        (b'{"value": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"value": "x", "headers": [1]}', "at `$.headers[0]`"),
        (b'{"value": "x", "headers": ""}', "at `$.headers`"),
        (b'{"value": "x", "headers": false}', "at `$.headers`"),
        (b'{"value": "x", "headers": [["a"]]}', "of length 2 - at `$.headers[0]`"),
        (b'{"value": "x", "headers": [["a", "b", "c"]]}', "of length 2 - at `$.headers[0]`"),
        (b'{"value": "x", "headers": [[1, "b"]]}', "Expected `str`, got `int`"),
        (b'{"value": "x", "headers": ["ab"]}', "Expected `array`, got `str`"),
        (b'{"value": "x", "headers": [["a\\u0000b", "c"]]}', "a NUL"),
        (b'{"value": "x", "headers": {"a\\u0000b": "c"}}', "a NUL"),
        (b'{"value": "x", "headers": [["\\ud800", "c"]]}', "surrogate pair"),
        (b'{"value": "x", "timestamp_ms": "now"}', "Expected `int | null`, got `str`"),
        (b'{"value": "x", "timestamp_ms": true}', "Expected `int | null`, got `bool`"),
        (b'{"value": "x", "timestamp_ms": -2}', "Expected `int` >= -1 - at `$.timestamp_ms`"),
        (b'{"value": "x", "timestamp_ms": 0}', "timestamp_ms is 0"),
        (b'{"value": "x", "timestamp_ms": 99999999999999999999}', "at `$.timestamp_ms`"),
        (b'{"value": "x", "partition": 3000000000}', "at `$.partition`"),
    ],
)
def test_malformed_json(line: bytes, complaint: str) -> None:
    with pytest.raises(MalformedLine) as raised:
        read_record(line, keep_partitions=True)
    assert complaint in str(raised.value)


@pytest.mark.parametrize(
    ("line", "record"),
    [
        (b'{"value": null, "key": "k"}', NewRecord(b"k", None, [])),
        (b'\xef\xbb\xbf{"value": "x"}', NewRecord(None, b"x", [])),
        (b'{"value": {"a": [1, 2.5, null]}}', NewRecord(None, b'{"a": [1, 2.5, null]}', [])),
        (b'{"value": ' + b"1" * 5000 + b"}", NewRecord(None, b"1" * 5000, [])),
        (
            b'{"value": "x", "headers": {"a": "b", "n": null, "i": 1}}',
            NewRecord(None, b"x", [("a", b"b"), ("n", None), ("i", b"1")]),
        ),
        (
            b'{"topic": "t", "partition": 1, "offset": 7, "timestamp_ms": -1, "timestamp_type": '
            b'"CreateTime", "delivery_count": 2, "key": {"base64": "/w=="}, "value": "x", '
            b'"headers": [["a", {"base64": "/w=="}]]}',
            NewRecord(b"\xff", b"x", [("a", b"\xff")], 1),
        ),
        (b"", None),
        (b" \t", None),
    ],
)
def test_json_records(line: bytes, record: NewRecord | None) -> None:
    assert read_record(line, keep_partitions=True) == record
