"""Redrives: produce the records of dead letters to their sources again.

Records and the progress in the queue are one transaction: after a redrive was ended
in the middle, the next one continues where it was, and readers with ``read_committed`` see each
record once. The progress is stored as committed offsets of a group for this queue
(:mod:`headrace.client.dead_letters.letters`).
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from headrace.client.config import Settings, librdkafka_config
from headrace.client.errors import (
    ClientError,
    ConnectionFailed,
    RequestRefused,
    error_line,
    missing_permission,
)
from headrace.client.partition_reader import size_of
from headrace.client.share.spans import Span

from .letters import MAX_METADATA_CHARS, DeadLetter, LetterFilter, Positions, position_group
from .originals import Evidence, find_sources
from .reading import RECORDS_AT_ONCE, TIMEOUT_S, Bounds, QueueReader, QueueRecord, selected_ranges

_TRANSACTION_BYTES = 8 << 20
"""The size of the records after which a transaction ends: over a slow link it takes less time than
its timeout.
"""
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
    """

    max_redrives: int = 3
    records_per_s: float | None = None
    max_records: int | None = None
    settle_skipped: bool = False


@dataclass(slots=True)
class RedriveCounts:
    """The counts of a redrive, or of its dry run.

    :ivar redriven: by source topic
    :ivar uncompared: those of them whose original record is gone, by source topic: the content of
        the letter may be that of any writer
    :ivar samples: some of them, of each source topic and kind, with the first bytes of key and
        value
    :ivar skipped: by source topic and reason; of many sources the last ones are "…" together
    :ivar others: records that are neither, by what they are: ``not selected`` by the filter, ``done
        before`` by earlier redrives, or ``not dead letters``
    :ivar stopped: True if it was stopped before its end
    """

    redriven: Counter[str] = field(default_factory=Counter)
    uncompared: Counter[str] = field(default_factory=Counter)
    samples: list[tuple[DeadLetter, Evidence]] = field(default_factory=list)
    skipped: Counter[tuple[str, str]] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    stopped: bool = False

    @property
    def total(self) -> int:
        """The number of redriven records."""
        return self.redriven.total()

    def outcomes(self) -> list[tuple[str, int, str, str | None]]:
        """Return source, count, outcome and reason of the letters that are not among the others."""
        return [
            *((source, count, "redriven", None) for source, count in sorted(self.redriven.items())),
            *(
                (source, count, "of these", Evidence.UNCOMPARED)
                for source, count in sorted(self.uncompared.items())
            ),
            *(
                (source, count, "skipped", reason)
                for (source, reason), count in sorted(self.skipped.items())
            ),
        ]

    def add(self, letter: DeadLetter, evidence: Evidence) -> None:
        """Count a redriven letter."""
        topic = letter.source[0]
        self.redriven[topic] += 1
        if evidence is Evidence.UNCOMPARED:
            self.uncompared[topic] += 1
        kinds = [(sample.source[0], of_sample) for sample, of_sample in self.samples]
        if len(kinds) < _MAX_SAMPLES and kinds.count((topic, evidence)) < _SAMPLES_OF_KIND:
            key, value = (
                None if data is None else data[:_SAMPLE_BYTES]
                for data in (letter.key, letter.value)
            )
            sample = letter._replace(key=key, value=value, headers=(), message=None, traceback=None)
            self.samples.append((sample, evidence))

    def skip(self, source: str, reason: str) -> None:
        """Count a letter that is skipped."""
        source = source[:_MAX_NAME_CHARS]
        if len(self.skipped) >= _MAX_SKIPPED and (source, reason) not in self.skipped:
            source = "…"
        self.skipped[source, reason] += 1


class _Decision(NamedTuple):
    """The decision about one record of the queue.

    :param letter: the letter to redrive; None for none
    :param evidence: what is known about its content
    :param is_done: whether later redrives skip the record
    """

    record: QueueRecord
    letter: DeadLetter | None = None
    evidence: Evidence = Evidence.UNCOMPARED
    is_done: bool = False


