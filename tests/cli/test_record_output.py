"""How ``headrace consume`` prints records: formats of kcat, JSON, and terminals."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError

import pytest

from headrace.cli.console.json_records import json_bytes, read_record, record_fields
from headrace.cli.console.output import RecordOutput, record_format, unescaped
from headrace.client.records import Record

RECORD = Record(
    "t", 0, 7, b"k1", b"one", (("a", b"1"), ("b", None)), 1700000000000, "CreateTime", 3
)
EMPTY = RECORD._replace(headers=(), key=None, value=None, timestamp_ms=-1, delivery_count=0)


@pytest.mark.parametrize(
    ("template", "line", "empty"),
    [
        (r"%s\n", b"one\n", b"null\n"),
        (r"%t-%p@%o\t%k=%s", b"t-0@7\tk1=one", b"t-0@7\tnull=null"),
        ("%T %d %S %K %h|", b"1700000000000 3 3 2 a=1,b=null|", b"-1 0 -1 -1 |"),
        (r"100%%\x21\\é", "100%!\\é".encode(), "100%!\\é".encode()),
        ("", b"", b""),
    ],
)
def test_formats(template: str, line: bytes, empty: bytes) -> None:
    formatted = record_format(template)
    assert (formatted(RECORD), formatted(EMPTY)) == (line, empty)


@pytest.mark.parametrize("template", ["%x", "%", "50 %é"])
def test_a_field_that_does_not_exist_is_named(template: str) -> None:
    with pytest.raises(ArgumentTypeError, match=r"is no field: %s %S %k"):
        record_format(template)


def test_escapes_of_separators() -> None:
    assert (unescaped(r"\t"), unescaped(r"\x00|"), unescaped(":")) == (b"\t", b"\0|", b":")


def test_json_has_everything() -> None:
    assert record_fields(RECORD) == {
        "topic": "t",
        "partition": 0,
        "offset": 7,
        "timestamp_ms": 1700000000000,
        "timestamp_type": "CreateTime",
        "delivery_count": 3,
        "key": "k1",
        "value": "one",
        "headers": [["a", "1"], ["b", None]],
    }
    assert "delivery_count" not in record_fields(EMPTY)
    assert json_bytes(b"\xff") == {"base64": "/w=="}


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        (b'{"a": [1]}', {"a": [1]}),
        (b"8", 8),
        (b"text", "text"),
        (b"NaN", "NaN"),
        (b"1e999", "1e999"),
        (b"[" * 5000, "[" * 5000),
        (b"\xff", {"base64": "/w=="}),
        (None, None),
    ],
)
def test_values_that_are_json_are_parsed_if_wanted(value: bytes | None, meaning: object) -> None:
    assert record_fields(RECORD._replace(value=value), parse=True)["value"] == meaning


def test_what_is_printed_is_read() -> None:
    for record in (RECORD, EMPTY, RECORD._replace(key=b"\xff", value=b"\x80", headers=())):
        read = read_record(json.dumps(record_fields(record)).encode(), keep_partitions=True)
        assert read is not None
        assert (read.key, read.value, tuple(read.headers)) == (
            record.key,
            record.value,
            record.headers,
        )
        assert (read.partition, read.timestamp_ms) == (
            0,
            None if record.timestamp_ms == -1 else record.timestamp_ms,
        )


@pytest.mark.parametrize(
    ("form", "printed"),
    [("text", "one\n" * 2), ("jsonl", "{}\n{}\n"), ("json", "[{},\n {}]\n")],
)
def test_forms(form: str, printed: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    output = RecordOutput(form, record_format(r"%s\n"), parse=False, for_terminal=False)
    output.write([RECORD])
    output.write([RECORD])
    output.close()
    line = json.dumps(record_fields(RECORD))
    assert capsysbinary.readouterr().out.decode() == printed.replace("{}", line)


def test_an_array_without_records(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    RecordOutput("json", record_format(""), parse=False, for_terminal=True).close()
    assert capsysbinary.readouterr().out == b"[]\n"


def test_a_terminal_is_not_controlled(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """But line ends and tabs stay; a pipe gets the bytes as they are."""
    evil = b"\x1b]0;title\x07a\tb\n\xff \\ \xc2\x9b31m" + "\u202e日".encode()
    record = RECORD._replace(headers=(("h\x1b", b"\x1b[7m"),), key=b"\x1b[31m", value=evil)
    for form, for_terminal in (("text", True), ("text", False), ("jsonl", True)):
        output = RecordOutput(
            form, record_format(r"%h %k %s\n"), parse=False, for_terminal=for_terminal
        )
        output.write([record])
        shown = capsysbinary.readouterr().out
        if form == "jsonl":
            assert shown.decode().rstrip("\n").isprintable()
        elif for_terminal:
            assert shown.decode() == (
                "h\\x1b=\\x1b[7m \\x1b[31m \\x1b]0;title\\x07a\tb\n\\xff \\ \\x9b31m\\u202e日\n"
            )
        else:
            assert evil in shown
