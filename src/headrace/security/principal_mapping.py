"""``ssl.principal.mapping.rules``: short names for distinguished names of certificates (KIP-371).

A rule is ``DEFAULT``, which keeps the name, or ``RULE:pattern/replacement/[L|U]``: if the pattern
matches the whole name, the replacement is used, in lower or upper case. The first rule that applies
decides. A slash inside of a pattern or replacement is written ``\\/``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from headrace.patterns import InvalidPattern, compiled

if TYPE_CHECKING:
    import re2

_RULE = re.compile(
    r"\s*(?:DEFAULT|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:[,\n]|$)"
)
_REFERENCE = re.compile(r"\$(\d)")


class InvalidRules(ValueError):
    """Mapping rules that cannot be read."""


class NoMatchingRule(ValueError):
    """A distinguished name to which no rule applies: the client is not authenticated."""


class _Rule(NamedTuple):
    """A rule.

    :ivar pattern: RE2's, as clients may choose a part of their names; None for ``DEFAULT``
    :ivar case: ``L``, ``U`` or empty
    """

    pattern: re2._Regexp[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """Return the short name, None if the rule does not apply."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        short: str = self.pattern.sub(self.replacement, name, count=1)
        return {"L": short.lower(), "U": short.upper()}.get(self.case, short)


class PrincipalMapping:
    """The rules of one listener.

    :param text: the value of ``ssl.principal.mapping.rules``
    :raises InvalidRules: when it cannot be read
    """

    def __init__(self, text: str) -> None:
        self._rules = _parse(text or "DEFAULT")

    def name_of(self, distinguished_name: str) -> str:
        """Return the name of a principal.

        :raises NoMatchingRule: when no rule applies
        """
        for rule in self._rules:
            short = rule.apply(distinguished_name)
            if short is not None:
                return short
        raise NoMatchingRule(f"No rules apply to {distinguished_name}")


def _parse(text: str) -> list[_Rule]:
    rules = []
    position = 0
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            raise InvalidRules(
                f"Invalid rule: `{text[position:]}` in ssl.principal.mapping.rules: expected "
                "DEFAULT or RULE:pattern/replacement/[LU]"
            )
        rules.append(_rule(match))
        position = match.end()
    return rules


def _rule(match: re.Match[str]) -> _Rule:
    if match["pattern"] is None:
        return _Rule()
    try:
        pattern = compiled(match["pattern"].replace(r"\/", "/"))
        if max(map(int, _REFERENCE.findall(match["replacement"])), default=0) > pattern.groups:
            raise InvalidRules(f"Invalid rule: `{match[0].strip()}`: it has no such group")
        # RE2's module reads the bytes of other characters as Latin-1.
        replacement = match["replacement"].encode("ascii", "backslashreplace").decode()
        template = _REFERENCE.sub(r"\\g<\1>", replacement.replace(r"\/", "/"))
        pattern.sub(template, "")
    except (InvalidPattern, re.error, IndexError) as error:
        raise InvalidRules(f"Invalid rule: `{match[0].strip()}`: {error}") from error
    return _Rule(pattern, template, match["case"])
