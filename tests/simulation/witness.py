"""The expected state of every record, from requests and answers alone, and everything that must
never happen.

The witness predicts the effect of a request when the broker is about to serve it, and compares that
with the answer. After a power cut the last writes may have happened or not: the disk decides, and
nothing else is allowed.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import UUID

from headrace.log.partition_log import LEADER_EPOCH
from headrace.protocol import record_batch
from headrace.protocol.errors import ErrorCode
from headrace.share.acknowledgement import ACCEPT, GAP, REJECT, RELEASE, RENEW, UNCOUNTED_BACKOFF_MS
from headrace.share.records import AVAILABLE, SharePartitionKey
from headrace.share.share_state import ShareState

from .power import Machine
from .shelf import NEW, UNKNOWN, Limits, Partition, Persisted, Record, Shelf, each


class Violation(AssertionError):
    """Something happened that must never happen."""


@dataclass(slots=True)
class Foreseen:
    """The predicted effect of a share request.

    :ivar error: its top-level error
    :ivar accepted: whether the acknowledgements of each partition are accepted
    :ivar before: the records that it changes, as they were
    """

    error: ErrorCode = ErrorCode.NONE
    accepted: dict[Partition, bool] = field(default_factory=dict)
    before: list[tuple[Record, Persisted]] = field(default_factory=list)


class Witness:
    """Observes all requests and answers.

    :raises Violation: from every method, if the broker does what it must not
    """

    def __init__(self, machine: Machine, limits: Limits) -> None:
        self.machine = machine
        self.limits = limits
        self.shelves: dict[SharePartitionKey, Shelf] = {}
        self.log_starts: dict[Partition, int] = {}
        self.sent: dict[Partition, set[bytes]] = {}
        self.produced: dict[Partition, dict[int, bytes]] = {}
        self.counts: Counter[str] = Counter()
        self._sessions: dict[tuple[str, str], list[int]] = {}  # connection, next epoch
        self._timers: list[tuple[int, int, list[Record]]] = []
        self._serial = count()
        self._unanswered: list[Foreseen] = []
        self._unsettled: list[tuple[Record, Persisted]] = []

    # Requests

    def arrived(self, connection_id: int, request: Any) -> Foreseen | None:
        self.expire()
        kind = type(request).__name__
        if kind == "ShareFetchRequest":
            foreseen = self._share_request(
                connection_id, request, request.is_renew_ack, may_open=True
            )
        elif kind == "ShareAcknowledgeRequest":
            foreseen = self._share_request(
                connection_id, request, request.is_renew_ack, may_open=False
            )
        else:
            return None
        self._unanswered.append(foreseen)
        return foreseen

    def answered(
        self, connection_id: int, request: Any, foreseen: Any, answer: Any, frame: bytes
    ) -> None:
        self.expire()
        kind = type(request).__name__
        if foreseen is not None:
            self._unanswered = [one for one in self._unanswered if one is not foreseen]
            if int(answer.error_code) != foreseen.error:
                error = ErrorCode(int(answer.error_code))
                raise Violation(
                    f"{kind} is answered with {error.name} instead of {foreseen.error.name}"
                )
        if kind == "ShareFetchRequest":
            self._share_fetched(request, foreseen, answer)
        elif kind == "ShareAcknowledgeRequest":
            for topic in answer.responses:
                for partition in topic.partitions:
                    self._acknowledged(
                        request, foreseen, topic.topic_id, partition, int(partition.error_code)
                    )
        elif kind == "DescribeShareGroupOffsetsRequest":
            self._described(answer)
        elif kind in ("AlterShareGroupOffsetsRequest", "DeleteShareGroupOffsetsRequest"):
            self._reset(int(answer.error_code) == 0)
        elif kind == "DeleteGroupsRequest":
            self._reset(int(answer.results[0].error_code) == 0)

    def disconnected(self, connection_id: int) -> None:
        self.expire()
        for (group_id, member_id), (opened_by, _) in list(self._sessions.items()):
            if opened_by == connection_id:
                del self._sessions[group_id, member_id]
                for record in self._held_by(group_id, member_id):
                    self._unsettled.append((record, record.persisted))  # letters may come later
                    self._give_back(record)

    # Sessions and acknowledgements

    def _share_request(
        self, connection_id: int, request: Any, renew: bool, may_open: bool
    ) -> Foreseen:
        foreseen = Foreseen()
        member = (request.group_id, request.member_id)
        epoch = request.share_session_epoch
        if epoch == 0 and may_open:
            self._sessions[member] = [connection_id, 1]
            return foreseen
        session = self._sessions.get(member)
        if session is None:
            foreseen.error = ErrorCode.SHARE_SESSION_NOT_FOUND
            return foreseen
        if epoch not in (-1, session[1]):
            foreseen.error = ErrorCode.INVALID_SHARE_SESSION_EPOCH
            return foreseen
        session[1] += 1
        for topic in request.topics:
            for partition in topic.partitions:
                if partition.acknowledgement_batches:
                    where = (topic.topic_id, partition.partition_index)
                    self._foresee(request, where, partition.acknowledgement_batches, foreseen)
        if epoch == -1:
            del self._sessions[member]
            for record in self._held_by(*member):
                foreseen.before.append((record, record.persisted))
                self._unsettled.append((record, record.persisted))  # letters may come later
                self._give_back(record)
        return foreseen

    def _foresee(
        self, request: Any, where: Partition, batches: Iterable[Any], foreseen: Foreseen
    ) -> None:
        if not self.exists(where):
            foreseen.accepted[where] = False
            return
        shelf = self.shelf(SharePartitionKey(request.group_id, *where))
        changes: list[tuple[Record, int]] = []
        # What DeleteRecords took is over when a fetch has noticed it; until then only the broker
        # knows.
        loaded = self.machine.broker.coordinators.share.loaded(shelf.key)
        accepted = loaded is not None
        for offset, acknowledge_type in each(batches):
            record = shelf.records.get(offset)
            if record is not None and record.holder == request.member_id:
                changes.append((record, acknowledge_type))
            elif loaded is not None and offset >= loaded.partition.start_offset:
                accepted = False
        foreseen.accepted[where] = accepted
        if accepted:
            self._apply(changes, foreseen, uncounted=getattr(request, "uncounted_release", False))

    def _apply(
        self, changes: list[tuple[Record, int]], foreseen: Foreseen, *, uncounted: bool
    ) -> None:
        renewed = []
        for record, acknowledge_type in changes:
            if acknowledge_type == RENEW:
                renewed.append(record)
                continue
            foreseen.before.append((record, record.persisted))
            if acknowledge_type == RELEASE and uncounted:
                self._take_back(record)
            elif acknowledge_type == RELEASE:
                self._give_back(record)
            else:
                record.persisted, record.holder = Persisted(True, 0), None
                record.is_dead = acknowledge_type == REJECT
            self.counts[_TYPE_NAMES[acknowledge_type]] += 1
        if renewed:
            self.counts["renewed"] += len(renewed)
            self._lock(renewed)

    def _acknowledged(
        self, request: Any, foreseen: Foreseen, topic_id: UUID, partition: Any, error_code: int
    ) -> None:
        where = (topic_id, partition.partition_index)
        if where not in foreseen.accepted:
            return
        code = ErrorCode(error_code)
        if foreseen.accepted[where] == bool(code):
            what = "refused with " + code.name if code else "taken"
            raise Violation(
                f"acknowledgements of {request.member_id} are {what}, and must not be: {where[1]}"
            )

    # Deliveries

    def _share_fetched(self, request: Any, foreseen: Foreseen, answer: Any) -> None:
        for topic in answer.responses:
            for partition in topic.partitions:
                where = (topic.topic_id, partition.partition_index)
                self._acknowledged(
                    request,
                    foreseen,
                    topic.topic_id,
                    partition,
                    int(partition.acknowledge_error_code),
                )
                code = ErrorCode(int(partition.error_code))
                if code:
                    key = SharePartitionKey(request.group_id, *where)
                    if (
                        self.exists(where)
                        and key in self.machine.broker.coordinators.share_state.known_keys()
                    ):
                        raise Violation(f"a fetch of {where} is answered with {code.name}")
                    continue
                if partition.acquired_records:
                    self._delivered(request, where, partition)

    def _delivered(self, request: Any, where: Partition, partition: Any) -> None:
        shelf = self.shelf(SharePartitionKey(request.group_id, *where))
        covered = [
            (h.base_offset, h.last_offset)
            for _, h in record_batch.headers(partition.records or b"")
        ]
        taken: list[Record] = []
        for run in partition.acquired_records:
            for offset in range(run.first_offset, run.last_offset + 1):
                if not any(first <= offset <= last for first, last in covered):
                    raise Violation(
                        f"offset {offset} of {shelf} is acquired, and its record is not there"
                    )
                taken.append(self._take(shelf, offset, run.delivery_count, request.member_id))
        self.counts["delivered"] += len(taken)
        self._lock(taken)

    def _take(self, shelf: Shelf, offset: int, delivery_count: int, member_id: str) -> Record:
        record = shelf.record(offset)
        if record.is_done:
            raise Violation(
                f"offset {offset} of {shelf} is delivered to {member_id} after it was finished"
            )
        if record.holder is not None:
            raise Violation(
                f"offset {offset} of {shelf} is held by {record.holder}, and delivered to "
                f"{member_id} too"
            )
        if self.machine.loop.now_ms < record.not_before_ms:
            raise Violation(f"offset {offset} of {shelf} is delivered before its backoff is over")
        if offset < shelf.start_offset:
            raise Violation(
                f"offset {offset} of {shelf} is delivered before the start offset "
                f"{shelf.start_offset}"
            )
        if delivery_count > self.limits.deliveries:
            raise Violation(
                f"offset {offset} of {shelf} is delivered {delivery_count} > "
                f"{self.limits.deliveries} times"
            )
        expected = record.persisted.delivery_count + 1
        if delivery_count != expected:
            raise Violation(
                f"offset {offset} of {shelf} has delivery count {delivery_count}, not {expected}"
            )
        record.holder, record.held_count = member_id, delivery_count
        return record

    # Locks

    def _lock(self, records: list[Record]) -> None:
        deadline_ms = self.machine.loop.now_ms + self.limits.lock_ms
        for record in records:
            record.deadline_ms = deadline_ms
        heapq.heappush(self._timers, (deadline_ms, next(self._serial), records))

    def expire(self) -> None:
        """End the locks that have run out."""
        now_ms = self.machine.loop.now_ms
        while self._timers and self._timers[0][0] <= now_ms:
            deadline_ms, _, records = heapq.heappop(self._timers)
            for record in records:
                if record.holder is not None and record.deadline_ms == deadline_ms:
                    self._unsettled.append((record, record.persisted))
                    self._give_back(record, deadline_ms)
                    self.counts["timed out"] += 1

    def _give_back(self, record: Record, now_ms: int | None = None) -> None:
        is_done = record.held_count >= self.limits.deliveries
        self.counts["archived at the limit"] += is_done
        record.is_dead = is_done
        record.persisted, record.holder = (
            Persisted(is_done, 0 if is_done else record.held_count),
            None,
        )
        backoff_ms = min(
            self.limits.backoff_ms << (record.held_count - 1), self.limits.backoff_max_ms
        )
        record.not_before_ms = (self.machine.loop.now_ms if now_ms is None else now_ms) + backoff_ms

    def _take_back(self, record: Record) -> None:
        """Release a record without counting the delivery."""
        count = record.held_count - 1
        record.persisted, record.holder = Persisted(False, count), None
        backoff_ms = min(self.limits.backoff_ms << max(count - 1, 0), self.limits.backoff_max_ms)
        record.not_before_ms = self.machine.loop.now_ms + max(backoff_ms, UNCOUNTED_BACKOFF_MS)
        self.counts["taken back"] += 1

    def _held_by(self, group_id: str, member_id: str) -> Iterator[Record]:
        for key, shelf in self.shelves.items():
            if key.group_id == group_id:
                yield from (
                    record for record in shelf.records.values() if record.holder == member_id
                )

    # Topics and offsets

    def shelf(self, key: SharePartitionKey) -> Shelf:
        found = self.shelves.get(key)
        if found is None:
            found = self.shelves[key] = Shelf(key)
        return found

    def exists(self, where: Partition) -> bool:
        topic = self.machine.broker.catalog.topics_by_id.get(where[0])
        return topic is not None and 0 <= where[1] < topic.partitions

    def end_offset(self, where: Partition) -> int:
        log = self.machine.broker.topic_logs.partition(*where)
        assert not isinstance(log, ErrorCode), where
        return log.end_offset

    def _reset(self, is_done: bool) -> None:
        """Take note of the end of an administrator's request."""
        self.counts["resets" if is_done else "refused resets"] += 1
        for shelf in self.shelves.values():
            if shelf.resetting is not None:
                if is_done:
                    shelf.reset(shelf.resetting)
                shelf.resetting = None

    def _described(self, answer: Any) -> None:
        for group in answer.groups:
            for topic in group.topics:
                for partition in topic.partitions:
                    if topic.topic_id is None or not self.exists(
                        (topic.topic_id, partition.partition_index)
                    ):
                        continue
                    shelf = self.shelf(
                        SharePartitionKey(group.group_id, topic.topic_id, partition.partition_index)
                    )
                    if partition.error_code:
                        raise Violation(
                            f"describing {shelf} is answered with "
                            f"{ErrorCode(int(partition.error_code))}"
                        )
                    self._check_start(shelf, partition.start_offset)
                    self._check_lag(shelf, partition.lag)
                    self.audit(shelf)

    def _check_start(self, shelf: Shelf, start_offset: int) -> None:
        known, where = shelf.start_offset, shelf.key[1:]
        if start_offset == known:
            if known != UNKNOWN and shelf.is_done(known):
                raise Violation(f"{shelf} starts at {known}, which is finished")
            return
        if start_offset < known and shelf.is_orphan:
            shelf.reset(start_offset)
            return
        if start_offset < known:
            raise Violation(f"the start offset of {shelf} goes back from {known} to {start_offset}")
        log_start = self.log_starts.get(where, 0)
        for offset in range(max(known, log_start, 0), start_offset):
            if not shelf.is_done(offset):
                raise Violation(
                    f"the start offset of {shelf} is {start_offset}, and {offset} is not finished"
                )
        if shelf.is_done(start_offset):
            raise Violation(f"{shelf} starts at {start_offset}, which is finished")
        shelf.start_offset = start_offset

    def _check_lag(self, shelf: Shelf, lag: int) -> None:
        start = shelf.start_offset
        if start == UNKNOWN:
            if any(record.persisted != NEW for record in shelf.records.values()):
                raise Violation(f"{shelf} has no start offset in spite of what it has been through")
            expected = UNKNOWN
        else:
            expected = sum(
                not shelf.is_done(offset) for offset in range(start, self.end_offset(shelf.key[1:]))
            )
        if lag != expected:
            raise Violation(f"the lag of {shelf} is {lag}, and {expected} records are not finished")

    # Steps and power cuts

    def settled(self) -> None:
        """Take note of the end of a step without a power cut."""
        self.expire()
        self._unsettled.clear()
        share_state, topics = (
            self.machine.broker.coordinators.share_state,
            self.machine.broker.catalog.topics_by_id,
        )
        for key, shelf in self.shelves.items():
            if key.topic_id in topics:
                summary = share_state.summary(key)
                self._check_start(shelf, summary.start_offset)  # type: ignore[union-attr]

    def power_cut(self) -> None:
        """Take note of a power cut: unfinished writes may have happened or not, and nobody holds
        records.
        """
        self._sessions.clear()
        self._timers.clear()
        for record, before in [
            *self._unsettled,
            *(change for one in self._unanswered for change in one.before),
        ]:
            record.options |= {before, record.persisted}
        for shelf in self.shelves.values():
            for record in shelf.records.values():
                if record.holder is not None:  # a disconnect, or time, may just have ended this
                    record.options.add(record.persisted)
                    self._give_back(record)
                    record.options.add(record.persisted)
                record.not_before_ms = 0  # backoffs are forgotten
        self._unanswered.clear()
        self._unsettled.clear()

    def stopped(self) -> None:
        """Take note of a stop: all held records are released."""
        self._sessions.clear()
        self._timers.clear()
        for shelf in self.shelves.values():
            for record in shelf.records.values():
                if record.holder is not None:
                    self._give_back(record)
                record.not_before_ms = 0

    def restarted(self) -> None:
        """Compare with the state on the disk after a restart."""
        for key, shelf in list(self.shelves.items()):
            if self.exists(key[1:]):
                self.audit(shelf)
            else:
                del self.shelves[key]

    def audit(self, shelf: Shelf) -> None:
        """Compare the state that a restart would find, or has found, with the allowed ones."""
        key, broker = shelf.key, self.machine.broker
        state = broker.coordinators.share_state.read(
            key, LEADER_EPOCH, broker.clock.wall_ms()
        ).reply
        resetting, shelf.resetting = shelf.resetting, None
        if resetting is not None:  # interrupted: it has happened or not
            there = (
                (state.start_offset, state.state_batches)
                if isinstance(state, ShareState)
                else (UNKNOWN, ())
            )
            if there == (resetting, ()):
                shelf.reset(resetting)
            groups = {group.group_id for group in broker.coordinators.groups.share.all()}
            shelf.is_orphan = key.group_id not in groups
        if not isinstance(state, ShareState):
            if shelf.records:
                raise Violation(f"the state of {shelf} is lost")
            return
        found = {
            offset: Persisted(kind != AVAILABLE, delivery_count if kind == AVAILABLE else 0)
            for first, last, kind, delivery_count in state.state_batches
            for offset in range(first, last + 1)
        }
        log_start = self.log_starts.get(key[1:], 0)
        for offset, record in shelf.records.items():
            kept = Persisted(True, 0) if offset < state.start_offset else found.pop(offset, NEW)
            if offset >= log_start and kept not in (record.options or (record.persisted,)):
                raise Violation(
                    f"offset {offset} of {shelf} is stored as {kept}, not as {record.persisted}"
                )
            if record.options:
                record.persisted = kept
                record.is_dead = record.is_dead and kept.is_done
                record.options.clear()
        for offset, kept in found.items():
            if kept != NEW and offset >= log_start:
                raise Violation(f"offset {offset} of {shelf} is stored as {kept} without a reason")


_TYPE_NAMES = {GAP: "gaps", ACCEPT: "accepted", RELEASE: "released", REJECT: "rejected"}
