"""The share-partitions of this broker: loaded when first fetched, kept while their groups have sessions.

Between the handlers and the machines: it loads a :class:`SharePartition` from the share coordinator, reads the log for
it, makes its outcomes durable, and wakes who waits. Everything here is volatile; what must last is in the
coordinator.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from headrace.errors import ErrorCode, Refusal
from headrace.log.batch import offset_ranges
from headrace.outcome import Outcome
from headrace.share.acknowledgement import AVAILABLE, AcknowledgementBatch
from headrace.share.acquisition_locks import AcquiredRecords
from headrace.share.records import UNKNOWN, SharePartitionKey, StateUpdate
from headrace.share.settings import ShareSettings, duration_ms
from headrace.share.share_partition import SharePartition
from headrace.share.share_session import ShareSession, ShareSessions
from headrace.share.share_state import ReadState

from .catalog import Topic

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog

    from .broker import Broker

LEADER_EPOCH = 0
"""A single node leads every partition for good."""

_LEAST_READ_BYTES = 64 * 1024
_FIRST_GUESS_BYTES = 1024  # of a record

_NOT_LOADED = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

# What the leader tells its clients of an error of the share coordinator; any other is UNKNOWN_SERVER_ERROR.
_COORDINATOR_ERRORS = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


@dataclass(slots=True, eq=False)
class _Loaded:
    """A share-partition in memory.

    :ivar start_persisted: whether the coordinator knows its start offset; else only this memory does
    :ivar record_bytes: size of a record in the log as last read: how much to read for so many records
    :ivar armed_ms: its entry among the deadlines: not after the first of its locks runs out; None when it has none
    """

    key: SharePartitionKey
    coordinator_key: str
    state_epoch: int
    partition: SharePartition
    log: PartitionLog
    start_persisted: bool
    record_bytes: int = _FIRST_GUESS_BYTES
    armed_ms: int | None = None


class FetchLimits(NamedTuple):
    """What a ShareFetch asks for, of all its partitions together."""

    max_bytes: int
    max_records: int
    batch_size: int
    record_limit: bool


class Fetched(NamedTuple):
    """What a ShareFetch got of one partition: an error, or whole log batches and what of them was acquired."""

    topic_id: UUID
    partition: int
    error_code: ErrorCode
    records: bytes | memoryview = b""
    acquired: Sequence[AcquiredRecords] = ()


class SharePartitions:
    """All share-partitions that this broker has loaded, and the sessions that fetch them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.sessions = ShareSessions()
        self._groups: dict[str, dict[tuple[UUID, int], _Loaded]] = {}
        # A heap of (deadline, serial, share-partition): for each that holds locks, a time not after its next deadline.
        self._deadlines: list[tuple[int, int, _Loaded]] = []
        self._serial = 0

    def settings(self, group_id: str) -> ShareSettings:
        """The group's limits as configured now."""
        group_int = self._broker.config.group_int
        return ShareSettings(
            delivery_count_limit=group_int(group_id, "share.delivery.count.limit"),
            lock_duration_ms=group_int(group_id, "share.record.lock.duration.ms"),
            max_record_locks=group_int(group_id, "share.partition.max.record.locks"),
        )

    # Fetching --------------------------------------------------------------------------------------------------------

    def fetch(self, session: ShareSession, limits: FetchLimits, settings: ShareSettings) -> list[Fetched]:
        """Acquire for a session's member what there is now. Partitions with nothing to acquire are left out."""
        ready: list[tuple[_Loaded, int]] = []
        fetched: list[Fetched] = []
        for topic_id, partition in session.rotated():
            loaded = self._load(session.group_id, topic_id, partition)
            if isinstance(loaded, ErrorCode):
                fetched.append(Fetched(topic_id, partition, loaded))
            elif (offset := self._fetch_offset(loaded, settings)) is not None:
                ready.append((loaded, offset))
        left = limits.max_records
        for loaded, offset in ready:
            if left <= 0:
                break
            most = limits._replace(max_bytes=limits.max_bytes // len(ready), max_records=left)
            records, acquired = self._acquire(loaded, offset, session.member_id, most, settings)
            if acquired:
                fetched.append(Fetched(loaded.key.topic_id, loaded.key.partition, ErrorCode.NONE, records, acquired))
                left -= sum(run.last_offset - run.first_offset + 1 for run in acquired)
        return fetched

    def has_bytes(self, session: ShareSession, min_bytes: int, settings: ShareSettings) -> bool:
        """Whether the log holds at least ``min_bytes`` for the session to acquire."""
        found = 0
        for topic_id, partition in session.partitions:
            loaded = self._load(session.group_id, topic_id, partition)
            if not isinstance(loaded, ErrorCode) and (offset := self._fetch_offset(loaded, settings)) is not None:
                data = loaded.log.read(offset, min_bytes)
                if isinstance(data, Refusal) or not data:
                    continue
                found += len(data)
                # A read that ends before the log does has left out a batch that would have gone over min_bytes.
                if found >= min_bytes or offset_ranges(data)[0][-1][1] + 1 < loaded.log.end_offset:
                    return True
        return False

    def wait_keys(self, session: ShareSession, settings: ShareSettings) -> Iterable[Hashable]:
        """What may give the session something to acquire; see :class:`headrace.broker.waits.Waits`."""
        group = self._groups.get(session.group_id, {})
        for topic_id, partition in session.partitions:
            yield ("share", session.group_id, topic_id, partition)
            loaded = group.get((topic_id, partition))
            if loaded is None or loaded.partition.fetch_offset(settings) is not None:  # full: new records do not help
                yield ("log", topic_id, partition)

    def _load(self, group_id: str, topic_id: UUID, partition: int) -> _Loaded | ErrorCode:
        group = self._groups.get(group_id)
        loaded = group.get((topic_id, partition)) if group is not None else None
        if loaded is not None:
            return loaded
        broker = self._broker
        log = broker.partition(topic_id, partition)
        if isinstance(log, ErrorCode):
            return log
        key = SharePartitionKey(group_id, topic_id, partition)
        outcome = broker.share_state.read(key, LEADER_EPOCH, broker.now_ms(), self._partitions(topic_id))
        state = broker.submit(broker.share_state, str(key), outcome)
        if not isinstance(state, ReadState):
            return _COORDINATOR_ERRORS.get(state.code, ErrorCode.UNKNOWN_SERVER_ERROR)
        start_offset = state.start_offset
        if start_offset == UNKNOWN:
            start_offset = self._reset_offset(group_id, log)
        machine = SharePartition(start_offset, state.state_batches)
        loaded = _Loaded(key, str(key), state.state_epoch, machine, log, state.start_offset != UNKNOWN)
        self._groups.setdefault(group_id, {})[topic_id, partition] = loaded
        return loaded

    def _reset_offset(self, group_id: str, log: PartitionLog) -> int:
        """Where ``share.auto.offset.reset`` begins. Without a record as young as ``by_duration`` asks: at the end."""
        reset = self._broker.config.group_value(group_id, "share.auto.offset.reset")
        if reset == "earliest":
            return log.log_start_offset
        if reset.startswith("by_duration:"):
            found = log.offset_for_timestamp(self._broker.now_ms() - duration_ms(reset.removeprefix("by_duration:")))
            if found is not None:
                return found[0]
        return log.end_offset

    def _fetch_offset(self, loaded: _Loaded, settings: ShareSettings) -> int | None:
        """Where to read the log from; None when nothing may be acquired now."""
        partition, log = loaded.partition, loaded.log
        if partition.start_offset < log.log_start_offset:
            self._apply(loaded, partition.move_start(log.log_start_offset))
        offset = partition.fetch_offset(settings)
        return offset if offset is not None and offset < log.end_offset else None

    def _acquire(
        self, loaded: _Loaded, offset: int, member_id: str, limits: FetchLimits, settings: ShareSettings
    ) -> tuple[bytes | memoryview, list[AcquiredRecords]]:
        """Read the log at ``offset`` and acquire of that; the log batches that hold what was acquired."""
        broker, log = self._broker, loaded.log
        up_to = None
        if broker.config.group_value(loaded.key.group_id, "share.isolation.level") == "read_committed":
            up_to = log.last_stable_offset
        # No more than the records asked for should take: what is read and not acquired would be read for nothing.
        enough = max(limits.max_records * loaded.record_bytes * 9 // 8, _LEAST_READ_BYTES)
        data = log.read(offset, min(limits.max_bytes, enough), up_to=up_to)
        if isinstance(data, Refusal) or not data:
            return b"", []
        batches, positions = offset_ranges(data)
        loaded.record_bytes = len(data) // (batches[-1][1] - batches[0][0] + 1) + 1
        if batches[0][0] > offset:
            self._apply(loaded, loaded.partition.skip_missing(batches[0][0]))
        now_ms = broker.now_ms()
        acquired = loaded.partition.acquire(
            member_id,
            batches,
            limits.max_records,
            limits.batch_size,
            now_ms,
            settings,
            record_limit=limits.record_limit,
        )
        if not acquired:
            return b"", []
        self._arm(loaded, now_ms + settings.lock_duration_ms)
        first, last = acquired[0].first_offset, acquired[-1].last_offset
        begin, end = 0, len(batches) - 1
        while batches[begin][1] < first:
            begin += 1
        while batches[end][0] > last:
            end -= 1
        return memoryview(data)[positions[begin] : positions[end + 1]], acquired

    # Acknowledging ---------------------------------------------------------------------------------------------------

    def acknowledge(
        self,
        session: ShareSession,
        topic_id: UUID,
        partition: int,
        batches: Sequence[AcknowledgementBatch],
        settings: ShareSettings,
        *,
        renew: bool,
    ) -> Refusal | None:
        """Apply a member's acknowledgements of one partition, all or none."""
        loaded = self._groups.get(session.group_id, {}).get((topic_id, partition))
        if loaded is None:
            unknown = topic_id not in self._broker.catalog.topics_by_id
            return Refusal(ErrorCode.UNKNOWN_TOPIC_ID) if unknown else _NOT_LOADED
        now_ms = self._broker.now_ms()
        outcome = loaded.partition.acknowledge(session.member_id, batches, now_ms, settings, renew=renew)
        return outcome.reply or self._apply(loaded, outcome)

    def close_session(self, session: ShareSession) -> None:
        """End a session and give back all that its member holds."""
        self.sessions.close(session.group_id, session.member_id)
        self._release(session)

    def disconnected(self, connection_id: int) -> None:
        """End the sessions that a connection opened."""
        for session in self.sessions.disconnected(connection_id):
            self._release(session)

    def _release(self, session: ShareSession) -> None:
        group_id = session.group_id
        settings = self.settings(group_id)
        for loaded in list(self._groups.get(group_id, {}).values()):
            self._apply(loaded, loaded.partition.release(session.member_id, settings))
        if not self.sessions.in_group(group_id):
            self._rest(group_id)

    def _rest(self, group_id: str) -> None:
        """Forget what can be loaded again: all but a start offset that was resolved and never written."""
        group = self._groups.get(group_id, {})
        for key, loaded in list(group.items()):
            if loaded.start_persisted and not loaded.partition.locks.spans:
                del group[key]
        if not group:
            self._groups.pop(group_id, None)

    # Making outcomes true --------------------------------------------------------------------------------------------

    def _apply(self, loaded: _Loaded, outcome: Outcome[StateUpdate, Any]) -> Refusal | None:
        """Persist an outcome's update, replay it, and wake who may now acquire.

        :returns: why the coordinator refuses; the share-partition is then dropped, for it is no longer ours to change
        :raises StorageError: when the append failed; then nothing has changed
        """
        for update in outcome.records:
            broker, partition, key = self._broker, loaded.partition, loaded.key
            write = broker.share_state.write(
                key,
                loaded.state_epoch,
                LEADER_EPOCH,
                update.start_offset,
                update.delivery_complete_count,
                update.state_batches,
                broker.now_ms(),
                self._partitions(key.topic_id),
            )
            refusal = broker.submit(broker.share_state, loaded.coordinator_key, write)
            if refusal is not None:
                self.drop(key.group_id, key.topic_id, key.partition)
                return Refusal(_COORDINATOR_ERRORS.get(refusal.code, ErrorCode.UNKNOWN_SERVER_ERROR))
            moved = update.start_offset > partition.start_offset
            partition.replay(update)
            loaded.start_persisted = True
            if moved or any(batch.delivery_state == AVAILABLE for batch in update.state_batches):
                broker.waits.notify(("share", *key))
        return None

    def _partitions(self, topic_id: UUID) -> int | None:
        topic = self._broker.catalog.topics_by_id.get(topic_id)
        return None if topic is None else topic.partitions

    # Time ------------------------------------------------------------------------------------------------------------

    def _arm(self, loaded: _Loaded, deadline_ms: int) -> None:
        if loaded.armed_ms is None or deadline_ms < loaded.armed_ms:
            loaded.armed_ms = deadline_ms
            self._serial += 1
            heappush(self._deadlines, (deadline_ms, self._serial, loaded))
            self._broker.arm()

    def next_deadline_ms(self) -> int | None:
        """When :meth:`expire` is to be called; None when nothing is locked."""
        return self._deadlines[0][0] if self._deadlines else None

    def expire(self, now_ms: int) -> None:
        """Give back what was not acknowledged in time."""
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            armed_ms, _, loaded = heappop(self._deadlines)
            group_id, topic_id, partition = loaded.key
            if loaded.armed_ms != armed_ms or self._groups.get(group_id, {}).get((topic_id, partition)) is not loaded:
                continue
            loaded.armed_ms = None
            try:
                self._apply(loaded, loaded.partition.expire(now_ms, self.settings(group_id)))
            finally:  # also when the append failed: the locks that ran out then do so again
                deadline_ms = loaded.partition.next_deadline_ms()
                if deadline_ms is not None:
                    self._arm(loaded, deadline_ms)
            if not self.sessions.in_group(group_id):
                self._rest(group_id)

    # The end of things -----------------------------------------------------------------------------------------------

    def drop(self, group_id: str, topic_id: UUID, partition: int) -> None:
        """Forget a share-partition whose state was changed or deleted elsewhere; the next fetch loads it anew."""
        group = self._groups.get(group_id, {})
        group.pop((topic_id, partition), None)
        if not group:
            self._groups.pop(group_id, None)
        self._broker.waits.notify(("share", group_id, topic_id, partition))

    def drop_group(self, group_id: str) -> None:
        """Forget all share-partitions of a group that was deleted or reset."""
        for topic_id, partition in list(self._groups.get(group_id, {})):
            self.drop(group_id, topic_id, partition)

    def topic_deleted(self, topic: Topic) -> None:
        """Forget all share-partitions of a topic."""
        for group_id, group in list(self._groups.items()):
            for topic_id, partition in list(group):
                if topic_id == topic.topic_id:
                    self.drop(group_id, topic_id, partition)

    def close(self) -> None:
        """Give back all that is held, as a broker does that stops in order."""
        for group_id, group in list(self._groups.items()):
            settings = self.settings(group_id)
            for loaded in list(group.values()):
                for member_id in {lock.member_id for lock in loaded.partition.locks.spans.values}:
                    self._apply(loaded, loaded.partition.release(member_id, settings))
