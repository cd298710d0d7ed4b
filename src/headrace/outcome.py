"""What a machine answers when it decides: records to write, and the reply to give.

Deciding is pure, replaying mutates (docs/path-of-a-request.md): a machine's command returns an
:class:`Outcome` and leaves its durable state alone. The broker appends ``records`` to the machine's
internal topic, replays each into the machine, waits until they are durable, and only then sends
``reply`` and resolves ``completions``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

Reply = TypeVar("Reply", covariant=True)
R = TypeVar("R")
RecordT = TypeVar("RecordT")

Apply: TypeAlias = Callable[[], None]
"""Applies volatile changes of a decision; see :class:`Outcome`."""


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer to an earlier request that was parked, for example a JoinGroup that waited for the
    other members.

    :param ticket: the number that the broker handed in with the parked request
    :param reply: what that request is answered with
    """

    ticket: int
    reply: object


class Position(NamedTuple):
    """Where a coordinator record stands: a partition of the internal topic and an offset in it.

    :param producer_id: whose transaction must be committed for the record to count; -1 when it
        counts at once
    """

    partition: int
    offset: int
    producer_id: int = -1


make = tuple.__new__
"""``make(Position, (partition, offset, producer_id))``: all fields of a named tuple, at half the
price of a call of its class. For what each of very many records needs."""

NOWHERE = Position(-1, -1)
"""Of a record that was replayed and never written, as in tests of a machine alone."""


class Outcome(NamedTuple, Generic[RecordT, Reply]):
    """Decided, not yet done. A named tuple, since there is one for each command.

    :param reply: the answer to the caller; None together with a ticket handed in means "parked: a
        later outcome completes it"
    :param records: coordinator records to append and replay, in order, as one atomic batch
    :param completions: answers to earlier, parked requests
    :param deletable: positions in the internal topic before which no record matters any more
    :param apply: applies the volatile changes of the decision (timers, sessions, waiting members);
        called after the records were appended and replayed, and never when the append failed
    """

    reply: Reply
    records: tuple[RecordT, ...] = ()
    completions: tuple[Completion, ...] = ()
    deletable: tuple[Position, ...] = ()
    apply: Apply | None = None

    def with_reply(self, reply: R) -> Outcome[RecordT, R]:
        """Return this outcome with another reply."""
        return make(Outcome, (reply, *self[1:]))

    def then(self, apply: Apply) -> Outcome[RecordT, Reply]:
        """Return this outcome with a further volatile change, to be applied after its own."""
        first = self.apply
        if first is None:
            return self._replace(apply=apply)

        def apply_both() -> None:
            first()
            apply()

        return self._replace(apply=apply_both)


class Coordinator(Protocol[RecordT]):
    """A machine whose durable state is an internal topic.

    ``key`` is what places a record on a partition of that topic: the group id, or a
    share-partition's key.
    """

    topic: str

    def encode(self, record: RecordT) -> tuple[bytes, bytes | None]:
        """The record's key and value bytes in Kafka's own schema; a None value is a tombstone."""

    def decode(self, key: bytes, value: bytes | None) -> RecordT | None:
        """The inverse of :meth:`encode`; None for a record type this machine does not keep."""

    def replay(self, record: RecordT, at: Position = NOWHERE) -> None:
        """Apply one durable record, which stands at ``at``. The only door through which durable
        state changes.
        """

    def next_deadline_ms(self) -> int | None:
        """Return when :meth:`expire` is next due, in milliseconds of the steady clock; None when
        nothing waits.
        """

    def expire(self, now_ms: int, wall_ms: int) -> Iterable[tuple[str, Outcome[RecordT, None]]]:
        """Decide everything that is due at ``now_ms``: (key, outcome) pairs.

        Apply each before asking for the next. A pair whose append failed comes again later.

        :param now_ms: the steady time of deadlines
        :param wall_ms: the epoch time that records store
        """
