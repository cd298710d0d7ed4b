"""Java properties files."""

from __future__ import annotations

import re
from collections.abc import Iterator

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE = re.compile(r"(?P<key>(?:\\.|[^\\=:\s])+)\s*[=:\s]?\s*(?P<value>.*)", re.DOTALL)


def properties(text: str) -> dict[str, str]:
    """Parse a Java properties file: ``key=value`` lines, comments, continued lines, escapes.

    :raises ValueError: a line has no key, or a ``\\u`` escape is malformed or half a character
    """
    values = {}
    for number, line in _logical_lines(text):
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"line {number} has no key: write KEY=VALUE")
        try:
            key = _unescaped(match["key"])
        except ValueError:
            raise ValueError(f"line {number} has a broken escape in its key") from None
        try:
            values[key] = _unescaped(match["value"]).rstrip()
        except ValueError:
            raise ValueError(
                f"line {number} has a broken escape in the value of {key!r}: \\u takes four "
                "hexadecimal digits; write a backslash itself twice"
            ) from None
    return values


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with those that continue them, each with the number of its first line."""
    joined = ""
    first = 0
    for number, raw in enumerate(re.split("\r\n?|\n", text), 1):
        line = raw.lstrip()
        if not joined:
            if not line or line[0] in "#!":
                continue
            first = number
        joined += line
        if (len(joined) - len(joined.rstrip("\\"))) % 2:
            joined = joined[:-1]
        else:
            yield first, joined
            joined = ""
    if joined:
        yield first, joined


def _unescaped(text: str) -> str:
    """Replace escapes.

    :raises ValueError: one is broken
    """

    def replacement(match: re.Match[str]) -> str:
        escape = match[1]
        if escape[0] == "u":
            if len(escape) < 5:
                raise ValueError
            return chr(int(escape[1:], 16))
        return _ESCAPES.get(escape, escape)

    units = re.sub(r"\\(u[0-9a-fA-F]{4}|.)", replacement, text, flags=re.DOTALL)
    # Two escapes are one character where they are a surrogate pair.
    return units.encode("utf-16", "surrogatepass").decode("utf-16")
