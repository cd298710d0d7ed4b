"""A share group as a queue of records, on asyncio (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from headrace.protocol.partitions import TopicPartition

from .types import AcquiredRecord as Record

if TYPE_CHECKING:
    from headrace.client.tracing import Tracing

Deserializer = Callable[[bytes], Any] | type | ModuleType

Records = Record | Iterable[Record]
"""One record, or several, whose outcome is sent in one request to each broker."""
Start = Literal["earliest", "latest"] | timedelta | float | None


class ShareConsumer:
    """A member of a share group: takes records from topics as from a queue.

    ::

        async with ShareConsumer(
            {"bootstrap.servers": "127.0.0.1:9092", "group.id": "packers"}, ["orders"], start="earliest"
        ) as queue:
            async for record in queue:
                print(record.value)
                await queue.accept(record)

    Every record that iteration or :meth:`poll` returns is held: no other member gets it until it is
    accepted, released or rejected, or until the lock is lost. A record that nobody has ended when
    the consumer closes is released. One consumer may be used by several tasks of its event loop.

    :param conf: librdkafka's names and values, such as ``bootstrap.servers``, ``group.id``,
        ``client.id``, ``client.rack`` and the settings of TLS and login
    :param topics: names of the topics
    :param start: where a *new* group begins: ``"earliest"``, ``"latest"``, or so many seconds ago
        (also as ``timedelta``); None leaves it to the config ``share.auto.offset.reset``. A group
        that exists keeps its config, and a log line tells if it differs
    :param key: turns the bytes of a key into ``record.key``; see ``value``
    :param value: turns the bytes of a value into ``record.value``: the module ``json``, a function
        of bytes, or a type, see :mod:`headrace.client.records`
    :param on_undecodable: what happens to a record for which ``key`` or ``value`` raises:
        ``"reject"`` rejects it with the reason, ``"raise"`` raises :class:`UndecodableRecord`, whose
        record is held, a function of (record with bytes, error) returns the record to hand out
    :param renew: ``"auto"`` renews the lock of each held record in time, for as long as it is held;
        ``"manual"`` leaves it to :meth:`renew`
    :param on_lock_lost: called with the list of records whose locks were lost: other members get
        them again. May be a coroutine function
    :param max_held_records: while so many records are held, no more are acquired
    :param max_held_bytes: the same, by the size of keys, values and headers
    :param tracing: traces and metrics of OpenTelemetry (:mod:`headrace.client.tracing`)
    :raises ClientError: a setting is wrong
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        topics: Iterable[str],
        *,
        start: Start = None,
        key: Deserializer | None = None,
        value: Deserializer | None = None,
        on_undecodable: Literal["reject", "raise"]
        | Callable[[Record, Exception], Record] = "reject",
        renew: Literal["auto", "manual"] = "auto",
        on_lock_lost: Callable[[list[Record]], object] | None = None,
        max_held_records: int = 10_000,
        max_held_bytes: int = 256 * 1024 * 1024,
        tracing: Tracing | None = None,
    ) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> ShareConsumer:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Join the group.

        :raises ClientError: a topic does not exist, the user lacks a permission, or no broker
            answers
        """
        raise NotImplementedError

    async def close(self) -> None:
        """Release the held records, and leave the group. Iteration ends. May be called twice.

        A delivery that was not handed out does not count on headrace's broker.
        """
        raise NotImplementedError

    # -- records

    def __aiter__(self) -> ShareConsumer:
        return self

    async def __anext__(self) -> Record:
        """Wait for the next record. It takes few at a time while their work is slow, so that other
        members get the rest.

        :raises ClientError: the membership has ended, or a broker refuses
        """
        raise NotImplementedError

    async def poll(self, max_records: int = 500, timeout: float = 1.0) -> list[Record]:
        """Return up to ``max_records`` records as soon as there are some; none after ``timeout``.

        :param timeout: in seconds
        :raises ClientError: the membership has ended, a broker refuses, or a record batch cannot be
            read. If there are records from elsewhere, the next call raises it
        """
        raise NotImplementedError

    # -- outcomes

    async def accept(self, records: Records) -> None:
        """End records: they were processed, and nobody gets them again.

        :raises OutcomesFailed: the broker has not accepted the outcome of some records
        """
        raise NotImplementedError

    async def release(self, records: Records, *, delay: float = 0.0) -> None:
        """Give records back, to be delivered again, by default at once.

        :param delay: seconds until then, or the group's backoff if that is longer. headrace's broker
            keeps the records meanwhile; at another one, this consumer holds and renews them, and
            releases them when they are due or it is closed
        :raises OutcomesFailed: the broker has not accepted the outcome of some records
        """
        raise NotImplementedError

    async def reject(self, records: Records, *, reason: str = "") -> None:
        """End records that cannot be processed: they go to the group's dead-letter queue, if it has
        one.

        :param reason: is logged, and headrace's broker writes it into the dead letters
        :raises OutcomesFailed: the broker has not accepted the outcome of some records
        """
        raise NotImplementedError

    async def renew(self, records: Records) -> None:
        """Restart the acquisition locks of held records now.

        :raises OutcomesFailed: some locks were lost
        :raises ClientError: the broker cannot renew locks (Kafka 4.2 or later can)
        """
        raise NotImplementedError

    # -- flow

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the group assigns to this member."""
        raise NotImplementedError

    @property
    def held(self) -> int:
        """The number of held records, with those that are acquired and not handed out yet."""
        raise NotImplementedError

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Acquire no more records from these partitions until :meth:`resume`."""
        raise NotImplementedError

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Acquire records from these partitions again."""
        raise NotImplementedError
