"""The dead-letter queue of share groups (KIP-1191).

A record that a member rejects, or that has reached the delivery count limit, is first written to
the topic ``errors.deadletterqueue.topic.name`` of its group, and then archived. After a crash in
between it is delivered again, so the queue may get it twice. Headers and errors:
``docs/behaviour/dead-letter-queue.md``.

A few letters are written at once. Many letters, and copies from large batches, are built in the
thread that opens batches; a queue with ``flush.messages`` is flushed in the thread of the flusher.
Meanwhile the records are ARCHIVING, see :mod:`headrace.share.share_partition`.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.log.partition_log import PartitionLog
from headrace.log_lines import LimitedLog, get_logger
from headrace.metric_family import metric
from headrace.protocol import dead_letters, record_batch
from headrace.protocol.errors import ErrorCode, Refusal, StorageError
from headrace.protocol.limits import OPENED_ON_LOOP_BYTES, OPENED_ON_LOOP_RECORDS
from headrace.protocol.record_batch import OPEN_ANY, Opening
from headrace.share.records import Archived, ArchiveReason, SharePartitionKey
from headrace.share.spans import offset_count, offsets_in

from .environment import Environment

log = get_logger("headrace.dead_letters")
limited = LimitedLog("headrace.dead_letters")

TOPIC_NAME, COPY_RECORD = (
    "errors.deadletterqueue.topic.name",
    "errors.deadletterqueue.copy.record.enable",
)
GROUP_ENABLE = "errors.deadletterqueue.group.enable"

MESSAGES = {
    ArchiveReason.REJECTED: b"Offset rejected by client.",
    ArchiveReason.DELIVERY_LIMIT: b"Offset delivery count exceeded the threshold.",
}
"""Values of the header ``__dlq.errors.message``, as in Kafka, but for what a member says of a
rejection. Records that are archived for other reasons are not dead letters.
"""

COPY_OPENED_TOGETHER_BYTES = 64 * 1024 * 1024
"""The decompressed bytes of records that are read to copy the records of one acknowledgement of a
partition to a dead-letter queue; its further dead letters have no key, value and headers. A member
may reject thousands of batches together. A consumer that fetches 50 MiB at a time, the default,
reaches this with compressed records only.
"""

LETTERS_ON_LOOP = 1000
"""The dead letters that are built in one turn of the event loop, in about 10 ms. Further ones are
built in the thread that opens large batches.
"""

COMPLAINT_MS = 60_000
"""The least time between two log lines about records of one group that have no dead letter."""

_OVERHEAD_BYTES = 32  # upper bound: a record's attributes, lengths, deltas and header count
_HEADER_OVERHEAD_BYTES = 10
_LETTERS_BETWEEN_PAUSES = 100

Batch = tuple[bytes, list[int]]
"""A batch of letters, and the offsets of their records."""


COPY_READ_BYTES = 1024 * 1024
"""Bytes of a log that are read at a time to copy records to a dead-letter queue."""

COPY_OPENED_BYTES = 4 * 1024 * 1024
"""The decompressed size above which a compressed batch is not opened to copy records of it: their
dead letters have no key, value and headers.
"""

COPY_OPENED_RECORDS = 50_000
"""The number of records above which a batch is not opened to copy some of them."""

_ASSUMED_RECORD_BYTES = 4096  # to estimate how much of the log to read


class LoopBudgetExceeded(Exception):
    """A batch exceeds what may be opened in this turn of the event loop."""


@dataclass(slots=True)
class LoopBudget:
    """The work for dead letters that one turn of the event loop may still do. By default it has no
    limits, as in a thread.

    :ivar left_bytes: decompressed bytes of batches to open
    :ivar left_records: records of these batches
    """

    left_letters: int = sys.maxsize
    left_bytes: int = sys.maxsize
    left_records: int = sys.maxsize


class Originals:
    """The records of the batches that contain some runs of offsets, each batch opened once.

    Records that were deleted or cannot be read are left out, and so are all that come after
    ``COPY_OPENED_TOGETHER_BYTES`` were opened.

    :param source: the log of the records
    :param runs: ascending
    :ivar records: the records that were read so far, by offset
    """

    def __init__(self, source: PartitionLog, runs: Sequence[Archived]) -> None:
        self.records: dict[int, record_batch.Record] = {}
        self._source = source
        self._runs = runs
        self._left_bytes = COPY_OPENED_TOGETHER_BYTES
        self._piece_bytes = min(COPY_READ_BYTES, offset_count(runs) * _ASSUMED_RECORD_BYTES)
        self._at = 0
        """The first run that was not passed yet."""
        self._position = max(runs[0].first_offset, source.log_start_offset)
        self._end_offset = runs[-1].last_offset + 1

    def read(self) -> bytes | None:
        """Return the next batches of the log for :meth:`open`, None at the end. Belongs to the
        event loop, as the log does.
        """
        if self._position >= self._end_offset:
            return None
        data = self._source.read(self._position, self._piece_bytes)
        if isinstance(data, Refusal) or not data:
            self._give_up("cannot read %s-%d at offset %d for dead letters", self._position)
            return None
        return data

    def prepare(self) -> Callable[[Opening], bool] | None:
        """Return the function that opens the next batches in a thread, None at the end."""
        data = self.read()
        if data is None:
            return None
        return lambda opening: self.open(data, LoopBudget(), opening)

    def open(self, data: bytes, budget: LoopBudget, opening: Opening = OPEN_ANY) -> bool:
        """Take the wanted records of batches that :meth:`read` has returned.

        :param budget: reduced by what is opened
        :param opening: has the pause after each piece
        :return: True if there may be more to read
        :raises LoopBudgetExceeded: when a batch exceeds the budget. The next read begins with it
        """
        begun, runs = self._position, self._runs
        try:
            for start, header in record_batch.headers(data):
                while self._at < len(runs) and runs[self._at].last_offset < header.base_offset:
                    self._at += 1
                if (
                    self._at < len(runs)
                    and runs[self._at].first_offset <= header.last_offset
                    and not header.is_control
                ):
                    if self._left_bytes <= 0:
                        self._give_up(
                            "dead letters of %s-%d have no records from offset %d on: more than %d "
                            "bytes of records would be read at a time",
                            header.base_offset,
                            COPY_OPENED_TOGETHER_BYTES,
                        )
                        break
                    batch = memoryview(data)[start : start + header.size_bytes]
                    self._take(batch, header, budget, opening)
                self._position = header.last_offset + 1
        except record_batch.CorruptBatch as error:  # the length of a batch is damaged
            self._give_up("cannot copy further records of %s-%d: %s", error)
        if self._position <= begun:  # the offsets of a batch are damaged
            self._give_up("cannot copy records of %s-%d from offset %d on", begun)
        return self._position < self._end_offset

    def _take(
        self,
        batch: memoryview,
        header: record_batch.BatchHeader,
        budget: LoopBudget,
        opening: Opening,
    ) -> None:
        """Take the wanted records of a batch. Those before the first one are passed over, unless
        compaction has removed some.

        :raises LoopBudgetExceeded: as :meth:`open`
        """
        max_bytes = min(COPY_OPENED_BYTES, self._left_bytes)
        if header.size_bytes > budget.left_bytes or header.record_count > budget.left_records:
            raise LoopBudgetExceeded
        budget.left_records -= header.record_count
        limit = min(max_bytes, budget.left_bytes)
        opening = Opening(limit, COPY_OPENED_RECORDS, opening.pause)
        runs, at, last = self._runs, self._at, self._end_offset - 1
        is_complete = header.record_count == header.last_offset_delta + 1
        passed = runs[at].first_offset - header.base_offset if is_complete else 0
        opened = 0
        try:
            for index, span in enumerate(record_batch.record_spans(batch, header, opening)):
                opened += span[2] - span[1]
                if index < passed:
                    continue
                record = record_batch.decode_record(*span, header)
                while at + 1 < len(runs) and runs[at].last_offset < record.offset:
                    at += 1
                if runs[at].first_offset <= record.offset <= runs[at].last_offset:
                    self.records[record.offset] = record
                if record.offset >= last:
                    break
        except record_batch.CorruptBatch as error:
            if isinstance(error, record_batch.TooLargeToOpen):
                if limit < max_bytes:
                    budget.left_bytes = 0
                    raise LoopBudgetExceeded from error
                opened = limit
            self._complain("cannot copy records of %s-%d: %s", error)
        self._left_bytes -= opened
        budget.left_bytes -= opened

    def _give_up(self, message: str, *values: object) -> None:
        """Find no further records."""
        self._position = self._end_offset
        self._complain(message, *values)

    def _complain(self, message: str, *values: object) -> None:
        source = self._source
        limited.error(source.path, message, source.topic, source.partition, *values)


class Letter(NamedTuple):
    """One record for the dead-letter queue."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[record_batch.Header, ...]

    @property
    def size_bytes(self) -> int:
        """The upper bound of the letter's size in a batch."""
        size = _OVERHEAD_BYTES + len(self.key or b"") + len(self.value or b"")
        for name, content in self.headers:
            size += _HEADER_OVERHEAD_BYTES + len(name.encode()) + len(content or b"")
        return size


