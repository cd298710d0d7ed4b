"""The topics of a broker and their logs: creating, opening, appending, flushing, retention."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Hashable, Iterator, Sequence
from uuid import UUID

from headrace.coordinators.clock import Clock
from headrace.log.log_directory import DeletedLogs, LogDirectory
from headrace.log.partition_log import Appended, PartitionLog
from headrace.log_lines import LimitedLog, get_logger
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.record_batch import OPEN_ANY, BatchHeader, Opening
from headrace.topics.settings import Settings

from .catalog import Catalog, Topic
from .disk_thread import DiskThread
from .flusher import Flusher
from .topic_rules import check_new_topic_name

TOPICS_PER_TURN = 500
"""The topics that retention, compaction and the scrape of metrics visit in one turn of the event
loop, if none of their partitions needs work.
"""

log = get_logger("headrace.broker")
limited = LimitedLog("headrace.broker")


class TopicLogs:
    """The topics of one broker and their logs. Belongs to the broker's event loop.

    :param refused_produces: counts the refused partitions of Produce by topic
    :param notify: wakes the requests that wait for a key, here ``("log", topic_id, partition)``
    """

    def __init__(
        self,
        config: Settings,
        catalog: Catalog,
        directory: LogDirectory,
        clock: Clock,
        refused_produces: Counter[str],
        notify: Callable[[Hashable], None],
    ) -> None:
        self.flusher = Flusher()
        self._config = config
        self._catalog = catalog
        self.create_topic = catalog.create_topic
        self._directory = directory
        self._clock = clock
        self._refused_produces = refused_produces
        self._notify = notify
        self._open_logs: dict[tuple[UUID, int], PartitionLog] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._disk = DiskThread("headrace-disk")

    def watch_disk(self) -> None:
        """Answer the requests that wait for a log when it goes offline, from now on."""
        call_soon = asyncio.get_running_loop().call_soon_threadsafe
        self._directory.directory.on_offline = lambda *log: call_soon(self._went_offline, *log)

    def _went_offline(self, topic_id: UUID, partition: int) -> None:
        self._open_logs.pop((topic_id, partition), None)
        self._notify(("log", topic_id, partition))

    def start(self) -> None:
        """Apply retention and forget idle producers from now on."""
        loop = asyncio.get_running_loop()
        self._tasks += loop.create_task(self._retain()), loop.create_task(self._forget_producers())

    def close(self) -> None:
        """Stop, flush and close the files."""
        for task in self._tasks:
            task.cancel()
        self._disk.close()
        self.flusher.close()
        self._directory.close()

    # Topics ---------------------------------------------------------------------------------------

    def name_refusal(self, name: str) -> Refusal | None:
        """Return the error for creating a topic called ``name``, None if it may be created."""
        return check_new_topic_name(name, self._catalog.twin(name))

    def delete_topics(self, topics: Sequence[Topic], removed: Callable[[], object]) -> None:
        """Delete topics in one transaction of the catalog, and close their logs. Their directories
        are removed in the background.

        :param removed: called in a thread when all directories are gone
        :raises CatalogError: when the database fails; then nothing has changed
        """
        self._catalog.delete_topics(topics)
        deleted: DeletedLogs = {}
        for topic in topics:
            self._refused_produces.pop(topic.name, None)
            for partition in self._directory.used_partitions(topic.name):
                self._open_logs.pop((topic.topic_id, partition), None)
                self._notify(("log", topic.topic_id, partition))
            deleted |= self._directory.delete(topic.name, topic.topic_id)
        self._directory.removals.add(deleted, removed)

    def resume_deletion(self, topics: Sequence[Topic], removed: Callable[[], object]) -> None:
        """Continue the removal of topics' directories after a restart; otherwise as
        :meth:`delete_topics`.
        """
        self._directory.removals.remove_renamed()
        deleted: DeletedLogs = {}
        for topic in topics:
            is_used = topic.name in self._catalog.topics
            deleted |= self._directory.left_of(topic.name, topic.topic_id, is_used=is_used)
        self._directory.removals.add(deleted, removed)

    def topic_value(self, topic: str, name: str) -> str | None:
        """Return a configuration of a topic that exists, as text."""
        return self._config.topic_value(self._catalog.topics[topic], name)

    def apply_topic_config(self, topic: Topic) -> None:
        """Apply the current configuration of a topic to its open logs."""
        config = self._config.log_config(topic)
        for partition in self._directory.used_partitions(topic.name):
            open_log = self._open_logs.get((topic.topic_id, partition))
            if open_log is not None:
                open_log.config = config

    def apply_broker_config(self) -> Generator[None, None, None]:
        """Apply the current configuration of the broker to all open logs; yield after each."""
        for (topic_id, _), open_log in list(self._open_logs.items()):
            topic = self._catalog.topics_by_id.get(topic_id)
            if topic is not None:
                open_log.config = self._config.log_config(topic)
            yield

    def internal_topic(self, name: str) -> Topic:
        """Return the internal topic of a coordinator, created with its first record.

        :raises CatalogError: when the database fails
        """
        topic = self._catalog.topics.get(name)
        if topic is None:
            partitions, configs = self._config.internal_topic(name)
            topic = self.create_topic(name, partitions, configs)
        return topic

    # Logs -----------------------------------------------------------------------------------------

    def partition(self, topic: UUID | str | None, partition: int) -> PartitionLog | ErrorCode:
        """Return a partition's log; or UNKNOWN_TOPIC_ID for an unknown id,
        UNKNOWN_TOPIC_OR_PARTITION, or KAFKA_STORAGE_ERROR when the log is offline.

        :param topic: its id (None for the zero id), or its name
        """
        if isinstance(topic, str):
            existing = self._catalog.topics.get(topic)
            return _online(None if existing is None else self.log(existing, partition))
        if topic is not None:
            open_log = self._open_logs.get((topic, partition))
            if open_log is not None and open_log.is_loaded:
                return open_log
            existing = self._catalog.topics_by_id.get(topic)
            if existing is not None:
                return _online(self.log(existing, partition))
        return ErrorCode.UNKNOWN_TOPIC_ID

    def log(self, topic: Topic, partition: int) -> PartitionLog | None:
        """Return a partition's log, offline or not; None when the topic has no such partition, or
        was deleted.

        :param topic: the topic, which others may have changed since the caller looked it up
        """
        open_log = self._open_logs.get((topic.topic_id, partition))
        if open_log is not None:
            return open_log
        present = self._catalog.topics_by_id.get(topic.topic_id)
        if present is None or not 0 <= partition < present.partitions:
            return None
        config = self._config.log_config(present)
        open_log = self._directory.open(
            present.name, present.topic_id, partition, config, partitions=present.partitions
        )
        if not open_log.is_offline:
            self._open_logs[present.topic_id, partition] = open_log
        return open_log

    def exists(self, name: str, partition: int) -> bool:
        """Return whether a partition ever had a record."""
        return partition in self._directory.directory.partitions.get(name, ())

    def existing(self, topic: Topic) -> Iterator[tuple[int, PartitionLog]]:
        """Yield number and log of each partition that ever had a record, until the topic is
        deleted.
        """
        for partition in self._directory.existing_partitions(topic.name, topic.partitions):
            partition_log = self.log(topic, partition)
            if partition_log is not None:
                yield partition, partition_log

    # Writing --------------------------------------------------------------------------------------

    def append(
        self,
        partition_log: PartitionLog,
        data: bytes | memoryview,
        header: BatchHeader | None = None,
        opening: Opening | None = OPEN_ANY,
    ) -> Appended | Refusal:
        """Append a producer's batch and wake the requests that wait for it.

        Before answering, wait for :meth:`pending_flush`.

        :param header: of :func:`~headrace.log.validation.single_batch`, where it is known
        :param opening: see :func:`~headrace.log.validation.check_client_batch`
        :raises OpenElsewhere: as :func:`~headrace.log.validation.check_client_batch`
        """
        appended = partition_log.append(data, self._clock.wall_ms(), header, opening=opening)
        if isinstance(appended, Refusal):
            self.refused(partition_log, appended)
        else:
            self.appended(partition_log)
        return appended

    def refused(self, partition_log: PartitionLog, refusal: Refusal) -> None:
        """Count a batch that is not appended, and log why if its producer is to blame."""
        self._refused_produces[partition_log.topic] += 1
        if refusal.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD):
            limited.warning(
                partition_log.topic,
                "refused a batch for %s-%d: %s",
                partition_log.topic,
                partition_log.partition,
                refusal.message or refusal.code.name,
            )

    def appended(self, partition_log: PartitionLog) -> None:
        """Schedule the flush of what was just appended, and wake the requests that wait for it."""
        self.flusher.appended(partition_log)
        self._notify(("log", partition_log.topic_id, partition_log.partition))

    def pending_flush(self) -> Awaitable[None] | None:
        """Return an awaitable that completes when everything appended before this call is as
        durable as the flush settings require; None if it is now, as usual.

        :raises StorageError: from the awaitable, when a flush failed
        """
        return self.flusher.pending_flush()

    def when_on_disk(self, partition_log: PartitionLog, then: Callable[[], object]) -> None:
        """Call a function when everything that was appended to a log is forced to disk. If that
        fails, or the broker stops before, it is not called.
        """
        if not partition_log.syncs:
            then()
            return
        task = asyncio.get_running_loop().create_task(self._force(partition_log, then))
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)

    async def _force(self, partition_log: PartitionLog, then: Callable[[], object]) -> None:
        try:
            await self._disk.run(partition_log.flush)
        except OSError:  # the log went offline and logged why
            return
        then()

    # Deleting records -----------------------------------------------------------------------------

    async def delete_records(
        self, deletions: Sequence[tuple[PartitionLog, int]]
    ) -> list[int | Refusal]:
        """Delete the records before an offset in each log, and wake the requests that wait for it.
        A thread forces the log start offsets to disk. Run this to its end, even if the client goes:
        what is on disk must be in memory.

        :param deletions: loaded logs and offsets; -1 stands for the end of the log
        :return: for each log its log start offset, which is durable; or a refusal of
            :meth:`~headrace.log.partition_log.PartitionLog.new_log_start` or
            :meth:`~headrace.log.partition_log.PartitionLog.save_log_start`
        """
        targets = [partition_log.new_log_start(before) for partition_log, before in deletions]

        def save() -> list[int | Refusal]:
            return [
                target
                if isinstance(target, Refusal)
                else partition_log.save_log_start(target) or target
                for (partition_log, _), target in zip(deletions, targets, strict=True)
            ]

        in_thread = any(partition_log.syncs for partition_log, _ in deletions)
        starts = await self._disk.run(save) if in_thread else save()
        for number, (partition_log, _) in enumerate(deletions):
            start = starts[number]
            if not isinstance(start, Refusal):
                starts[number] = partition_log.advance_log_start(start)
                self._notify(("log", partition_log.topic_id, partition_log.partition))
        return starts

    # Retention ------------------------------------------------------------------------------------

    async def _retain(self) -> None:
        """Apply retention every ``log.retention.check.interval.ms``, a few logs at a time."""
        while True:
            await asyncio.sleep(self._config.get_int("log.retention.check.interval.ms") / 1000)
            for number, topic in enumerate(list(self._catalog.topics.values())):
                if number % TOPICS_PER_TURN == 0:
                    await asyncio.sleep(0)
                try:
                    for _, partition_log in self.existing(topic):
                        await self._apply_retention(partition_log)
                        await asyncio.sleep(0)
                except Exception as error:  # go on with the other topics
                    _log_failed_retention(topic.name, error)

    async def _forget_producers(self) -> None:
        """Forget idle producers every ``producer.id.expiration.check.interval.ms``, a few logs at a
        time.
        """
        interval = "producer.id.expiration.check.interval.ms"
        while True:
            await asyncio.sleep(self._config.get_int(interval) / 1000)
            for partition_log in list(self._open_logs.values()):
                partition_log.expire_producers(self._clock.wall_ms())
                await asyncio.sleep(0)

    async def _apply_retention(self, partition_log: PartitionLog) -> None:
        topic, partition = partition_log.topic, partition_log.partition
        try:
            for work in partition_log.retention_steps(self._clock.wall_ms()):
                self._notify(("log", partition_log.topic_id, partition))
                if partition_log.syncs:
                    await self._disk.run(work)
                else:
                    work()
        except Exception as error:  # go on with the other logs
            _log_failed_retention(f"{topic}-{partition}", error)


def _online(partition_log: PartitionLog | None) -> PartitionLog | ErrorCode:
    if partition_log is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        partition_log.load()
    except OSError as error:
        limited.error(partition_log.path, "cannot open %s: %s", partition_log.path, error)
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.KAFKA_STORAGE_ERROR if partition_log.is_offline else partition_log


def _log_failed_retention(name: str, error: Exception) -> None:
    trace = None if isinstance(error, OSError) else error
    log.error("cannot apply retention to %s: %s", name, error, exc_info=trace)


def roll(partition_log: PartitionLog, wall_ms: int) -> None:
    """Begin a new segment, so that the last one can be deleted or cleaned. When that fails it stays
    the last one until the next time.
    """
    try:
        partition_log.roll(wall_ms)
    except OSError as error:
        log.warning("cannot begin a new segment of %s: %s", partition_log.path, error)
