"""Regular expressions of subscriptions (KIP-848), matched by RE2 in linear time.

Apache Kafka uses RE2/J, which has the same syntax. Both libraries refuse the same expressions, with
rare exceptions (docs/differences.md). Error texts are RE2/J's. See
docs/decisions/0011-google-re2.md.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_REGEX_BYTES = 128 << 10
"""Memory for compiling and matching an expression. A larger program is refused: the time to match a
topic name grows with the program's size and the name's length."""

MAX_REGEX_LENGTH = 10_000
"""The longest expression, in characters. RE2 reads an expression as a whole before it compares its
size: ``(\\pL|`` 100,000 times over takes 12 s and 3 GB."""

MAX_UNICODE_CLASSES = 100
"""The most classes such as ``\\pL`` in an expression: each takes 0.15 ms to read, hundreds of times
as long as other elements. The process stands still meanwhile."""

_UNICODE_CLASS = re.compile(r"\\[pP]")

_REASONS = {
    "bad repetition operator": "invalid nested repetition operator",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid repetition size": "invalid repeat count",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "pattern too large - compile failed": "expression too large",
    "trailing \\": "trailing backslash at end of expression",
    "unexpected )": "regexp/syntax: internal error",
}
"""RE2/J's error texts by RE2's, where they differ."""

_GROUP_NAME = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^]\\])*\]|\(\?P?<([^>]*)>", re.DOTALL
)
"""Matches group names in a valid expression, and constructs that may look like one: quotations,
escapes, classes.
"""


class InvalidRegex(ValueError):
    """An invalid expression; the message is RE2/J's."""


class RegexMatch(NamedTuple):
    """The topics that match an expression.

    :param version: the version of the catalog with these topics
    :param topics: the names, ascending
    :param error: why the expression is invalid; "" if it is valid
    """

    regex: str
    version: int
    topics: tuple[str, ...]
    error: str = ""


class Regex:
    """A compiled expression.

    :raises InvalidRegex: when the expression is invalid or too large
    """

    __slots__ = ("_compiled",)

    def __init__(self, pattern: str) -> None:
        import re2  # imported lazily: few groups need it, and it would slow the broker's start

        if (
            len(pattern) > MAX_REGEX_LENGTH
            or len(_UNICODE_CLASS.findall(pattern)) > MAX_UNICODE_CLASSES
        ):
            raise InvalidRegex("expression too large")
        options = re2.Options()
        options.max_mem = MAX_REGEX_BYTES
        options.never_capture = True  # faster
        options.log_errors = False
        try:
            self._compiled = re2.compile(pattern, options)
        except re2.error as error:
            reason = error.args[0].decode(errors="replace").partition(": ")[0]
            raise InvalidRegex(_REASONS.get(reason, reason)) from None
        except UnicodeEncodeError:
            raise InvalidRegex("invalid UTF-8") from None
        # RE2 accepts names of groups that RE2/J does not.
        names = [name for name in _GROUP_NAME.findall(pattern) if name]
        if not all(map(str.isascii, names)):
            raise InvalidRegex("invalid named capture")
        if len(set(names)) < len(names):
            raise InvalidRegex("duplicate capture group name")

    def matches(self, text: str) -> bool:
        """Return whether the whole text matches."""
        return self._compiled.fullmatch(text) is not None
