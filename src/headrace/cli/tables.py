"""Output of commands: tables in the format of Kafka's tools, and JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    :param width: the minimum, in characters; a longer value widens the column. None: no padding
    """

    title: str
    width: int | None = 15


def table(columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> str:
    """Format the header and the rows, each as one line without trailing blanks.

    None becomes ``-``, as in Kafka's tools.
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
    """Replace control characters by escapes such as ``\\n``: a group id may contain any."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _width(text: str) -> int:
    """Return the number of columns on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # slow to import, and rarely needed

    return cell_len(text)


def as_json(objects: Iterable[Mapping[str, Any]]) -> str:
    """Format a JSON array with one object on each line, for programs and for ``grep``."""
    lines = ",\n ".join(map(_json_line, objects))
    return f"[{lines}]"


def _json_line(value: Mapping[str, Any]) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
