"""The lines of ``headrace produce --json``."""

from __future__ import annotations

import pytest

from headrace.cli.console.json_records import MalformedLine, NewRecord, read_record


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"[]", "not a JSON object"),
        (b'"text"', "to send the line itself as the value, leave out --json"),
        (b"{", "not JSON: Expecting property name enclosed in double quotes at character 2"),
        (b"\xff", "it is not UTF-8"),
        (b'{"id": 1}', "unknown field 'id'; to send the line itself as the value, leave out --j"),
        (b'{"vlaue": "x"}', "unknown field 'vlaue'; did you mean value?"),
        (b'{"value": "x", "Key": "k"}', "unknown field 'Key'; did you mean key?"),
        (b"{}", "no field 'value'; to send the line itself as the value, leave out --json; a tom"),
        (b'{"key": "k"}', 'a tombstone is "value": null'),
        (b'{"value": "x", "timestamp": 1}', "did you mean timestamp_ms?"),
        (b'{"value": {"base64": "!"}}', "value is not Base64"),
        (b'{"value": {"base64": 5}}', "value is not Base64"),
        (b'{"value": {"base64": null}}', "value is not Base64"),
        (b'{"value": NaN}', 'NaN is not JSON: give it as a string, "NaN"'),
        (b'{"value": [-Infinity]}', "-Infinity is not JSON"),
        (b'{"value": 1e999}', "the number '1e999' is too large"),
        (b'{"value": ' + b"1" * 5000 + b"}", "a number has too many digits"),
        (b'{"value": "\\ud800"}', "value has half a surrogate pair"),
        (b'{"value": "x", "headers": [1]}', "headers is neither"),
        (b'{"value": "x", "headers": ""}', "headers is neither"),
        (b'{"value": "x", "headers": false}', "headers is neither"),
        (b'{"value": "x", "headers": [["a"]]}', "headers is neither"),
        (b'{"value": "x", "headers": [["a", "b", "c"]]}', "headers is neither"),
        (b'{"value": "x", "headers": [[1, "b"]]}', "headers is neither"),
        (b'{"value": "x", "headers": ["ab"]}', "headers is neither"),
        (b'{"value": "x", "headers": [["a\\u0000b", "c"]]}', "a NUL"),
        (b'{"value": "x", "headers": {"a\\u0000b": "c"}}', "a NUL"),
        (b'{"value": "x", "headers": [["\\ud800", "c"]]}', "half a surrogate"),
        (b'{"value": "x", "timestamp_ms": "now"}', "timestamp_ms is not a number from -1 on"),
        (b'{"value": "x", "timestamp_ms": true}', "timestamp_ms is not a number from -1 on"),
        (b'{"value": "x", "timestamp_ms": -2}', "timestamp_ms is not a number from -1 on"),
        (b'{"value": "x", "timestamp_ms": 0}', "timestamp_ms is 0"),
        (b'{"value": "x", "timestamp_ms": 99999999999999999999}', "timestamp_ms is too large"),
        (b'{"value": "x", "partition": 3000000000}', "partition is too large"),
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