@dataclass(slots=True)
class DeadLetterCounts:
    """Counters of one group since the broker started.

    :ivar writes: batches, including those that failed
    :ivar complained_ms: when the last error or warning was logged
    """

    records: int = metric(
        "kafka_server_sharegroupmetrics_deadletterqueuerecordcount_total",
        "Records written to the dead-letter queue.",
    )
    writes: int = metric(
        "kafka_server_sharegroupmetrics_deadletterqueuetotalproducerequests_total",
        "Batches for the dead-letter queue.",
    )
    failed_writes: int = metric(
        "kafka_server_sharegroupmetrics_deadletterqueuefailedproducerequests_total",
        "Writes to the dead-letter queue that failed.",
    )
    given_up: int = metric(
        "headrace_share_group_given_up_records_total",
        "Records that a group without a dead-letter queue has rejected, or given up at the "
        "delivery limit.",
    )
    complained_ms: int = field(default=-COMPLAINT_MS, compare=False)


@dataclass(frozen=True, slots=True)
class _Writing:
    """The letters that one change of a share-partition needs.

    :ivar counts: the counters of the group; after its deletion :class:`DeadLetters` has new ones
    :ivar runs: the records that become archived
    :ivar details: what a member says of their rejection; may be empty
    :ivar written: the offsets that have a letter already; those of new letters are added
    :ivar originals: the records to copy; None for letters without copies
    """

    key: SharePartitionKey
    counts: DeadLetterCounts
    topic: str
    queue: PartitionLog
    runs: Sequence[Archived]
    details: str
    written: set[int]
    originals: Originals | None
    wall_ms: int

    def batches(self, opening: Opening = OPEN_ANY) -> list[Batch]:
        """Return the letters in batches that the queue takes.

        A letter that is too large alone is written without key, value and headers of the record,
        and without what a member says of its rejection. If it is still too large, the append fails.

        :param opening: has the pause after some letters
        """
        batches: list[Batch] = []
        max_bytes = self.queue.config.max_message_bytes
        together: list[Letter] = []
        size = record_batch.HEADER_BYTES
        for number, letter in enumerate(self._letters(), 1):
            if opening.pause is not None and number % _LETTERS_BETWEEN_PAUSES == 0:
                opening.pause()
            if (
                record_batch.HEADER_BYTES + letter.size_bytes > max_bytes
                and len(_batch([letter], self.wall_ms)[0]) > max_bytes
            ):
                *context, (name, message) = letter.headers[-len(dead_letters.HEADERS) :]
                message = (message or b"").partition(b":")[
                    0
                ]  # a member must not prevent its letter
                letter = Letter(letter.offset, None, None, (*context, (name, message)))
            if together and size + letter.size_bytes > max_bytes:
                batches.append(_batch(together, self.wall_ms))
                together, size = [], record_batch.HEADER_BYTES
            together.append(letter)
            size += letter.size_bytes
        if together:
            batches.append(_batch(together, self.wall_ms))
        return batches

    def _letters(self) -> Iterator[Letter]:
        """Yield a letter for each offset that has none yet. It copies key, value and headers of its
        record if that was read.
        """
        key = self.key
        shared = (
            (dead_letters.TOPIC, self.topic.encode()),
            (dead_letters.PARTITION, str(key.partition).encode()),
        )
        originals = {} if self.originals is None else self.originals.records
        for first, last, delivery_count, reason in self.runs:
            message = MESSAGES[reason]
            if self.details and reason is ArchiveReason.REJECTED:
                message = message.rstrip(b".") + b": " + self.details.encode()
            reasons = (
                (dead_letters.GROUP, key.group_id.encode()),
                (dead_letters.DELIVERY_COUNT, str(delivery_count).encode()),
                (dead_letters.MESSAGE, message),
            )
            for offset in range(first, last + 1):
                if offset in self.written:
                    continue
                context = (*shared, (dead_letters.OFFSET, str(offset).encode()), *reasons)
                original = originals.get(offset)
                if original is None:
                    yield Letter(offset, None, None, context)
                else:
                    headers = (*original.headers, *context)
                    yield Letter(offset, original.key, original.value, headers)


