"""What commands print: tables as Kafka's tools print them, or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


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
    texts = [["-" if value is None else str(value) for value in row] for row in rows]
    widths = [
        0 if column.width is None else max(column.width, *(len(row[index]) for row in texts), 0)
        for index, column in enumerate(columns)
    ]
    lines = [[column.title for column in columns], *texts]
    padded = (" ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(line.rstrip() for line in padded)


def as_json(objects: Iterable[Mapping[str, Any]]) -> str:
    """A JSON array with one object on each line: for programs as for ``grep``."""
    lines = ",\n ".join(json.dumps(one, ensure_ascii=False) for one in objects)
    return f"[{lines}]"
