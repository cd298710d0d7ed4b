"""What workers tell of themselves in the topic ``headrace-workers``, and its reading.

A worker writes one record, with its name as key: a JSON object of :class:`WorkerState`, when that
has changed, at most every 2 s, and after 15 s at the latest; without a value when it has ended.
Whoever may write to the topic may write anything: what does not fit the types below is left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from headrace.log_lines import printable
from headrace.positions import Position
from headrace.protocol.partitions import TopicPartition

from .cluster import Cluster, TopicMetadata
from .errors import ClientError, raised
from .offsets import offsets_of_positions
from .partition_reader import PartitionReader
from .records import Record

WORKERS_TOPIC = "headrace-workers"
OLD_MS = 30_000
"""The age of a state after which its numbers are old: two reports have not come."""
GONE_MS = 60_000
"""The age of a state after which its worker counts as gone: it was killed, or reaches no broker."""
MAX_RUNNING, MAX_FAILURES = 50, 10
"""The running records and the last failures in one state."""
MAX_TEXT_CHARS = 300
MAX_TASKS, MAX_TOPICS = 100, 20
MAX_STATE_BYTES = 64 * 1024
MAX_STATES_BYTES, MAX_WORKERS = 8 * 1024 * 1024, 2_000
"""The states that are kept, as they were written; the oldest one is forgotten first."""

_FORGOTTEN_MS = 600_000
_FIRST_MS = 2 * GONE_MS
"""The age of the oldest records that are read."""
_MAX_PARTITIONS = 16
_LOOK_BYTES = 16 * 1024 * 1024
"""What is read in one look; the next look continues."""
_RECORD_BYTES = 100
"""What a record counts besides its value."""
_RECORDS_AT_ONCE = 200

COUNTERS = {
    "done": "records whose functions have returned",
    "failed": "attempts that have raised, and records that do not decode",
    "retried": "records that were given back to be tried again",
    "dead_letters": "records that became dead letters",
    "rejected": "records that could not be processed, and have no dead-letter queue",
    "expired": "records that were not processed, because they came too late",
    "late": "functions that have ended after their records were given up",
}
"""What a worker counts of each task, and its meaning."""
GAUGES = {
    "running": "records whose functions run",
    "slots": "how many records are processed at once",
    "occupancy": "busy share of the slots over the last 15 s",
    "waiting": "records that were given back, and are due later",
}
"""What else a worker measures of each task."""

TaskKey = tuple[str, str]
"""The names of a task and its group."""
Text = Annotated[str, Meta(max_length=MAX_TEXT_CHARS)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Rate = Annotated[float, Meta(ge=0, le=1e12)]
Share = Annotated[float, Meta(ge=0, le=1)]


@dataclass(frozen=True, slots=True)
class RunningRecord:
    """A record whose function runs.

    :param attempt: from 1
    :param since_ms: when it began, since the epoch
    """

    topic: Text
    partition: Count
    offset: Count
    attempt: Count
    since_ms: Count


@dataclass(frozen=True, slots=True)
class Failure:
    """A record that could not be processed.

    :param attempt: the number of the attempt that has failed
    :param reason: the exception, or why the record was rejected
    :param fate: what becomes of the record
    """

    time_ms: Count
    topic: Text
    partition: Count
    offset: Count
    attempt: Count
    reason: Text
    fate: Text


@dataclass(frozen=True, slots=True)
class TaskState:
    """A task of a worker: :data:`COUNTERS` since the worker's start, :data:`GAUGES`, and rates of
    the last 15 s.

    :param run_in: loop, thread or process
    :param breaker: closed: it works; open: it pauses, as most records fail; probing: one is tried
    :param breaker_reason: the last failure, unless closed
    :param records: those that have run longest
    :param failures: the newest first
    """

    task: Text
    group_id: Text
    topics: Annotated[tuple[Text, ...], Meta(max_length=MAX_TOPICS)]
    dead_letter_queue: Text | None
    run_in: Text
    slots: Count
    running: Count
    occupancy: Share
    done: Count
    failed: Count
    retried: Count
    dead_letters: Count
    rejected: Count
    late: Count
    expired: Count
    waiting: Count
    done_per_s: Rate
    failed_per_s: Rate
    retried_per_s: Rate
    breaker: Literal["closed", "open", "probing"]
    breaker_reason: Text
    records: Annotated[tuple[RunningRecord, ...], Meta(max_length=MAX_RUNNING)]
    failures: Annotated[tuple[Failure, ...], Meta(max_length=MAX_FAILURES)]


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A worker.

    :param worker: its name
    :param is_stopping: it takes no more records
    """

    worker: Text
    started_ms: Count
    is_stopping: bool
    tasks: Annotated[tuple[TaskState, ...], Meta(max_length=MAX_TASKS)]


@dataclass(frozen=True, slots=True)
class SeenWorker:
    """The newest state of a worker.

    :param seen_ms: when it was written
    :param size_bytes: as it was written
    :param age_ms: since then, until it was looked at
    """

    state: WorkerState
    seen_ms: int
    size_bytes: int
    age_ms: int = 0

    @property
    def is_gone(self) -> bool:
        """Whether it has told nothing for longer than :data:`GONE_MS`."""
        return self.age_ms > GONE_MS


