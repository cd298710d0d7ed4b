"""A share-partition with its coordinators over a log in memory; without a broker."""

from __future__ import annotations

from types import MappingProxyType, SimpleNamespace
from uuid import UUID

from headrace.coordinators.clock import Clock
from headrace.coordinators.coordinators import Coordinators
from headrace.coordinators.environment import Environment
from headrace.coordinators.share_partitions import LoadedPartition
from headrace.protocol.errors import Refusal
from headrace.share.acknowledgement import AcknowledgementBatch, AcknowledgeTerms
from headrace.share.records import Archived, SharePartitionKey, StateBatch, StateUpdate
from headrace.share.settings import FetchLimits, ShareSettings
from headrace.share.share_partition import SharePartition
from tests.memory_log import MemoryLog
from tests.turns import Meters, Turns

KEY = SharePartitionKey("g", UUID(int=1), 0)
CONFIG = {
    "share.coordinator.snapshot.update.records.per.snapshot": 3,
    "share.coordinator.cold.partition.snapshot.interval.ms": 300_000,
    "share.coordinator.state.topic.prune.interval.ms": 300_000,
    "share.auto.offset.reset": "earliest",
    "errors.deadletterqueue.topic.name": "",
}


class Shelf:
    """One share-partition, driven in plain words.

    :ivar disk: the topic of the share coordinator, which fails on command
    """

    def __init__(self, **settings: int | bool) -> None:
        self.settings = ShareSettings(**settings)
        self.now_ms = 0
        self.log: list[tuple[int, int]] = []  # (base offset, last offset) of each log batch
        self.log_start = 0
        # which of the log batches aborted transactions wrote
        self.aborted: list[tuple[int, int]] = []
        self.archived: list[Archived] = []
        self.waiting: list[StateUpdate] = []  # for their dead letters, the first one first
        self.disk = MemoryLog()
        self.coordinators = self._coordinators()
        states = self.coordinators.share_state_runtime
        with self.loop.turn():
            states.write_now(str(KEY), self.coordinator.initialize(KEY, 1, 0, 0))
        self.restart()

    def _coordinators(self) -> Coordinators:
        self.loop = Turns()
        topic = SimpleNamespace(name="t", topic_id=KEY.topic_id, partitions=1)
        environment = Environment(
            clock=Clock(lambda: self.now_ms, lambda: self.now_ms),
            config=SimpleNamespace(
                get_int=CONFIG.__getitem__, group_value=lambda group_id, name: CONFIG[name]
            ),
            catalog=SimpleNamespace(topics_by_id=MappingProxyType({KEY.topic_id: topic})),
            internal_logs=self.disk,
            logs=SimpleNamespace(
                partition=lambda topic_id, partition: SimpleNamespace(topic="t", log_start_offset=0)
            ),
            meters=Meters(),
            notify=lambda key: None,
            opener=None,
        )
        return Coordinators(environment)

    @property
    def coordinator(self):
        return self.coordinators.share_state

    @property
    def partition(self) -> SharePartition:
        return self.loaded.partition

    def apply(self, update: StateUpdate | None) -> None:
        """Have an update written, then replayed."""
        with self.loop.turn():
            assert self.coordinators.share.persist(self.loaded, update) is None
        if update is not None:
            self.archived += update.archived

    def restart(self) -> None:
        """Load the share-partition from what the disk has kept."""
        self.coordinators = self._coordinators()
        with self.loop.turn():
            self.coordinators.load()
            loaded = self.coordinators.share.load(KEY)
        assert isinstance(loaded, LoadedPartition)
        self.loaded = loaded
        self.waiting = []

    def states(self) -> list[StateBatch]:
        """The states of all records between start and end offset."""
        return [StateBatch(*run[:4]) for run in self.partition.in_flight_spans()]

    def partition_state(self):
        """The persisted batches, ascending."""
        return self.coordinator.read(KEY, 0, self.now_ms).reply.state_batches

    @property
    def end(self) -> int:
        return self.log[-1][1] + 1 if self.log else 0

    @property
    def lag(self) -> int:
        """By KIP-1226, from what is persisted."""
        summary = self.coordinator.summary(KEY)
        return self.end - summary.start_offset - summary.delivery_complete_count

    def produce(self, *sizes: int) -> None:
        for size in sizes:
            self.log.append((self.end, self.end + size - 1))

    def fetch(
        self,
        member="m",
        max_records=10_000,
        batch_size=10_000,
        record_limit=False,
        log_batches=10_000,
    ):
        """ShareFetch: [(first, last, delivery count)]."""
        self.apply(self.partition.move_start(self.log_start))
        offset = self.partition.fetch_offset(self.settings)
        read = (
            []
            if offset is None
            else [batch for batch in self.log if batch[1] >= offset][:log_batches]
        )
        if read and read[0][0] > offset:
            self.apply(self.partition.skip_missing(read[0][0]))
        aborted = (
            [batch for batch in read if batch in self.aborted]
            if self.settings.read_committed
            else ()
        )
        acquired = self.partition.acquire(
            member,
            read,
            FetchLimits(1, max_records, batch_size, record_limit),
            self.now_ms,
            self.settings,
            aborted,
        )
        return [tuple(run) for run in acquired]

    def ack(self, *batches, member="m", waits=False, **terms):
        """ShareAcknowledge of (first, last, type or [types]): None, or the refusal.

        :param waits: its dead letters are not written yet
        """
        typed = [
            AcknowledgementBatch(first, last, [types] if isinstance(types, int) else types)
            for first, last, types in batches
        ]
        update = self.partition.acknowledge(
            member, typed, self.now_ms, self.settings, AcknowledgeTerms(**terms)
        )
        if isinstance(update, Refusal):
            return update
        if not waits:
            self.apply(update)
        elif update is not None:
            self.partition.start_archiving(update)
            self.waiting.append(update)
        return None

    def end_letters(self, *, are_written: bool) -> None:
        """The letters that wait longest are written, or cannot be."""
        update = self.waiting.pop(0)
        if are_written:
            self.apply(self.partition.archived(update))
        else:
            self.partition.stop_archiving(update.changes)

    def close(self, member="m") -> None:
        self.release(self.partition.locks.held_by(member))

    def release(self, locks) -> None:
        self.apply(self.partition.release(locks, self.now_ms, self.settings))

    def expire(self) -> None:
        self.partition.available.end_backoffs(self.now_ms)
        self.release(self.partition.locks.expired(self.now_ms))

    def wait(self, ms: int) -> None:
        """Let time pass, deadline by deadline."""
        until = self.now_ms + ms
        while (deadline := self.partition.next_deadline_ms()) is not None and deadline <= until:
            self.now_ms = deadline
            self.expire()
        self.now_ms = until
