"""What holds a query's acquisition locks: one member in the driver-side reader's process, on its
own thread.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.client import (
    Acknowledgement,
    AcknowledgeType,
    AcquiredRange,
    AcquireMode,
    ClientError,
    RequestRefused,
    ShareConsumer,
)
from headrace.client.list_offsets import end_offsets
from headrace.client.share.spans import Span, count, intersect, normalize, subtract
from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition
from headrace.spark.option_parsing import SourceError
from headrace.spark.subscription import subscribed_topics

from .group_settings import settle
from .options import OUTCOMES, ShareOptions
from .report_server import OutcomeServer, OutcomeSpan

T = TypeVar("T")

CLIENT_ID = "headrace-spark"

_log = logging.getLogger(__name__)

_IDLE_WAIT_MS = 250
_RENEW_INTERVAL_S = 0.25
# Records come along with their locks, and are dropped: little at a time costs less than half of the
# CPU time of 50 MiB.
_ACQUIRE_BYTES = 8 * 1024 * 1024
# Of so many partitions the progress tells the lag of each; of more, the sum for each topic.
_LAGS_IN_PROGRESS = 1000
# How soon a new topic that matches the pattern is found.
_MATCH_INTERVAL_S = 3.0
_ASSIGNMENT_TIMEOUT_MS = 30_000
_QUIET_ACQUIRES = 2
# Longer than a dead member's session lasts by default.
_PATIENCE_S = 60.0
_CLOSE_TIMEOUT_S = 4.0
_NO_LIMIT = 2**31 - 1
# An offset that is both rejected and accepted is rejected.
_PRECEDENCE = ("reject", "release", "accept")


@dataclass(slots=True)
class Counts:
    """Records since the query began.

    :param redelivered: those of the acquired that had been delivered before
    """

    acquired: int = 0
    redelivered: int = 0
    accepted: int = 0
    released: int = 0
    rejected: int = 0

    def add(self, applied: Mapping[str, int]) -> None:
        """Count what outcomes were applied to."""
        self.accepted += applied["accept"]
        self.released += applied["release"]
        self.rejected += applied["reject"]


class ShareSession:
    """Joins the group when made, and holds what it acquires until told what became of it.

    All methods are called from the reader's main thread; an event loop on a thread of its own does
    the work, so that heartbeats and lock renewals go on while Spark runs the micro-batch.

    :raises SourceError: it cannot join
    """

    def __init__(self, options: ShareOptions) -> None:
        self.id = secrets.token_hex(8)
        self._options = options
        self.counts = Counts()
        self._topics: tuple[str, ...] = ()
        self._targets: dict[TopicPartition, int] = {}
        self._consumer: ShareConsumer
        self._server = OutcomeServer(self._apply, self._count_held)
        self._chores: list[asyncio.Task[None]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="headrace-share", daemon=True
        )
        self._thread.start()
        try:
            self._run(self._open())
        except (ClientError, SourceError) as error:
            self.close()
            raise SourceError(_advice(error)) from None

    def acquire(self) -> list[AcquiredRange]:
        """What the next micro-batch is to work on; empty when there is nothing now."""
        if self._targets:
            return self._run(self._acquire_available())
        return self._run(self._acquire_batch())

    def stop_at_end(self) -> None:
        """From now on only what the topics hold at this moment is acquired
        (``Trigger.AvailableNow``).
        """
        self._run(self._set_targets())

    def acknowledge_rest(self, ranges: Sequence[AcquiredRange]) -> None:
        """The batch has ended: what of it is still held follows ``outcome.default``."""
        self._run(self._acknowledge(ranges, self._options.default_outcome))

    def lag(self) -> dict[str, dict[str, int]]:
        """Topic -> partition -> records not yet dealt with, where known; of very many partitions,
        topic -> "sum".
        """
        try:
            lags = self._run(self._consumer.cluster.share_lag(self._options.group_id, self._topics))
        except ClientError:
            return {}
        known = [(lag.topic, str(lag.partition), lag.lag) for lag in lags if lag.lag is not None]
        by_topic: dict[str, dict[str, int]] = {}
        for topic, partition, behind in known:
            of_topic = by_topic.setdefault(topic, {})
            name = partition if len(known) <= _LAGS_IN_PROGRESS else "sum"
            of_topic[name] = of_topic.get(name, 0) + behind
        return by_topic

    def close(self) -> None:
        """Leave the group; what is held is released at once. Safe to call twice."""
        if self._loop.is_closed() or not self._thread.is_alive():
            return
        try:
            self._run(self._close(), _CLOSE_TIMEOUT_S)
        except Exception as error:
            _log.warning("leaving share group %s: %r", self._options.group_id, error)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_TIMEOUT_S)

    def _run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    # -- on the loop's thread

    async def _open(self) -> None:
        options = self._options
        self._consumer = ShareConsumer(
            options.kafka.bootstrap_servers,
            options.group_id,
            (),
            client_id=CLIENT_ID,
            security=options.kafka.security,
        )
        cluster = self._consumer.cluster
        try:
            self._subscribe(await subscribed_topics(cluster, options.subscription))
            await settle(cluster, options.group_id, options.group_settings)
            await self._consumer.start()
        except BaseException:
            await cluster.close()
            raise
        await self._server.start(options.kafka.bootstrap_servers, options.group_id)
        self._chores.append(asyncio.create_task(self._keep_renewing()))
        if options.subscription.pattern is not None:
            self._chores.append(asyncio.create_task(self._keep_matching()))

    def _subscribe(self, topics: Iterable[str]) -> None:
        self._topics = tuple(topics)
        self._consumer.subscribe(self._topics)

    async def _close(self) -> None:
        self._server.close()
        if self._chores:
            for chore in self._chores:
                chore.cancel()
            await self._consumer.close()

    async def _keep_renewing(self) -> None:
        warned = False
        while True:
            # How long locks last is known once some are held.
            await asyncio.sleep(min(self._consumer.lock_timeout_ms / 6000, _RENEW_INTERVAL_S))
            try:
                await self._consumer.renew(older_than_ms=self._consumer.lock_timeout_ms // 3)
            except ClientError as error:
                _log.warning("renewing locks of share group %s: %s", self._options.group_id, error)
            if not self._consumer.can_renew and not warned:
                warned = True
                _log.warning(
                    "the broker cannot renew acquisition locks (Kafka 4.2 can): "
                    "micro-batches longer than "
                    "%d ms are delivered again",
                    self._consumer.lock_timeout_ms,
                )

    async def _keep_matching(self) -> None:
        while True:
            await asyncio.sleep(_MATCH_INTERVAL_S)
            try:
                topics = tuple(
                    await subscribed_topics(self._consumer.cluster, self._options.subscription)
                )
            except (ClientError, SourceError) as error:
                _log.warning(
                    "looking for topics of share group %s: %s", self._options.group_id, error
                )
                continue
            if topics != self._topics:
                _log.warning(
                    "share group %s: subscribed to %s", self._options.group_id, ", ".join(topics)
                )
                self._subscribe(topics)

    async def _acquire_batch(self) -> list[AcquiredRange]:
        limit = self._options.max_records_per_trigger
        mode = AcquireMode.BATCH_OPTIMIZED if limit is None else AcquireMode.RECORD_LIMIT
        ranges: list[AcquiredRange] = []
        room = _NO_LIMIT if limit is None else limit
        self._complete = True
        while room > 0:
            acquired = await self._consumer.acquire(
                max_records=room,
                max_wait_ms=0 if ranges else _IDLE_WAIT_MS,
                max_bytes=_ACQUIRE_BYTES,
                mode=mode,
                keep_data=False,
            )
            self._complete = acquired.complete
            if not acquired.ranges:
                break
            ranges += acquired.ranges
            room -= sum(r.count for r in acquired.ranges)
        self.counts.acquired += sum(r.count for r in ranges)
        self.counts.redelivered += sum(r.count for r in ranges if r.delivery_count > 1)
        return ranges

    async def _set_targets(self) -> None:
        if not await self._consumer.wait_for_assignment(_ASSIGNMENT_TIMEOUT_MS):
            raise SourceError(
                f"share group '{self._options.group_id}' gave this query no partitions in 30 s"
            )
        self._targets = await end_offsets(self._consumer.cluster, self._topics)

    async def _acquire_available(self) -> list[AcquiredRange]:
        """The next of what was there when the run began; empty when the group is done with all of
        it.

        What other members hold is waited for, because a member that was killed holds its partitions
        until its session expires; but not for ever.
        """
        quiet = 0
        assigned = self._consumer.assignment
        deadline_s = self._loop.time() + _PATIENCE_S
        while True:
            ranges = await self._acquire_batch()
            if ranges:
                if any(
                    r.first_offset < self._targets.get((r.topic, r.partition), 0) for r in ranges
                ):
                    return ranges
                await self._acknowledge(ranges, AcknowledgeType.RELEASE)
            assigned, before = self._consumer.assignment, assigned
            quiet = quiet + 1 if self._complete and assigned == before else 0
            if quiet < _QUIET_ACQUIRES and self._loop.time() < deadline_s:
                continue
            left = await self._left()
            if not left:
                return []
            if self._loop.time() >= deadline_s:
                names = ", ".join(f"{topic}-{partition}" for topic, partition in left)
                _log.warning(
                    "ending with records left in %s: other members hold them, or nobody answers",
                    names,
                )
                return []

    async def _left(self) -> list[TopicPartition]:
        """The partitions that hold records, from before the run began, that the group is not done
        with.
        """
        mine = self._consumer.assignment
        lags = await self._consumer.cluster.share_lag(self._options.group_id, self._topics)
        left = []
        for lag in lags:
            partition = (lag.topic, lag.partition)
            # Nothing is known of a partition before its first acknowledgement; one's own has just
            # been seen empty.
            done = (
                partition in mine if lag.lag is None or lag.start_offset is None else lag.lag == 0
            )
            target = self._targets.get(partition, 0)
            if not done and target > 0 and (lag.start_offset is None or lag.start_offset < target):
                left.append(partition)
        return left

    async def _acknowledge(self, ranges: Sequence[AcquiredRange], outcome: AcknowledgeType) -> None:
        await self._tell(
            Acknowledgement(r.topic, r.partition, r.first_offset, r.last_offset, outcome)
            for r in ranges
        )

    async def _tell(self, acknowledgements: Iterable[Acknowledgement]) -> dict[str, int]:
        """How many records each outcome was applied to."""
        applied = dict.fromkeys(OUTCOMES, 0)
        for taken in await self._consumer.acknowledge(acknowledgements):
            applied[taken.type.name.lower()] += taken.last_offset - taken.first_offset + 1
        self.counts.add(applied)
        return applied

    def _count_held(self, outcomes: Sequence[OutcomeSpan]) -> int:
        held = self._consumer.held()
        return sum(
            count(intersect(held.get((topic, partition), []), [(first, last)]))
            for topic, partition, _, first, last in outcomes
        )

    async def _apply(self, outcomes: Sequence[OutcomeSpan]) -> dict[str, int]:
        wanted: dict[TopicPartition, dict[str, list[Span]]] = {}
        for topic, partition, outcome, first, last in outcomes:
            wanted.setdefault((topic, partition), {}).setdefault(outcome, []).append((first, last))
        acknowledgements: list[Acknowledgement] = []
        for (topic, partition), by_outcome in wanted.items():
            decided: list[Span] = []
            for outcome in _PRECEDENCE:
                spans = subtract(normalize(by_outcome.get(outcome, [])), decided)
                decided = normalize([*decided, *spans])
                acknowledgements += (
                    Acknowledgement(topic, partition, *span, OUTCOMES[outcome]) for span in spans
                )
        return await self._tell(acknowledgements)


def _advice(error: Exception) -> str:
    if isinstance(error, RequestRefused) and error.code == ErrorCode.GROUP_ID_NOT_FOUND:
        return f"{error}: choose another kafka.group.id, or delete that group"
    return str(error)
