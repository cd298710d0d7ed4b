"""Lines of Kafka's default formatter. The expected ones were printed by Apache Kafka 4.3.1."""

from __future__ import annotations

import dataclasses
import json
import math
import struct

import pytest

from headrace.cli.console.message_formatter import Delivered, MessageFormatter, Undecodable
from headrace.cli.errors import BadUsage

RECORD = Delivered(
    "t",
    0,
    7,
    "CreateTime",
    1700000000000,
    3,
    (("a", b"1"), ("b", None), ("a", b"2")),
    b"k1",
    b"one",
)
EMPTY = dataclasses.replace(RECORD, headers=(), key=None, value=None, timestamp_ms=-1)
EVERYTHING = {
    f"print.{part}": "true"
    for part in ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key")
}


def test_only_the_value_is_shown_by_default() -> None:
    assert MessageFormatter().line(RECORD) == b"one\n"
    assert MessageFormatter().line(EMPTY) == b"null\n"


def test_everything_is_shown_in_kafkas_order() -> None:
    formatter = MessageFormatter(EVERYTHING)
    assert formatter.line(RECORD) == (
        b"CreateTime:1700000000000\tPartition:0\tOffset:7\tDelivery:3\tEpoch:NOT_PRESENT\ta:1,b:null,a:2\tk1\tone\n"
    )
    assert formatter.line(EMPTY) == (
        b"NO_TIMESTAMP\tPartition:0\tOffset:7\tDelivery:3\tEpoch:NOT_PRESENT\tNO_HEADERS\tnull\tnull\n"
    )


def test_separators_and_the_word_for_null_can_be_chosen() -> None:
    chosen = {
        "key.separator": "|",
        "headers.separator": ";",
        "null.literal": "NIL",
        "line.separator": "<>",
    }
    formatter = MessageFormatter(
        {"print.headers": "TRUE", "print.key": " true", "print.value": "no", **chosen}
    )
    assert formatter.line(RECORD) == b"a:1;b:NIL;a:2|k1<>"


@pytest.mark.parametrize(
    ("deserializer", "data", "shown", "told"),
    [
        ("StringDeserializer", b"\xff", b"\xff", {"valueBase64": "/w=="}),
        (
            "org.apache.kafka.common.serialization.IntegerDeserializer",
            b"\xff\xff\xff\xfb",
            b"-5",
            {"value": -5},
        ),
        ("LongDeserializer", b"\0\0\0\0\0\0\0\7", b"7", {"value": 7}),
        ("ShortDeserializer", b"\1\0", b"256", {"value": 256}),
        ("DoubleDeserializer", b"\x3f\xf8" + bytes(6), b"1.5", {"value": 1.5}),
        ("BooleanDeserializer", b"\1", b"true", {"value": True}),
        (
            "UUIDDeserializer",
            b"6ba7b810-9dad-11d1-80b4-00c04fd430c8",
            b"6ba7b810-9dad-11d1-80b4-00c04fd430c8",
            None,
        ),
    ],
)
def test_values_are_deserialized(
    deserializer: str, data: bytes, shown: bytes, told: dict[str, object] | None
) -> None:
    formatter = MessageFormatter({"value.deserializer": deserializer})
    record = dataclasses.replace(RECORD, value=data)
    assert formatter.line(record) == shown + b"\n"
    if told is not None:
        assert told.items() <= json.loads(formatter.json_line(record)).items()


@pytest.mark.parametrize(
    ("layout", "number", "shown", "told"),
    [
        (">f", 3.14, "3.14", 3.14),
        (">f", 0.1, "0.1", 0.1),
        (">f", 16777216.0, "1.6777216E7", 16777216.0),
        (">f", 1.5e-7, "1.5E-7", 1.5e-7),
        (">f", 3.4028234663852886e38, "3.4028235E38", 3.4028235e38),
        (">f", 1.0644887458542926e-32, "1.06448875E-32", 1.06448875e-32),
        (">d", 1e10, "1.0E10", 1e10),
        (">d", -123456789.0, "-1.23456789E8", -123456789.0),
        (">d", 9999999.0, "9999999.0", 9999999.0),
        (">d", 0.001, "0.001", 0.001),
        (">d", 0.00025, "2.5E-4", 0.00025),
        (">d", -0.0, "-0.0", -0.0),
        (">d", math.nan, "NaN", "NaN"),
        (">f", -math.inf, "-Infinity", "-Infinity"),
    ],
)
def test_floats_are_printed_as_java_prints_them(
    layout: str, number: float, shown: str, told: object
) -> None:
    name = {">f": "Float", ">d": "Double"}[layout]
    formatter = MessageFormatter({"value.deserializer": f"{name}Deserializer"})
    record = dataclasses.replace(RECORD, value=struct.pack(layout, number))
    assert formatter.line(record) == f"{shown}\n".encode()
    assert json.loads(formatter.json_line(record), parse_constant=pytest.fail)["value"] == told


@pytest.mark.parametrize(
    ("deserializer", "data"),
    [("LongDeserializer", b"one"), ("BooleanDeserializer", b"x"), ("UUIDDeserializer", b"x")],
)
def test_what_is_of_another_type_is_refused(deserializer: str, data: bytes) -> None:
    formatter = MessageFormatter({"value.deserializer": deserializer})
    with pytest.raises(Undecodable):
        formatter.line(dataclasses.replace(RECORD, value=data))


def test_json_has_everything() -> None:
    assert json.loads(MessageFormatter().json_line(RECORD)) == {
        "topic": "t",
        "partition": 0,
        "offset": 7,
        "timestamp": 1700000000000,
        "timestampType": "CreateTime",
        "deliveryCount": 3,
        "key": "k1",
        "value": "one",
        "headers": [
            {"key": "a", "value": "1"},
            {"key": "b", "value": None},
            {"key": "a", "value": "2"},
        ],
    }
    assert MessageFormatter().json_line(RECORD).count(b"\n") == 1


@pytest.mark.parametrize(
    "properties", [{"print.kex": "true"}, {"key.deserializer": "NoSuchDeserializer"}]
)
def test_what_is_unknown_is_bad_usage(properties: dict[str, str]) -> None:
    with pytest.raises(BadUsage, match="there are"):
        MessageFormatter(properties)


def test_a_terminal_is_not_controlled() -> None:
    """But line ends, tabs and the chosen separators stay; a pipe gets the bytes as they are."""
    evil = b"\x1b]0;title\x07a\tb\n\xff \\ \xc2\x9b31m" + "\u202e日".encode()
    record = dataclasses.replace(
        RECORD, headers=(("h\x1b", b"\x1b[7m"),), key=b"\x1b[31m", value=evil
    )
    properties = {"print.key": "true", "print.headers": "true", "key.separator": "\x1b|"}
    shown = MessageFormatter(properties, for_terminal=True).line(record)
    assert shown.decode() == (
        "h\\x1b:\\x1b[7m\x1b|\\x1b[31m\x1b|\\x1b]0;title\\x07a\tb\n\\xff \\ \\x9b31m\\u202e日\n"
    )
    assert evil in MessageFormatter(properties).line(record)
    assert MessageFormatter().json_line(record).decode().rstrip("\n").isprintable()
