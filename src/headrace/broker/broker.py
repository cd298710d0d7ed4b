"""The broker: owns the logs and the machines, and is the only path that writes.

Everything runs on one event loop. A coordinator decides, :meth:`Broker.submit` appends its records
to the internal topic and replays them, with no await in between; the handler then waits for
:meth:`Broker.durable` and answers. At start the same records are replayed from the internal topics.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from headrace.coordinators import loader as internal_logs
from headrace.coordinators.registry import Machines
from headrace.errors import ErrorCode, Refusal, StorageError
from headrace.hashing import internal_partition
from headrace.log.log_directory import LogDirectory
from headrace.log.partition_log import Appended, PartitionLog
from headrace.outcome import Completion, Coordinator, Outcome, Position, make
from headrace.protocol import record_batch
from headrace.transactions.producer import NO_PRODUCER, Producer

from .catalog import Catalog, Topic
from .cleaner import Cleaner
from .config.broker_config import Config
from .fetch_sessions import FetchSessions
from .flusher import Flusher
from .limits import EXPIRE_RETRY_MS, max_open_files
from .long_polls import Waits
from .metrics.registry import Metrics

log = logging.getLogger("headrace.broker")

R = TypeVar("R")


def wall_clock_ms() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000


async def _after(durable: Awaitable[None], response: R) -> R:
    await durable
    return response


class Broker(Machines):
    """One node: topics, logs, coordinators. Use it through :class:`headrace.Broker` or ``headrace
    serve``.

    :param config: broker configuration, with Kafka's names
    :param data_dir: where state lives; None for a temporary directory that goes with the broker
    :param clock_ms: epoch milliseconds now; how long requests wait is measured by the event loop
    """

    node_id = 1

    def __init__(
        self,
        config: Config,
        data_dir: Path | None = None,
        *,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        super().__init__()
        self.config = config
        self.now_ms = clock_ms
        self.ephemeral = data_dir is None
        self.data_dir = Path(tempfile.mkdtemp(prefix="headrace-")) if data_dir is None else data_dir
        try:
            self.logs = LogDirectory(self.data_dir, max_open_files(), sync=not self.ephemeral)
            self.catalog = Catalog(None if self.ephemeral else self.data_dir / "headrace.db")
        except BaseException:
            self._remove_if_ephemeral()
            raise
        config.attach(self.catalog)
        self.metrics = Metrics(self.catalog.topics_by_id)
        self.waits = Waits()
        self.fetch_sessions = FetchSessions(
            self.waits,
            config.get_int("max.incremental.fetch.session.cache.slots"),
            functools.partial(random.randrange, 1, 1 << 31),
        )
        self.flusher = Flusher()
        self.cleaner = Cleaner(self)
        self.fetch_max_bytes = config.get_int("fetch.max.bytes")
        self._partitions: dict[tuple[UUID, int], PartitionLog] = {}
        self._parked: dict[int, asyncio.Future[Any]] = {}
        self._tickets = count(1)
        self._deadline: asyncio.TimerHandle | None = None
        self._deadline_ms: int | None = None
        self._retention: asyncio.Task[None] | None = None

    # Time -----------------------------------------------------------------------------------------

    def monotonic_ms(self) -> float:
        """The event loop's clock, for how long requests may wait."""
        return asyncio.get_running_loop().time() * 1000

    # Life -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Replay the internal topics and start the timers. Call it once, on the running event loop.

        :raises CorruptLog: when the state of coordinators cannot be read
        """
        self.load()
        try:
            self._finish_interrupted()
        except StorageError as error:  # what is served does not depend on it
            log.error(
                "cannot finish what was interrupted: %s; the next start will try again", error
            )
        for group_id in self.catalog.configured("group"):
            for capped in self.config.capped_group_configs(group_id):
                log.warning("%s", capped)
        if self.is_made("groups"):
            self.groups.loaded(self.now_ms())
        self.arm()
        self._retention = asyncio.get_running_loop().create_task(self._retain())
        self.cleaner.start()

    def _finish_interrupted(self) -> None:
        if self.is_made("share_state") or (self.is_made("groups") and self.groups.share_groups()):
            from headrace.coordinators import share_state_recovery as share_group_state

            share_group_state.settle(self)
        if self.is_made("transactions"):
            self.transactions.complete_prepared()

    def close(self) -> None:
        """Stop the timers, flush and close the files. Acquired records are released, for locks do
        not survive.
        """
        for pending in (self._deadline, self._retention):
            if pending is not None:
                pending.cancel()
        try:
            if self.is_made("share"):
                self.share.close()
        except StorageError as error:
            log.error("cannot release acquired records: %s", error)
        self.cleaner.close()
        self.flusher.close()
        self.logs.close()
        self.catalog.close()
        self._remove_if_ephemeral()

    def _remove_if_ephemeral(self) -> None:
        if self.ephemeral:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def advertise(self, addresses: Sequence[tuple[str, int]]) -> None:
        """Note in the lock file who holds the data directory."""
        self.logs.announce(", ".join(f"{host}:{port}" for host, port in addresses))

    # Topics ---------------------------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> Topic:
        """Create a topic. No file is made before its first record."""
        return self.catalog.create_topic(name, partitions, configs or {})

    def delete_topic(self, topic: Topic) -> None:
        """Delete a topic with its records, offsets and share state."""
        self.catalog.delete_topic(topic.name)
        for partition in range(topic.partitions):
            self._partitions.pop((topic.topic_id, partition), None)
            self.waits.notify(("log", topic.topic_id, partition))
        self.logs.delete(topic.name)
        if self.is_made("transactions"):
            self.transactions.topic_deleted(topic.name)
        if self.is_made("share"):
            self.share.topic_deleted(topic)
        if self.is_made("groups"):
            for group_id, forgotten in self.groups.topic_deleted(topic, self.now_ms()):
                self.submit(self.groups, group_id, forgotten)
        if self.is_made("share_state"):
            for key, tombstones in self.share_state.topic_deleted(topic.topic_id):
                self.submit(self.share_state, key, tombstones)

    def create_partitions(self, topic: Topic, total: int) -> Topic:
        """Grow a topic to ``total`` partitions."""
        return self.catalog.create_partitions(topic.name, total)

    def apply_topic_config(self, topic: Topic) -> None:
        """Let the open logs of a topic have its configuration as it is now."""
        config = self.config.log_config(topic)
        for partition in range(topic.partitions):
            open_log = self._partitions.get((topic.topic_id, partition))
            if open_log is not None:
                open_log.config = config

    def ensure_internal_topic(self, name: str) -> Topic:
        """The internal topic of a coordinator, created with its first record."""
        topic = self.catalog.topics.get(name)
        if topic is None:
            partitions, configs = self.config.internal_topic(name)
            topic = self.create_topic(name, partitions, configs)
        return topic

    # Logs -----------------------------------------------------------------------------------------

    def partition(self, topic_id: UUID | None, partition: int) -> PartitionLog | ErrorCode:
        """A partition's log by topic id, or UNKNOWN_TOPIC_ID, or UNKNOWN_TOPIC_OR_PARTITION."""
        if topic_id is not None:
            open_log = self._partitions.get((topic_id, partition))
            if open_log is not None:
                return open_log
            topic = self.catalog.topics_by_id.get(topic_id)
            if topic is not None:
                return self.log(topic, partition) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.UNKNOWN_TOPIC_ID

    def partition_by_name(self, name: str, partition: int) -> PartitionLog | ErrorCode:
        """A partition's log by topic name, or UNKNOWN_TOPIC_OR_PARTITION."""
        topic = self.catalog.topics.get(name)
        found = None if topic is None else self.log(topic, partition)
        return found or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def log(self, topic: Topic, partition: int) -> PartitionLog | None:
        """A partition's log; None when the topic has no such partition."""
        open_log = self._partitions.get((topic.topic_id, partition))
        if open_log is None and 0 <= partition < topic.partitions:
            open_log = self._open(topic, partition)
        return open_log

    def _open(self, topic: Topic, partition: int) -> PartitionLog:
        opened = self.logs.open(
            topic.name, topic.topic_id, partition, self.config.log_config(topic)
        )
        self._partitions[topic.topic_id, partition] = opened
        return opened

    def append(self, partition_log: PartitionLog, data: bytes | memoryview) -> Appended | Refusal:
        """Append a producer's batches and wake who waits for them. Before answering, wait for
        :meth:`durable`.
        """
        appended = partition_log.append(data, self.now_ms())
        if not isinstance(appended, Refusal):
            self.appended(partition_log)
            return appended
        self.metrics.refused_produces[partition_log.topic] += 1
        if appended.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD):
            name, reason = (
                f"{partition_log.topic}-{partition_log.partition}",
                appended.message or appended.code.name,
            )
            log.warning("refused a batch for %s: %s", name, reason)
        return appended

    def appended(self, partition_log: PartitionLog) -> None:
        """Something was appended: see to it that it gets durable, and wake who waits for it."""
        self.flusher.appended(partition_log)
        self.waits.notify(("log", partition_log.topic_id, partition_log.partition))

    def durable(self) -> Awaitable[None]:
        """Return an awaitable for when all that was appended up to this call is as durable as the
        flush settings ask; usually that is at once.

        :raises StorageError: from the awaitable, when a flush failed
        """
        return self.flusher.durable()

    def when_durable(self, response: R) -> R | Awaitable[R]:
        """Return the response itself if :meth:`durable` has nothing to wait for, as is usual; else
        an awaitable of it.
        """
        if not self.flusher.pending:
            return response
        return _after(self.flusher.durable(), response)

    async def _retain(self) -> None:
        """Delete what retention no longer keeps, every ``log.retention.check.interval.ms``, a few
        logs at a time.
        """
        while True:
            await asyncio.sleep(self.config.get_int("log.retention.check.interval.ms") / 1000)
            for topic in list(self.catalog.topics.values()):
                for partition in self.logs.existing_partitions(topic.name, topic.partitions):
                    if self.catalog.topics_by_id.get(topic.topic_id) is not None:
                        self._retain_partition(topic, partition)
                    await asyncio.sleep(0)

    def _retain_partition(self, topic: Topic, partition: int) -> None:
        partition_log = self.log(topic, partition)
        try:
            if partition_log is not None and partition_log.apply_retention(self.now_ms()):
                self.waits.notify(("log", topic.topic_id, partition))
        except OSError as error:
            log.error("cannot apply retention to %s-%d: %s", topic.name, partition, error)

    # Coordinators ---------------------------------------------------------------------------------

    def submit(
        self,
        coordinator: Coordinator[Any],
        key: str,
        outcome: Outcome[Any, R],
        producer: Producer = NO_PRODUCER,
    ) -> R:
        """Make an outcome true: append its records, replay them, answer the parked requests it
        completes.

        :param producer: whose transaction the records are part of: they count when it is committed
        :returns: the outcome's reply; send it after :meth:`durable`
        :raises StorageError: when the append failed; then nothing has changed
        """
        self.submit_all(coordinator, ((key, outcome.records),), producer)
        if outcome.apply is not None:
            outcome.apply()
        for completion in outcome.completions:
            self._complete(completion)
        if outcome.deletable:
            internal_logs.prune(self, coordinator, outcome.deletable)
        self.arm()
        return outcome.reply

    def submit_all(
        self,
        coordinator: Coordinator[Any],
        keyed: Sequence[tuple[str, Sequence[Any]]],
        producer: Producer = NO_PRODUCER,
    ) -> None:
        """Append and replay records of several keys: one batch for each internal partition that is
        touched.
        """
        if not any(records for _, records in keyed):
            return
        topic = self.ensure_internal_topic(coordinator.topic)
        by_partition: dict[int, list[Any]] = {}
        for key, records in keyed:
            if records:
                by_partition.setdefault(internal_partition(key, topic.partitions), []).extend(
                    records
                )
        now_ms = self.now_ms()
        for partition, records in by_partition.items():
            partition_log = self.log(topic, partition)
            assert partition_log is not None
            started = time.perf_counter()
            data = record_batch.build(
                [coordinator.encode(record) for record in records],
                timestamp_ms=now_ms,
                attributes=0 if producer == NO_PRODUCER else record_batch.TRANSACTIONAL_BIT,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
            )
            appended = partition_log.append(data, now_ms, from_client=False)
            if isinstance(appended, Refusal):
                raise StorageError(f"cannot append to {topic.name}-{partition}: {appended.message}")
            for offset, record in enumerate(records, appended.base_offset):
                coordinator.replay(
                    record, make(Position, (partition, offset, producer.producer_id))
                )
            self.metrics.coordinators[topic.name].wrote(records, started)
            self.appended(partition_log)

    def park(self) -> tuple[int, asyncio.Future[Any]]:
        """A ticket to hand to a machine with a request that has to wait, and the future of its
        answer.
        """
        ticket = next(self._tickets)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._parked[ticket] = future
        future.add_done_callback(lambda _: self._parked.pop(ticket, None))
        return ticket, future

    def _complete(self, completion: Completion) -> None:
        future = self._parked.pop(completion.ticket, None)
        if future is not None and not future.done():  # the client may have gone
            future.set_result(completion.reply)

    def arm(self) -> None:
        """Have :meth:`_expire` called when the next deadline of any machine has come."""
        deadlines = [machine.next_deadline_ms() for machine in self.timed]
        deadline_ms = min(
            (deadline for deadline in deadlines if deadline is not None), default=None
        )
        if deadline_ms == self._deadline_ms:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline_ms, self._deadline = deadline_ms, None
        if deadline_ms is not None:
            delay_ms = max(deadline_ms - self.now_ms(), 0)
            self._deadline = asyncio.get_running_loop().call_later(delay_ms / 1000, self._expire)

    def _expire(self) -> None:
        """What time alone decides goes through the same door as commands."""
        self._deadline_ms = self._deadline = None
        now_ms = self.now_ms()
        try:
            for coordinator in self.coordinators:
                for key, outcome in coordinator.expire(now_ms):
                    self.submit(coordinator, key, outcome)
            if self.is_made("transactions"):
                self.transactions.expire(now_ms)
            if self.is_made("share"):
                self.share.expire(now_ms)
        except Exception as error:
            # The deadline is still there: without a pause a full disk would keep the loop busy with
            # it.
            trace = None if isinstance(error, StorageError) else error
            log.error(
                "cannot act on a timeout: %s; trying again in %d ms",
                error,
                EXPIRE_RETRY_MS,
                exc_info=trace,
            )
            self._deadline_ms = now_ms + EXPIRE_RETRY_MS
            self._deadline = asyncio.get_running_loop().call_later(
                EXPIRE_RETRY_MS / 1000, self._expire
            )
            return
        self.arm()

    def disconnected(self, connection_id: int) -> None:
        """A client's connection is gone: what it held in share sessions is released."""
        try:
            if self.is_made("share"):
                self.share.disconnected(connection_id)
        except StorageError as error:
            log.error(
                "cannot release the records of a lost connection: %s; their locks will time out",
                error,
            )
