"""One conversation with two brokers: each request goes to both, each answer of one is held against
the other's.

What a broker makes up (member ids, topic ids) has a name here that is the same for both: requests
are written with the names, and answers are read with them. An answer that waits is compared when it
comes; the two have to come together.
"""

from __future__ import annotations

import dataclasses
import re
import select
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from kio.index import load_request_schema

from headrace.errors import ErrorCode
from tests.conformance.world import World
from tests.wire_client import Connection, Sent, fitted

QUIET_S, PATIENCE_S = 0.02, 3.0
"""How long nothing must come until all is said, and how long one broker may be later than the
other.
"""

CLOSED = "the connection was closed"
UNSEEN = "an id that was not told yet"
NOT_COMPARED = {"throttle_time", "host", "port", "error_message"}
GENERATED = re.compile(r"(.*-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Differ(AssertionError):
    """The two brokers do not say the same."""


@dataclasses.dataclass(slots=True, eq=False)
class Asked:
    """A request that both have got, and what has come back so far."""

    what: str
    key: int
    fields: Mapping[str, Any]
    lines: Sequence[Connection]
    sent: Sequence[Sent]
    then: Callable[[Any], None]
    answers: list[Any]

    @property
    def is_answered(self) -> bool:
        return None not in self.answers


def _no_more(_: Any) -> None:
    """What follows from most answers."""


def _never(_: Asked, kafka: Any, headrace: Any) -> bool:
    """Which differences are excused."""
    return False


class Both:
    """Two brokers that are asked the same.

    :param prefix: of the ids of all groups that are compared in lists
    :param excuse: whether two answers to a request may differ
    :ivar said: what was asked and answered, line by line
    :ivar waiting: what is not answered yet
    """

    def __init__(
        self,
        worlds: Sequence[World],
        prefix: str,
        excuse: Callable[[Asked, Any, Any], bool] = _never,
    ) -> None:
        self.worlds, self.prefix, self._excuse = worlds, prefix, excuse
        self.said: list[str] = []
        self.waiting: list[Asked] = []
        self._free: list[list[Connection]] = []
        self._names: list[dict[Any, str]] = [{}, {}]
        self._real: list[dict[str, Any]] = [{}, {}]

    def call(self, name: str, made: Sequence[Any]) -> str:
        """Give what each broker has made a name."""
        for names, real, one in zip(self._names, self._real, made, strict=True):
            names[one], real[name] = name, one
        return name

    def real(self, name: str) -> list[Any]:
        """What each broker calls it."""
        return [real.get(name, name) for real in self._real]

    # --- asking ---

    def ask(
        self, key: int, version: int, then: Callable[[Any], None] = _no_more, /, **fields: Any
    ) -> None:
        """Send a request to both. What is answered comes with :meth:`settle`, and goes to `then` if
        it is the same.
        """
        lines = self._free.pop() if self._free else [world.connect() for world in self.worlds]
        fit = fitted(key, version, fields)
        sent = [
            line.send_message(key, version, **self._outward(n, fit)) for n, line in enumerate(lines)
        ]
        what = f"{load_request_schema(key, version).__name__} v{version} {_compact(fit)}"
        self.said.append(what)
        self.waiting.append(Asked(what, key, fit, lines, sent, then, [None, None]))

    def settle(
        self, may_wait: Callable[[Asked], bool] = lambda asked: asked.key in (11, 14)
    ) -> None:
        """Take in and compare all answers, until nothing more comes; Differ if they are not the
        same.
        """
        until = time.monotonic() + PATIENCE_S
        while True:
            came = self._receive()
            uneven = [
                one for one in self.waiting if None in one.answers and one.answers != [None, None]
            ]
            owed = [
                one for one in self.waiting if one.answers == [None, None] and not may_wait(one)
            ]
            if not came and not uneven and not owed:
                break
            if time.monotonic() > until and uneven:
                one = uneven[0]
                raise Differ(f"{one.what}\n  is answered by one only: {one.answers}")
        answered = [one for one in self.waiting if one.is_answered]
        for one in answered:
            self.waiting.remove(one)
            if CLOSED not in one.answers:
                self._free.append(list(one.lines))
            self._learn(one.answers)
        for one in answered:
            self._compare(one)

    def drop(self, group: str) -> None:
        """Wait no more for what was asked of a group."""
        for one in [asked for asked in self.waiting if asked.fields.get("group_id") == group]:
            self.waiting.remove(one)
            for line in one.lines:
                line.close()

    def _receive(self) -> bool:
        """Whether anything came before it was quiet."""
        pending = {
            one.lines[side].socket: (one, side)
            for one in self.waiting
            for side in (0, 1)
            if one.answers[side] is None
        }
        ready, _, _ = select.select(list(pending), [], [], QUIET_S if pending else 0)
        for socket in ready:
            one, side = pending[socket]
            try:
                one.answers[side] = one.lines[side].receive_message(one.sent[side])
            except (AssertionError, ConnectionError):
                one.answers[side] = CLOSED
        return bool(ready)

    def _learn(self, answers: Sequence[Any]) -> None:
        """Name a member id that both have just made."""
        ids = [getattr(answer, "member_id", "") for answer in answers]
        if all(one and one not in names for one, names in zip(ids, self._names, strict=True)):
            self.call(f"m{len(self._real[0])}", ids)

    def _compare(self, one: Asked) -> None:
        kafka, headrace = (self.inward(side, answer) for side, answer in enumerate(one.answers))
        if kafka != headrace and self._excuse(one, kafka, headrace):
            self.said.append(f"  -> different on purpose (to {one.what})")
            return
        if kafka != headrace:
            raise Differ(f"{one.what}\n" + "\n".join(_parting("", kafka, headrace)))
        late = "" if self.said[-1] == one.what else f" (to {one.what})"
        self.said.append(f"  -> {_compact(kafka)}{late}")
        one.then(kafka)

    # --- names ---

    def _outward(self, side: int, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: self._outward(side, one) for name, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._outward(side, one) for one in value]
        return self._real[side].get(value, value) if isinstance(value, str) else value

    def inward(self, side: int, value: Any) -> Any:
        """An answer as plain values, by our names. Lists have no order, as far as brokers promise
        one.
        """
        if dataclasses.is_dataclass(value):
            return {
                field.name: ErrorCode(int(one)).name
                if field.name == "error_code"
                else self.inward(side, one)
                for field in dataclasses.fields(value)
                if field.name not in NOT_COMPARED
                for one in [getattr(value, field.name)]
            }
        if isinstance(value, tuple):
            ours = [
                one
                for one in value
                if getattr(one, "group_id", self.prefix).startswith(self.prefix)
            ]
            return sorted((self.inward(side, one) for one in ours), key=repr)
        if isinstance(value, (str, UUID)):
            known = self._names[side].get(value)
            return known or (UNSEEN if GENERATED.fullmatch(str(value)) else value)
        return value


def _parting(where: str, kafka: Any, headrace: Any) -> list[str]:
    """Where two answers part ways, as deep down as possible."""
    if (
        isinstance(kafka, Mapping)
        and isinstance(headrace, Mapping)
        and kafka.keys() == headrace.keys()
    ):
        names = [name for name in kafka if kafka[name] != headrace[name]]
        return [
            line
            for name in names
            for line in _parting(f"{where}.{name}", kafka[name], headrace[name])
        ]
    if isinstance(kafka, list) and isinstance(headrace, list):
        if len(kafka) == len(headrace):
            pairs = [
                (n, *pair)
                for n, pair in enumerate(zip(kafka, headrace, strict=True))
                if pair[0] != pair[1]
            ]
            return [
                line for n, one, other in pairs for line in _parting(f"{where}[{n}]", one, other)
            ]
        both = [one for one in kafka if one in headrace]
        kafka, headrace = ([one for one in side if one not in both] for side in (kafka, headrace))
    return [f"  {where}\n    Kafka:    {_compact(kafka)}\n    headrace: {_compact(headrace)}"]


def _compact(value: Any) -> str:
    """Requests and answers as short as they can be read."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}={_compact(one)}" for name, one in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_compact, value)) + "]"
    text = repr(value)
    return text if len(text) < 60 else f"{text[:40]}…({len(text)})"
