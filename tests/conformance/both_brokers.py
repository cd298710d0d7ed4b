"""Two brokers that are asked the same: requests in any version by the names of their fields,
answers as plain values.

What differs from broker to broker is named by the order in which it came (producer ids, topic ids)
or left out (times, the text of errors), so that two answers can be compared with ``==``.
"""

from __future__ import annotations

import dataclasses
import random
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from headrace.protocol.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT
from tests.conformance.side_by_side import told
from tests.conformance.world import PATIENCE_S, Topic, World
from tests.wire_client import Connection

STRANGER = 987_654_321
"""A producer id that nobody has."""
NOT_YET = frozenset({14, 15, 16, 51})
"""Error codes to ask again after: a coordinator is coming, or a transaction is being ended."""
VOLATILE = frozenset(
    {
        "throttle_time",
        "error_message",
        "batch_index_error_message",
        "last_timestamp",
        "node_endpoints",
        "session_id",
    }
)


class Side:
    """One of the brokers. Values in requests may be functions of the side."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.topics: dict[str, Topic] = {}
        self.names: dict[UUID, str] = {}
        self.members: dict[str, str] = {}
        """Of groups their member's id."""
        self._producer_ids: list[int] = []
        self._unacknowledged: Connection | None = None

    def make(self, name: str, partitions: int, **configs: str) -> None:
        """Create a topic."""
        topic = self.world.topic(partitions, name=name, **configs)
        self.topics[name], self.names[topic.id] = topic, name

    def topic_id(self, name: str) -> UUID:
        return self.topics[name].id if name in self.topics else uuid5(NAMESPACE_OID, name)

    def producer_id(self, number: int) -> int:
        """The producer id that came as the so-manyeth; below 0 none, above those that came a
        stranger's.
        """
        return (
            number
            if number < 0
            else (*self._producer_ids, STRANGER)[min(number, len(self._producer_ids))]
        )

    def number(self, producer_id: int) -> int:
        """The inverse of :meth:`producer_id`."""
        if producer_id < 0:
            return producer_id
        if producer_id not in self._producer_ids:
            self._producer_ids.append(producer_id)
        return self._producer_ids.index(producer_id)

    def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        """The answer to what this version knows of these fields; asked again while it says "not
        yet".
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.plain(self.answer(api_key, version, **fields))
            if not NOT_YET & set(codes_in(answer)) or time.monotonic() > deadline:
                return answer
            time.sleep(0.01)

    def answer(self, api_key: int, version: int, **fields: Any) -> Any:
        """The answer as it comes, with what is this broker's own."""
        return self.world.connection.ask(api_key, version, **self.own(fields))

    def send_unacknowledged(self, api_key: int, version: int, **fields: Any) -> str:
        """Send what is not answered: "closed" when the broker closes the connection over it."""
        if self._unacknowledged is None:
            self._unacknowledged = self.world.connect()
        try:
            self._unacknowledged.send_message(api_key, version, **self.own(fields))
            self._unacknowledged.send_body(18, 0, b"")
            if self._unacknowledged.receive():
                return "open"
        except OSError:
            pass
        self._unacknowledged = None
        return "closed"

    def own(self, value: Any) -> Any:
        """A value in a request, as it is for this side."""
        if callable(value):
            return value(self)
        if isinstance(value, Mapping):
            return {name: self.own(one) for name, one in value.items()}
        return [self.own(one) for one in value] if isinstance(value, list) else value

    def plain(self, value: Any) -> Any:
        """An answer as dicts, lists and numbers."""
        if dataclasses.is_dataclass(value):
            return {
                field.name: self._plain_field(field.name, getattr(value, field.name))
                for field in dataclasses.fields(value)
                if field.name not in VOLATILE
            }
        if isinstance(value, list | tuple):
            return sorted((self.plain(one) for one in value), key=repr)
        if isinstance(value, timedelta):
            return int(value.total_seconds() * 1000)
        if isinstance(value, datetime):
            return "a time"
        return int(value) if isinstance(value, int) else value

    def _plain_field(self, name: str, value: Any) -> Any:
        if name.endswith("producer_id"):
            return self.number(int(value))
        if name == "topic_id":
            return None if value is None else self.names.get(value, "another topic")
        if name == "records":
            return None if value is None else list(self.batches(bytes(value)))
        return self.plain(value)

    def batches(self, data: bytes) -> Iterator[str]:
        """The whole batches in what was fetched, as "4-5 p0 e1 s0 transactional"."""
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


def codes_in(answer: Any) -> Iterator[int]:
    """All error codes of an answer."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name.endswith("error_code"):
                yield value
            else:
                yield from codes_in(value)
    elif isinstance(answer, list):
        for one in answer:
            yield from codes_in(one)


class BothBrokers:
    """Both brokers, and what was said to them. The first one is right."""

    def __init__(self, worlds: list[World], seed: int) -> None:
        self.sides = [Side(world) for world in worlds]
        self.rng, self.seed = random.Random(seed), seed
        self.said: list[str] = []

    def both(self, what: str, do: Callable[[Side], Any]) -> Any:
        """Do the same on both sides.

        :raises AssertionError: when they differ
        """
        self.said.append(what)
        right, ours = (do(side) for side in self.sides)
        self.said[-1] += f": {right}"
        assert ours == right, told(
            self.seed, [*self.said, f"Kafka:    {right}", f"headrace: {ours}"]
        )
        return right

    def ask(self, what: str, api_key: int, version: int, **fields: Any) -> Any:
        """Ask both sides the same."""
        return self.both(
            f"{what} [{api_key} v{version}]", lambda side: side.ask(api_key, version, **fields)
        )
