"""The share-partitions of a broker: loaded when first fetched, unloaded after the last session.

This module connects handlers and machines. It loads a :class:`SharePartition` from the share
coordinator, persists its outcomes (only in :meth:`SharePartitions.apply`), and wakes waiting
requests. ``share_fetches.py`` reads the logs. All state here is volatile; the share coordinator
keeps the durable state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from time import perf_counter
from uuid import UUID

from headrace.coordinators.iso_durations import duration_ms
from headrace.deadlines import RETRY_MS, Deadlines
from headrace.log import timestamps
from headrace.log.partition_log import LEADER_EPOCH, PartitionLog
from headrace.log_lines import LimitedLog, get_logger
from headrace.outcome import Outcome
from headrace.protocol.errors import ErrorCode, Refusal, StorageError
from headrace.protocol.record_batch import OPEN_ON_LOOP
from headrace.share.acknowledgement import AcknowledgementBatch, AcknowledgeTerms
from headrace.share.acquisition_locks import AcquisitionLock, EndedLocks, LateRecords
from headrace.share.records import (
    ARCHIVED,
    AVAILABLE,
    UNKNOWN,
    Archived,
    SharePartitionKey,
    ShareRecord,
    StateUpdate,
)
from headrace.share.settings import ShareSettings
from headrace.share.share_partition import InFlight, SharePartition
from headrace.share.share_session import ShareSession, ShareSessions
from headrace.share.share_state import FENCED_STATE_EPOCH, NOT_HOSTED, ShareCoordinator
from headrace.share.spans import Run, offset_count, offsets_in

from .dead_letters import DeadLetters
from .environment import Environment
from .runtime import CoordinatorRuntime
from .waiting import run_to_end

_logger = get_logger("headrace.share")
log = LimitedLog("headrace.share")


LATE_COMPLAINT_MS = 60_000
"""The least time between two log lines about late acknowledgements of one group."""

SHARE_PARTITIONS_AT_ONCE = 50
"""The share-partitions whose locks are timed out in one turn of the event loop, in about 5 ms."""

_ASSUMED_RECORD_BYTES = 1024  # before a log was read

# The errors of the share coordinator of this node, and those that a leader returns to clients for
# them, as in Kafka. All others become UNKNOWN_SERVER_ERROR.
_COORDINATOR_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


def _leader_refusal(refusal: Refusal) -> Refusal:
    code = _COORDINATOR_ERRORS.get(refusal.code, ErrorCode.UNKNOWN_SERVER_ERROR)
    return Refusal(code, f"Error in write state RPC. {refusal.message}")


_FENCED = _leader_refusal(FENCED_STATE_EPOCH)


@dataclass(slots=True, eq=False)
class LoadedPartition:
    """A share-partition in memory.

    :ivar start_persisted: True if the share coordinator has the start offset; otherwise a restart
        resolves it again
    :ivar turn: its place in the order of fetches: the one with the smallest turn comes first
    :ivar record_bytes: average size of the records read last, to estimate the size of the next read
    :ivar scheduled_ms: when to call ``expire``: at the end of the first lock or backoff, or
        earlier; None if not scheduled
    :ivar released_count: records that were released since it was loaded, by a member or a timeout
    :ivar ended_locks: those that have timed out, whose acknowledgements come late
    :ivar letters: the offsets with a dead letter that are not archived yet, as the state could not
        be written: a retry writes no second one
    """

    key: SharePartitionKey
    coordinator_key: str
    state_epoch: int
    partition: SharePartition
    log: PartitionLog
    start_persisted: bool
    turn: int
    record_bytes: int = _ASSUMED_RECORD_BYTES
    scheduled_ms: int | None = None
    released_count: int = 0
    ended_locks: EndedLocks = field(default_factory=EndedLocks)
    letters: set[int] = field(default_factory=set)


class SharePartitions:
    """All share-partitions that this broker has loaded, and the sessions that fetch them.

    :param runtime: the runtime of the share coordinator
    :param schedule_timer: called when :meth:`next_deadline_ms` may be earlier than before
    """

    def __init__(
        self,
        environment: Environment,
        runtime: CoordinatorRuntime[ShareCoordinator],
        schedule_timer: Callable[[], None],
    ) -> None:
        self.clock = environment.clock
        self.sessions = ShareSessions()
        self.dead_letters = DeadLetters(environment)
        self._config = environment.config
        self._catalog = environment.catalog
        self._logs = environment.logs
        self._meters = environment.meters
        self._notify = environment.notify
        self._runtime = runtime
        self._schedule_timer = schedule_timer
        self._groups: dict[str, dict[SharePartitionKey, LoadedPartition]] = {}
        # group id -> (the configs they were read from, the settings)
        self._settings: dict[str, tuple[Mapping[str, str], ShareSettings]] = {}
        self._fenced: dict[str, set[SharePartitionKey]] = {}
        self._deadlines: Deadlines[LoadedPartition] = Deadlines()
        self.turns = count(1)
        """The turns that come after those of all share-partitions."""

    def settings(self, group_id: str) -> ShareSettings:
        """Return the current settings of a group. While it has sessions or share-partitions in
        memory, they are cached until its configs change.
        """
        overrides = self._catalog.configs("group", group_id)
        cached = self._settings.get(group_id)
        if cached is not None and cached[0] is overrides:
            return cached[1]
        number = partial(self._config.group_int, group_id)
        value = partial(self._config.group_value, group_id)
        settings = ShareSettings(
            delivery_count_limit=number("share.delivery.count.limit"),
            lock_duration_ms=number("share.record.lock.duration.ms"),
            max_record_locks=number("share.partition.max.record.locks"),
            release_backoff_ms=number("share.release.backoff.ms"),
            release_backoff_max_ms=number("share.release.backoff.max.ms"),
            renew_enabled=value("share.renew.acknowledge.enable") == "true",
            read_committed=value("share.isolation.level") == "read_committed",
        )
        if group_id in self._groups or self.sessions.in_group(group_id):
            self._settings[group_id] = overrides, settings
        return settings

    # Loading --------------------------------------------------------------------------------------

    def load(self, key: SharePartitionKey) -> LoadedPartition | ErrorCode:
        """Return a share-partition, loaded from the share coordinator if needed, or an error.

        :raises StorageError: when the share coordinator cannot write
        """
        loaded = self.loaded(key)
        if loaded is not None:
            return loaded
        started = perf_counter()
        partition_log = self._logs.partition(key.topic_id, key.partition)
        if isinstance(partition_log, ErrorCode):
            return partition_log
        outcome = self._runtime.coordinator.read(key, LEADER_EPOCH, self.clock.wall_ms())
        state = self._runtime.write_now(str(key), outcome)
        if isinstance(state, Refusal):
            return _leader_refusal(state).code
        start_offset = state.start_offset
        if start_offset == UNKNOWN:
            try:
                start_offset = self._reset_offset(key.group_id, partition_log)
            except OSError as error:
                log.error(partition_log.path, "cannot search %s: %s", partition_log.path, error)
                return ErrorCode.KAFKA_STORAGE_ERROR
        machine = SharePartition(start_offset, state.state_batches)
        loaded = LoadedPartition(
            key,
            str(key),
            state.state_epoch,
            machine,
            partition_log,
            start_persisted=state.start_offset != UNKNOWN,
            turn=next(self.turns),
        )
        self._groups.setdefault(key.group_id, {})[key] = loaded
        self._fenced.get(key.group_id, set()).discard(key)
        self._meters.share.partition_load_ms.observe((perf_counter() - started) * 1000)
        return loaded

    def _reset_offset(self, group_id: str, log: PartitionLog) -> int:
        """Return the start offset by ``share.auto.offset.reset``.

        ``by_duration`` resolves to the end of the log if all records are older, and to the first
        record of a batch that is too large to be opened on the event loop.

        :raises OSError: when the log cannot be read
        """
        reset = self._config.group_value(group_id, "share.auto.offset.reset")
        if reset == "earliest":
            return log.log_start_offset
        if reset.startswith("by_duration:"):
            since_ms = self.clock.wall_ms() - duration_ms(reset.removeprefix("by_duration:"))
            record = timestamps.finish(timestamps.first_at_or_after(log, since_ms), OPEN_ON_LOOP)
            if record is not None:
                return record[0]
        return log.end_offset

    def loaded(self, key: SharePartitionKey) -> LoadedPartition | None:
        """Return a share-partition that is in memory, None otherwise."""
        return self._groups.get(key.group_id, {}).get(key)

    # Acknowledging --------------------------------------------------------------------------------

    async def acknowledge(
        self,
        member_id: str,
        key: SharePartitionKey,
        batches: Sequence[AcknowledgementBatch],
        settings: ShareSettings,
        terms: AcknowledgeTerms,
    ) -> Refusal | None:
        """Apply a member's acknowledgements of one partition, all or none.

        :returns: the error, None for success
        :raises StorageError: as :meth:`apply`
        """
        loaded = self.loaded(key)
        if loaded is None:
            fenced = self._fenced.get(key.group_id, set())
            if key in fenced:
                fenced.remove(key)
                return _FENCED
            topic = self._catalog.topics_by_id.get(key.topic_id)
            if topic is None:
                return Refusal(ErrorCode.UNKNOWN_TOPIC_ID)
            return (
                NOT_HOSTED
                if 0 <= key.partition < topic.partitions
                else Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            )
        now_ms = self.clock.now_ms()
        if loaded.ended_locks and (
            late := loaded.ended_locks.take(
                member_id, batches, loaded.partition.locks.spans, now_ms
            )
        ):
            self._count_late(loaded, late, settings, now_ms)
        update = loaded.partition.acknowledge(member_id, batches, now_ms, settings, terms)
        if isinstance(update, Refusal):
            return update
        return await self.apply(loaded, update, terms.reject_reason)

    def _count_late(
        self, loaded: LoadedPartition, late: LateRecords, settings: ShareSettings, now_ms: int
    ) -> None:
        """Count acknowledgements that come after the end of their locks, and say so."""
        counts = self._meters.share.groups[loaded.key.group_id]
        counts.late[loaded.key] += late.records
        told_ms = counts.late_told_ms
        if told_ms is not None and now_ms - told_ms < LATE_COMPLAINT_MS:
            return
        counts.late_told_ms = now_ms
        _logger.warning(
            "share group %s: an acknowledgement of %d records of %s-%d came %.1f s after the end "
            "of their acquisition lock, which lasts %.1f s: others get these records again, so "
            "work is done twice (%d records since the broker started). Renew locks while work "
            "goes on, acquire fewer records at once, or raise share.record.lock.duration.ms of "
            "the group",
            loaded.key.group_id,
            late.records,
            loaded.log.topic,
            loaded.key.partition,
            late.longest_ms / 1000,
            settings.lock_duration_ms / 1000,
            counts.late.total(),
        )

    def in_flight(self, key: SharePartitionKey) -> list[InFlight]:
        """Return the records in flight of a share-partition. One that is not in memory has the
        states that are stored.
        """
        loaded = self.loaded(key)
        if loaded is not None:
            return loaded.partition.in_flight_spans()
        return [
            InFlight(first, last, state if state == AVAILABLE else ARCHIVED, count)
            for first, last, state, count in self._runtime.coordinator.state(key).state_batches
        ]

    async def release_range(self, key: SharePartitionKey, first: int, last: int) -> int | Refusal:
        """Release the records of a range that members hold.

        :returns: their number, or the error if the share coordinator refuses
        :raises StorageError: as :meth:`apply`
        """
        loaded = self.loaded(key)
        if loaded is None:
            return 0
        held = loaded.partition.locks.spans.within(first, last)
        return await self._release(loaded, held) or offset_count(held)

    def close_session(self, session: ShareSession) -> None:
        """End a session and release what its member has acquired."""
        self.sessions.close(session.group_id, session.member_id)
        self._release_session(session)
        self._forget_if_unused(session.group_id)

    def disconnected(self, connection_id: int) -> None:
        """End the sessions that a connection has opened."""
        ended = self.sessions.disconnected(connection_id)
        for session in ended:
            self._meters.share.session_evictions += 1
            self._release_session(session)
        for group_id in dict.fromkeys(session.group_id for session in ended):
            self._forget_if_unused(group_id)

    def _release_session(self, session: ShareSession) -> None:
        for key in sorted(session.acquired_from):
            loaded = self.loaded(key)
            if loaded is not None:
                run_to_end(self._release_from(loaded, session.member_id))

    def _forget_if_unused(self, group_id: str) -> None:
        """Unload the idle share-partitions of a group, if it has no sessions any more."""
        if self.sessions.in_group(group_id):
            return
        self._fenced.pop(group_id, None)
        for loaded in list(self._groups.get(group_id, {}).values()):
            self._unload_if_idle(loaded)
        self._forget_if_empty(group_id)

    async def _release_from(self, loaded: LoadedPartition, member_id: str) -> None:
        try:
            await self._release(loaded, loaded.partition.locks.held_by(member_id))
        except StorageError as error:  # the acquisition locks will expire
            message = "cannot release what %s holds of %s: %s"
            log.error(loaded.key.group_id, message, member_id, loaded.key, error)

    async def _release(
        self, loaded: LoadedPartition, locks: Sequence[Run[AcquisitionLock]]
    ) -> Refusal | None:
        settings = self.settings(loaded.key.group_id)
        return await self.apply(
            loaded, loaded.partition.release(locks, self.clock.now_ms(), settings)
        )

    def _unload_if_idle(self, loaded: LoadedPartition) -> None:
        """Unload an idle share-partition, if its group has no sessions.

        One whose start offset is not persisted stays: loading would resolve it again.
        """
        if self.sessions.in_group(loaded.key.group_id) or self.loaded(loaded.key) is not loaded:
            return
        if loaded.start_persisted and loaded.partition.idle:
            self.drop(loaded.key)

    def _forget_if_empty(self, group_id: str) -> None:
        """Forget a group without share-partitions in memory."""
        if not self._groups.get(group_id):
            self._groups.pop(group_id, None)
            self._settings.pop(group_id, None)

    # Persisting outcomes --------------------------------------------------------------------------

    async def apply(
        self, loaded: LoadedPartition, update: StateUpdate | None, reject_reason: str = ""
    ) -> Refusal | None:
        """Write the dead letters that an update needs, then :meth:`persist` it. Run it to its end:
        begun, it must not be cancelled.

        :param reject_reason: what a member says of its rejections, for their letters
        :returns: as :meth:`persist`
        :raises StorageError: when the disk fails; the records are held as before
        """
        if update is None:
            return None
        dead = self.dead_letters.due(loaded.key.group_id, update.archived)
        # No letter is written of what the share coordinator refuses.
        if dead and self._decide_write(loaded, update).reply is None:
            return await self._archive(loaded, update, dead, reject_reason)
        return self.persist(loaded, update)

    async def _archive(
        self,
        loaded: LoadedPartition,
        update: StateUpdate,
        dead: Sequence[Archived],
        reject_reason: str,
    ) -> Refusal | None:
        partition, letters = loaded.partition, loaded.letters
        partition.start_archiving(update)
        try:
            await self.dead_letters.write(loaded.key, loaded.log, dead, letters, reject_reason)
            if self.loaded(loaded.key) is not loaded:  # its state was changed elsewhere meanwhile
                return _FENCED
            refusal = self.persist(loaded, partition.archived(update))
        except Exception:
            partition.stop_archiving(update.changes)
            self._schedule_next(loaded)
            raise
        letters.difference_update(offsets_in(dead))
        self._unload_if_idle(loaded)  # the last session may have ended meanwhile
        return refusal

    def persist(self, loaded: LoadedPartition, update: StateUpdate | None) -> Refusal | None:
        """Persist an update, replay it, and wake the fetches that may acquire now.

        :returns: None for success; the error if the share coordinator refuses the update. Then the
            share-partition is dropped, as its state was changed elsewhere
        :raises StorageError: when the append failed; nothing has changed
        """
        if update is None:
            return None
        partition, key = loaded.partition, loaded.key
        write = self._decide_write(loaded, update)
        refusal = self._runtime.write_now(loaded.coordinator_key, write)
        if refusal is not None:
            self.drop(key)
            return _leader_refusal(refusal)
        is_acquirable = update.start_offset > partition.start_offset
        partition.replay(update)
        loaded.start_persisted = True
        released = offset_count(
            batch for batch in update.state_batches if batch.delivery_state == AVAILABLE
        )
        loaded.released_count += released
        if update.not_before_ms:
            self.schedule(loaded, min(update.not_before_ms.values()))
        elif released:
            is_acquirable = True
        if update.archived:
            archived = self._meters.share.groups[key.group_id].archived
            archived[key] += offset_count(update.archived)
            self.dead_letters.count_given_up(key, loaded.log.topic, update.archived)
        if is_acquirable:
            self._notify(("share", *key))
        return None

    def _decide_write(
        self, loaded: LoadedPartition, update: StateUpdate
    ) -> Outcome[ShareRecord, Refusal | None]:
        return self._runtime.coordinator.write(
            loaded.key,
            loaded.state_epoch,
            LEADER_EPOCH,
            update.start_offset,
            update.delivery_complete_count,
            update.state_batches,
            self.clock.wall_ms(),
        )

    # Time -----------------------------------------------------------------------------------------

    def schedule(self, loaded: LoadedPartition, deadline_ms: int) -> None:
        """Expire locks and backoffs of the share-partition at ``deadline_ms``, or earlier."""
        if loaded.scheduled_ms is None or deadline_ms < loaded.scheduled_ms:
            loaded.scheduled_ms = deadline_ms
            self._deadlines.set(loaded, deadline_ms)
            self._schedule_timer()

    def next_deadline_ms(self) -> int | None:
        """Return when :meth:`expire` is due, in steady milliseconds; None without locks and
        backoffs.
        """
        return self._deadlines.next_ms()

    def expire(self, now_ms: int) -> None:
        """Release records whose acquisition locks have expired, and end release backoffs, of some
        share-partitions. Further ones stay due.
        """
        for _ in range(SHARE_PARTITIONS_AT_ONCE):
            loaded = self._deadlines.pop_due(now_ms)
            if loaded is None:
                break
            loaded.scheduled_ms = None
            if self.loaded(loaded.key) is not loaded:
                continue
            run_to_end(self._end_locks(loaded, now_ms))
            self._schedule_next(loaded)
            self._unload_if_idle(loaded)

    async def _end_locks(self, loaded: LoadedPartition, now_ms: int) -> None:
        partition, key = loaded.partition, loaded.key
        try:
            if partition.available.end_backoffs(now_ms):
                self._notify(("share", *key))
            ended = partition.locks.expired(now_ms)
            released = partition.release(ended, now_ms, self.settings(key.group_id))
            if await self.apply(loaded, released) is None and ended:
                loaded.ended_locks.add(ended)
                timeouts = self._meters.share.groups[key.group_id].lock_timeouts
                timeouts[key] += offset_count(ended)
        except Exception as error:  # it may concern one share-partition only
            message = "cannot release the expired locks of %s; trying again in %d ms: %s"
            trace = None if isinstance(error, StorageError) else error
            log.error("timer", message, key, RETRY_MS, error, exc_info=trace)

    def _schedule_next(self, loaded: LoadedPartition) -> None:
        """Schedule the next lock or backoff that ends. What is due could not be written: it is
        tried again later.
        """
        deadline_ms = loaded.partition.next_deadline_ms()
        if deadline_ms is not None:
            now_ms = self.clock.now_ms()
            self.schedule(loaded, deadline_ms if deadline_ms > now_ms else now_ms + RETRY_MS)

    # Dropping -------------------------------------------------------------------------------------

    def drop(self, key: SharePartitionKey) -> None:
        """Unload a share-partition that is idle, or whose state was changed or deleted elsewhere.
        The next fetch loads it again.
        """
        self._groups.get(key.group_id, {}).pop(key, None)
        self._forget_if_empty(key.group_id)
        self._notify(("share", *key))

    def fence(self, key: SharePartitionKey) -> None:
        """Drop a share-partition after its state was initialized again. The next acknowledgement
        before a fetch gets NOT_LEADER_OR_FOLLOWER.
        """
        if self.loaded(key) is not None:
            self._fenced.setdefault(key.group_id, set()).add(key)
        self.drop(key)

    def group_deleted(self, group_id: str) -> None:
        """Forget a group whose share state is deleted."""
        self._settings.pop(group_id, None)
        self._fenced.pop(group_id, None)
        self.dead_letters.counts.pop(group_id, None)
        self._meters.share.groups.pop(group_id, None)

    def topics_deleted(self, topic_ids: Collection[UUID]) -> Iterator[None]:
        """Drop all share-partitions of topics; yield between pieces of work."""
        yield from self._meters.share.topics_deleted(topic_ids)
        for group in list(self._groups.values()):
            for loaded in list(group.values()):
                if loaded.key.topic_id in topic_ids:
                    self.drop(loaded.key)
            yield

    def close(self) -> None:
        """Release all acquired records before the broker stops.

        :raises StorageError: when the disk fails
        """
        self.dead_letters.close()
        for group in list(self._groups.values()):
            for loaded in list(group.values()):
                partition = loaded.partition
                partition.stop_archiving([(partition.start_offset, partition.end_offset)])
                run_to_end(self._release(loaded, list(partition.locks.spans))).result()
