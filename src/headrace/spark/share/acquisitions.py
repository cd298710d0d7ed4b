"""Records that a query acquires: acquisition, acknowledgement, and their counts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from headrace.client import (
    Acknowledgement,
    AcknowledgeType,
    Acquired,
    AcquiredRange,
    AcquireMode,
    ClientError,
    ConnectionFailed,
    RangeConsumer,
)
from headrace.client.configs import ConfigType, describe_config
from headrace.client.errors import raised
from headrace.client.groups import SHARE, describe_group
from headrace.client.offsets import (
    LATEST,
    alter_share_offsets,
    list_offsets,
    share_offsets_of_topics,
)
from headrace.client.share.spans import Span, subtract
from headrace.client.share_state import share_states
from headrace.log_lines import get_logger
from headrace.protocol.partitions import TopicPartition
from headrace.spark.errors import SourceError

from .ahead import AcquisitionAhead, still_held
from .last_delivery import (
    DEAD_LETTER_QUEUE,
    DELIVERY_COUNT_LIMIT,
    GroupLimits,
    Step,
    advice,
)
from .options import ShareOptions
from .outcomes import OUTCOME_COUNTS, one_for_each_offset
from .suspects import NO_LIMIT, Position, Suspects

_log = get_logger(__name__)

_IDLE_WAIT_MS = 250
_ACQUIRE_BYTES = 8 * 1024 * 1024
"""Bytes of one ShareFetch. Apache Kafka sends the records along with their locks, to be dropped:
small answers take less than half of the CPU time of answers of 50 MiB (measured)."""
_ASSIGNMENT_TIMEOUT_MS = 30_000
_QUIET_ACQUIRES = 2
"""Number of acquisitions in a row without records after which a run may be complete."""
_FIRST_THAT_MATTERS = 2
"""The smallest delivery count that is looked at. With a limit of 2, each first delivery is the last
but one."""
_PATIENCE_S = 60.0
"""Time to wait for records that other members hold; longer than the default session of a member
that was killed."""
_MAX_NAMES = 10
"""The limit of partitions that a log line names."""
_START_OVER_PAUSES_S = (0.25, 4.0)
"""The first and the longest pause before another attempt to start over."""


COUNTED = ("acquired", "redelivered", *OUTCOME_COUNTS.values())
"""Numbers of records since the query began; ``redelivered`` of those that were acquired had been
delivered before."""


class Acquisitions:
    """The records that one member acquires for a query. Lives in the event loop of the consumer.

    :ivar topics: names of the topics that are subscribed to
    :ivar counts: numbers of records since the query began
    :ivar suspects: records of a micro-batch that did not finish
    """

    def __init__(self, consumer: RangeConsumer, options: ShareOptions) -> None:
        self.topics: tuple[str, ...] = ()
        self.counts = dict.fromkeys(COUNTED, 0)
        self._most_records = options.max_records_per_trigger or NO_LIMIT
        self._consumer = consumer
        self._options = options
        self._ahead = AcquisitionAhead(partial(self._acquire_at_most, max_wait_ms=0))
        self._run_ends: dict[TopicPartition, int] = {}
        self._limits: GroupLimits | None = None
        self._releases_records = options.default_outcome is AcknowledgeType.RELEASE
        self._has_warned: set[Step | None] = set()
        """Steps at last deliveries that the log has told of; None: the limits are unknown."""
        self._running: Sequence[AcquiredRange] = ()
        self._later: list[AcquiredRange] = []
        """Records that are held for a later micro-batch than the next one."""
        self.suspects = Suspects()
        self._is_last_delivery = False
        """A failure of the micro-batch may give up its records."""

    def subscribe(self, topics: Iterable[str]) -> None:
        """Change the subscription."""
        self.topics = tuple(topics)
        self._consumer.subscribe(self.topics)

    async def suspect(
        self, count: int, spans: Mapping[TopicPartition, Span], alone: Iterable[Position]
    ) -> None:
        """Look for the record for which a micro-batch may have failed, by smaller ones.

        :param count: the number of its records
        :param spans: the first and the last offset of each partition
        :param alone: :attr:`Suspects.alone` at the time of this micro-batch
        """
        self.suspects.begin(count, spans, alone, asyncio.get_running_loop().time())
        names = "; ".join(
            f"{topic}-{number} offset {first}"
            if first == last
            else f"{topic}-{number} offsets {first} to {last}"
            for (topic, number), (first, last) in list(spans.items())[:_MAX_NAMES]
        )
        if count == 1:
            _log.error(
                "share group %s: the micro-batch with nothing but %s did not finish: it runs again "
                "when there are no others. If the query cannot process this record, let it reject "
                "it, as headrace.spark.process does",
                self._options.group_id,
                names,
            )
        else:
            _log.warning(
                "share group %s: the last micro-batch did not finish (%d records, %s): the next "
                "ones have at most %d, until these are done",
                self._options.group_id,
                count,
                names,
                self.suspects.most_records,
            )

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
        self._run_ends = await self._end_offsets()

    async def _end_offsets(self) -> dict[TopicPartition, int]:
        """Return the end offset of each partition that has a leader now."""
        cluster = self._consumer.cluster
        partitions = [
            (name, number)
            for name, topic in (await cluster.topics(self.topics)).items()
            for number, leader in topic.leaders.items()
            if leader >= 0
        ]
        listed = raised(await list_offsets(cluster, dict.fromkeys(partitions, LATEST), attempts=2))
        return {key: end.offset for key, end in listed.items() if end.offset is not None}

    async def acquire(self, *, unless_finished: bool = False) -> list[AcquiredRange]:
        """Acquire the records of the next micro-batch; empty if there are none now.

        :param unless_finished: empty only when the group has finished what the topics hold now:
            records that other members hold are waited for, up to a time limit
        """
        self.suspects.processed(self._running)
        if unless_finished:
            ranges = await self._acquire_unless_finished()
        elif self._run_ends:
            ranges = await self._acquire_until_run_ends()
        else:
            ranges, _ = await self._acquire_batch()
        self._running = ranges
        may_acquire_ahead = self._options.acquire_ahead and not self.suspects
        if ranges and may_acquire_ahead and not self._is_last_delivery:
            self._ahead.start(self._most_records)
        return ranges

    async def _acquire_unless_finished(self) -> list[AcquiredRange]:
        await self._consumer.wait_for_assignment(_ASSIGNMENT_TIMEOUT_MS)
        try:
            self._run_ends = await self._end_offsets()
            return await self._acquire_until_run_ends(takes_later=True)
        except ConnectionFailed as failure:
            _log.warning("no new micro-batch for now: %s", failure)
            return []
        finally:
            self._run_ends = {}

    async def _acquire_batch(self) -> tuple[list[AcquiredRange], bool]:
        """Acquire up to the limits; also return whether all brokers answered.

        What was acquired before comes first, unless it has been lost since.

        :raises SourceError: the next delivery would be the last one, and the broker does not
            forget the others
        """
        before = [*self._later, *await self._ahead.take()]
        ranges = still_held(before, self._consumer.held())
        room = self.suspects.most_to_hold(self._most_records) - sum(r.count for r in ranges)
        complete = True
        step = await self._next_step(ranges)
        while room > 0 and step is Step.RUN:
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
            step = await self._next_step(acquired.ranges)
        if step is Step.START_OVER:
            await self._start_over(ranges)
            return [], False
        self._is_last_delivery = step is not Step.RUN
        if self._is_last_delivery:
            text = f"{self._advice(ranges)}. If this micro-batch fails, they are given up"
            self._warn(step, text)
        ranges = still_held(ranges, self._consumer.held())
        now_s = asyncio.get_running_loop().time()
        ranges, self._later = self.suspects.choose(ranges, self._most_records, now_s)
        for r in ranges:
            self.counts["acquired"] += r.count
            self.counts["redelivered"] += r.count if r.delivery_count > 1 else 0
        return ranges, complete

    def _warn(self, step: Step | None, text: str) -> None:
        if step not in self._has_warned:
            self._has_warned.add(step)
            _log.warning("%s", text)

    async def _next_step(self, ranges: Sequence[AcquiredRange]) -> Step:
        """Return what to do with acquired records. The broker is asked only if it matters."""
        delivery_count = max((r.delivery_count for r in ranges), default=0)
        if delivery_count < _FIRST_THAT_MATTERS:
            return Step.RUN
        limits = self._limits
        if limits is None or delivery_count >= limits.delivery_count_limit - 1:
            limits = await self._read_limits()  # an operator may have changed them
        if (
            limits is None
            or delivery_count < limits.delivery_count_limit - 1
            or await self._broker_can_uncount(ranges[0])
            or limits.keeps_given_up
            or self._releases_records
        ):
            return Step.RUN
        # A release would give up records that have their last delivery, unless the group can start
        # over at once.
        is_last = delivery_count >= limits.delivery_count_limit
        return Step.SPEND if is_last and await self._has_other_members() else Step.START_OVER

    async def _has_other_members(self) -> bool:
        """Return whether the group has another member; True if it is unknown."""
        try:
            group = await describe_group(self._consumer.cluster, self._options.group_id, [SHARE])
        except ClientError as error:
            _log.warning("asking for the members of the group: %s", error)
            return True
        return group is None or any(m.member_id != self._consumer.member_id for m in group.members)

    async def _read_limits(self) -> GroupLimits | None:
        """Return the group's limits, or what was read last; None if they are unknown."""
        names = (DELIVERY_COUNT_LIMIT, DEAD_LETTER_QUEUE)
        group_id = self._options.group_id
        try:
            configs = await describe_config(
                self._consumer.cluster, ConfigType.GROUP, group_id, names
            )
        except ClientError as error:
            self._warn(
                None,
                f"share group {group_id}: {DELIVERY_COUNT_LIMIT} is unknown, so records may be "
                f"given up when micro-batches fail: {error}",
            )
            return self._limits
        limit = configs.get(DELIVERY_COUNT_LIMIT) or GroupLimits().delivery_count_limit
        self._limits = GroupLimits(int(limit), bool(configs.get(DEAD_LETTER_QUEUE)))
        return self._limits

    def _advice(self, ranges: Iterable[AcquiredRange]) -> str:
        return advice(ranges, self._options.group_id, self._limits or GroupLimits())

    async def _broker_can_uncount(self, acquired: AcquiredRange) -> bool:
        """Return whether the broker answers with headrace's tagged fields; False if not at all."""
        partition = acquired.topic_partition
        cluster = self._consumer.cluster
        try:
            states = await share_states(cluster, self._options.group_id, [partition], 1)
        except ClientError as error:
            _log.warning("asking for the broker's abilities: %s", error)
            return False
        return partition in states and states[partition].spans is not None

    async def _start_over(self, ranges: Sequence[AcquiredRange]) -> None:
        """Have the broker forget how often records were delivered: leave the group, and set its
        start offsets to where they are. It delivers other finished records after them again.

        While the group has other members, the broker refuses. They may leave, too.

        :raises SourceError: the broker has refused for too long
        """
        loop = asyncio.get_running_loop()
        starts: dict[TopicPartition, int] = {}
        for r in sorted(ranges, key=lambda r: r.first_offset):
            starts.setdefault(r.topic_partition, r.first_offset)
        self._later = []
        await self._consumer.close()
        deadline_s = loop.time() + _PATIENCE_S
        pause_s, longest_pause_s = _START_OVER_PAUSES_S
        while (problem := await self._set_starts(starts)) is not None:
            if loop.time() + pause_s > deadline_s:
                raise SourceError(f"{problem}: {self._advice(ranges)}")
            self._warn(Step.START_OVER, f"to count deliveries anew, waiting: {problem}")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_pause_s)
        await self._consumer.start()
        places = ", ".join(f"{topic}-{n} offset {offset}" for (topic, n), offset in starts.items())
        _log.warning(
            "%s. Until then deliveries are counted anew, from %s on; other finished records after "
            "these come again",
            self._advice(ranges),
            places,
        )

    async def _set_starts(self, starts: dict[TopicPartition, int]) -> ClientError | None:
        """Set start offsets of the group, which has no members; return why this failed.

        :param starts: the first offsets that were acquired; set to those of the group, which may be
            lower
        """
        group_id, cluster = self._options.group_id, self._consumer.cluster
        try:
            states = await share_states(cluster, group_id, starts)
        except ClientError as error:
            return error
        for partition, offset in starts.items():
            state = states.get(partition)
            if state is None or state.start_offset is None:
                # Unfinished records may be below the acquired ones. They would be skipped.
                topic, number = partition
                return ClientError(f"the broker does not tell the start offset of {topic}-{number}")
            starts[partition] = min(offset, state.start_offset)
        altered = await alter_share_offsets(cluster, group_id, starts)
        return next((error for error in altered.values() if error is not None), None)

    async def _acquire_at_most(self, max_records: int, max_wait_ms: int) -> Acquired:
        has_limit = self.suspects.most_to_hold(self._most_records) < NO_LIMIT
        return await self._consumer.acquire(
            max_records=max_records,
            max_wait_ms=max_wait_ms,
            max_bytes=_ACQUIRE_BYTES,
            mode=AcquireMode.RECORD_LIMIT if has_limit else AcquireMode.BATCH_OPTIMIZED,
            offsets_only=True,  # executors read the records
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
        # Later records stay locked meanwhile, or they would come again and again.
        later: list[AcquiredRange] = []
        try:
            while True:
                ranges, complete = await self._acquire_batch()
                takes_all = takes_later or self._is_last_delivery  # Kafka gives up what is released
                if (ranges and takes_all) or any(map(self._is_of_run, ranges)):
                    return ranges
                later += ranges
                previous, assignment = assignment, self._consumer.assignment
                is_quiet = complete and assignment == previous
                quiet_acquires = quiet_acquires + 1 if is_quiet else 0
                has_patience = loop.time() < deadline_s
                if quiet_acquires < _QUIET_ACQUIRES and has_patience:
                    continue
                unfinished = await self._unfinished()
                if unfinished and has_patience:
                    continue
                if unfinished:
                    _log.warning(
                        "share group %s: ending with records left in %s: other members hold them, "
                        "or their leaders do not answer",
                        self._options.group_id,
                        ", ".join(f"{topic}-{partition}" for topic, partition in unfinished),
                    )
                return []
        finally:
            await self._consumer.release_unprocessed(later)

    def _is_of_run(self, acquired: AcquiredRange) -> bool:
        return acquired.first_offset < self._run_ends.get(acquired.topic_partition, 0)

    async def _unfinished(self) -> list[TopicPartition]:
        """Return the partitions with unfinished records from before the run began."""
        seen_empty = self._consumer.assignment
        progress = await share_offsets_of_topics(
            self._consumer.cluster, self._options.group_id, self.topics
        )
        unfinished = []
        for partition, lag in progress.items():
            if lag.lag is None or lag.start_offset is None:
                # The lag is unknown before the first acknowledgement.
                is_finished = partition in seen_empty
            else:
                is_finished = lag.lag == 0
            if not is_finished and (lag.start_offset or 0) < self._run_ends.get(partition, 0):
                unfinished.append(partition)
        return unfinished

    async def close(self) -> None:
        """Release what is held: it does not count, if the broker can.

        A micro-batch that has not finished says nothing of its records, unless it has only one.
        This one counts if the group has a dead-letter queue, which the delivery limit is for.
        """
        await self._ahead.take()
        held = self._consumer.held()
        if not held:
            return
        counted: dict[TopicPartition, list[Span]] = {}
        if sum(r.count for r in self._running) == 1:
            limits = await self._read_limits()
            if limits is not None and limits.keeps_given_up:
                counted = {r.topic_partition: [r.span] for r in self._running}
        await self._consumer.release_unprocessed(
            AcquiredRange(*partition, *span, 0)
            for partition, spans in held.items()
            for span in subtract(spans, counted.get(partition, ()))
        )

    async def acknowledge(self, ranges: Sequence[AcquiredRange], outcome: AcknowledgeType) -> None:
        """Acknowledge what is still held of some ranges."""
        await self._send(
            Acknowledgement(*r.topic_partition, *r.span, outcome, r.topic_id) for r in ranges
        )

    async def apply(self, outcomes: Sequence[Acknowledgement]) -> dict[str, int]:
        """Apply outcomes to the records that are held; return the number of records by outcome."""
        applied = await self._send(one_for_each_offset(outcomes))
        self._releases_records = self._releases_records or applied["released"] > 0
        return applied

    async def _send(self, acknowledgements: Iterable[Acknowledgement]) -> dict[str, int]:
        applied = dict.fromkeys(OUTCOME_COUNTS.values(), 0)
        for done in await self._consumer.acknowledge(acknowledgements):
            name, records = OUTCOME_COUNTS[done.type], done.last_offset - done.first_offset + 1
            applied[name] += records
            self.counts[name] += records
        self._ahead.locks_freed()
        return applied
