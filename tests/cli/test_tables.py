"""Tables in the format of Kafka's tools."""

from __future__ import annotations

from headrace.cli.tables import Column, one_line, table


def test_columns_are_as_wide_as_they_look() -> None:
    rows = [("日本", 1), ("e\u0301", None), ("abcd", 3)]
    lines = table([Column("NAME", 1), Column("N", None)], rows).splitlines()
    assert lines == ["NAME N", "日本 1", "e\u0301    -", "abcd 3"]


def test_no_value_breaks_out_of_its_line() -> None:
    odd = "a\nb\x1b[2J\u202e"
    assert one_line(odd) == r"a\nb\x1b[2J\u202e"
    assert table([Column("A", None)], [[odd]]).splitlines() == ["A", one_line(odd)]
    assert one_line("it's a 'group' ü 日本 \\n") == "it's a 'group' ü 日本 \\n"
