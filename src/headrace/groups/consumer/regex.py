"""Regular expressions that members subscribe with, in the syntax of RE2 (KIP-848), matched in
linear time.

A client must not be able to keep the coordinator busy with an expression, which with backtracking a
few characters can. So an expression becomes a small program whose threads advance together, one
character of the topic name at a time: matching costs the product of the two lengths at most, and
the program's length is limited.

Grammar, each rule a method of :class:`_Parser`::

    alternation    sequence ("|" sequence)*
    sequence       repetition*
    repetition     atom ("*" | "+" | "?" | "{n}" | "{n,}" | "{n,m}")["?"]      lazy is the same here
    atom           character | "." | class | escape | "^" | "$" | "(" alternation ")"
                   | "(?:" | "(?P<name>" | "(?i)"
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

MAX_REPEAT = 1_000
"""How often ``{n}`` may repeat, as in RE2."""

MAX_PROGRAM = 10_000
"""How many steps the program of an expression may have."""

MAX_NESTING = 100
"""How deep groups may be nested."""

Test: TypeAlias = Callable[[str], bool]
Assertion: TypeAlias = Callable[[str, int], bool]


@dataclass(frozen=True, slots=True)
class _Step:
    """A test to pass with one character, or None to go on at once, if ``holds`` does, to each of
    ``to``.
    """

    test: Test | None
    to: tuple[int, ...]
    holds: Assertion | None = None


class InvalidRegex(ValueError):
    """What is wrong with an expression, in the words of Kafka's library."""


class Regex:
    """A compiled expression.

    :raises InvalidRegex: when it is none
    """

    def __init__(self, pattern: str) -> None:
        self._steps: list[_Step] = []
        emit = _Parser(pattern).parse()
        end = self._add(_Step(None, ()))
        self._start, self._end = emit(self._add, end), end

    def _add(self, step: _Step) -> int:
        if len(self._steps) >= MAX_PROGRAM:
            raise InvalidRegex("expression too large")
        self._steps.append(step)
        return len(self._steps) - 1

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        here = self._closure((self._start,), text, 0)
        for position, character in enumerate(text):
            passed = [step.to[0] for step in here if step.test is not None and step.test(character)]
            if not passed:
                return False
            here = self._closure(passed, text, position + 1)
        return self._steps[self._end] in here

    def _closure(
        self, starts: tuple[int, ...] | list[int], text: str, position: int
    ) -> list[_Step]:
        """The steps that can be reached without a character."""
        seen: set[int] = set()
        found, waiting = [], list(starts)
        while waiting:
            index = waiting.pop()
            if index in seen:
                continue
            seen.add(index)
            step = self._steps[index]
            if step.test is not None or index == self._end:
                found.append(step)
            elif step.holds is None or step.holds(text, position):
                waiting += step.to
        return found


Emit: TypeAlias = Callable[[Callable[[_Step], int], int], int]
"""Adds the steps of an expression that goes on at a given step, and says where they begin."""


def _one(test: Test) -> Emit:
    return lambda add, then: add(_Step(test, (then,)))


def _assertion(holds: Assertion) -> Emit:
    return lambda add, then: add(_Step(None, (then,), holds))


def _sequence(parts: list[Emit]) -> Emit:
    def emit(add: Callable[[_Step], int], then: int) -> int:
        for part in reversed(parts):
            then = part(add, then)
        return then

    return emit


def _either(branches: list[Emit]) -> Emit:
    def emit(add: Callable[[_Step], int], then: int) -> int:
        return add(_Step(None, tuple(branch(add, then) for branch in branches)))

    return branches[0] if len(branches) == 1 else emit


def _repeat(part: Emit, least: int, most: int | None) -> Emit:
    def star(add: Callable[[_Step], int], then: int) -> int:
        ways: list[int] = [then]
        loop = add(_Loop(ways))
        ways.append(part(add, loop))
        return loop

    def emit(add: Callable[[_Step], int], then: int) -> int:
        after = then
        if most is None:
            then = star(add, then)
        else:
            for _ in range(most - least):
                then = add(_Step(None, (part(add, then), after)))
        for _ in range(least):
            then = part(add, then)
        return then

    return emit