@dataclass(slots=True)
class Redrive:
    """A redrive of one queue.

    :param config: librdkafka's configuration properties
    :param selection: the letters to redrive
    :ivar planned_ends: the exclusive ends of the last plan in each partition; None before the
        first one
    """

    config: Settings
    queue: str
    selection: LetterFilter
    options: RedriveOptions
    planned_ends: Mapping[int, int] | None = None

    @property
    def group_id(self) -> str:
        """The group that keeps the progress."""
        return position_group(self.queue)

    def plan(self, stop: threading.Event, progress: Progress | None = None) -> RedriveCounts:
        """Read the queue, and return what :meth:`run` would do. It then does no more than that:
        letters that come later were not seen by anybody.

        :param stop: set it to end early
        :raises ClientError: the queue cannot be read
        """
        self.planned_ends = None
        with QueueReader(self.config, self.queue) as reader:
            pass_ = _Pass(reader, None, self)
            counts = pass_.run(stop, progress)
        self.planned_ends = {number: bounds.end for number, bounds in pass_.ranges.items()}
        return counts

    def run(self, stop: threading.Event, progress: Progress | None = None) -> RedriveCounts:
        """Redrive.

        :param stop: set it to end after the current transaction
        :raises ClientError: a broker refuses or does not answer, or another redrive with the same
            group has begun; the current transaction is aborted
        """
        with QueueReader(self.config, self.queue) as reader:
            reader.bounds(self.selection.partitions)  # raises before another redrive is fenced
            # Abort the open transaction of an earlier run, and fence that run, before the progress
            # is read.
            sender = Sender(self.config, self.queue)
            return _Pass(reader, sender, self).run(stop, progress)


