"""The result of a decision: records to write, and the reply to send.

Deciding is pure, replaying mutates (docs/path-of-a-request.md). A command of a machine returns an
:class:`Outcome` and changes nothing. The runtime appends ``records`` to the machine's internal
topic, replays each into the machine, calls ``apply``, and sends ``reply`` and ``completions`` when
the records are durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

Reply = TypeVar("Reply", covariant=True)
R = TypeVar("R")
RecordT = TypeVar("RecordT")

Apply: TypeAlias = Callable[[], None]
"""Applies volatile changes of a decision; see :class:`Outcome`."""


Completion: TypeAlias = tuple[int, object]
"""The answer to an earlier request that is parked, for example a JoinGroup that waits for other
members. First comes the ticket, the number that was passed to the machine with the parked request.
"""


class Position(NamedTuple):
    """The position of a coordinator record: a partition of the internal topic and an offset in it.

    :param producer_id: the producer of the record's transaction, which must commit before the
        record takes effect; -1 without a transaction
    """

    partition: int
    offset: int
    producer_id: int = -1


make = tuple.__new__
"""Builds a named tuple from a tuple of its fields, in half the time of calling its class:
``make(Position, (partition, offset, producer_id))``. For classes with very many instances.
"""

NOWHERE = Position(-1, -1)
"""The position of a record that was never written, for unit tests of a machine."""


class Outcome(NamedTuple, Generic[RecordT, Reply]):
    """The result of a decision. A named tuple for speed: every command creates one.

    :param reply: the answer to the caller; None for a request with a ticket that is parked until a
        later outcome completes it
    :param records: coordinator records to append and replay, in order, as one atomic batch
    :param completions: answers to earlier, parked requests
    :param deletable: positions in the internal topic; all records before them can be deleted
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


class Unapplied:
    """The outcomes that a machine has handed out and the runtime has not applied, such as one whose
    append failed.

    :ivar count: their number
    """

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def watch(self, outcome: Outcome[RecordT, R]) -> Outcome[RecordT, R]:
        """Return an outcome to hand out in the place of this one. It counts until it is applied."""
        self.count += 1
        return outcome.then(self._applied)

    def _applied(self) -> None:
        self.count -= 1


class Coordinator(Protocol[RecordT]):
    """A machine whose durable state is in an internal topic.

    A record's ``key`` chooses its partition of that topic: the group id, transactional id, or key
    of a share-partition.
    """

    topic: str

    def encode(self, record: RecordT) -> tuple[bytes, bytes | None]:
        """Return the record's key and value bytes in Kafka's own schema; a None value is a
        tombstone.
        """

    def decode(self, key: bytes, value: bytes | None) -> RecordT | None:
        """Return the record of these bytes; None for a record type that the machine ignores."""

    def replay(self, record: RecordT, at: Position = NOWHERE) -> None:
        """Apply one durable record. Only this method changes durable state.

        :param at: the position of the record
        """

    def next_deadline_ms(self) -> int | None:
        """Return when :meth:`expire` is next due, in milliseconds of the steady clock; None when
        nothing waits.
        """

    def expire(self, now_ms: int, wall_ms: int) -> Iterable[tuple[str, Outcome[RecordT, None]]]:
        """Yield a (key, outcome) pair for each decision that is due at ``now_ms``. If there are
        many, the last of them stay due.

        The caller carries out each pair before it takes the next one. A pair whose append failed is
        due again after :data:`headrace.deadlines.RETRY_MS`.

        :param now_ms: the steady time of deadlines
        :param wall_ms: the epoch time that records store
        """
