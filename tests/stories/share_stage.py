"""A broker without sockets, and members of a share group that talk to its handlers: ShareFetch and
ShareAcknowledge.

@on_stage()
async def test_delivery(s):
    s.produce(10)
    m = s.member("m")
    assert await m.fetch() == [(0, 9, 1)]
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.coordinators.clock import wall_clock_ms
from headrace.coordinators.share_partitions import LoadedPartition
from headrace.log.partition_log import PartitionLog
from headrace.protocol import record_batch
from headrace.protocol.errors import ErrorCode
from headrace.share.records import SharePartitionKey
from headrace.share.share_state import ShareState
from tests import handler_client
from tests.support import story_in

GROUP = "g"
T = TypeVar("T")
_connections = count(1)


def on_stage(**options: Any) -> Callable[..., Callable[..., None]]:
    """Run an async test on its own loop with a :func:`stage` of these options, its first
    argument.
    """
    return story_in(functools.partial(stage, **options))


async def begun(request: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Return a request that has begun, and may wait."""
    task = asyncio.create_task(request)
    await asyncio.sleep(0)
    return task


def only_partition(response: Any) -> Any:
    """Return the part of a response about its only partition."""
    ((partition,),) = (topic.partitions for topic in response.responses)
    return partition


@asynccontextmanager
async def stage(
    partitions: int = 1,
    configs: Mapping[str, str] | None = None,
    data_dir: Path | None = None,
    **group: str,
) -> AsyncIterator[Stage]:
    """A started broker with the topic ``t`` and the group ``g`` that has joined it.

    :param configs: of the broker
    :param group: configs of the group, with underscores for dots; by default it begins at
        ``earliest``
    """
    config = {
        "share.coordinator.state.topic.num.partitions": "2",
        "group.share.min.record.lock.duration.ms": "1000",
        **(configs or {}),
    }
    clock = Clock()
    broker = Broker(Config(config), data_dir, clock_ms=clock.wall_ms, steady_ms=clock)
    broker.start()
    made = Stage(broker, clock)
    if "t" not in broker.catalog.topics:
        made.configure_group(**{"share_auto_offset_reset": "earliest", **group})
        broker.catalog.create_topic("t", partitions)
        made.initialize()
    try:
        yield made
    finally:
        broker.close()


class Clock:
    """The system's clock, until it is stopped and moved by hand.

    :ivar wall_ahead_ms: how far somebody has set the wall clock forward
    """

    def __init__(self) -> None:
        self.stopped_ms: int | None = None
        self.wall_ahead_ms = 0

    def __call__(self) -> int:
        return wall_clock_ms() if self.stopped_ms is None else self.stopped_ms

    def wall_ms(self) -> int:
        return self() + self.wall_ahead_ms

    def stop(self) -> None:
        self.stopped_ms = self()


class Stage:
    def __init__(self, broker: Broker, clock: Clock) -> None:
        self.broker = broker
        self.clock = clock

    def pass_ms(self, ms: int) -> None:
        """Move the stopped clock, and end what is over then."""
        assert self.clock.stopped_ms is not None
        self.clock.stopped_ms += ms
        self.broker.coordinators.timer.expire()

    @property
    def topic_id(self) -> UUID:
        return self.broker.catalog.topics["t"].topic_id

    def configure_group(self, group_id: str = GROUP, **configs: str) -> None:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        self.broker.catalog.alter_configs({("group", group_id): named})

    def initialize(
        self, start_offset: int = -1, group_id: str = GROUP, state_epoch: int = 1
    ) -> None:
        """Initialize share state, as the group coordinator does when a group joins a topic."""
        topic = self.broker.catalog.topics["t"]
        for partition in range(topic.partitions):
            key = SharePartitionKey(group_id, topic.topic_id, partition)
            outcome = self.broker.coordinators.share_state.initialize(
                key, state_epoch, start_offset, 0
            )
            assert self.broker.coordinators.share_state_runtime.write_now(str(key), outcome) is None

    async def alter(self, starts: dict[int, int], group_id: str = GROUP) -> None:
        """AlterShareGroupOffsets by partition."""
        partitions = [
            {"partition_index": partition, "start_offset": offset}
            for partition, offset in starts.items()
        ]
        topic = {"topic_name": "t", "partitions": partitions}
        response = await self.ask(91, group_id=group_id, topics=[topic])
        assert not any(one.error_code for topic in response.responses for one in topic.partitions)

    async def ask(self, api_key: int, version: int | None = None, /, **fields: Any) -> Any:
        """Return the response of a handler; see :func:`tests.handler_client.ask`."""
        return await handler_client.ask(self.broker, api_key, version, **fields)

    def log(self, partition: int = 0, topic: str = "t") -> PartitionLog:
        log = self.broker.topic_logs.log(self.broker.catalog.topics[topic], partition)
        assert log is not None
        return log

    def produce(
        self, *sizes: int, partition: int = 0, value: bytes = b"v", age_ms: int = 0
    ) -> None:
        """Append log batches of so many records, which were written `age_ms` ago."""
        timestamp_ms = self.broker.clock.wall_ms() - age_ms
        for size in sizes:
            data = record_batch.build([(None, value)] * size, timestamp_ms=timestamp_ms)
            self.broker.topic_logs.append(self.log(partition), data)

    def member(self, name: str = "m", group_id: str = GROUP) -> Member:
        """A member on a connection of its own."""
        return Member(self, name, group_id)

    async def holder(self, *sizes: int, **fields: Any) -> Member:
        """Append records, see :meth:`produce`; return a member that has acquired them."""
        self.produce(*sizes, **fields)
        member = self.member()
        assert await member.fetch()
        return member

    def loaded(self, partition: int) -> LoadedPartition | None:
        """The share-partition in memory, if it is there."""
        key = SharePartitionKey(GROUP, self.topic_id, partition)
        return self.broker.coordinators.share.loaded(key)

    def summary(self, partition: int = 0) -> ShareState:
        summary = self.broker.coordinators.share_state.summary(
            SharePartitionKey(GROUP, self.topic_id, partition)
        )
        assert isinstance(summary, ShareState)
        return summary

    def lag(self, partition: int = 0) -> int:
        summary = self.summary(partition)
        return (
            self.log(partition).end_offset - summary.start_offset - summary.delivery_complete_count
        )


