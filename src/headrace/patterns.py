"""Which names an expression stands for, and which name a wrong word stands for.

Other parties choose names, such as group ids. Expressions are matched by RE2, whose time grows with
the text only. Python's ``re`` tries every way to match: a pattern such as ``([a-z]+-?)+`` and one
group id would keep a process busy for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re2

_KEPT = 64
"""The compiled patterns that are kept."""


class InvalidPattern(ValueError):
    """A pattern that RE2 cannot compile; the message says what is wrong."""


@lru_cache(_KEPT)
def compiled(pattern: str, *, ignore_case: bool = False) -> re2._Regexp[str]:
    """Return a compiled pattern.

    :raises InvalidPattern: it is malformed, or has what RE2 has not: look-around, back references
    """
    import re2  # imported lazily: it takes 20 ms, and most commands match nothing

    options = re2.Options()
    options.case_sensitive = not ignore_case
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
    except UnicodeEncodeError:
        reason = "it is not UTF-8"
    raise InvalidPattern(f"{reason} (the syntax is RE2's, without look-around and back references)")


def matches(pattern: str, text: str) -> bool:
    """Return whether a pattern matches a whole text.

    :raises InvalidPattern: see :func:`compiled`
    """
    return _tried(compiled(pattern).fullmatch, text)


def occurs(pattern: str, text: str) -> bool:
    """Return whether a pattern matches a part of a text, in upper or lower case.

    :raises InvalidPattern: see :func:`compiled`
    """
    return _tried(compiled(pattern, ignore_case=True).search, text)


def meant(word: str, names: Iterable[str], likeness: float = 0.6) -> str:
    """Return a question after the name that is most like a wrong word, in upper or lower case;
    empty if none is.

    :param likeness: the least, from 0 to 1
    """
    from difflib import get_close_matches  # slow to import, and rarely needed

    lower = {name.lower(): name for name in names}
    near = get_close_matches(word.lower(), list(lower), 1, likeness)
    return f"did you mean {lower[near[0]]}?" if near else ""


def _tried(match: Callable[[str], object], text: str) -> bool:
    # A half of a character, as JSON can have it, is no UTF-8.
    return match(text.encode(errors="replace").decode()) is not None