class _Pass:
    """One pass over the queue.

    :param sender: None for a plan
    """

    def __init__(self, reader: QueueReader, sender: Sender | None, redrive: Redrive) -> None:
        self._reader = reader
        self._sender = sender
        self._selection = redrive.selection
        self._options = redrive.options
        self._counts = RedriveCounts()
        self._sources = reader.wait(find_sources(reader.cluster, reader.queue))
        self._refused: dict[str, str] = {}
        """Source topic → why the broker refuses all its records."""
        self._bounds = reader.bounds(redrive.selection.partitions)
        self._committed = reader.positions(self._bounds)
        self._positions = dict(self._committed)
        ends = redrive.planned_ends
        self.ranges = {
            number: Bounds(
                max(first, self._positions[number].start),
                end if ends is None else min(end, ends.get(number, 0)),
            )
            for number, (first, end) in selected_ranges(self._bounds, self._selection).items()
        }
        """What is read of each partition."""
        self._cursors = {number: first for number, (first, _) in self.ranges.items()}
        """Partition → the offset after the last record that was decided."""

    def run(self, stop: threading.Event, progress: Progress | None) -> RedriveCounts:
        rate = self._options.records_per_s
        most = RECORDS_AT_ONCE if rate is None else min(RECORDS_AT_ONCE, max(1, int(rate)))
        total = sum(max(0, end - first) for first, end in self.ranges.values())
        began_s, begin = time.monotonic(), sum(self._cursors.values())
        for part in _parts(self._decisions(stop, most), most):
            self._settle(part, stop)
            if progress is not None:
                progress(min(sum(self._cursors.values()) - begin, total), total)
            if rate is not None and self._sender is not None:
                due_s = began_s + self._counts.total / rate
                stop.wait(max(0.0, due_s - time.monotonic()))
        is_full = self._counts.total == self._options.max_records
        self._counts.stopped = stop.is_set() and not is_full
        self._commit([], self._positions)
        return self._counts

    def _decisions(self, stop: threading.Event, most: int) -> Iterator[_Decision]:
        """Decide about the records of the queue, up to ``max_records`` redriven records, or a stop.

        Each is counted when it is taken.
        """
        redriven = 0
        for record in self._reader.records(self.ranges, stop, most):
            if redriven == self._options.max_records or stop.is_set():
                return
            decision = self._decide(record)
            redriven += decision.letter is not None
            yield decision

    def _selects(self, letter: DeadLetter) -> bool:
        """Return whether a letter is selected; one without a copy, whatever key its record has."""
        return self._selection.selects(letter) and (
            not letter.has_content or self._selection.selects_key(letter)
        )

    def _decide(self, record: QueueRecord) -> _Decision:
        letter, others = record.letter, self._counts.others
        if self._positions[record.partition].is_done(record.offset):
            others["done before"] += 1
            return _Decision(record, is_done=True)
        if letter is None:
            others["not dead letters"] += 1
            return _Decision(record)
        evidence, reason = Evidence.UNCOMPARED, None
        if self._selects(letter):
            reason = self._sources.obstacle(letter) or self._refused.get(letter.source[0])
            if reason is None:
                letter, evidence, reason = self._reader.compare(letter)
        if not self._selects(letter):
            others["not selected"] += 1
            return _Decision(record)
        if reason is None and letter.redrives >= self._options.max_redrives:
            times = "once" if letter.redrives == 1 else f"{letter.redrives} times"
            reason = f"redriven {times} before"
        if reason is not None:
            return self._skipped(record, letter.source[0], reason)
        return _Decision(record, letter, evidence, is_done=True)

    def _skipped(self, record: QueueRecord, source: str, reason: str) -> _Decision:
        self._counts.skip(source, reason)
        return _Decision(record, is_done=self._options.settle_skipped)

    def _settle(self, decisions: Sequence[_Decision], stop: threading.Event) -> None:
        """Redrive letters, and commit the progress, in one transaction.

        If the broker refuses a record or a source, each record gets a transaction of its own, up to
        a stop.
        """
        letters = [decision.letter for decision in decisions if decision.letter is not None]
        positions = self._advanced(decisions)
        refusal = self._commit(letters, positions) if letters else None
        if refusal is None:
            self._positions = positions
            for decision in decisions:
                self._cursors[decision.record.partition] = decision.record.offset + 1
                if decision.letter is not None:
                    self._counts.add(decision.letter, decision.evidence)
            return
        is_alone, topic = len(letters) == 1, letters[0].source[0]
        reason = f"refused by the broker: {refusal.name()}"
        if is_alone:
            if advice := missing_permission(refusal.code(), f"WRITE on topic '{topic}'"):
                reason = f"{reason}: {advice}"
            if refusal.code() in OF_ONE_SOURCE:
                self._refused[topic] = reason
        for decision in decisions:
            if stop.is_set():
                return
            if decision.letter is not None:
                topic = decision.letter.source[0]
                if is_alone or topic in self._refused:
                    reason = self._refused.get(topic, reason)
                    decision = self._skipped(decision.record, topic, reason)
            self._settle([decision], stop)

    def _advanced(self, decisions: Iterable[_Decision]) -> Positions:
        """Return the positions of all partitions after some records.

        :raises ClientError: one is too large to be committed
        """
        spans: dict[int, list[Span]] = {}
        cursors = dict(self._cursors)
        for decision in decisions:
            number, offset = decision.record.partition, decision.record.offset
            if decision.is_done:
                # Offsets without a record before it, such as markers, are done, too.
                spans.setdefault(number, []).append((cursors[number], offset))
            cursors[number] = offset + 1
        positions = dict(self._positions)
        for number, done in spans.items():
            position = positions[number] = positions[number].with_done(done)
            if len(position.metadata()) > MAX_METADATA_CHARS:
                raise ClientError(
                    f"{self._reader.queue}-{number}: letters remain in too many separate places "
                    f"from offset {position.start} on to keep the progress: redrive those first, "
                    "with a wider filter, or settle the skipped ones"
                )
        return positions

    def _commit(self, letters: Sequence[DeadLetter], positions: Positions) -> KafkaError | None:
        """Commit letters and the positions that have changed; do nothing in a plan.

        :returns: the refusal of a record or a source, after which nothing is committed; else None
        :raises ClientError: another redrive has committed something meanwhile
        """
        changed = {
            number: position
            for number, position in positions.items()
            if position != self._committed[number]
        }
        if self._sender is None or not (letters or changed):
            return None
        refusal = self._sender.send(letters, changed)
        if refusal is None:
            self._committed.update(changed)
            return None
        self._sender.restart()
        if self._reader.positions(self._bounds) != self._committed:
            raise fenced(self._reader.queue)
        return refusal


