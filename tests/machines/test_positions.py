"""Where reading begins and ends."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from headrace.positions import EARLIEST, LATEST, Position, position


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("0", Position(0)),
        ("4711", Position(4711)),
        ("9223372036854775807", Position((1 << 63) - 1)),
        ("-5", Position(-5)),
        ("1970-01-01T00:16:40Z", Position(time_ms=1_000_000)),
        ("1969-12-31T23:59:59.9Z", Position(time_ms=0)),
    ],
)
def test_positions(text: str, expected: Position) -> None:
    assert position(text) == expected


def test_a_time_ago_is_no_offset() -> None:
    ago = position("-1h")
    assert ago.offset is None and ago.time_ms is not None and ago.time_ms > 1_700_000_000_000


@pytest.mark.parametrize("text", ["", "end", "9223372036854775808", "1.5", "--1", "5x"])
def test_what_is_no_position(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        position(text)
