"""The dead-letter queue of share groups (KIP-1191).

A record that a member rejects, or that has reached the delivery count limit, is first written to
the topic ``errors.deadletterqueue.topic.name`` of its group, and then archived. After a crash in
between it is delivered again, so the queue may get it twice. Headers and errors:
``docs/behaviour/dead-letter-queue.md``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from headrace.errors import ErrorCode, Refusal, StorageError
from headrace.log_lines import LimitedLog, get_logger
from headrace.protocol import dead_letters, record_batch
from headrace.share.records import Archived, ArchiveReason, SharePartitionKey

from .environment import Environment
from .limits import (
    COPY_OPENED_BYTES,
    COPY_OPENED_RECORDS,
    COPY_OPENED_TOGETHER_BYTES,
    COPY_READ_BYTES,
    DEAD_LETTER_COMPLAINT_MS,
)

if TYPE_CHECKING:
    from headrace.groups.settings import Topic
    from headrace.log.partition_log import PartitionLog

log = get_logger("headrace.dead_letters")
limited = LimitedLog(log)

TOPIC_NAME, COPY_RECORD = (
    "errors.deadletterqueue.topic.name",
    "errors.deadletterqueue.copy.record.enable",
)
GROUP_ENABLE = "errors.deadletterqueue.group.enable"

MESSAGES = {
    ArchiveReason.REJECTED: b"Offset rejected by client.",
    ArchiveReason.DELIVERY_LIMIT: b"Offset delivery count exceeded the threshold.",
}
"""Values of the header ``__dlq.errors.message``, as in Kafka. Records that are archived for other
reasons are not dead letters.
"""

OPEN_TO_COPY = record_batch.Opening(COPY_OPENED_BYTES, COPY_OPENED_RECORDS)
"""The limits on opening a batch to copy records of it, on the event loop."""

_ASSUMED_RECORD_BYTES = 4096  # to estimate how much of the log to read
_OVERHEAD_BYTES = 32  # upper bound: a record's attributes, lengths, deltas and header count
_HEADER_OVERHEAD_BYTES = 10


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

    :ivar records: records written to the dead-letter queue
    :ivar writes: batches, including those that failed
    :ivar failed_writes: batches that could not be written
    """

    records: int = 0
    writes: int = 0
    failed_writes: int = 0


@dataclass(slots=True)
class _Budget:
    """The bytes of records that may still be read, decompressed."""

    left_bytes: int


