"""What a machine answers when it decides: records to write, and the reply to give.

Deciding is pure, replaying mutates (docs/path-of-a-request.md): a machine's command returns an
:class:`Outcome` and leaves its durable state alone. The broker appends ``records`` to the machine's
internal topic, replays each into the machine, waits until they are durable, and only then sends
``reply`` and resolves ``completions``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

Reply = TypeVar("Reply")
RecordT = TypeVar("RecordT")


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
    apply: Callable[[], None] | None = None


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
        """When :meth:`expire` next has something to do, in epoch milliseconds; None when nothing is
        waiting.
        """

    def expire(self, now_ms: int) -> Iterable[tuple[str, Outcome[RecordT, None]]]:
        """What time alone decides: (key, outcome) pairs. Each is applied before the next is asked
        for.
        """