def _parts(decisions: Iterable[_Decision], most: int) -> Iterator[list[_Decision]]:
    """Divide decisions into parts, each for one transaction."""
    part: list[_Decision] = []
    size_bytes = 0
    for decision in decisions:
        part.append(decision)
        if (letter := decision.letter) is not None:
            size_bytes += size_of(letter.key, letter.value, letter.headers)
        if size_bytes >= _TRANSACTION_BYTES or len(part) >= most:
            yield part
            part, size_bytes = [], 0
    if part:
        yield part


# Transactions -------------------------------------------------------------------------------------

_TRANSACTION_TIMEOUT_MS = 60_000
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
OF_ONE_SOURCE = frozenset(
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


class Sender:
    """The transactions of a redrive.

    :param config: librdkafka's configuration properties
    :raises ClientError: no broker answers, or it refuses
    """

    def __init__(self, config: Settings, queue: str) -> None:
        self._queue = queue
        self._group_id = position_group(queue)  # also the transactional id
        self._config = {"log_level": 2, **librdkafka_config(config)}
        self.restart()
        # Only a consumer knows how to name its group in a transaction.
        consumer = Consumer({**self._config, "group.id": self._group_id})
        self._group = consumer.consumer_group_metadata()
        consumer.close()

    def restart(self) -> None:
        """Abort the open transaction, and fence other redrives of the group.

        Create a new producer: after some refusals the old one would repeat sequence numbers.

        :raises ClientError: no broker answers, or it refuses
        """
        try:
            self._producer = Producer(
                {
                    **self._config,
                    "transactional.id": self._group_id,
                    "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
                    "message.max.bytes": _MAX_RECORD_BYTES,
                }
            )
            _retried(self._producer.init_transactions)
        except KafkaException as error:
            raise self._client_error(
                f"beginning transactions of '{self._group_id}'", error.args[0]
            ) from error

    def send(self, letters: Sequence[DeadLetter], positions: Positions) -> KafkaError | None:
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
            if (refusal := self._produce(letters)) is not None:
                return refusal
            if offsets:
                _retried(partial(self._producer.send_offsets_to_transaction, offsets, self._group))
            _retried(self._producer.commit_transaction)
        except KafkaException as error:
            problem = error.args[0]
            if problem.code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
                raise fenced(self._queue) from error
            if not problem.fatal():
                if letters and problem.code() in OF_ONE_SOURCE:
                    return problem  # of several sources the error does not name the one
                self._abort()
            raise self._client_error("redriving", problem) from error
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
            topic, partition = letter.source
            headers: Any = letter.redriven_headers()
            while not errors:
                try:
                    self._producer.produce(
                        topic,
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
                    errors.append((topic, error.args[0]))
        unsent = len(letters)
        while not errors and (waiting := self._producer.flush(TIMEOUT_S)) and not errors:
            if waiting >= unsent:
                raise ConnectionFailed("producing: the broker does not answer")
            unsent = waiting
        for source, refusal in errors:
            if refusal.code() not in _OF_ONE_RECORD | OF_ONE_SOURCE:
                raise self._client_error(f"producing to topic '{source}'", refusal)
        return errors[0][1] if errors else None

    def _client_error(self, what: str, problem: KafkaError) -> ClientError:
        if problem.code() <= 0:
            return ConnectionFailed(f"{what}: {error_line(problem)}")
        needs = f"WRITE on transactional id '{self._group_id}'"
        if problem.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            needs = f"READ on group '{self._group_id}'"
        return RequestRefused(what, problem.code(), needs=needs)

    def _abort(self) -> None:
        try:
            _retried(self._producer.abort_transaction)
        except KafkaException:
            pass  # the broker aborts it after its timeout, or when the next redrive begins


def fenced(queue: str) -> ClientError:
    """Return the error of a redrive during which another one has begun."""
    group_id = position_group(queue)
    return ClientError(f"another redrive with the group '{group_id}' has begun: this one ends")


def _retried(call: Callable[[float], object]) -> None:
    """Call until it succeeds; retry after retriable errors.

    :param call: takes a timeout in seconds
    :raises KafkaException: another error, or no success in time
    """
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            call(TIMEOUT_S)
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline_s:
                raise
            time.sleep(_RETRY_PAUSE_S)