class Member:
    """One member. It keeps its session's epoch, and opens the session with the first fetch."""

    def __init__(self, stage: Stage, name: str, group_id: str) -> None:
        self.stage, self.name, self.group_id = stage, name, group_id
        self.connection_id = next(_connections)
        self.epoch = 0

    async def _ask(self, api_key: int, epoch: int, **fields: Any) -> Any:
        response = await self.stage.ask(
            api_key,
            connection_id=self.connection_id,
            group_id=self.group_id,
            member_id=self.name,
            share_session_epoch=epoch,
            **fields,
        )
        if response.error_code == ErrorCode.NONE:
            self.epoch = 0 if epoch == -1 else epoch + 1
        return response

    async def share_fetch(
        self,
        *batches: Any,
        epoch: int | None = None,
        wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 50_000_000,
        max_records: int = 10_000,
        batch_size: int = 10_000,
        mode: int = 0,
        renew: bool = False,
        topic_id: UUID | None = None,
        partitions: tuple[int, ...] = (0,),
        add: tuple[int, ...] = (),
        forget: tuple[int, ...] = (),
    ) -> Any:
        """ShareFetch: the whole response. ``batches`` are acknowledgements of the first
        partition. ``add`` are partitions that an open session gains."""
        epoch = self.epoch if epoch is None else epoch
        topic_id = topic_id or self.stage.topic_id
        wanted = (partitions if epoch == 0 or batches else ()) + add
        asked = [
            {
                "partition_index": index,
                "acknowledgement_batches": _batches(batches) if index == wanted[0] else [],
            }
            for index in wanted
        ]
        return await self._ask(
            78,
            epoch,
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            max_records=max_records,
            batch_size=batch_size,
            share_acquire_mode=mode,
            is_renew_ack=renew,
            topics=[{"topic_id": topic_id, "partitions": asked}] if asked else [],
            forgotten_topics_data=[{"topic_id": topic_id, "partitions": forget}] if forget else [],
        )

    async def fetch(self, *batches: Any, **kwargs: Any) -> list[tuple[int, int, int]]:
        """ShareFetch: what was acquired of the only partition, as (first, last, delivery count)."""
        response = await self.share_fetch(*batches, **kwargs)
        assert response.error_code == ErrorCode.NONE
        acquired = []
        for partition in (p for topic in response.responses for p in topic.partitions):
            assert partition.error_code == ErrorCode.NONE
            assert partition.acknowledge_error_code == ErrorCode.NONE
            runs = [
                (run.first_offset, run.last_offset, run.delivery_count)
                for run in partition.acquired_records
            ]
            offsets = _offsets(bytes(partition.records))
            assert all(
                offset in offsets for first, last, _ in runs for offset in range(first, last + 1)
            )
            acquired += runs
        return acquired

    async def share_acknowledge(
        self,
        *batches: Any,
        epoch: int | None = None,
        renew: bool = False,
        topic_id: UUID | None = None,
        partition: int = 0,
        more: Mapping[int, tuple[Any, ...]] | None = None,
    ) -> Any:
        """ShareAcknowledge: the whole response. ``more`` has the acknowledgements of further
        partitions.
        """
        by_partition = {partition: batches, **(more or {})}
        partitions = [
            {"partition_index": index, "acknowledgement_batches": _batches(given)}
            for index, given in by_partition.items()
        ]
        return await self._ask(
            79,
            self.epoch if epoch is None else epoch,
            is_renew_ack=renew,
            topics=[{"topic_id": topic_id or self.stage.topic_id, "partitions": partitions}],
        )

    async def ack(self, *batches: Any, **kwargs: Any) -> tuple[int, str | None]:
        """ShareAcknowledge: error code and message of the only partition."""
        response = await self.share_acknowledge(*batches, **kwargs)
        assert response.error_code == ErrorCode.NONE
        partition = only_partition(response)
        return partition.error_code, partition.error_message

    def vanish(self) -> None:
        """The connection is lost."""
        self.stage.broker.disconnected(self.connection_id)


def _offsets(data: bytes) -> set[int]:
    return {
        record.offset
        for position, _ in record_batch.headers(data)
        for record in record_batch.records(data[position:])
    }


def _batches(batches: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [
        {
            "first_offset": first,
            "last_offset": last,
            "acknowledge_types": (types,) if isinstance(types, int) else types,
        }
        for first, last, types in batches
    ]
