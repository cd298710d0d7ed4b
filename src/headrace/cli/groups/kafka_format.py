"""The tables of Kafka's own tools for share groups (KIP-932) and for deleted offsets (KIP-496)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter

from headrace.cli.errors import BadUsage
from headrace.cli.options import Declaration, arg
from headrace.cli.output import Output, Row, plain
from headrace.cli.tables import one_line

_FIELDS = {
    "GROUP": "group_id",
    "CONSUMER-ID": "member_id",
    "COORDINATOR (ID)": "coordinator",
    "STATE": "group_state",
    "STATUS": "result",
    "#MEMBERS": "member_count",
    "#PARTITIONS": "assignment",
}
"""Title of a column → the field of a row; other titles name their fields."""


def kafka_format(columns: str, wide: str = "", *, is_list: bool = False) -> Declaration:
    """Return the declaration of ``--kafka-format``.

    :param columns: titles with the least widths, such as ``GROUP:15|LAG``; a column whose field the
        rows do not have is left out
    :param wide: those with ``-o wide``, unless they are the same
    :param is_list: it is one table, not one for each group after an empty line
    """
    return arg(
        "--kafka-format",
        dest="make_output",
        action="store_const",
        const=partial(KafkaOutput, columns, wide or columns, is_list),
        default=Output,
        help="print the table of Kafka's own tool for share groups",
    )


class KafkaOutput(Output):
    """An output as that of Kafka's tools.

    :raises BadUsage: it shall be JSON
    """

    group_types = ("share",)

    def __init__(
        self, columns: str, wide: str, is_list: bool, form: str, *, dry_run: bool, yes: bool
    ) -> None:
        super().__init__(form, dry_run=dry_run, yes=yes)
        if self.is_json:
            raise BadUsage("--kafka-format prints a table: leave out -o, or give -o wide")
        self._columns = wide if form == "wide" else columns
        self._is_list = is_list

    def _print(self, rows: Sequence[Row], wide: Collection[str]) -> None:
        if self._is_list:
            print(_table(self._columns, rows))
            return
        for _, of_group in groupby(rows, itemgetter("group_id")):
            print(f"\n{_table(self._columns, list(of_group))}")


def _table(columns: str, rows: Sequence[Row]) -> str:
    """Format rows; all columns but the last are padded."""
    lines = [""] * (1 + len(rows))
    for column in columns.split("|"):
        title, _, least = column.partition(":")
        field = _FIELDS.get(title, title.lower().replace("-", "_"))
        if field in rows[0]:
            cells = [title, *(_cell(title, row[field]) for row in rows)]
            width = max(int(least or 0), *map(len, cells)) + 1
            lines = [line + cell.ljust(width) for line, cell in zip(lines, cells, strict=True)]
    return "\n".join(map(str.rstrip, lines))


def _cell(title: str, value: object) -> str:
    if title == "#PARTITIONS" and isinstance(value, dict):
        return str(sum(map(len, value.values())))
    text = plain(title, value)
    if title == "COORDINATOR (ID)":
        text = str(text).replace(" (", "  (")
    if title == "STATUS" and text == "deleted":
        text = "Successful"
    return "-" if text is None else one_line(str(text))
