"""Texts of tables and JSON, in which nothing controls a terminal."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple


class Colored(NamedTuple):
    """A text with a color on a terminal.

    :param sgr: the number of ANSI's "select graphic rendition", such as 31 for red
    """

    text: str
    sgr: int

    def __str__(self) -> str:
        return self.text


def table(
    titles: Sequence[object], rows: Sequence[Sequence[object]], columns: int = sys.maxsize
) -> str:
    """Format the titles and the rows, each as one line without trailing blanks. None becomes ``-``.

    The columns are as wide as their longest value. Those of :class:`Colored` have their colors.

    :param columns: of the terminal: what does not fit is left out, as half a number would be wrong
    """
    lines = [[_painted(value) for value in row] for row in (titles, *rows)]
    widths = [max(width for _, width in column) for column in zip(*lines, strict=True)]
    # The last column of a terminal stays free: what erases the rest of a full line erases it, too.
    while len(widths) > 1 and sum(widths) + len(widths) > columns:
        widths.pop()
    return "\n".join(
        " ".join(
            text + " " * (widest - width)
            for (text, width), widest in zip(line, widths, strict=False)
        ).rstrip()
        for line in lines
    )


def _painted(value: object) -> tuple[str, int]:
    """Return a value with its color, and its width."""
    text = "-" if value is None else one_line(str(value))
    width = _width(text)
    return (f"\x1b[{value.sgr}m{text}\x1b[m" if isinstance(value, Colored) else text), width


def one_line(text: str) -> str:
    """Replace what is not printable by escapes such as ``\\n``: a group id may contain any
    character. Some move the cursor, some hide the text or turn its direction.
    """
    return _escaped(text, _escape)


def shortened(lines: Sequence[str], most: int) -> list[str]:
    """Return the first lines, and a line with the number of the others."""
    more = len(lines) - most
    return [*lines[:most], *([f"and {more} more"] if more > 0 else [])]


def tell(text: object) -> None:
    """Print a line for a person, on stderr."""
    print(one_line(str(text)), file=sys.stderr)


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


def json_line(value: Mapping[str, Any]) -> str:
    """Format an object as JSON on one line, with escapes for what is not printable."""
    text = json.dumps(value, ensure_ascii=False)
    return _escaped(text, lambda character: json.dumps(character)[1:-1])
