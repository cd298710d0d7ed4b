"""Random conversations with two brokers: both are asked the same, and must answer the same.

The first broker is Apache Kafka and right; the second is headrace. Known differences
(docs/differences.md) are kept out of the conversations. A failure prints the conversation and its
seed; run it again with HEADRACE_TEST_SEED.

What a broker makes up (topic ids, member ids, producer ids) has a name here that is the same for
both. Requests are written with the names, and answers are read with them; times and the text of
errors are left out. So two answers can be compared with ``==``.
"""

from __future__ import annotations

import dataclasses
import random
import re
import select
import ssl
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar
from uuid import NAMESPACE_OID, UUID, uuid5

from headrace.protocol.errors import ErrorCode
from headrace.protocol.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT
from tests.conformance.world import COORDINATOR_IS_COMING, PATIENCE_S, Topic, World
from tests.kio_messages import request_type
from tests.wire_client import Connection, Sent, fitted

STRANGER = 987_654_321
"""A producer id that nobody has."""
ASK_AGAIN = COORDINATOR_IS_COMING | {ErrorCode.CONCURRENT_TRANSACTIONS}
QUIET_S, LATE_S = 0.02, 3.0
"""Time without an answer after which nothing more is expected, and by which one broker may be later
than the other.
"""
CLOSED = "the connection was closed"
UNSEEN = "an id that was not told yet"
GENERATED = re.compile(r"(.*-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
S = TypeVar("S")
NOT_COMPARED = frozenset(
    {
        "batch_index_error_message",
        "error_message",
        "host",
        "last_timestamp",
        "node_endpoints",
        "port",
        "session_id",
        "throttle_time",
    }
)


class Differs(AssertionError):
    """The two brokers do not answer the same."""


def told(seed: int, said: Sequence[str]) -> str:
    """Return a conversation as a failure prints it, up to where the two differ."""
    return f"HEADRACE_TEST_SEED={seed}: Kafka, headrace\n" + "\n".join(said)


@dataclasses.dataclass(frozen=True, slots=True)
class TopicId:
    """The id of a topic in a request, as each side knows it."""

    name: str

    def __call__(self, side: Side) -> UUID:
        topic = side.topics.get(self.name)
        return topic.id if topic else uuid5(NAMESPACE_OID, self.name)


class Side:
    """One of the brokers, and the names of what it has made up.

    Values in requests may be names or functions of the side.

    :param prefix: of the ids of all groups that are compared in lists
    """

    not_compared = NOT_COMPARED
    """The names of fields that answers may differ in."""

    def __init__(self, world: World, prefix: str = "") -> None:
        self.world, self.prefix = world, prefix
        self.topics: dict[str, Topic] = {}
        self.members: dict[str, str] = {}
        """Member ids by group."""
        self._names: dict[Any, str] = {}
        self._values: dict[str, Any] = {}
        self._producer_ids: list[int] = []
        self._unacknowledged: Connection | None = None

    # --- names ---

    def call(self, name: str, value: Any) -> None:
        """Give a value of this broker a name."""
        self._names[value], self._values[name] = name, value

    def knows(self, value: Any) -> bool:
        return value in self._names

    def make(self, name: str, partitions: int, **configs: str) -> None:
        """Create a topic. Answers that name its id are read with its name."""
        self.topics[name] = self.world.topic(partitions, name=name, **configs)
        self._names[self.topics[name].id] = name

    def producer_id(self, number: int) -> int:
        """Return the producer id that came as this number; a stranger's above those that came."""
        if number < 0:
            return number
        return (*self._producer_ids, STRANGER)[min(number, len(self._producer_ids))]

    def number(self, producer_id: int) -> int:
        """Return the inverse of :meth:`producer_id`."""
        if producer_id < 0:
            return producer_id
        if producer_id not in self._producer_ids:
            self._producer_ids.append(producer_id)
        return self._producer_ids.index(producer_id)

    def outward(self, value: Any) -> Any:
        """Return a value of a request as this side is to receive it."""
        if callable(value):
            return value(self)
        if isinstance(value, Mapping):
            return {name: self.outward(one) for name, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.outward(one) for one in value]
        return self._values.get(value, value) if isinstance(value, str) else value

    def plain(self, value: Any) -> Any:
        """Return an answer as dicts, lists and plain values with names. Lists are sorted: brokers
        promise no order.
        """
        if dataclasses.is_dataclass(value):
            return {
                field.name: self._plain_field(field.name, getattr(value, field.name))
                for field in dataclasses.fields(value)
                if field.name not in self.not_compared
            }
        if isinstance(value, list | tuple):
            ours = (
                one
                for one in value
                if getattr(one, "group_id", self.prefix).startswith(self.prefix)
            )
            return sorted(map(self.plain, ours), key=repr)
        if isinstance(value, timedelta):
            return int(value.total_seconds() * 1000)
        if isinstance(value, datetime):
            return "a time"
        if isinstance(value, str | UUID):
            made_up = GENERATED.fullmatch(str(value))
            return self._names.get(value) or (UNSEEN if made_up else value)
        return int(value) if isinstance(value, int) else value

    def _plain_field(self, name: str, value: Any) -> Any:
        if name.endswith("error_code"):
            return ErrorCode(int(value))
        if name.endswith("producer_id"):
            return self.number(int(value))
        if name == "records":
            return None if value is None else list(self.batches(bytes(value)))
        return self.plain(value)

    def batches(self, data: bytes) -> Iterator[str]:
        """Yield the whole batches of what was fetched, as "4-5 p0 e1 s0 transactional"."""
        while len(data) >= 61 and len(data) >= 12 + int.from_bytes(data[8:12], "big"):
            base, length = struct.unpack_from(">qi", data)
            attributes, delta, producer_id, epoch, sequence = struct.unpack_from(
                ">hi16xqhi", data, 21
            )
            text = f"{base}-{base + delta} p{self.number(producer_id)} e{epoch} s{sequence}"
            if attributes & CONTROL_BIT:
                text += " commit" if data[69] else " abort"
            elif attributes & TRANSACTIONAL_BIT:
                text += " transactional"
            yield text
            data = data[12 + length :]

    # --- requests that are answered at once ---

    def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        """Return the answer with names; ask again while a coordinator loads or a transaction is
        being ended.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.plain(self.answer(api_key, version, **fields))
            if not ASK_AGAIN & set(codes_in(answer)) or time.monotonic() > deadline:
                return answer
            time.sleep(0.01)

    def answer(self, api_key: int, version: int, **fields: Any) -> Any:
        """Return the answer as the broker gives it."""
        return self.world.connection.ask(api_key, version, **self.outward(fields))

    def send_unacknowledged(self, api_key: int, version: int, **fields: Any) -> str:
        """Send a request that has no answer; return "closed" when the broker closes the connection
        over it, else "open".
        """
        if self._unacknowledged is None:
            self._unacknowledged = self.world.connect()
        try:
            self._unacknowledged.send_message(api_key, version, **self.outward(fields))
            self._unacknowledged.send_body(18, 0, b"")
            if self._unacknowledged.receive():
                return "open"
        except OSError:
            pass
        self._unacknowledged = None
        return "closed"


def codes_in(answer: Any) -> Iterator[int]:
    """Yield all error codes of an answer."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name.endswith("error_code"):
                yield value
            else:
                yield from codes_in(value)
    elif isinstance(answer, list):
        for one in answer:
            yield from codes_in(one)


class Conversation(Generic[S]):
    """The questions to both sides, and their answers.

    :ivar said: every question and answer, line by line
    """

    def __init__(self, sides: Sequence[S], seed: int) -> None:
        self.sides = list(sides)
        self.rng, self.seed = random.Random(seed), seed
        self.said: list[str] = []

    def both(self, what: str, do: Callable[[S], Any], patience_s: float = 0) -> Any:
        """Do the same on both sides and return what both answer.

        :param patience_s: time that it may take until both answer the same
        :raises Differs: when they do not
        """
        deadline = time.monotonic() + patience_s
        kafka, headrace = map(do, self.sides)
        while kafka != headrace and time.monotonic() < deadline:
            kafka, headrace = map(do, self.sides)
        self.said.append(f"{what}: {_compact(kafka)}")
        self.compare(kafka, headrace)
        return kafka

    def compare(self, kafka: Any, headrace: Any) -> None:
        """:raises Differs: when two answers are not the same; it prints the conversation"""
        if kafka != headrace:
            raise self.differs(*_differences("", kafka, headrace))

    def differs(self, *lines: str) -> Differs:
        """Return the failure of the conversation at this point."""
        return Differs(told(self.seed, [*self.said, *lines]))

    def ask(self, what: str, api_key: int, version: int, **fields: Any) -> Any:
        """Send a request that is answered at once to both sides, and return its answer."""
        return self.both(
            f"{what} [{api_key} v{version}]", lambda side: side.ask(api_key, version, **fields)
        )


# --- requests whose answers may wait for others ---


@dataclasses.dataclass(slots=True, eq=False)
class Asked:
    """A request that both sides have received, and their answers so far."""

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
    """Do nothing after an answer."""


def _never(_: Asked, kafka: Any, headrace: Any) -> bool:
    """Excuse no difference."""
    return False


class Exchange:
    """Requests to both sides, whose answers are compared when they come; they must come together.

    :param excuse: whether two answers to a request may differ
    :ivar waiting: requests without an answer yet
    """

    def __init__(
        self, conversation: Conversation[Side], excuse: Callable[[Asked, Any, Any], bool] = _never
    ) -> None:
        self.conversation, self._excuse = conversation, excuse
        self.waiting: list[Asked] = []
        self._free: list[list[Connection]] = []
        self._members = 0

    def ask(
        self, key: int, version: int, then: Callable[[Any], None] = _no_more, /, **fields: Any
    ) -> None:
        """Send a request to both. :meth:`settle` receives the answers and passes them to `then`."""
        sides = self.conversation.sides
        lines = self._free.pop() if self._free else [side.world.connect() for side in sides]
        fit = fitted(key, version, fields)
        sent = [
            line.send_message(key, version, **side.outward(fit))
            for line, side in zip(lines, sides, strict=True)
        ]
        what = f"{request_type(key, version).__name__} v{version} {_compact(fit)}"
        self.conversation.said.append(what)
        self.waiting.append(Asked(what, key, fit, lines, sent, then, [None, None]))

    def settle(
        self, may_wait: Callable[[Asked], bool] = lambda asked: asked.key in (11, 14)
    ) -> None:
        """Receive and compare all answers, until nothing more comes.

        :raises Differs: when they are not the same, or only one side answers
        """
        until = time.monotonic() + LATE_S
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
                raise self.conversation.differs(
                    one.what, f"  is answered by one only: {one.answers}"
                )
        answered = [one for one in self.waiting if one.is_answered]
        for one in answered:
            self.waiting.remove(one)
            if CLOSED not in one.answers:
                self._free.append(list(one.lines))
            self._name_member(one.answers)
        for one in answered:
            self._compare(one)

    def drop(self, group: str) -> None:
        """Wait no more for the answers to requests about a group."""
        for one in [asked for asked in self.waiting if asked.fields.get("group_id") == group]:
            self.waiting.remove(one)
            for line in one.lines:
                line.close()

    def _receive(self) -> bool:
        """Receive what has come; return whether anything came within a moment."""
        pending = {
            one.lines[side].socket: (one, side)
            for one in self.waiting
            for side in (0, 1)
            if one.answers[side] is None
        }
        ready = [one for one in pending if isinstance(one, ssl.SSLSocket) and one.pending()]
        if not ready:
            ready, _, _ = select.select(list(pending), [], [], QUIET_S if pending else 0)
        for socket in ready:
            one, side = pending[socket]
            try:
                one.answers[side] = one.lines[side].receive_message(one.sent[side])
            except (AssertionError, ConnectionError):
                one.answers[side] = CLOSED
        return bool(ready)

    def _name_member(self, answers: Sequence[Any]) -> None:
        """Name a member id that both have just made."""
        ids = [getattr(answer, "member_id", "") for answer in answers]
        sides = self.conversation.sides
        if all(one and not side.knows(one) for one, side in zip(ids, sides, strict=True)):
            for one, side in zip(ids, sides, strict=True):
                side.call(f"m{self._members}", one)
            self._members += 1

    def _compare(self, one: Asked) -> None:
        said = self.conversation.said
        late = "" if said[-1] == one.what else f" (to {one.what})"
        kafka, headrace = (
            side.plain(answer)
            for side, answer in zip(self.conversation.sides, one.answers, strict=True)
        )
        if kafka != headrace and self._excuse(one, kafka, headrace):
            said.append(f"  -> different on purpose (to {one.what})")
            return
        said.append(f"  -> {_compact(kafka)}{late}")
        self.conversation.compare(kafka, headrace)
        one.then(kafka)


def _differences(where: str, kafka: Any, headrace: Any) -> list[str]:
    """Return the places where two answers differ, as deep down as possible."""
    if (
        isinstance(kafka, Mapping)
        and isinstance(headrace, Mapping)
        and kafka.keys() == headrace.keys()
    ):
        pairs = [(f"{where}.{name}", kafka[name], headrace[name]) for name in kafka]
    elif isinstance(kafka, list) and isinstance(headrace, list) and len(kafka) == len(headrace):
        pairs = [
            (f"{where}[{n}]", *pair) for n, pair in enumerate(zip(kafka, headrace, strict=True))
        ]
    else:
        if isinstance(kafka, list) and isinstance(headrace, list):
            common = [one for one in kafka if one in headrace]
            kafka, headrace = (
                [one for one in side if one not in common] for side in (kafka, headrace)
            )
        return [
            f"  {where}",
            f"    Kafka:    {_compact(kafka)}",
            f"    headrace: {_compact(headrace)}",
        ]
    return [
        line
        for place, one, other in pairs
        if one != other
        for line in _differences(place, one, other)
    ]


def _compact(value: Any) -> str:
    """Return requests and answers as short as they can be read."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}={_compact(one)}" for name, one in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_compact, value)) + "]"
    if isinstance(value, ErrorCode):
        return value.name
    text = repr(value)
    return text if len(text) < 60 else f"{text[:40]}…({len(text)})"
