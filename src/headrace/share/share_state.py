"""The share coordinator: the durable state of every share-partition, in ``__share_group_state``.

The leader of a share-partition (:mod:`headrace.share.share_partition`) writes changes. The
coordinator merges them, so that a restarted leader reads one consistent state: the start offset,
and the records after it that are finished or wait for redelivery. Acquired records are never
stored. Source: KIP-932, "Share group state persistence"; KIP-1226 for the delivery-complete count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from uuid import UUID

from headrace.deadlines import RETRY_MS
from headrace.groups.catalog import TopicCatalog
from headrace.outcome import NOWHERE, Outcome, Position, Unapplied
from headrace.protocol.errors import ErrorCode, Refusal, invalid_request
from headrace.protocol.internal_topics import SHARE_GROUP_STATE
from headrace.share.records import (
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    UNKNOWN,
    SharePartitionKey,
    ShareRecord,
    ShareSnapshot,
    ShareTombstone,
    ShareUpdate,
    StateBatch,
)
from headrace.share.spans import Run, Spans

from . import records

NOT_HOSTED = Refusal(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
)
NEGATIVE_PARTITION = invalid_request("The partition id cannot be a negative number.")
NEGATIVE_LEADER_EPOCH = invalid_request("The leader epoch cannot be a negative number.")
NEGATIVE_STATE_EPOCH = invalid_request("The state epoch cannot be a negative number.")
READ_UNINITIALIZED = invalid_request("Read operation on uninitialized share partition not allowed.")
WRITE_UNINITIALIZED = invalid_request(
    "Write operation on uninitialized share partition not allowed."
)
FENCED_LEADER_EPOCH = Refusal(
    ErrorCode.FENCED_LEADER_EPOCH,
    "The leader epoch in the request is older than the epoch on the broker.",
)
FENCED_STATE_EPOCH = Refusal(
    ErrorCode.FENCED_STATE_EPOCH,
    "The coordinator rejected the request because the state epoch did not match.",
)

_PRUNE, _SWEEP = "prune", "sweep"

COLD_SNAPSHOTS_AT_ONCE = 200
"""The number of cold snapshots that are written before other requests are served."""

SWEEP_AFTER_RECORDS, SWEEP_AFTER_RECORDS_EACH = 20_000, 20
"""A sweep starts early after this many records, plus this many for each share-partition. This
bounds the log that a restart has to read."""


UNSOUND_BATCH = invalid_request(
    "A state batch must have offsets in order, a state of 0, 2 or 4, and a delivery count that is "
    "not negative."
)


@dataclass(slots=True)
class ShareState:
    """The merged state of one share-partition; by default that of an unknown one.

    ``lag = end offset - start_offset - delivery_complete_count``; unknown while either is -1.

    :ivar start_offset: if it is -1, the leader resolves ``share.auto.offset.reset``
    :ivar batches: spans of (delivery count, delivery state). The order of the pair makes ``max``
        the merge rule: the higher delivery count wins, at an equal count the greater state
    :ivar updates: update records since the last snapshot
    """

    snapshot_epoch: int = -1
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = UNKNOWN
    delivery_complete_count: int = UNKNOWN
    create_timestamp_ms: int = 0
    batches: Spans[tuple[int, int]] = field(default_factory=Spans)
    updates: int = 0

    def merge(self, state_batches: Sequence[StateBatch]) -> None:
        """Merge batches into the state, and drop everything below the start offset."""
        start = self.start_offset
        self.batches.drop_below(start)
        runs: list[Run[tuple[int, int]]] = []
        for first, last, state, count in sorted(state_batches):
            if last < start:
                continue
            if runs and runs[-1][1] >= first:  # batches of one request may overlap
                self._raise(runs)
                runs = []
            runs.append((max(first, start), last, (count, state)))
        if runs:
            self._raise(runs)

    def _raise(self, runs: Sequence[Run[tuple[int, int]]]) -> None:
        """Set the values of ``runs`` (ascending, disjoint) where they are greater."""
        batches = self.batches
        overlapped = batches.within(runs[0][0], runs[-1][1])
        greater: list[Run[tuple[int, int]]] = []
        # Usually these are earlier deliveries, if there are any.
        if overlapped and max(old[2] for old in overlapped) > min(run[2] for run in runs):
            greater = [
                old
                for first, last, value in runs
                for old in batches.within(first, last)
                if old[2] > value
            ]
        batches.paint(runs)
        batches.paint(greater)

    def apply(self, update: ShareUpdate) -> None:
        """Apply an update."""
        self.leader_epoch = update.leader_epoch
        self.delivery_complete_count = update.delivery_complete_count
        self.updates += 1
        if update.start_offset != UNKNOWN:
            self.start_offset = update.start_offset
        self.merge(update.state_batches)

    def next_snapshot(self, key: SharePartitionKey, wall_ms: int) -> ShareSnapshot:
        """Return the snapshot that follows the present one."""
        return ShareSnapshot(
            key,
            self.snapshot_epoch + 1,
            self.state_epoch,
            self.leader_epoch,
            self.start_offset,
            self.create_timestamp_ms,
            wall_ms,
            self.state_batches,
            self.delivery_complete_count,
        )

    @property
    def state_batches(self) -> tuple[StateBatch, ...]:
        """The merged batches, ascending."""
        return tuple(
            StateBatch(first, last, state, count) for first, last, (count, state) in self.batches
        )


def combined(
    state_batches: Sequence[StateBatch], start_offset: int
) -> tuple[StateBatch, ...] | Refusal:
    """Return the batches of one write as ascending and disjoint batches. They may come in any order
    and overlap.

    Offsets below ``start_offset`` are left out. An invalid batch is refused.
    """
    for first, last, state, count in state_batches:
        if not 0 <= first <= last or state not in (AVAILABLE, ACKNOWLEDGED, ARCHIVED) or count < 0:
            return UNSOUND_BATCH
    merged = ShareState(start_offset=start_offset)
    merged.merge(state_batches)
    return merged.state_batches


@dataclass(slots=True)
class _Shard:
    """The share-partitions with state in one partition of the internal topic.

    :ivar latest: offset and time of the latest snapshot of each, in the order of offsets
    :ivar cold_before_ms: snapshots written up to this time are being written again
    """

    latest: dict[SharePartitionKey, tuple[int, int]] = field(default_factory=dict)
    end_offset: int = 0
    cold_before_ms: int = field(default=-1, compare=False)

    @property
    def redundant_offset(self) -> int:
        return next(iter(self.latest.values()))[0] if self.latest else self.end_offset

    def gains_from(self, cold_before_ms: int) -> bool:
        """Return True if writing the cold snapshots again lets at least as many other records be
        deleted.
        """
        cold, redundant_to = 0, self.end_offset
        for offset, written_ms in self.latest.values():
            if written_ms > cold_before_ms:
                redundant_to = offset
                break
            cold += 1
        return cold > 0 and redundant_to - self.redundant_offset >= 2 * cold

    def cold(self) -> Iterator[SharePartitionKey]:
        for key, (_, written_ms) in self.latest.items():
            if written_ms > self.cold_before_ms:
                return
            yield key


@dataclass(slots=True)
class Snapshots:
    """The positions of the latest snapshots of all share-partitions, one dictionary entry for each.

    All records before the first of these positions are outdated and can be deleted. An old snapshot
    of an idle share-partition would prevent that, so it is written again, at the end of the log,
    once it is *cold*: older than a limit.
    """

    _shards: defaultdict[int, _Shard] = field(default_factory=lambda: defaultdict(_Shard))

    def replay(self, record: ShareRecord, at: Position) -> None:
        """Note a record at position ``at``."""
        shard = self._shards[at.partition]
        shard.end_offset = at.offset + 1
        if not isinstance(record, ShareUpdate):
            shard.latest.pop(record.key, None)  # put a snapshot at the end
        if isinstance(record, ShareSnapshot):
            shard.latest[record.key] = (at.offset, record.write_timestamp)

    def deletable(self) -> tuple[Position, ...]:
        """Return a position for each partition of the internal topic; all records before it can be
        deleted.
        """
        return tuple(
            Position(partition, shard.redundant_offset) for partition, shard in self._shards.items()
        )

    def begin_sweep(self, cold_before_ms: int) -> None:
        """Make :meth:`sweep` return the share-partitions without a snapshot since
        ``cold_before_ms``, in partitions where this lets enough records be deleted.
        """
        for shard in self._shards.values():
            if shard.gains_from(cold_before_ms):
                shard.cold_before_ms = cold_before_ms

    def sweep(self, limit: int) -> list[tuple[SharePartitionKey, ...]]:
        """Return at most ``limit`` share-partitions to write snapshots of, one tuple for each
        partition of the internal topic.
        """
        cold = []
        for shard in self._shards.values():
            keys = tuple(islice(shard.cold(), limit))
            if keys:
                cold.append(keys)
                limit -= len(keys)
        return cold


class ShareCoordinator:
    """All share state, by share-partition. Commands decide; only :meth:`replay` changes state.

    :param catalog: all topics
    :param snapshot_update_records: the number of updates after which the next write is a snapshot
        (``share.coordinator.snapshot.update.records.per.snapshot``)
    :param cold_interval_ms: the age at which the last snapshot of a share-partition is written
        again (``share.coordinator.cold.partition.snapshot.interval.ms``)
    :param prune_interval_ms: the interval at which outdated records are deleted
        (``share.coordinator.state.topic.prune.interval.ms``)
    """

    topic = SHARE_GROUP_STATE

    def __init__(
        self,
        catalog: TopicCatalog,
        snapshot_update_records: int = 500,
        cold_interval_ms: int = 300_000,
        prune_interval_ms: int = 300_000,
    ) -> None:
        self._catalog = catalog
        self.snapshot_update_records = snapshot_update_records
        self._interval_ms = {_PRUNE: prune_interval_ms, _SWEEP: cold_interval_ms}
        self._states: dict[SharePartitionKey, ShareState] = {}
        self._by_topic: dict[UUID, set[SharePartitionKey]] = {}
        self._snapshots = Snapshots()
        # Timers of the steady clock, started after the first snapshot and stopped when no state is
        # left.
        self._due_ms: dict[str, int] = {}
        self._starts_timers = False
        self._not_before_ms = 0  # after an append that failed
        self._since_sweep = 0  # records replayed since the last sweep

    def state(self, key: SharePartitionKey) -> ShareState:
        """Return the state of a share-partition, known or unknown, for reading."""
        return self._states.get(key) or ShareState()

    def known_keys(self) -> Collection[SharePartitionKey]:
        """Return the keys of all states."""
        return self._states.keys()

    # --- commands ---

    def initialize(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        start_offset: int,
        wall_ms: int,
    ) -> Outcome[ShareRecord, Refusal | None]:
        """Initialise a share-partition, or initialise it again.

        :param start_offset: -1 leaves it to ``share.auto.offset.reset``
        """
        if refusal := _negative(key, state_epoch=state_epoch) or self._not_hosted(key):
            return Outcome(refusal)
        state = self.state(key)
        if state.state_epoch > state_epoch:
            return Outcome(FENCED_STATE_EPOCH)
        snapshot = ShareSnapshot(
            key,
            snapshot_epoch=state.snapshot_epoch + 1,
            state_epoch=state_epoch,
            leader_epoch=0,
            start_offset=start_offset,
            create_timestamp=wall_ms,
            write_timestamp=wall_ms,
            delivery_complete_count=UNKNOWN if start_offset == UNKNOWN else 0,
        )
        return Outcome(None, (snapshot,))

    def read(
        self, key: SharePartitionKey, leader_epoch: int, wall_ms: int
    ) -> Outcome[ShareRecord, ShareState | Refusal]:
        """Return the state for a leader of ``leader_epoch``. A higher epoch than the stored one is
        stored.
        """
        if refusal := _negative(key, leader_epoch):
            return Outcome(refusal)
        state = self._states.get(key)
        if state is None:
            return Outcome(READ_UNINITIALIZED)
        if state.leader_epoch > leader_epoch:
            return Outcome(FENCED_LEADER_EPOCH)
        if refusal := self._not_hosted(key):
            return Outcome(refusal)
        if leader_epoch == state.leader_epoch:
            return Outcome(state)
        update = ShareUpdate(
            key,
            state.snapshot_epoch,
            leader_epoch,
            state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
        )
        return Outcome(state, (self._record(state, update, wall_ms),))

    def write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        state_batches: tuple[StateBatch, ...],
        wall_ms: int,
    ) -> Outcome[ShareRecord, Refusal | None]:
        """Store a change. The start offset only goes up, and at one start offset the
        delivery-complete count does.

        :param state_batches: ascending and disjoint, as :func:`combined` makes them
        """
        if refusal := _negative(key, leader_epoch, state_epoch):
            return Outcome(refusal)
        state = self._states.get(key)
        if state is None:
            return Outcome(WRITE_UNINITIALIZED)
        if state.leader_epoch > leader_epoch:
            return Outcome(FENCED_LEADER_EPOCH)
        if state.state_epoch > state_epoch:
            return Outcome(FENCED_STATE_EPOCH)
        if refusal := self._not_hosted(key):
            return Outcome(refusal)
        start_offset, delivery_complete_count = max(
            (start_offset, delivery_complete_count),
            (state.start_offset, state.delivery_complete_count),
        )
        update = ShareUpdate(
            key,
            state.snapshot_epoch,
            state.leader_epoch,
            start_offset,
            state_batches,
            delivery_complete_count,
        )
        return Outcome(None, (self._record(state, update, wall_ms),))

    def delete(self, key: SharePartitionKey) -> Outcome[ShareRecord, Refusal | None]:
        """Delete the state of a share-partition, if there is any."""
        if refusal := self._not_hosted(key):
            return Outcome(refusal)
        return Outcome(None, (ShareTombstone(key),) if key in self._states else ())

    def summary(self, key: SharePartitionKey) -> ShareState | Refusal:
        """Return the :meth:`state` of a share-partition of an existing topic."""
        return self._not_hosted(key) or self.state(key)

    def topic_deleted(self, topic_id: UUID) -> Iterable[tuple[str, Outcome[ShareRecord, None]]]:
        """Return tombstones for all share-partitions of a deleted topic, as (coordinator key,
        outcome) pairs.
        """
        keys = sorted(self._by_topic.get(topic_id, ()))
        return [(str(key), Outcome(None, (ShareTombstone(key),))) for key in keys]

    def _not_hosted(self, key: SharePartitionKey) -> Refusal | None:
        topic = self._catalog.topics_by_id.get(key.topic_id)
        if key.partition < 0:
            return NEGATIVE_PARTITION
        return NOT_HOSTED if topic is None or key.partition >= topic.partitions else None

    def _record(self, state: ShareState, update: ShareUpdate, wall_ms: int) -> ShareRecord:
        """Return an update, or, after enough updates, a snapshot with the update merged in."""
        if state.updates < self.snapshot_update_records:
            return update
        merged = replace(state, create_timestamp_ms=wall_ms, batches=Spans())
        merged.batches.paint(list(state.batches))
        merged.apply(update)
        return merged.next_snapshot(update.key, wall_ms)

    # --- the coordinator's side of recovery, see headrace.outcome.Coordinator ---

    encode = staticmethod(records.encode)
    decode = staticmethod(records.decode)

    def replay(self, record: ShareRecord, at: Position = NOWHERE) -> None:
        """Apply one durable record.

        :param at: the position of the record
        """
        key = record.key
        self._since_sweep += 1
        self._snapshots.replay(record, at)
        if isinstance(record, ShareUpdate):
            state = self._states.get(key)
            # else its snapshot was deleted; a later one or a tombstone follows
            if state is not None:
                state.apply(record)
        elif isinstance(record, ShareSnapshot):
            self._replay_snapshot(record)
        else:
            if self._states.pop(key, None) is not None:
                keys = self._by_topic[key.topic_id]
                keys.discard(key)
                if not keys:
                    del self._by_topic[key.topic_id]

    def _replay_snapshot(self, record: ShareSnapshot) -> None:
        key = record.key
        state = self._states[key] = ShareState(
            record.snapshot_epoch,
            record.state_epoch,
            record.leader_epoch,
            record.start_offset,
            record.delivery_complete_count,
            record.create_timestamp,
        )
        state.merge(record.state_batches)
        self._by_topic.setdefault(key.topic_id, set()).add(key)
        # Only expire() knows the steady time; the one in the record is another clock's.
        self._starts_timers = len(self._due_ms) < 2

    # --- time ---

    def next_deadline_ms(self) -> int | None:
        """Return when :meth:`expire` is due: at once to start the timers, or when the log is too
        long.
        """
        if self._starts_timers or self._is_long():
            return self._not_before_ms
        return max(min(self._due_ms.values()), self._not_before_ms) if self._due_ms else None

    def expire(self, now_ms: int, wall_ms: int) -> Iterable[tuple[str, Outcome[ShareRecord, None]]]:
        """Delete outdated records of the internal topic, and write new snapshots of cold
        share-partitions.
        """
        unapplied = Unapplied()
        for key, outcome in self._due(now_ms, wall_ms):
            yield key, unapplied.watch(outcome)
        self._not_before_ms = now_ms + RETRY_MS if unapplied.count else 0

    def _due(self, now_ms: int, wall_ms: int) -> Iterable[tuple[str, Outcome[ShareRecord, None]]]:
        if self._starts_timers:
            self._starts_timers = False
            for timer, interval_ms in self._interval_ms.items():
                self._due_ms.setdefault(timer, now_ms + interval_ms)
        if self._is_due(_PRUNE, now_ms):
            yield "", Outcome(None, deletable=self._snapshots.deletable())
            self._restart(_PRUNE, now_ms)
        if self._is_long():
            yield from self._sweep(now_ms, wall_ms, wall_ms - 1)
        elif self._is_due(_SWEEP, now_ms):
            yield from self._sweep(now_ms, wall_ms, wall_ms - self._interval_ms[_SWEEP])

    def _is_due(self, timer: str, now_ms: int) -> bool:
        return timer in self._due_ms and self._due_ms[timer] <= now_ms

    def _restart(self, timer: str, now_ms: int) -> None:
        self._due_ms.pop(timer, None)
        if self._states:
            self._due_ms[timer] = now_ms + self._interval_ms[timer]

    def _is_long(self) -> bool:
        return self._since_sweep > SWEEP_AFTER_RECORDS + SWEEP_AFTER_RECORDS_EACH * len(
            self._states
        )

    def _sweep(
        self, now_ms: int, wall_ms: int, cold_before_ms: int
    ) -> Iterable[tuple[str, Outcome[ShareRecord, None]]]:
        """Write at most ``COLD_SNAPSHOTS_AT_ONCE`` snapshots of cold share-partitions. The sweep
        stays due while there are more.

        After the last one the outdated records are deleted.
        """
        keys = self._snapshots.sweep(COLD_SNAPSHOTS_AT_ONCE)
        if not keys:
            self._snapshots.begin_sweep(cold_before_ms)
            keys = self._snapshots.sweep(COLD_SNAPSHOTS_AT_ONCE)
        for cold in keys:
            snapshots = tuple(self._states[key].next_snapshot(key, wall_ms) for key in cold)
            yield str(cold[0]), Outcome(None, snapshots)
        if not self._snapshots.sweep(1):
            yield "", Outcome(None, deletable=self._snapshots.deletable())
            self._restart(_SWEEP, now_ms)
            self._since_sweep = 0


def _negative(
    key: SharePartitionKey, leader_epoch: int = 0, state_epoch: int = 0
) -> Refusal | None:
    if key.partition < 0:
        return NEGATIVE_PARTITION
    if leader_epoch < 0:
        return NEGATIVE_LEADER_EPOCH
    if state_epoch < 0:
        return NEGATIVE_STATE_EPOCH
    return None
