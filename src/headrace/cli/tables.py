"""What commands print: tables as Kafka's tools print them, or JSON."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    :param width: at least so many characters; a longer value widens the column. None for none
    """

    title: str
    width: int | None = 15


def table(columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> str:
    """The header and the rows, one line each, without blanks at its end.

    None is printed as ``-``, which is how Kafka says "unknown".
    """
    texts = [["-" if value is None else one_line(str(value)) for value in row] for row in rows]
    widths = [
        0 if column.width is None else max(column.width, *(_width(row[index]) for row in texts), 0)
        for index, column in enumerate(columns)
    ]
    lines = [[column.title for column in columns], *texts]
    padded = (
        " ".join(
            text + " " * (width - _width(text)) for text, width in zip(line, widths, strict=True)
        )
        for line in lines
    )
    return "\n".join(line.rstrip() for line in padded)


def one_line(text: str) -> str:
    """Text with its control characters as escapes, as in ``\\n``: a group's id may have any, and
    none is obeyed.
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _width(text: str) -> int:
    """How many places it takes on a terminal."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(map(bool, map(unicodedata.combining, text)))


def as_json(objects: Iterable[Mapping[str, Any]]) -> str:
    """A JSON array with one object on each line: for programs as for ``grep``."""
    lines = ",\n ".join(json.dumps(one, ensure_ascii=False) for one in objects)
    return f"[{lines}]"
