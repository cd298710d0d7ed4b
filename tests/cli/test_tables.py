"""Tables in the format of Kafka's tools."""

from __future__ import annotations

from headrace.cli.tables import Column, as_json, one_line, table


def test_columns_are_as_wide_as_they_look() -> None:
    rows = [("日本", 1), ("e\u0301", None), ("abcd", 3)]
    lines = table([Column("NAME", 1), Column("N", None)], rows).splitlines()
    assert lines == ["NAME N", "日本 1", "e\u0301    -", "abcd 3"]


def test_no_value_breaks_out_of_its_line() -> None:
    odd = "a\nb\x1b[2J\u202e"
    assert one_line(odd) == r"a\nb\x1b[2J\u202e"
    assert table([Column("A", None)], [[odd]]).splitlines() == ["A", one_line(odd)]
    assert one_line("it's a 'group' ü 日本 \\n") == "it's a 'group' ü 日本 \\n"


def test_a_table_is_as_wide_as_its_longest_values() -> None:
    columns = [Column("GROUP"), Column("N", 3), Column("LAG", None)]
    assert table(columns, []) == "GROUP           N   LAG"
    rows = [("g", 1, None), ("a-group-with-a-long-name", 2000, 5)]
    assert table(columns, rows).splitlines() == [
        "GROUP                    N    LAG",
        "g                        1    -",
        "a-group-with-a-long-name 2000 5",
    ]


def test_json_is_an_array_with_a_line_for_each_object() -> None:
    assert as_json([]) == "[]"
    assert as_json([{"a": "é"}, {"a": None}]) == '[{"a": "é"},\n {"a": null}]'
