"""Redrives: produce the records of dead letters to their sources again.

Records and the progress in the queue are one transaction: after a redrive was ended
in the middle, the next one continues where it was, and readers with ``read_committed`` see each
record once. The progress is stored as committed offsets of a group for this queue
(:mod:`headrace.client.dead_letters.positions`).
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import (
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from headrace.client.errors import ClientError, missing_permission
from headrace.client.read_budget import size_of
from headrace.client.settings import librdkafka_config
from headrace.client.share.spans import Span

from .letters import DeadLetter, LetterFilter
from .librdkafka_errors import client_error, client_errors
from .originals import Comparison, Evidence, Originals
from .positions import MAX_METADATA_CHARS, InvalidMetadata, QueuePosition
from .reading import RECORDS_AT_ONCE, TIMEOUT_S, Bounds, QueueReader, QueueRecord, limits_of

_TRANSACTION_TIMEOUT_MS = 60_000
_TRANSACTION_BYTES = 8 << 20
"""The size of the records after which a transaction ends: over a slow link it takes less time than
its timeout.
"""
_RETRY_PAUSE_S = 0.1
_MAX_RECORD_BYTES = 256 << 20
"""The broker decides which records are too large."""
_OF_ONE_RECORD = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
    }
)
"""Error codes that concern one record: the broker may accept the others."""
_OF_ONE_SOURCE = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
"""Error codes that concern all records of a topic: the broker may accept those of other topics."""
_CONSEQUENCES = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})

_MAX_NAME_CHARS = 249
"""The longest name of a topic; a header may have any text."""
_MAX_SKIPPED = 100
"""The limit of pairs of source and reason: anybody can write letters that name other sources."""
_SAMPLES_OF_KIND = 3
_MAX_SAMPLES = 30
_SAMPLE_BYTES = 500

Progress = Callable[[int, int], None]
"""Called with the number of offsets that were read, and the number to read in all."""


@dataclass(frozen=True, slots=True)
class RedriveOptions:
    """The limits of a redrive.

    :param max_redrives: a record that was redriven this many times before is skipped
    :param records_per_s: the rate; None for no limit
    :param max_records: end after this many redriven records; None for all
    :param settle_skipped: skipped letters count as done: no later redrive reads them
    :param position_group: the group that keeps the progress, and the transactional id; None for
        :func:`position_group` of the queue. Only one redrive of a group runs at a time
    """

    max_redrives: int = 3
    records_per_s: float | None = None
    max_records: int | None = None
    settle_skipped: bool = False
    position_group: str | None = None


def position_group(queue: str) -> str:
    """Return the default group for the progress of redrives of a queue."""
    return f"headrace-redrive-{queue}"


class Sample(NamedTuple):
    """A record that is redriven, as an example of its kind.

    :param source_offset: the offset of the original record
    :param key: the first bytes of the key; ``value`` those of the value
    """

    source: str
    source_partition: int
    source_offset: int
    evidence: Evidence
    key: bytes | None
    value: bytes | None


@dataclass(slots=True)
class RedriveCounts:
    """The counts of a redrive, or of its dry run.

    :ivar redriven: by source topic
    :ivar uncompared: those of them whose original record is gone, by source topic: the content of
        the letter may be that of any writer
    :ivar without_copy: those of them whose content comes from their topic, by source topic
    :ivar samples: some of them, of each source topic and kind
    :ivar skipped: by source topic and reason; of many sources the last ones are "…" together
    :ivar unmatched: letters that the filter does not select
    :ivar done_before: letters that earlier redrives have done
    :ivar not_letters: records of the queue that are no dead letters
    :ivar stopped: True if it was stopped before its end
    """

    redriven: Counter[str] = field(default_factory=Counter)
    uncompared: Counter[str] = field(default_factory=Counter)
    without_copy: Counter[str] = field(default_factory=Counter)
    samples: list[Sample] = field(default_factory=list)
    skipped: Counter[tuple[str, str]] = field(default_factory=Counter)
    unmatched: int = 0
    done_before: int = 0
    not_letters: int = 0
    stopped: bool = False

    @property
    def total(self) -> int:
        """The number of redriven records."""
        return self.redriven.total()

    def add(self, letter: DeadLetter, evidence: Evidence) -> None:
        """Count a redriven letter."""
        topic = letter.source[0]
        self.redriven[topic] += 1
        if evidence is Evidence.UNCOMPARED:
            self.uncompared[topic] += 1
        elif evidence is Evidence.NO_COPY:
            self.without_copy[topic] += 1
        of_kind = sum((one.source, one.evidence) == (topic, evidence) for one in self.samples)
        if len(self.samples) < _MAX_SAMPLES and of_kind < _SAMPLES_OF_KIND:
            key, value = (
                None if data is None else data[:_SAMPLE_BYTES]
                for data in (letter.key, letter.value)
            )
            sample = Sample(*letter.source, letter.source_offset, evidence, key, value)
            self.samples.append(sample)

    def skip(self, source: str, reason: str) -> None:
        """Count a letter that is skipped."""
        source = source[:_MAX_NAME_CHARS]
        if len(self.skipped) >= _MAX_SKIPPED and (source, reason) not in self.skipped:
            source = "…"
        self.skipped[source, reason] += 1


@dataclass(slots=True)
class _Decision:
    """The decision about one record of the queue.

    :ivar letter: the letter to redrive; None for none
    :ivar evidence: what is known about its content
    :ivar is_done: whether later redrives skip the record
    """

    partition: int
    offset: int
    letter: DeadLetter | None = None
    evidence: Evidence = Evidence.UNCOMPARED
    is_done: bool = False


class Redrive:
    """A redrive of one queue.

    :param config: librdkafka's configuration properties
    :param wanted: the letters to redrive
    :ivar group_id: the group that keeps the progress
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        queue: str,
        wanted: LetterFilter,
        options: RedriveOptions,
    ) -> None:
        self._config = config
        self._queue = queue
        self.wanted = wanted
        self.options = options
        self.group_id = options.position_group or position_group(queue)
        self.planned_ends: Mapping[int, int] | None = None
        """The exclusive ends of the last plan in each partition; None before the first one."""

    def plan(self, stop: threading.Event, progress: Progress | None = None) -> RedriveCounts:
        """Read the queue, and return what :meth:`run` would do. It then does no more than that:
        letters that come later were not seen by anybody.

        :param stop: set it to end early
        :raises ClientError: the queue cannot be read
        """
        with ExitStack() as opened:
            self.planned_ends = None
            pass_ = _Pass(self._open(opened), opened.enter_context(Originals(self._config)), self)
            counts = pass_.over_queue(stop, progress)
            self.planned_ends = pass_.ends
            return counts

    def run(self, stop: threading.Event, progress: Progress | None = None) -> RedriveCounts:
        """Redrive.

        :param stop: set it to end after the current transaction
        :raises ClientError: a broker refuses or does not answer, or another redrive with the same
            group has begun; the current transaction is aborted
        """
        with ExitStack() as opened:
            reader = self._open(opened)
            # Raise before another redrive is fenced.
            reader.bounds(reader.partition_counts(), self.wanted.partitions)
            # Abort the open transaction of an earlier run, and fence that run, before the progress
            # is read.
            sender = _Sender(self._config, self.group_id, reader)
            pass_ = _Pass(reader, opened.enter_context(Originals(self._config)), self, sender)
            return pass_.over_queue(stop, progress)

    def _open(self, opened: ExitStack) -> QueueReader:
        return opened.enter_context(QueueReader(self._config, self._queue, self.group_id))