def shortened(text: str) -> str:
    """Return a text as a state may have it: printable, and not too long."""
    text = printable(text, MAX_TEXT_CHARS)
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[: MAX_TEXT_CHARS - 3]}..."


_WORST_FIRST = ("open", "probing", "closed")
_SUMMED = [*COUNTERS, "slots", "running", "waiting", "done_per_s", "failed_per_s", "retried_per_s"]
_DECODER = msgspec.json.Decoder(WorkerState)


def encode(state: WorkerState) -> bytes:
    """Return the value of a worker's record."""
    return msgspec.json.encode(state)


def decode(record: Record) -> WorkerState | None:
    """Return the state in a record; None if it has none."""
    if record.value is None or len(record.value) > MAX_STATE_BYTES:
        return None
    try:
        state = _DECODER.decode(record.value)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return state if state.worker.encode() == record.key else None


def by_task(workers: Iterable[SeenWorker]) -> dict[TaskKey, list[tuple[SeenWorker, TaskState]]]:
    """Return the workers of each task, and what they do of it."""
    states: dict[TaskKey, list[tuple[SeenWorker, TaskState]]] = {}
    for worker in workers:
        for state in worker.state.tasks:
            states.setdefault((state.task, state.group_id), []).append((worker, state))
    return states


def summed(
    states: Sequence[tuple[SeenWorker, TaskState]],
) -> tuple[int, int | None, TaskState]:
    """Return how many workers of a task are not gone, the age of their oldest numbers in ms if that
    is more than :data:`OLD_MS`, and the sums over these.

    Its breaker is the worst one; records and failures are left out.
    """
    live = [state for worker, state in states if not worker.is_gone]
    age_ms = max((worker.age_ms for worker, _ in states if not worker.is_gone), default=0)
    sums: dict[str, Any] = {name: sum(getattr(state, name) for state in live) for name in _SUMMED}
    slots = sums["slots"]
    none = replace(states[-1][1], breaker="closed", breaker_reason="")
    worst = min(live, key=lambda state: _WORST_FIRST.index(state.breaker), default=none)
    total = replace(
        worst,
        **sums,
        occupancy=sum(state.occupancy * state.slots for state in live) / slots if slots else 0.0,
        records=(),
        failures=(),
    )
    return len(live), age_ms if age_ms > OLD_MS else None, total


class WorkerWatch:
    """The workers of a cluster, as they tell in their topic.

    Each look reads what was written since the last one, and bounded amounts of it.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._reader: PartitionReader | None = None
        self._workers: dict[bytes, SeenWorker] = {}
        """By name; in the order of their newest states."""
        self._states_bytes = 0

    async def look(self) -> list[SeenWorker]:
        """Return the workers, by name; none if there is no topic.

        :raises ClientError: the topic cannot be read; the next look tries it anew
        """
        now_ms = time.time_ns() // 1_000_000
        try:
            await self._read(now_ms)
        except ClientError:
            self._reader = None
            raise
        seen = []
        for name, worker in list(self._workers.items()):
            age_ms = now_ms - worker.seen_ms
            if age_ms > _FORGOTTEN_MS:
                self._forget(name)
            else:
                seen.append(replace(worker, age_ms=age_ms))
        return sorted(seen, key=lambda worker: worker.state.worker)

    async def look_or_tell(self, problems: list[str]) -> list[SeenWorker]:
        """Return the workers; none if the topic cannot be read.

        :param problems: gets why
        """
        try:
            return await self.look()
        except ClientError as error:
            problems.append(f"the workers are unknown: {error}")
            return []

    async def _read(self, now_ms: int) -> None:
        if self._reader is None:
            positions = await self._positions(now_ms)
            if not positions:
                self._workers.clear()
                self._states_bytes = 0
                return
            self._reader = PartitionReader(self._cluster, positions, {}, 0)
        left_bytes = _LOOK_BYTES
        while left_bytes > 0 and (records := await self._reader.read(_RECORDS_AT_ONCE, 0)):
            for record in records:
                left_bytes -= _RECORD_BYTES + len(record.value or b"")
                self._take(record, now_ms)

    async def _positions(self, now_ms: int) -> dict[TopicPartition, int]:
        topic = (await self._cluster.metadata([WORKERS_TOPIC])).get(WORKERS_TOPIC)
        if not isinstance(topic, TopicMetadata):  # a cluster hides topics from who may not see them
            return {}
        numbers = sorted(topic.leaders)[:_MAX_PARTITIONS]
        recent = Position(time_ms=now_ms - _FIRST_MS)
        positions = {(WORKERS_TOPIC, number): recent for number in numbers}
        return raised(await offsets_of_positions(self._cluster, positions))

    def _take(self, record: Record, now_ms: int) -> None:
        name = record.key or b""
        if record.value is None:
            self._forget(name)
        elif (state := decode(record)) is not None:
            self._forget(name)
            # A producer may choose the time of its record.
            seen_ms = min(record.timestamp_ms, now_ms)
            self._workers[name] = SeenWorker(state, seen_ms, len(record.value))
            self._states_bytes += len(record.value)
            while self._states_bytes > MAX_STATES_BYTES or len(self._workers) > MAX_WORKERS:
                self._forget(next(iter(self._workers)))

    def _forget(self, name: bytes) -> None:
        worker = self._workers.pop(name, None)
        if worker is not None:
            self._states_bytes -= worker.size_bytes