class DeadLetters:
    """Writes dead letters for the share-partitions of a broker.

    :ivar counts: by group
    """

    def __init__(self, environment: Environment) -> None:
        self._clock = environment.clock
        self._config = environment.config
        self._catalog = environment.catalog
        self._logs = environment.logs
        self.counts: dict[str, DeadLetterCounts] = {}
        # Offsets that are in the queue but not archived yet. A retry skips them.
        self._written: dict[SharePartitionKey, set[int]] = {}
        self._complained_ms: dict[str, int] = {}
        self._budget: _Budget | None = None
        """The budget of this turn of the event loop; None if nothing was read in it."""

    def write(
        self, key: SharePartitionKey, source: PartitionLog, archived: Sequence[Archived]
    ) -> None:
        """Write records that are about to be archived to the group's dead-letter queue, if any.

        If the queue is misconfigured, log an error and write nothing, as Kafka does.

        :param source: the log of the records
        :raises StorageError: when the disk fails; the records must not be archived
        """
        config = self._config
        name = config.group_value(key.group_id, TOPIC_NAME)
        dead = [run for run in archived if run.reason in MESSAGES] if name else []
        if not dead:
            return
        counts = self.counts.setdefault(key.group_id, DeadLetterCounts())
        queue = self._queue(key, source.topic, name)
        if isinstance(queue, str):
            counts.failed_writes += 1
            self._complain(key.group_id, queue)
            return
        originals = (
            _originals(source, dead, self._budget_of_turn())
            if config.group_value(key.group_id, COPY_RECORD) == "true"
            else iter(())
        )
        written = self._written.setdefault(key, set())
        letters = _letters(key, source.topic, dead, originals, frozenset(written))
        for data, offsets in _batches(
            letters, queue.config.max_message_bytes, self._clock.wall_ms()
        ):
            counts.writes += 1
            appended = self._logs.append(queue, data)
            if isinstance(appended, Refusal):
                counts.failed_writes += 1
                message = (
                    f"cannot write to the dead-letter queue {name}: "
                    f"{appended.message or appended.code.name}"
                )
                if appended.code == ErrorCode.KAFKA_STORAGE_ERROR:
                    raise StorageError(message)
                self._complain(key.group_id, f"{message}, share group: {key.group_id}")
                continue
            counts.records += len(offsets)
            written.update(offsets)
        self._make_durable(queue)

    def _budget_of_turn(self) -> _Budget:
        if self._budget is None:
            self._budget = _Budget(COPY_OPENED_TOGETHER_BYTES)
            asyncio.get_running_loop().call_soon(self._end_turn)
        return self._budget

    def _end_turn(self) -> None:
        self._budget = None

    def _make_durable(self, queue: PartitionLog) -> None:
        """Force the letters to disk if the flush settings of the queue require it. Otherwise a
        power cut could keep the state of the records, which is in another log, and lose the
        letters.

        :raises StorageError: when the disk fails
        """
        if queue.unflushed_records < queue.config.flush_messages:
            return
        try:
            queue.flush()
        except OSError as error:
            raise StorageError(
                f"cannot flush the dead-letter queue {queue.topic}: {error}"
            ) from error

    def archiving_ended(self, key: SharePartitionKey) -> None:
        """End a :meth:`write`: the records are archived, or cannot be."""
        self._written.pop(key, None)

    def _queue(self, key: SharePartitionKey, source_topic: str, name: str) -> PartitionLog | str:
        """Return the dead-letter queue's partition for a share-partition, or Kafka's message that
        there is none.

        :raises StorageError: when the queue cannot be created, or its log is offline
        """
        config, group_id = self._config, key.group_id
        topic = self._catalog.topics.get(name)
        if name.startswith("__"):
            return (
                f"Configured DLQ topic name in share group: {group_id} cannot start with __, "
                f"topic: {name}."
            )
        if name == source_topic:
            return (
                f"The DLQ topic of share group: {group_id} is the topic that the records are "
                f"in: {name}."
            )
        if topic is not None and self._logs.topic_value(name, GROUP_ENABLE) != "true":
            return (
                f"DLQ is not enabled on configured DLQ topic for share group: {group_id}, "
                f"topic: {name}"
            )
        prefix = config.get_str("errors.deadletterqueue.topic.name.prefix") or ""
        if not name.startswith(prefix):
            return (
                "Configured DLQ topic name does not comply with the DLQ topic prefix in "
                "share group: "
                f"{group_id}, topic: {name}, prefix: {prefix}"
            )
        if topic is None:
            if not config.get_bool("errors.deadletterqueue.auto.create.topics.enable"):
                return (
                    "DLQ topic does not exist and auto create is disabled on cluster for "
                    "share group: "
                    f"{group_id}, topic: {name}."
                )
            created = self._create(name)
            if isinstance(created, str):
                return created
            topic = created
        queue = self._logs.partition_by_name(name, key.partition % topic.partitions)
        if isinstance(queue, ErrorCode):
            raise StorageError(f"the dead-letter queue {name} is offline")
        return queue

    def _create(self, name: str) -> Topic | str:
        refusal = self._logs.name_refusal(name)
        if refusal is not None:
            return f"Unable to create the DLQ topic {name}: {refusal.message}"
        configs = {GROUP_ENABLE: "true", "message.timestamp.type": "CreateTime"}
        try:
            return self._logs.create_topic(name, self._config.get_int("num.partitions"), configs)
        except StorageError as error:
            raise StorageError(f"cannot create the dead-letter queue {name}: {error}") from error

    def _complain(self, group_id: str, message: str) -> None:
        now_ms = self._clock.now_ms()
        if now_ms - self._complained_ms.get(group_id, 0) >= DEAD_LETTER_COMPLAINT_MS:
            self._complained_ms[group_id] = now_ms
            log.error("%s: records are archived without a dead letter", message.rstrip("."))


def _letters(
    key: SharePartitionKey,
    topic: str,
    runs: Iterable[Archived],
    originals: Iterator[record_batch.Record],
    written: frozenset[int],
) -> Iterator[Letter]:
    """Yield a letter for each offset that is not in ``written``. A letter copies key, value and
    headers of its record if that is in ``originals``.
    """
    shared = (
        (dead_letters.TOPIC, topic.encode()),
        (dead_letters.PARTITION, str(key.partition).encode()),
    )
    original = next(originals, None)
    for first, last, delivery_count, reason in runs:
        reasons = (
            (dead_letters.GROUP, key.group_id.encode()),
            (dead_letters.DELIVERY_COUNT, str(delivery_count).encode()),
            (dead_letters.MESSAGE, MESSAGES[reason]),
        )
        for offset in range(first, last + 1):
            while original is not None and original.offset < offset:
                original = next(originals, None)
            if offset in written:
                continue
            context = (*shared, (dead_letters.OFFSET, str(offset).encode()), *reasons)
            if original is not None and original.offset == offset:
                yield Letter(offset, original.key, original.value, (*original.headers, *context))
            else:
                yield Letter(offset, None, None, context)