def read_positions(
    reader: QueueReader, group_id: str, bounds: Mapping[int, Bounds]
) -> dict[int, QueuePosition]:
    """Return the progress in each partition; without a commit it begins with the first record.

    :param group_id: the group of the reader
    :raises ClientError: no broker answers, or the group is used for something else
    """
    reader.check_group()
    asked = [TopicPartition(reader.queue, number) for number in bounds]
    what = f"reading the offsets of group '{group_id}'"
    with client_errors(what, f"READ on group '{group_id}'"):
        committed = reader.consumer.committed(asked, timeout=TIMEOUT_S)
        for one in committed:
            if one.error is not None:
                raise KafkaException(one.error)
    positions = {}
    for one in committed:
        first, _ = bounds[one.partition]
        try:
            position = QueuePosition.read(max(one.offset, 0), one.metadata or "")
        except InvalidMetadata as error:
            raise ClientError(f"{what}: it is used for something else: {error}") from error
        if one.offset < first:
            position.add([(0, first - 1)])
        positions[one.partition] = position
    return positions


class _Pass:
    """One pass over the queue.

    :param sender: None for a plan
    """

    def __init__(
        self,
        reader: QueueReader,
        originals: Originals,
        redrive: Redrive,
        sender: _Sender | None = None,
    ) -> None:
        self._reader = reader
        self._originals = originals
        self._wanted = redrive.wanted
        self._planned_ends = redrive.planned_ends
        self.ends: Mapping[int, int] = {}
        """Partition → the exclusive end of what is read."""
        self._options = redrive.options
        self._group_id = redrive.group_id
        self._sender = sender
        self._counts = RedriveCounts()
        self._sources = reader.sources()
        self._refused: dict[str, str] = {}
        """Source topic → why the broker refuses all its records."""
        self._bounds = reader.bounds(self._sources.partition_counts, redrive.wanted.partitions)
        self._positions = read_positions(reader, redrive.group_id, self._bounds)
        self._cursors: dict[int, int] = {}
        """Partition → the offset after the last record that was decided."""
        self._uncommitted: set[int] = set()
        self._committed = dict(self._positions)

    def over_queue(self, stop: threading.Event, progress: Progress | None) -> RedriveCounts:
        starts, ends = limits_of(self._bounds, self._wanted)
        if self._planned_ends is not None:
            ends = {n: min(end, self._planned_ends.get(n, 0)) for n, end in ends.items()}
        self.ends = ends
        starts = {
            number: max(start, self._positions[number].start) for number, start in starts.items()
        }
        self._cursors = dict(starts)
        total = sum(max(0, ends[number] - start) for number, start in starts.items())
        rate = self._options.records_per_s
        most = RECORDS_AT_ONCE if rate is None else min(RECORDS_AT_ONCE, max(1, int(rate)))
        began_s = time.monotonic()
        for chunk in self._reader.chunks(starts, ends, stop, most):
            for part in _parts(self._decided(chunk, stop)):
                self._settle(part)
                if progress is not None:
                    read = sum(self._cursors[number] - start for number, start in starts.items())
                    progress(min(read, total), total)
                if stop.is_set():
                    break
            if self._counts.total == self._options.max_records:
                break
            if rate is not None and self._sender is not None:
                due_s = began_s + self._counts.total / rate
                stop.wait(max(0.0, due_s - time.monotonic()))
        else:
            self._counts.stopped = stop.is_set()
        if self._uncommitted:
            self._commit([], {number: self._positions[number] for number in self._uncommitted})
        return self._counts

    def _decided(self, chunk: Sequence[QueueRecord], stop: threading.Event) -> Iterator[_Decision]:
        """Decide about the records of a chunk, up to ``max_records`` redriven records, or a stop.

        Each is counted when it is taken.
        """
        selected = [
            letter
            for _, _, letter in chunk
            if letter is not None
            and self._selects(letter)
            and not self._positions[letter.partition].is_done(letter.offset)
            and self._source_obstacle(letter) is None
        ]
        compared = {(letter.partition, letter.offset) for letter in selected}
        comparisons = self._originals.compare(selected)
        left = None
        if self._options.max_records is not None:
            left = self._options.max_records - self._counts.total
        for number, offset, letter in chunk:
            if left == 0:
                break
            comparison = next(comparisons) if (number, offset) in compared else None
            if stop.is_set():
                break
            one = _Decision(number, offset)
            if self._positions[one.partition].is_done(one.offset):
                self._counts.done_before += 1
                one.is_done = True
            elif letter is None:
                self._counts.not_letters += 1
            elif not self._selects(letter):
                self._counts.unmatched += 1
            else:
                self._decide(one, letter, comparison)
            if one.letter is not None and left is not None:
                left -= 1
            yield one

    def _selects(self, letter: DeadLetter) -> bool:
        """Return whether a letter is selected; one without a copy, whatever key its record has."""
        return self._wanted.selects(letter) and (
            not letter.has_content or self._wanted.selects_key(letter)
        )

    def _decide(self, one: _Decision, letter: DeadLetter, comparison: Comparison | None) -> None:
        reason = self._source_obstacle(letter)
        if reason is None:
            assert comparison is not None
            letter, one.evidence, reason = comparison
        if letter.has_content and not self._wanted.selects_key(letter):
            self._counts.unmatched += 1
            return
        if reason is None and letter.redrives >= self._options.max_redrives:
            times = "once" if letter.redrives == 1 else f"{letter.redrives} times"
            reason = f"redriven {times} before"
        if reason is None:
            one.letter, one.is_done = letter, True
        else:
            self._skip(one, letter.source[0], reason)

    def _skip(self, one: _Decision, source: str, reason: str) -> None:
        one.letter, one.is_done = None, self._options.settle_skipped
        self._counts.skip(source, reason)

    def _source_obstacle(self, letter: DeadLetter) -> str | None:
        """Return why the source of a letter gets no records; None if it may get them."""
        return self._sources.obstacle(letter) or self._refused.get(letter.source[0])

    def _settle(self, decided: Sequence[_Decision]) -> None:
        """Redrive the letters of a part of a chunk, and commit the progress, in one transaction.

        If the broker refuses a record or a source, each record gets a transaction of its own.
        """
        letters = [one.letter for one in decided if one.letter is not None]
        positions = self._advanced(decided)
        if letters:
            refusal = self._commit(letters, positions)
            if refusal is not None:
                self._settle_singly(decided, refusal)
                return
        else:
            self._uncommitted.update(
                number
                for number, position in positions.items()
                if position.metadata() != self._positions[number].metadata()
                or position.start != self._positions[number].start
            )
        self._positions.update(positions)
        for one in decided:
            self._cursors[one.partition] = one.offset + 1
            if one.letter is not None:
                self._counts.add(one.letter, one.evidence)

    def _settle_singly(self, decided: Sequence[_Decision], refusal: KafkaError) -> None:
        sending = [one for one in decided if one.letter is not None]
        if len(sending) > 1:
            for one in decided:
                topic = one.letter.source[0] if one.letter is not None else ""
                if topic in self._refused:
                    self._skip(one, topic, self._refused[topic])
                self._settle([one])
            return
        letter = sending[0].letter
        assert letter is not None
        topic = letter.source[0]
        reason = f"refused by the broker: {refusal.name()}"
        advice = missing_permission(refusal.code(), f"WRITE on topic '{topic}'")
        if advice is not None:
            reason = f"{reason}: {advice}"
        if refusal.code() in _OF_ONE_SOURCE:
            self._refused[topic] = reason
        self._skip(sending[0], topic, reason)
        self._settle(decided)

    def _advanced(self, decided: Iterable[_Decision]) -> dict[int, QueuePosition]:
        """Return the positions after a part of a chunk.

        :raises ClientError: one is too large to be committed
        """
        spans: dict[int, list[Span]] = {}
        cursors = dict(self._cursors)
        for one in decided:
            number = one.partition
            if one.is_done:
                # Offsets without a record before it, such as markers, are done, too.
                spans.setdefault(number, []).append((cursors[number], one.offset))
            cursors[number] = one.offset + 1
        positions = {n: self._positions[n].with_done(done) for n, done in spans.items()}
        for number, position in positions.items():
            if len(position.metadata()) > MAX_METADATA_CHARS:
                raise ClientError(
                    f"{self._reader.queue}-{number}: letters remain in too many separate places "
                    f"from offset {position.start} on to keep the progress: redrive those first, "
                    "with a wider filter, or settle the skipped ones"
                )
        return positions

    def _commit(
        self, letters: Sequence[DeadLetter], positions: Mapping[int, QueuePosition]
    ) -> KafkaError | None:
        """Commit a transaction; do nothing in a plan.

        :returns: the refusal of a record or a source, after which nothing is committed; else None
        """
        if self._sender is None:
            return None
        refusal = self._sender.send(letters, positions)
        if refusal is None:
            self._uncommitted -= positions.keys()
            self._committed.update(positions)
        else:
            self._restart(self._sender)
        return refusal

    def _restart(self, sender: _Sender) -> None:
        """Begin new transactions after a refused record.

        :raises ClientError: another redrive has committed something meanwhile
        """
        sender.restart()
        for number, position in read_positions(self._reader, self._group_id, self._bounds).items():
            known = self._committed[number]
            if (position.start, position.done) != (known.start, known.done):
                raise _fenced(self._group_id)


