"""The two members of a share group that a worker is.

The assignor of share groups counts partitions, whatever is in them. With one member for the task's
topics and the topic of later records, the first worker would keep all partitions of the task, and
the second one would get those where mostly nothing is. When members of a group subscribe to
different topics, the assignor balances each topic on its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any

from headrace.client.records import Record
from headrace.client.share.consumer import ShareConsumer, is_setting

from .task import Task


class Members:
    """The consumer of a task's topics, and that of its later records, as one.

    :param conf: librdkafka's names and values
    :param on_lock_lost: called with records whose locks were lost
    :param on_arrival: called when records have arrived that no :meth:`poll` has waited for
    """

    def __init__(
        self,
        task: Task[Any, Any],
        conf: Mapping[str, Any],
        *,
        max_held_records: int,
        on_lock_lost: Callable[[list[Record]], object],
        on_arrival: Callable[[], object],
    ) -> None:
        conf = {name: value for name, value in conf.items() if is_setting(name)}
        self._own, self._later = (
            ShareConsumer(
                conf,
                topics,
                on_lock_lost=self._lose,
                max_held_records=max_held_records,
                tracing=task.sender.tracing,
            )
            for topics in (task.topics, [task.later])
        )
        self._later_topic = task.later
        self._on_lock_lost, self._on_arrival = on_lock_lost, on_arrival
        self._polls: dict[ShareConsumer, asyncio.Task[None]] = {}
        self._arrived: deque[Record] = deque()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Members:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._own)
            await stack.enter_async_context(self._later)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()
        await asyncio.gather(*self._polls.values(), return_exceptions=True)
        await self._stack.aclose()

    def stop(self) -> list[Record]:
        """Take no more records; return those that have arrived."""
        for poll in self._polls.values():
            poll.cancel()
        return self.arrived()

    async def poll(self, max_records: int, timeout: float) -> list[Record]:
        """Return records as soon as either consumer has some, none after ``timeout`` seconds. The
        other one goes on: its records come with :meth:`arrived`.

        :raises ClientError: see :meth:`ShareConsumer.poll`
        """
        for consumer in (self._own, self._later):
            if consumer not in self._polls:
                polling = self._poll(consumer, max_records, timeout)
                self._polls[consumer] = asyncio.create_task(polling)
        await asyncio.wait(
            self._polls.values(), timeout=timeout, return_when=asyncio.FIRST_COMPLETED
        )
        for consumer, poll in list(self._polls.items()):
            if poll.done():
                del self._polls[consumer]
                poll.result()
        return self.arrived()

    def arrived(self) -> list[Record]:
        """Return records that have arrived since."""
        records = list(self._arrived)
        self._arrived.clear()
        return records

    async def _poll(self, consumer: ShareConsumer, max_records: int, timeout: float) -> None:
        if records := await consumer.poll(max_records, timeout):
            self._arrived += records
            self._on_arrival()

    def _lose(self, records: list[Record]) -> None:
        lost = set(map(id, records))
        self._arrived = deque(record for record in self._arrived if id(record) not in lost)
        self._on_lock_lost(records)

    def of(self, record: Record) -> ShareConsumer:
        """Return the consumer that holds a record."""
        return self._later if record.topic == self._later_topic else self._own

    def by_holder(self, records: Iterable[Record]) -> dict[ShareConsumer, list[Record]]:
        """Return records by the consumer that holds them."""
        held: dict[ShareConsumer, list[Record]] = {}
        for record in records:
            held.setdefault(self.of(record), []).append(record)
        return held

    def pause_later(self) -> None:
        """Take no more records that wait, until :meth:`resume_later`."""
        self._later.pause(self._later.assignment)

    def resume_later(self) -> None:
        """Take records that wait again."""
        self._later.resume(self._later.assignment)

    @property
    def problem(self) -> str | None:
        """Why it gets no records; None while both are members."""
        return self._own.problem or self._later.problem

    @property
    def is_closed(self) -> bool:
        """Whether either has left the group."""
        return self._own.is_closed or self._later.is_closed

    async def broker_delays(self) -> bool:
        """See :meth:`ShareConsumer.broker_delays`."""
        return await self._own.broker_delays()
