"""Output of commands: tables in the format of Kafka's tools, and JSON."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


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


def screen_table(
    titles: Sequence[str], lines: Iterable[Sequence[object]], below: Sequence[str] = ()
) -> Any:
    """Return a table of rich for a terminal; numbers are on the right.

    :param below: lines below the table
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text  # not str: names may contain the brackets of markup

    texts = [["-" if value is None else one_line(str(value)) for value in line] for line in lines]
    caption = Text("\n".join(map(one_line, below))) if below else None
    made = Table(box=box.SIMPLE_HEAD, caption=caption, caption_justify="left")
    for index, title in enumerate(titles):
        is_number = all(line[index][:1] in "-0123456789" for line in texts)
        made.add_column(title, justify="right" if is_number else "left", overflow="fold")
    for line in texts:
        made.add_row(*map(Text, line))
    return made


def count_of(number: int, what: str) -> str:
    """Return a number with its noun, such as ``1 group`` and ``2 groups``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def one_line(text: str) -> str:
    """Replace what is not printable by escapes such as ``\\n``: a group id may contain any
    character. Some move the cursor, some hide the text or turn its direction.
    """
    return _escaped(text, _escape)


def terminal_text(text: str) -> str:
    """Replace what is not printable by escapes, but line ends and tabs."""
    return _escaped(
        text, lambda character: character if character in "\n\t" else _escape(character)
    )


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _escaped(text: str, escape: Callable[[str], str]) -> str:
    if text.isprintable():
        return text
    return "".join(
        # Blanks such as the ideographic one are as harmless as a space.
        character
        if character.isprintable() or unicodedata.category(character) == "Zs"
        else escape(character)
        for character in text
    )


def _width(text: str) -> int:
    """Return the number of columns on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # slow to import, and rarely needed

    return cell_len(text)


def as_json(objects: Iterable[Mapping[str, Any]]) -> str:
    """Format a JSON array with one object on each line, for programs and for ``grep``."""
    lines = ",\n ".join(map(json_line, objects))
    return f"[{lines}]"


def json_line(value: Mapping[str, Any]) -> str:
    """Format an object as JSON on one line, with escapes for what is not printable."""
    text = json.dumps(value, ensure_ascii=False)
    return _escaped(text, lambda character: json.dumps(character)[1:-1])
