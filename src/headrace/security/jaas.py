"""JAAS lines in the form of Kafka's ``sasl.jaas.config``: ``Module required key="value" ...;``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_FLAGS = frozenset(("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL"))
_TOKEN = re.compile(
    r"""\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([^\s"'=;]+)|([=;]))""", re.DOTALL
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b"}


class InvalidJaas(ValueError):
    """A text that is not one JAAS line. The message has no value of an option."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module.

    :ivar name: its Java class
    :ivar options: may have secrets
    """

    name: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def users(self) -> Mapping[str, str]:
        """The passwords in options ``user_NAME``, by name."""
        return {
            key.removeprefix("user_"): value
            for key, value in self.options.items()
            if key.startswith("user_")
        }


def parse(text: str) -> LoginModule:
    """Parse a line.

    :raises InvalidJaas: when it is not one JAAS line
    """
    tokens = _tokens(text)
    if not tokens:
        raise InvalidJaas("Login module not specified in JAAS config")
    name = tokens[0][0]
    if len(tokens) < 2:
        raise InvalidJaas("Login module control flag not specified in JAAS config")
    if tokens[1][0].upper() not in _FLAGS:
        raise InvalidJaas("Invalid login module control flag in JAAS config")
    options: dict[str, str] = {}
    rest = iter(tokens[2:])
    for key, is_sign in rest:
        if (key, is_sign) == (";", True):
            break
        equals, value = next(rest, None), next(rest, None)
        if is_sign or equals != ("=", True) or value is None or value[1]:
            raise InvalidJaas(f"Value not specified for key '{key}' in JAAS config")
        options[key] = value[0]
    else:
        raise InvalidJaas("JAAS config entry not terminated by semi-colon")
    if next(rest, None) is not None:
        raise InvalidJaas("JAAS config property contains several login modules, should be 1 module")
    return LoginModule(name, options)


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Return words, and whether each is one of the signs ``=`` and ``;``."""
    tokens = []
    position = 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            raise InvalidJaas("JAAS config has a quotation mark without its counterpart")
        double, single, bare, sign = match.groups()
        quoted = double if double is not None else single
        if quoted is not None:
            tokens.append((re.sub(r"\\(.)", _unescaped, quoted, flags=re.DOTALL), False))
        else:
            tokens.append((bare or sign, bare is None))
        position = match.end()
    return tokens


def _unescaped(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[1], match[1])
