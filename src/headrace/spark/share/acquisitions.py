"""Records that a query acquires: acquisition, acknowledgement, and their counts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.client import (
    Acknowledgement,
    AcknowledgeType,
    Acquired,
    AcquiredRange,
    AcquireMode,
    ClientError,
    ConnectionFailed,
    ShareConsumer,
)
from headrace.client.list_offsets import end_offsets
from headrace.client.share.spans import count, intersect
from headrace.log_lines import get_logger
from headrace.protocol.partitions import TopicPartition
from headrace.spark.errors import SourceError

from .ahead import AcquisitionAhead, still_held
from .options import ShareOptions
from .outcome_spans import OUTCOMES, OutcomeSpan, acknowledgements

_log = get_logger(__name__)

_IDLE_WAIT_MS = 250
_ACQUIRE_BYTES = 8 * 1024 * 1024
"""Bytes of one ShareFetch. The records come along with their locks and are dropped; small answers
take less than half of the CPU time of answers of 50 MiB (measured)."""
_NO_LIMIT = 2**31 - 1
_ASSIGNMENT_TIMEOUT_MS = 30_000
_QUIET_ACQUIRES = 2
"""Number of acquisitions in a row without records after which a run may be complete."""
_PATIENCE_S = 60.0
"""Time to wait for records that other members hold; longer than the default session of a member
that was killed."""


@dataclass(slots=True)
class Counts:
    """Numbers of records since the query began.

    :param redelivered: acquired records that had been delivered before
    """

    acquired: int = 0
    redelivered: int = 0
    accepted: int = 0
    released: int = 0
    rejected: int = 0

    def add_acquired(self, ranges: Iterable[AcquiredRange]) -> None:
        """Count acquired records."""
        for acquired in ranges:
            self.acquired += acquired.count
            if acquired.delivery_count > 1:
                self.redelivered += acquired.count

    def add_applied(self, applied: Mapping[str, int]) -> None:
        """Count records by the outcome that was applied to them."""
        self.accepted += applied["accept"]
        self.released += applied["release"]
        self.rejected += applied["reject"]


class Acquisitions:
    """The records that one member acquires for a query. Lives in the event loop of the consumer.

    :ivar topics: names of the topics that are subscribed to
    :ivar counts: numbers of records since the query began
    """

    def __init__(self, consumer: ShareConsumer, options: ShareOptions) -> None:
        self.topics: tuple[str, ...] = ()
        self.counts = Counts()
        self._consumer = consumer
        self._options = options
        self._ahead = AcquisitionAhead(self._acquire_now)
        self._run_ends: dict[TopicPartition, int] = {}

    def subscribe(self, topics: Iterable[str]) -> None:
        """Change the subscription."""
        self.topics = tuple(topics)
        self._consumer.subscribe(self.topics)

    async def stop_at_current_end(self) -> None:
        """Acquire only what the topics hold now (``Trigger.AvailableNow``).

        :raises SourceError: the member was assigned no partitions
        :raises ClientError: the cluster does not answer
        """
        if not await self._consumer.wait_for_assignment(_ASSIGNMENT_TIMEOUT_MS):
            raise SourceError(
                f"share group '{self._options.group_id}' assigned no partitions to this query "
                f"within {_ASSIGNMENT_TIMEOUT_MS // 1000} s"
            )
        self._run_ends = await end_offsets(self._consumer.cluster, self.topics)

    async def acquire(self) -> list[AcquiredRange]:
        """Acquire the records of the next micro-batch; empty if there are none now."""
        if self._run_ends:
            ranges = await self._acquire_until_run_ends()
        else:
            ranges, _ = await self._acquire_batch()
        self._start_ahead(ranges)
        return ranges

    async def acquire_unless_finished(self) -> list[AcquiredRange]:
        """Acquire records; empty only when the group has finished what the topics hold now.

        Records that other members hold are waited for, up to a time limit.
        """
        await self._consumer.wait_for_assignment(_ASSIGNMENT_TIMEOUT_MS)
        try:
            self._run_ends = await end_offsets(self._consumer.cluster, self.topics)
            ranges = await self._acquire_until_run_ends(takes_later=True)
            self._start_ahead(ranges)
            return ranges
        except ConnectionFailed as failure:
            _log.warning("no new micro-batch for now: %s", failure)
            return []
        finally:
            self._run_ends = {}

    async def _acquire_batch(self) -> tuple[list[AcquiredRange], bool]:
        """Acquire up to the limits; also return whether all brokers answered.

        What was acquired ahead comes first, unless it has been lost since.
        """
        limit = self._most_records
        ranges = still_held(await self._ahead.take(), self._consumer.held())
        room = limit - sum(r.count for r in ranges)
        complete = True
        while room > 0:
            try:
                acquired = await self._acquire_at_most(room, 0 if ranges else _IDLE_WAIT_MS)
            except ClientError as error:
                if not ranges:
                    raise
                # What has been acquired is locked. The next acquisition reports a lasting error.
                _log.warning("acquiring more records for a micro-batch: %s", error)
                complete = False
                break
            complete = acquired.complete
            if not acquired.ranges:
                break
            ranges += acquired.ranges
            room -= sum(r.count for r in acquired.ranges)
        ranges = still_held(ranges, self._consumer.held())
        self.counts.add_acquired(ranges)
        return ranges, complete

    @property
    def _most_records(self) -> int:
        return self._options.max_records_per_trigger or _NO_LIMIT

    def _start_ahead(self, ranges: Sequence[AcquiredRange]) -> None:
        """Acquire records for the next micro-batch while this one runs."""
        if ranges and self._options.acquire_ahead:
            self._ahead.start(self._most_records)

    async def _acquire_now(self, max_records: int) -> Sequence[AcquiredRange]:
        return (await self._acquire_at_most(max_records, max_wait_ms=0)).ranges

    async def _acquire_at_most(self, max_records: int, max_wait_ms: int) -> Acquired:
        limit = self._options.max_records_per_trigger
        return await self._consumer.acquire(
            max_records=max_records,
            max_wait_ms=max_wait_ms,
            max_bytes=_ACQUIRE_BYTES,
            mode=AcquireMode.BATCH_OPTIMIZED if limit is None else AcquireMode.RECORD_LIMIT,
            keep_data=False,
        )

    async def _acquire_until_run_ends(self, *, takes_later: bool = False) -> list[AcquiredRange]:
        """Acquire records from before the run began; empty when the group has finished them.

        Records that other members hold are waited for, up to a time limit: a member that was
        killed keeps its partitions until its session expires.

        :param takes_later: take records from after that, too, instead of releasing them
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _PATIENCE_S
        assignment = self._consumer.assignment
        quiet_acquires = 0
        while True:
            ranges, complete = await self._acquire_batch()
            if (ranges and takes_later) or any(map(self._is_of_run, ranges)):
                return ranges
            if ranges:
                await self.acknowledge(ranges, AcknowledgeType.RELEASE)
            previous, assignment = assignment, self._consumer.assignment
            is_quiet = complete and assignment == previous
            quiet_acquires = quiet_acquires + 1 if is_quiet else 0
            if quiet_acquires < _QUIET_ACQUIRES and loop.time() < deadline_s:
                continue
            unfinished = await self._unfinished()
            if not unfinished:
                return []
            if loop.time() >= deadline_s:
                names = ", ".join(f"{topic}-{partition}" for topic, partition in unfinished)
                _log.warning(
                    "share group %s: ending with records left in %s: other members hold them, "
                    "or their leaders do not answer",
                    self._options.group_id,
                    names,
                )
                return []

    def _is_of_run(self, acquired: AcquiredRange) -> bool:
        return acquired.first_offset < self._run_ends.get((acquired.topic, acquired.partition), 0)

    async def _unfinished(self) -> list[TopicPartition]:
        """Return the partitions with unfinished records from before the run began."""
        seen_empty = self._consumer.assignment
        lags = await self._consumer.cluster.share_lag(self._options.group_id, self.topics)
        unfinished = []
        for lag in lags:
            partition = (lag.topic, lag.partition)
            if lag.lag is None or lag.start_offset is None:
                # The lag is unknown before the first acknowledgement.
                is_finished = partition in seen_empty
            else:
                is_finished = lag.lag == 0
            run_end = self._run_ends.get(partition, 0)
            reached_end = run_end == 0 or (
                lag.start_offset is not None and lag.start_offset >= run_end
            )
            if not is_finished and not reached_end:
                unfinished.append(partition)
        return unfinished

    def close(self) -> None:
        """Acquire nothing more. The end of the share session releases what is held."""
        self._ahead.cancel()

    async def acknowledge(self, ranges: Sequence[AcquiredRange], outcome: AcknowledgeType) -> None:
        """Acknowledge what is still held of some ranges."""
        await self._send(
            Acknowledgement(
                r.topic, r.partition, r.first_offset, r.last_offset, outcome, r.topic_id
            )
            for r in ranges
        )

    async def apply(self, outcomes: Sequence[OutcomeSpan]) -> dict[str, int]:
        """Apply outcomes to the records that are held; return the number of records by outcome."""
        return await self._send(acknowledgements(outcomes))

    def count_held(self, outcomes: Sequence[OutcomeSpan]) -> int:
        """Return how many of the records are held."""
        held = self._consumer.held()
        return sum(
            count(intersect(held.get((topic, partition), []), [(first, last)]))
            for topic, partition, _, first, last, _ in outcomes
        )

    async def _send(self, wanted: Iterable[Acknowledgement]) -> dict[str, int]:
        applied = dict.fromkeys(OUTCOMES, 0)
        for done in await self._consumer.acknowledge(wanted):
            applied[done.type.name.lower()] += done.last_offset - done.first_offset + 1
        self.counts.add_applied(applied)
        self._ahead.locks_freed()
        return applied
