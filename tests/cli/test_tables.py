"""Tables, JSON, and escapes of what is not printable."""

from __future__ import annotations

import json

import pytest

from headrace.cli.tables import json_line, one_line, table, terminal_text


def test_columns_are_as_wide_as_they_look() -> None:
    rows = [("日本", 1), ("e\u0301", None), ("abcd", 3)]
    lines = table(["NAME", "N"], rows).splitlines()
    assert lines == ["NAME N", "日本 1", "e\u0301    -", "abcd 3"]


def test_no_value_breaks_out_of_its_line() -> None:
    odd = "a\nb\x1b[2J\u202e"
    assert one_line(odd) == r"a\nb\x1b[2J\u202e"
    assert table(["A"], [[odd]]).splitlines() == ["A", one_line(odd)]
    assert one_line("it's a 'group' ü 日本 \\n") == "it's a 'group' ü 日本 \\n"


INVISIBLE = [
    *"\x00\x1b\x7f\x80\x9b\x9f\xad\u061c\u200b\u200f\u2028\u202e\u2066\ufeff\ue000\U000e0041"
]
"""Controls, marks of direction, invisible characters."""


@pytest.mark.parametrize("character", INVISIBLE)
def test_what_cannot_be_seen_is_escaped(character: str) -> None:
    name = f"a{character}b"
    escaped = character.encode("unicode_escape").decode()
    assert one_line(name) == terminal_text(name) == f"a{escaped}b"
    line = json_line({"name": name})
    assert line.isascii()
    assert json.loads(line) == {"name": name}


def test_what_can_be_seen_stays() -> None:
    name = "日本\u3000ü e\u0301 \u00a0\U0001f600"
    assert one_line(name) == terminal_text(name) == name
    assert json_line({"name": name}) == f'{{"name": "{name}"}}'
    assert terminal_text("a\tb\nc\rd") == "a\tb\nc\\rd"
    assert json.loads(json_line({"half": "\ud800"})) == {"half": "\ud800"}
