"""A share-partition with a log and a share coordinator around it, as the broker wires them; without
a broker.
"""

from __future__ import annotations

from uuid import UUID

from headrace.share.acknowledgement import AcknowledgementBatch
from headrace.share.records import Archived, SharePartitionKey
from headrace.share.settings import ShareSettings
from headrace.share.share_partition import SharePartition
from headrace.share.share_state import ReadState, ShareCoordinator

KEY = SharePartitionKey("g", UUID(int=1), 0)


class Shelf:
    """One share-partition, driven in plain words.

    :param start_offset: the persisted start offset
    """

    def __init__(self, start_offset: int = 0, **settings: int | bool) -> None:
        self.settings = ShareSettings(**settings)
        self.now_ms = 0
        self.log: list[tuple[int, int]] = []  # (base offset, last offset) of each log batch
        self.log_start = 0
        self.aborted: list[
            tuple[int, int]
        ] = []  # which of the log batches aborted transactions wrote
        self.archived: list[Archived] = []
        self.records: list[tuple[bytes, bytes | None]] = []  # the topic of the share coordinator
        self.coordinator = ShareCoordinator(snapshot_update_records=3)
        self._submit(self.coordinator.initialize(KEY, 1, start_offset, 0, 1))
        self.summary_before_any_write = self.coordinator.summary(KEY, 1)
        self.restart()

    def _submit(self, outcome):
        for record in outcome.records:
            self.records.append(self.coordinator.encode(record))
            self.coordinator.replay(self.coordinator.decode(*self.records[-1]))
        return outcome.reply

    def apply(self, outcome):
        """Persist an outcome's updates, then replay them; as the broker does."""
        for update in outcome.records:
            refusal = self._submit(
                self.coordinator.write(
                    KEY,
                    1,
                    0,
                    update.start_offset,
                    update.delivery_complete_count,
                    update.state_batches,
                    self.now_ms,
                    1,
                )
            )
            assert refusal is None
            self.partition.replay(update)
            self.archived += update.archived
        return outcome.reply

    def restart(self) -> None:
        """Replay the coordinator's records into a new one, and load the share-partition from it."""
        self.coordinator = ShareCoordinator(snapshot_update_records=3)
        for key, value in self.records:
            self.coordinator.replay(self.coordinator.decode(key, value))
        state = self._submit(self.coordinator.read(KEY, 0, self.now_ms, 1))
        assert isinstance(state, ReadState)
        self.partition = SharePartition(max(state.start_offset, 0), state.state_batches)

    def partition_state(self):
        """The persisted batches, ascending."""
        state = self._submit(self.coordinator.read(KEY, 0, self.now_ms, 1))
        assert isinstance(state, ReadState)
        return state.state_batches

    @property
    def end(self) -> int:
        return self.log[-1][1] + 1 if self.log else 0

    @property
    def lag(self) -> int:
        """By KIP-1226, from what is persisted."""
        summary = self.coordinator.summary(KEY, 1)
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
            max_records,
            batch_size,
            self.now_ms,
            self.settings,
            record_limit=record_limit,
            aborted=aborted,
        )
        return [tuple(run) for run in acquired]

    def ack(self, *batches, member="m", renew=False):
        """ShareAcknowledge of (first, last, type or [types]): None, or the refusal."""
        typed = [
            AcknowledgementBatch(first, last, [types] if isinstance(types, int) else types)
            for first, last, types in batches
        ]
        return self.apply(
            self.partition.acknowledge(member, typed, self.now_ms, self.settings, renew=renew)
        )

    def close(self, member="m") -> None:
        self.apply(self.partition.release(member, self.now_ms, self.settings))

    def wait(self, ms: int) -> None:
        """Let time pass, deadline by deadline."""
        until = self.now_ms + ms
        while (deadline := self.partition.next_deadline_ms()) is not None and deadline <= until:
            self.now_ms = deadline
            self.apply(self.partition.expire(deadline, self.settings))
        self.now_ms = until