def _parts(decided: Iterable[_Decision]) -> Iterator[list[_Decision]]:
    """Divide decisions into parts, each for one transaction."""
    part: list[_Decision] = []
    size_bytes = 0
    for one in decided:
        part.append(one)
        if one.letter is not None:
            size_bytes += size_of(one.letter.key, one.letter.value, one.letter.headers)
        if size_bytes >= _TRANSACTION_BYTES:
            yield part
            part, size_bytes = [], 0
    if part:
        yield part


class _Sender:
    """The transactions of a redrive.

    :param group_id: the group that keeps the progress, also the transactional id
    :raises ClientError: no broker answers, or it refuses
    """

    def __init__(self, config: Mapping[str, Any], group_id: str, reader: QueueReader) -> None:
        self._queue = reader.queue
        self._group_id = group_id
        self._group = reader.consumer.consumer_group_metadata()
        self._needs = f"WRITE on transactional id '{group_id}'"
        self._config = config
        self.restart()

    def restart(self) -> None:
        """Abort the open transaction, and fence other redrives of the group.

        Create a new producer: after some refusals the old one would repeat sequence numbers.

        :raises ClientError: no broker answers, or it refuses
        """
        with client_errors(f"beginning transactions of '{self._group_id}'", self._needs):
            self._producer = Producer(
                {
                    "log_level": 2,
                    **librdkafka_config(self._config),
                    "transactional.id": self._group_id,
                    "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
                    "message.max.bytes": _MAX_RECORD_BYTES,
                }
            )
            _retried(lambda: self._producer.init_transactions(TIMEOUT_S))

    def send(
        self, letters: Sequence[DeadLetter], positions: Mapping[int, QueuePosition]
    ) -> KafkaError | None:
        """Commit records and positions in one transaction.

        :returns: the refusal of a record or a source, after which :meth:`restart` must follow; else
            None
        :raises ClientError: the transaction failed, and is aborted
        """
        offsets = [
            TopicPartition(self._queue, number, position.start, metadata=position.metadata())
            for number, position in positions.items()
        ]
        try:
            self._producer.begin_transaction()
            refused = self._produce(letters)
            if refused is not None:
                return refused
            if offsets:
                _retried(
                    lambda: self._producer.send_offsets_to_transaction(
                        offsets, self._group, TIMEOUT_S
                    )
                )
            _retried(lambda: self._producer.commit_transaction(TIMEOUT_S))
        except KafkaException as error:
            if letters and error.args[0].code() in _OF_ONE_SOURCE and not error.args[0].fatal():
                return error.args[0]  # of several sources the error does not name the one
            raise self._failure(error) from error
        except ClientError:
            self._abort()
            raise
        return None

    def _produce(self, letters: Sequence[DeadLetter]) -> KafkaError | None:
        """Produce records, and wait until all are acknowledged or one is refused.

        :returns: a refusal that concerns one record or source, or None
        :raises ClientError: another refusal
        """
        errors: list[tuple[str | None, KafkaError]] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None and error.code() not in _CONSEQUENCES:
                errors.append((message.topic(), error))

        for letter in letters:
            source, partition = letter.source
            headers: Any = letter.redriven_headers()
            while not errors:
                try:
                    self._producer.produce(
                        source,
                        letter.value,
                        letter.key,
                        partition,
                        headers=headers,
                        on_delivery=delivered,
                    )
                    break
                except BufferError:  # the queue is full: wait for deliveries
                    self._producer.poll(_RETRY_PAUSE_S)
                except KafkaException as error:
                    if error.args[0].code() not in _OF_ONE_RECORD | _OF_ONE_SOURCE:
                        raise
                    errors.append((source, error.args[0]))
        left = len(letters)
        while not errors and (waiting := self._producer.flush(TIMEOUT_S)) and not errors:
            if waiting >= left:
                raise ClientError("producing: the broker does not answer")
            left = waiting
        for topic, refusal in errors:
            if refusal.code() not in _OF_ONE_RECORD | _OF_ONE_SOURCE:
                raise client_error(
                    f"producing to topic '{topic}'", refusal, f"WRITE on topic '{topic}'"
                )
        return errors[0][1] if errors else None

    def _failure(self, error: KafkaException) -> ClientError:
        kafka_error = error.args[0]
        if kafka_error.code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
            return _fenced(self._group_id)
        if not kafka_error.fatal():
            self._abort()
        needs = self._needs
        if kafka_error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            needs = f"READ on group '{self._group_id}'"
        return client_error("redriving", error, needs)

    def _abort(self) -> None:
        try:
            _retried(lambda: self._producer.abort_transaction(TIMEOUT_S))
        except KafkaException:
            pass  # the broker aborts it after its timeout, or when the next redrive begins


def _fenced(group_id: str) -> ClientError:
    return ClientError(f"another redrive with the group '{group_id}' has begun: this one ends")


def _retried(call: Callable[[], object]) -> None:
    """Call until it succeeds; retry after retriable errors.

    :raises KafkaException: another error, or no success in time
    """
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline_s:
                raise
            time.sleep(_RETRY_PAUSE_S)