def _batches(
    letters: Iterator[Letter], max_bytes: int, wall_ms: int
) -> Iterator[tuple[bytes, list[int]]]:
    """Yield batches of at most ``max_bytes``, each with the offsets of its letters.

    A letter that is too large alone is written without key, value and headers of the record. If it
    is still too large, the append fails.
    """
    together: list[Letter] = []
    size = record_batch.HEADER_BYTES
    for letter in letters:
        own = letter.size_bytes
        if (
            record_batch.HEADER_BYTES + own > max_bytes
            and len(_batch([letter], wall_ms)) > max_bytes
        ):
            letter = Letter(letter.offset, None, None, letter.headers[-len(dead_letters.HEADERS) :])
            own = letter.size_bytes
        if together and size + own > max_bytes:
            yield _batch(together, wall_ms), [one.offset for one in together]
            together, size = [], record_batch.HEADER_BYTES
        together.append(letter)
        size += own
    if together:
        yield _batch(together, wall_ms), [one.offset for one in together]


def _batch(letters: Sequence[Letter], wall_ms: int) -> bytes:
    records = [(letter.key, letter.value) for letter in letters]
    return record_batch.build(
        records, timestamp_ms=wall_ms, headers=[letter.headers for letter in letters]
    )


def _originals(
    source: PartitionLog, runs: Sequence[Archived], budget: _Budget
) -> Iterator[record_batch.Record]:
    """Yield the records of the batches that contain ``runs``, ascending, each batch once.

    Records that were deleted or cannot be read are left out, and so are all that come after the
    budget is spent.
    """
    wanted = sum(run.last_offset - run.first_offset + 1 for run in runs)
    last = runs[-1].last_offset
    position = max(runs[0].first_offset, source.log_start_offset)
    at = 0
    while position <= last:
        data = source.read(position, min(COPY_READ_BYTES, wanted * _ASSUMED_RECORD_BYTES))
        if isinstance(data, Refusal) or not data:
            limited.error(
                source.path,
                "cannot read %s-%d at offset %d for dead letters",
                source.topic,
                source.partition,
                position,
            )
            return
        for start, header in record_batch.headers(data):
            while at < len(runs) and runs[at].last_offset < header.base_offset:
                at += 1
            if (
                at < len(runs)
                and runs[at].first_offset <= header.last_offset
                and not header.is_control
            ):
                if budget.left_bytes <= 0:
                    limited.error(
                        source.path,
                        "dead letters of %s-%d have no records from offset %d on: more than %d "
                        "bytes of records would be read at a time",
                        source.topic,
                        source.partition,
                        header.base_offset,
                        COPY_OPENED_TOGETHER_BYTES,
                    )
                    return
                batch = memoryview(data)[start : start + header.size_bytes]
                try:
                    yield from _records_from(batch, header, runs[at].first_offset, budget)
                except record_batch.CorruptBatch as error:
                    limited.error(
                        source.path,
                        "cannot copy records of %s-%d: %s",
                        source.topic,
                        source.partition,
                        error,
                    )
            position = header.last_offset + 1


def _records_from(
    batch: memoryview, header: record_batch.BatchHeader, offset: int, budget: _Budget
) -> Iterator[record_batch.Record]:
    """Yield the records of a batch from ``offset`` on. Those before it are passed over, unless
    compaction has removed some.

    :param budget: reduced by what is read
    :raises CorruptBatch: the batch cannot be read, or is larger than :data:`OPEN_TO_COPY` or the
        budget
    """
    is_complete = header.record_count == header.last_offset_delta + 1
    passed = offset - header.base_offset if is_complete else 0
    before = budget.left_bytes
    opening = OPEN_TO_COPY._replace(max_bytes=min(COPY_OPENED_BYTES, before))
    try:
        for index, span in enumerate(record_batch.record_spans(batch, header, opening)):
            budget.left_bytes -= span[2] - span[1]
            if index >= passed:
                yield record_batch.decode_record(*span, header)
    except record_batch.TooLargeToOpen:
        budget.left_bytes = before - opening.max_bytes
        raise