class _Loop(_Step):
    """A step that another leads back to: its destinations are filled in when that is known."""

    __slots__ = ()

    def __init__(self, ways: list[int]) -> None:
        object.__setattr__(self, "test", None)
        object.__setattr__(self, "to", ways)
        object.__setattr__(self, "holds", None)


def _is_word(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character == "_")


def _at_word_boundary(text: str, position: int) -> bool:
    before = position > 0 and _is_word(text[position - 1])
    after = position < len(text) and _is_word(text[position])
    return before != after


def _is_digit(character: str) -> bool:
    return "0" <= character <= "9"


def _is_space(character: str) -> bool:
    return character in "\t\n\f\r "


def _negated(test: Test) -> Test:
    return lambda character: not test(character)


_CLASSES: dict[str, Test] = {"d": _is_digit, "w": _is_word, "s": _is_space}
_CLASSES |= {letter.upper(): _negated(test) for letter, test in list(_CLASSES.items())}
_POSIX: dict[str, Test] = {
    "alnum": lambda c: c.isascii() and c.isalnum(),
    "alpha": lambda c: c.isascii() and c.isalpha(),
    "ascii": str.isascii,
    "digit": _is_digit,
    "lower": lambda c: "a" <= c <= "z",
    "punct": lambda c: "!" <= c <= "~" and not c.isalnum(),
    "space": lambda c: c in "\t\n\v\f\r ",
    "upper": lambda c: "A" <= c <= "Z",
    "word": _is_word,
    "xdigit": lambda c: c in "0123456789abcdefABCDEF",
}
_CONTROL = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ASSERTIONS: dict[str, Assertion] = {
    "A": lambda text, position: position == 0,
    "z": lambda text, position: position == len(text),
    "b": _at_word_boundary,
    "B": lambda text, position: not _at_word_boundary(text, position),
}


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._pattern, self._at = _unquoted(pattern), 0
        self._names: set[str] = set()
        self._nesting = 0
        self._fold_case = False

    def parse(self) -> Emit:
        emit = self._alternation()
        if self._at < len(self._pattern):
            raise InvalidRegex(
                "regexp/syntax: internal error"
            )  # a closing bracket that nothing opened
        return emit

    def _looking_at(self, text: str) -> bool:
        return self._pattern.startswith(text, self._at)

    def _take(self, text: str) -> bool:
        found = self._looking_at(text)
        self._at += len(text) * found
        return found

    def _next(self, missing: str) -> str:
        if self._at >= len(self._pattern):
            raise InvalidRegex(missing)
        self._at += 1
        return self._pattern[self._at - 1]

    def _alternation(self) -> Emit:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        return _either(branches)

    def _sequence(self) -> Emit:
        parts: list[Emit] = []
        while (
            self._at < len(self._pattern)
            and not self._looking_at("|")
            and not self._looking_at(")")
        ):
            parts.append(self._repetition())
        return _sequence(parts)

    def _repetition(self) -> Emit:
        if self._pattern[self._at] in "*+?":
            raise InvalidRegex("missing argument to repetition operator")
        atom, repeated = self._atom(), False
        while (times := self._times()) is not None:
            if repeated:
                raise InvalidRegex("invalid nested repetition operator")
            least, most = times
            if max(least, most or 0) > MAX_REPEAT or (most is not None and most < least):
                raise InvalidRegex("invalid repeat count")
            self._take("?")
            atom, repeated = _repeat(atom, least, most), True
        return atom

    def _times(self) -> tuple[int, int | None] | None:
        for sign, times in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return times
        if not self._looking_at("{"):
            return None
        least, comma, most = self._pattern[self._at + 1 :].partition("}")[0].partition(",")
        closed = "}" in self._pattern[self._at :]
        if not closed or not _is_number(least) or not (most == "" or _is_number(most)):
            return None  # an ordinary character
        self._at = self._pattern.index("}", self._at) + 1
        return int(least), int(most) if most else None if comma else int(least)

    def _atom(self) -> Emit:
        character = self._next("")
        if character == "(":
            return self._group()
        if character == "[":
            return _one(self._class())
        if character == "\\":
            return self._escape()
        if character == ".":
            return _one(lambda c: c != "\n")
        if character in "^$":
            return _assertion(_ASSERTIONS["A" if character == "^" else "z"])
        return self._literal(character)

    def _literal(self, character: str) -> Emit:
        return _one(self._folded(lambda c: c == character))

    def _folded(self, test: Test) -> Test:
        """The test, for either case of a letter where the expression says so."""
        return (lambda c: test(c) or test(c.swapcase())) if self._fold_case else test

    def _group(self) -> Emit:
        fold_case = self._fold_case
        if self._take("?"):
            if self._take("P<") or (
                self._take("<") and not self._looking_at("=") and not self._looking_at("!")
            ):
                self._name()
            elif not self._flags():
                return _sequence([])  # from here on, to the end of the group that is around it
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise InvalidRegex("expression nests too deeply")
        inside = self._alternation()
        if not self._take(")"):
            raise InvalidRegex("missing closing )")
        self._nesting -= 1
        self._fold_case = fold_case
        return inside

    def _name(self) -> None:
        name, closing, _ = self._pattern[self._at :].partition(">")
        if not closing or not name or not all(map(_is_word, name)):
            raise InvalidRegex("invalid named capture")
        if name in self._names:
            raise InvalidRegex("duplicate capture group name")
        self._names.add(name)
        self._at += len(name) + 1

    def _flags(self) -> bool:
        """Flags of a group, or without a colon of what follows it; whether a group begins."""
        on = True
        while True:
            flag = self._next("missing closing )")
            if flag == "i":
                self._fold_case = on
            elif flag == "-":
                on = False
            elif flag in ":)":
                return flag == ":"
            elif flag not in "msU":  # topic names have no line ends, and only whole names match
                raise InvalidRegex("invalid or unsupported Perl syntax")

    def _escape(self) -> Emit:
        character = self._next("trailing backslash at end of expression")
        if character in _CLASSES:
            return _one(_CLASSES[character])
        if character in _ASSERTIONS:
            return _assertion(_ASSERTIONS[character])
        return self._literal(self._escaped(character))

    def _escaped(self, character: str) -> str:
        if character in _CONTROL:
            return _CONTROL[character]
        if character == "x":
            digits = self._pattern[self._at : self._at + 2]
            if len(digits) == 2 and all(map(_POSIX["xdigit"], digits)):
                self._at += 2
                return chr(int(digits, 16))
        if character.isascii() and not character.isalnum():
            return character
        raise InvalidRegex("invalid escape sequence")

    def _class(self) -> Test:
        negative = self._take("^")
        tests: list[Test] = []
        first = True
        while first or not self._take("]"):
            first = False
            if self._take("[:"):
                tests.append(self._posix())
                continue
            low = self._next("missing closing ]")
            if low == "\\":
                low = self._next("trailing backslash at end of expression")
                if low in _CLASSES:
                    tests.append(_CLASSES[low])
                    continue
                low = self._escaped(low)
            tests.append(self._range(low))
        members = tuple(tests)
        found = self._folded(lambda c: any(test(c) for test in members))
        return _negated(found) if negative else found

    def _range(self, low: str) -> Test:
        high = low
        if self._looking_at("-") and not self._looking_at("-]"):
            self._at += 1
            high = self._next("missing closing ]")
            if high == "\\":
                high = self._escaped(self._next("trailing backslash at end of expression"))
            if high < low:
                raise InvalidRegex("invalid character class range")
        return lambda c: low <= c <= high

    def _posix(self) -> Test:
        name, closing, _ = self._pattern[self._at :].partition(":]")
        test = _POSIX.get(name.removeprefix("^"))
        if not closing or test is None:
            raise InvalidRegex("invalid character class range")
        self._at += len(name) + 2
        return _negated(test) if name.startswith("^") else test


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 9


def _unquoted(pattern: str) -> str:
    r"""The pattern with ``\Q…\E`` written as escapes."""
    written, at = "", 0
    while (found := pattern.find("\\", at)) >= 0:
        written += pattern[at:found]
        if not pattern.startswith("\\Q", found):
            written, at = written + pattern[found : found + 2], found + 2
            continue
        quoted, _, rest = pattern[found + 2 :].partition("\\E")
        written += "".join(c if c.isalnum() or not c.isascii() else f"\\{c}" for c in quoted)
        at = len(pattern) - len(rest)
    return written + pattern[at:]