class DeadLetters:
    """Writes dead letters for the share-partitions of a broker.

    :ivar counts: by group
    """

    def __init__(self, environment: Environment) -> None:
        self._clock = environment.clock
        self._config = environment.config
        self._catalog = environment.catalog
        self._logs = environment.logs
        self._opener = environment.opener
        self._serves = environment.serves_dead_letters
        self.counts: defaultdict[str, DeadLetterCounts] = defaultdict(DeadLetterCounts)
        self._copying = asyncio.Lock()
        """Held while letters are built in the thread: only one writer's copies are in memory."""
        self._budget: LoopBudget | None = None
        """The work that this turn of the event loop may still do; None before the first letter."""
        self._tasks: set[asyncio.Future[None]] = set()
        self._is_closed = False

    def due(self, group_id: str, archived: Sequence[Archived]) -> list[Archived]:
        """Return the records that need a dead letter: none in a group without a queue."""
        if not archived or not self._queue_name(group_id):
            return []
        return [run for run in archived if run.reason in MESSAGES]

    async def write(
        self,
        key: SharePartitionKey,
        source: PartitionLog,
        dead: Sequence[Archived],
        written: set[int],
        details: str,
    ) -> None:
        """Write the letters of records, as durable as the flush settings of the queue require.

        If the queue is misconfigured, log an error and write nothing, as Kafka does.

        :param source: the log of the records
        :param written: offsets that are in the queue, or were refused by it, and not archived yet:
            a retry skips them
        :param details: what a member says of its rejection; may be empty
        :raises StorageError: when the disk fails; the records must not be archived
        """
        new = sum(offset not in written for offset in offsets_in(dead))
        if not new and not self._is_closed:
            return
        counts = self.counts[key.group_id]
        queue = self._queue(key, source.topic, self._queue_name(key.group_id))
        if isinstance(queue, Refusal):
            counts.failed_writes += 1
            self._complain(counts, queue.message or "")
            return
        copies = self._config.group_value(key.group_id, COPY_RECORD) == "true"
        originals = Originals(source, dead) if copies else None
        wall_ms = self._clock.wall_ms()
        writing = _Writing(
            key, counts, source.topic, queue, dead, details, written, originals, wall_ms
        )
        if self._fits_turn(new, originals):
            self._append(writing, writing.batches())
        else:
            await self._until_closed(self._write_later(writing))
        # Without a required flush, a power cut could keep the state of the records, which is in
        # another log, and lose the letters.
        if queue.unflushed_records < queue.config.flush_messages:
            return
        if not self._is_closed:
            flush = self._logs.pending_flush()
            try:
                if flush is not None:
                    await self._until_closed(flush)
            except Exception:  # the letters may be lost: a retry writes them again
                written.difference_update(offsets_in(dead))
                raise
            return
        try:  # it may block, as no requests are served any more
            queue.flush()
        except OSError as error:
            raise StorageError(
                f"cannot flush the dead-letter queue {queue.topic}: {error}"
            ) from error

    async def _until_closed(self, steps: Awaitable[None]) -> None:
        """Wait for the end of some steps, which :meth:`close` cancels."""
        task = asyncio.ensure_future(steps)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await task

    def _fits_turn(self, letters: int, originals: Originals | None) -> bool:
        """Return True if this turn of the event loop may write this number of letters. Then the
        records to copy are read. While the broker closes, it may write any number.
        """
        budget = LoopBudget() if self._is_closed else self._budget
        if budget is None:
            budget = self._budget = LoopBudget(
                LETTERS_ON_LOOP, OPENED_ON_LOOP_BYTES, OPENED_ON_LOOP_RECORDS
            )
            asyncio.get_running_loop().call_soon(self._end_turn)
        if letters > budget.left_letters:
            return False
        budget.left_letters -= letters
        try:
            while originals is not None and (data := originals.read()):
                originals.open(data, budget)
        except LoopBudgetExceeded:
            return False
        return True

    def _end_turn(self) -> None:
        self._budget = None

    async def _write_later(self, writing: _Writing) -> None:
        """Read the records to copy on the event loop, a piece at a time, and open them in the
        thread. Build the letters there, too.

        :raises StorageError: when the disk fails
        """
        originals = writing.originals
        async with self._copying:
            if originals is not None:
                while await self._opener.run(originals.prepare):
                    pass
            batches = await self._opener.run(lambda: writing.batches)
            for batch in batches or ():
                self._append(writing, (batch,))
                await asyncio.sleep(0)

    def _append(self, writing: _Writing, batches: Iterable[Batch]) -> None:
        """Append batches of letters, and remember the offsets.

        :raises StorageError: when the disk fails
        """
        queue, counts = writing.queue, writing.counts
        for data, offsets in batches:
            counts.writes += 1
            appended = self._logs.append(queue, data)
            if isinstance(appended, Refusal):
                counts.failed_writes += 1
                message = (
                    f"cannot write to the dead-letter queue {queue.topic}: "
                    f"{appended.message or appended.code.name}"
                )
                if appended.code == ErrorCode.KAFKA_STORAGE_ERROR:
                    raise StorageError(message)
                self._complain(counts, f"{message}, share group: {writing.key.group_id}")
            else:
                counts.records += len(offsets)
            writing.written.update(offsets)

    def _queue_name(self, group_id: str) -> str:
        """Return the topic for a group's dead letters, empty if it has none."""
        return self._config.group_value(group_id, TOPIC_NAME) if self._serves() else ""

    def count_given_up(
        self, key: SharePartitionKey, topic: str, archived: Sequence[Archived]
    ) -> None:
        """Count records that have been given up without a dead-letter queue, and warn of them."""
        given_up = offset_count(run for run in archived if run.reason in MESSAGES)
        if not given_up or self._queue_name(key.group_id):
            return
        counts = self.counts[key.group_id]
        counts.given_up += given_up
        if self._may_complain(counts):
            log.warning(
                "records that share group %s has given up since the broker started: %d, the last "
                "of %s-%d. They were rejected or reached share.delivery.count.limit, and the group "
                "has no dead-letter queue. Set errors.deadletterqueue.topic.name of the group to "
                "keep such records",
                key.group_id,
                counts.given_up,
                topic,
                key.partition,
            )

    def close(self) -> None:
        """Write letters at once from now on, and give up those that are being written."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()

    def _queue(
        self, key: SharePartitionKey, source_topic: str, name: str
    ) -> PartitionLog | Refusal:
        """Return the dead-letter queue's partition for a share-partition, or Kafka's message that
        there is none.

        :raises StorageError: when the queue cannot be created, or its log is offline
        """
        config, group_id = self._config, key.group_id
        topic, problem = self._catalog.topics.get(name), ""
        prefix = config.get_str("errors.deadletterqueue.topic.name.prefix") or ""
        if name.startswith("__"):
            problem = (
                f"Configured DLQ topic name in share group: {group_id} cannot start with __, "
                f"topic: {name}."
            )
        elif name == source_topic:
            problem = (
                f"The DLQ topic of share group: {group_id} is the topic that the records are "
                f"in: {name}."
            )
        elif topic is not None and self._logs.topic_value(name, GROUP_ENABLE) != "true":
            problem = (
                f"DLQ is not enabled on configured DLQ topic for share group: {group_id}, "
                f"topic: {name}"
            )
        elif not name.startswith(prefix):
            problem = (
                "Configured DLQ topic name does not comply with the DLQ topic prefix in share "
                f"group: {group_id}, topic: {name}, prefix: {prefix}"
            )
        elif topic is None and not config.get_bool(
            "errors.deadletterqueue.auto.create.topics.enable"
        ):
            problem = (
                "DLQ topic does not exist and auto create is disabled on cluster for share "
                f"group: {group_id}, topic: {name}."
            )
        elif topic is None and (refusal := self._logs.name_refusal(name)) is not None:
            problem = f"Unable to create the DLQ topic {name}: {refusal.message}"
        if problem:
            return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if topic is None:
            partitions = config.get_int("num.partitions")
            configs = {GROUP_ENABLE: "true", "message.timestamp.type": "CreateTime"}
            try:
                topic = self._logs.create_topic(name, partitions, configs)
            except StorageError as error:
                message = f"cannot create the dead-letter queue {name}: {error}"
                raise StorageError(message) from error
        queue = self._logs.partition(name, key.partition % topic.partitions)
        if isinstance(queue, ErrorCode):
            raise StorageError(f"the dead-letter queue {name} is offline")
        return queue

    def _complain(self, counts: DeadLetterCounts, message: str) -> None:
        if self._may_complain(counts):
            log.error("%s: records are archived without a dead letter", message.rstrip("."))

    def _may_complain(self, counts: DeadLetterCounts) -> bool:
        now_ms = self._clock.now_ms()
        if now_ms - counts.complained_ms < COMPLAINT_MS:
            return False
        counts.complained_ms = now_ms
        return True


def _batch(letters: Sequence[Letter], wall_ms: int) -> Batch:
    records = [(letter.key, letter.value) for letter in letters]
    headers = [letter.headers for letter in letters]
    data = record_batch.build(records, timestamp_ms=wall_ms, headers=headers)
    return data, [letter.offset for letter in letters]
