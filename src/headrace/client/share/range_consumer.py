"""A member of a share group that acquires and acknowledges runs of offsets (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from logging import INFO, WARNING
from typing import Any, TypeVar
from uuid import UUID, uuid4

from headrace.client.cluster import Cluster, TopicMetadata
from headrace.client.connection import Connection
from headrace.client.errors import (
    ClientError,
    ConnectionFailed,
    InvalidResponse,
    RequestRefused,
    error_name,
)
from headrace.errors import ErrorCode
from headrace.log_lines import get_logger
from headrace.protocol.partitions import TopicIdPartition, TopicPartition
from headrace.uuid_text import uuid_text

from .node import Batches, OnLost, Outcomes, ShareNode, monotonic_ms
from .session import LEAVE_EPOCH, ShareMembership
from .spans import Span, count, intersect
from .types import (
    Acknowledgement,
    AcknowledgeType,
    Acquired,
    AcquiredRange,
    AcquireLimits,
    AcquireMode,
)

_log = get_logger(__name__)

T = TypeVar("T")

_RETRY_PAUSE_MS = 100
_MAX_NAMES = 10
"""The limit of partitions that a log line names."""
_CLOSE_TIMEOUT_MS = 3000
_RENEWAL_INTERVALS_MS = (20, 250)
"""The shortest and the longest interval of looking for locks to renew."""


class RangeConsumer:
    """A member of a share group, on asyncio: the layer below
    :class:`~headrace.client.ShareConsumer`, for those who process runs of offsets elsewhere.

    ::

        async with RangeConsumer("127.0.0.1:9092", "workers", ["orders"]) as consumer:
            acquired = await consumer.acquire(max_records=500, max_wait_ms=1000)
            for place, ranges in acquired.ranges_by_partition().items():
                for record in decode(acquired.data[place], ranges):
                    print(record.value)
            await consumer.acknowledge(
                Acknowledgement(r.topic, r.partition, r.first_offset, r.last_offset,
                AcknowledgeType.ACCEPT, r.topic_id) for r in acquired.ranges
            )

    A task sends heartbeats. Acquisition locks are renewed by :meth:`renew` and :meth:`keep_locks`.
    An error that ends the membership, such as a failed authorization, is raised by the next call. A
    call that is cancelled ends at once, and what it has asked the brokers for is carried out. After
    a close, the member may be started again.

    :param cluster: closed with the member; or the addresses of some brokers
    :param topics: names of the topics to subscribe to
    :param rack_id: this member's rack, or None
    :param on_lost: called when held records are lost, unless a close has lost them
    """

    def __init__(
        self,
        cluster: Cluster | str,
        group_id: str,
        topics: Iterable[str],
        *,
        rack_id: str | None = None,
        on_lost: OnLost = lambda *_: None,
    ) -> None:
        self.group_id = group_id
        self.member_id = uuid_text(uuid4())
        self.cluster = Cluster(cluster) if isinstance(cluster, str) else cluster
        self._rack_id = rack_id
        self._on_lost = on_lost
        self._membership = ShareMembership(self.member_id, tuple(sorted(set(topics))))
        self._membership_changed = asyncio.Event()
        self._heartbeats: asyncio.Task[None] | None = None
        self._ended: ClientError | None = None
        self._deferred: BaseException | None = None
        """An error of an acquire that has returned records; the next one raises it."""
        self._is_closed = False
        self._fetches: dict[int, asyncio.Task[Acquired]] = {}
        """By node id. A fetch goes on when the call that began it ends; a later call returns its
        records.
        """
        self._topics: dict[UUID, TopicMetadata] = {}
        self._nodes: Mapping[int, ShareNode] = {}
        """Replaced, never changed: calls that wait iterate over it."""
        self._paused: set[TopicPartition] = set()
        self._losses: list[tuple[str, int, str]] = []
        """(partition, records, reason) of what was lost in this turn of the event loop."""
        self._reported: dict[str, str] = {}
        """What was last logged, by what it is about."""

    async def __aenter__(self) -> RangeConsumer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Join the group.

        If it is cancelled, it leaves the group again, which takes up to 3 s.

        :raises ClientError: a topic does not exist, the group is of another type, or no broker
            answers
        """
        self._is_closed = False
        try:
            await self.cluster.topics(self._membership.topics)
            await self._learn_topics()
            await self._heartbeat()
            if self._ended is not None:
                raise self._ended
        except BaseException:
            await self.close()
            raise
        self._heartbeats = asyncio.create_task(
            self._send_heartbeats(), name=f"headrace-heartbeat-{self.group_id}"
        )

    async def close(self, timeout_ms: int = _CLOSE_TIMEOUT_MS) -> None:
        """Leave the group and close the sessions: the brokers release the held records at once.

        Records that no call has returned are released as by :meth:`release_unprocessed`. A call of
        :meth:`acquire` that waits raises an error. If the close is cancelled, the connections are
        closed, which releases the records, too.
        """
        self._is_closed = True
        fetches = tuple(self._fetches.values())
        try:
            await _cancelled(filter(None, [self._heartbeats]))
            if fetches:  # records that a broker acquires after the end of the session stay locked
                await asyncio.wait(fetches, timeout=timeout_ms / 4000)
            # A broker that does not answer leaves time to tell the coordinator.
            for step in (self._close_sessions, self._leave):
                try:
                    async with asyncio.timeout(timeout_ms / 2000):
                        await step()
                except (TimeoutError, ClientError) as problem:
                    if self._heartbeats is not None:  # else it tells why it has not begun
                        _log.warning(
                            "leaving group %s: %s", self.group_id, str(problem) or "timed out"
                        )
        finally:
            for fetch in fetches:
                fetch.cancel()
            self._fetches.clear()
            await self.cluster.close()

    async def _close_sessions(self) -> None:
        fetches = self._fetches.values()
        await _cancelled(fetch for fetch in fetches if not fetch.done())
        await self.release_unprocessed(
            acquired
            for fetch in fetches
            if not fetch.cancelled() and fetch.exception() is None
            for acquired in fetch.result().ranges
        )
        await asyncio.gather(*(node.close() for node in self._nodes.values()))

    async def _leave(self) -> None:
        if self._ended is None and self._membership.may_be_member:
            await self._send_heartbeat(LEAVE_EPOCH, None)
            self._membership.left()

    def subscribe(self, topics: Iterable[str]) -> None:
        """Replace the subscription; the next heartbeat sends it. Held records stay held."""
        self._membership.topics = tuple(sorted(set(topics)))

    # -- assignment and held records

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The assigned partitions; empty until the coordinator has assigned some."""
        return frozenset(
            (self._topics[i].name, p) for i, p in self._membership.assignment if i in self._topics
        )

    @property
    def problem(self) -> str | None:
        """Why this is not a member of the group now; None while it is one."""
        if self._ended is not None:
            return str(self._ended)
        return self._reported.get(f"heartbeat of group {self.group_id}") or None

    @property
    def can_renew(self) -> bool:
        """True if the brokers support lock renewal (ShareAcknowledge v2, Kafka 4.2)."""
        return all(node.can_renew for node in self._nodes.values())

    @property
    def lock_timeout_ms(self) -> int:
        """The duration of an acquisition lock, as the brokers last reported it."""
        return min((node.lock_timeout_ms for node in self._nodes.values()), default=30_000)

    def held(self) -> dict[TopicPartition, list[Span]]:
        """Return the runs of offsets that are acquired, and neither acknowledged nor lost."""
        return {
            (self._topics[i].name, p): list(node.held.spans((i, p)))
            for node in self._nodes.values()
            for i, p in node.held.partitions()
        }

    async def wait_for_assignment(self, timeout_ms: int) -> bool:
        """Wait until partitions are assigned.

        :returns: whether some are, within ``timeout_ms``
        :raises ClientError: the membership has ended
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not self._membership.assignment and self._ended is None:
                    self._membership_changed.clear()
                    await self._membership_changed.wait()
        except TimeoutError:
            pass
        if self._ended is not None:
            raise self._ended
        return bool(self._membership.assignment)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Acquire nothing from these partitions until :meth:`resume`. Held records stay held."""
        self._paused.update(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Acquire from these partitions again, after :meth:`pause`."""
        self._paused.difference_update(partitions)

    # -- acquiring

    async def acquire(
        self,
        *,
        max_records: int = 500,
        max_wait_ms: int = 500,
        max_bytes: int = 50 * 1024 * 1024,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
    ) -> Acquired:
        """Acquire up to ``max_records`` records from the assigned partitions.

        The result is empty if there was no record within ``max_wait_ms``. A broker that has not
        answered then, or when the call is cancelled, goes on: the next call returns the records
        that it acquires, whatever the limits of that one.

        :param max_bytes: limit of the record batches of each broker
        :raises ClientError: the membership has ended, the member is closed, or a broker refuses. If
            other brokers or partitions have records, the call returns them, and the next call
            raises the error
        """
        limits = AcquireLimits(max_records, max_wait_ms, max_bytes, mode)
        if self._deferred is not None:
            deferred, self._deferred = self._deferred, None
            raise deferred
        deadline_ms = monotonic_ms() + max_wait_ms
        begun = set[asyncio.Task[Acquired]]()
        if not self._is_closed and await self.wait_for_assignment(max_wait_ms):
            begun = await self._begin_fetches(limits)
        return await self._end_fetches(begun, deadline_ms)

    async def _begin_fetches(self, limits: AcquireLimits) -> set[asyncio.Task[Acquired]]:
        """Ask the leaders of the assigned partitions, except those that have not answered yet."""
        begun = set[asyncio.Task[Acquired]]()
        partitions_of = await self._wanted_by_node()
        if self._is_closed:
            return begun
        limits = limits.spread_over(len(partitions_of) or 1)
        for node_id, partitions in partitions_of.items():
            if node_id not in self._fetches:
                fetch = self._acquire_at(self._node(node_id), partitions, limits)
                self._fetches[node_id] = asyncio.create_task(fetch)
                begun.add(self._fetches[node_id])
        if not any(partitions_of.values()):
            await asyncio.sleep(limits.max_wait_ms / 1000)
        return begun

    async def _end_fetches(self, begun: set[asyncio.Task[Acquired]], deadline_ms: int) -> Acquired:
        """Return the records of the first brokers that have some.

        :param begun: the fetches of this call, whose answers may come a while after the deadline
        """
        ranges: list[AcquiredRange] = []
        data: dict[TopicPartition, bytes] = {}
        complete, errors = True, list[BaseException]()
        while not self._is_closed:
            for node_id, fetch in tuple(self._fetches.items()):
                if not fetch.done():
                    continue
                del self._fetches[node_id]
                if fetch.cancelled() or (error := fetch.exception()) is None:
                    answer = Acquired(complete=False) if fetch.cancelled() else fetch.result()
                    ranges += self._still_held(node_id, answer.ranges)
                    complete &= answer.complete
                    for key, batches in answer.data.items():  # of two brokers after a move
                        data[key] = data.get(key, b"") + batches
                else:
                    errors.append(error)
            wait_ms: float = deadline_ms - monotonic_ms()
            if not begun.isdisjoint(self._fetches.values()):
                wait_ms += self.lock_timeout_ms / 6
            if ranges or errors or not self._fetches or wait_ms <= 0:
                break
            await asyncio.wait(
                self._fetches.values(),
                timeout=wait_ms / 1000,
                return_when=asyncio.FIRST_COMPLETED,
            )
        if self._is_closed:
            raise ClientError(f"the member of share group '{self.group_id}' is closed")
        for error in errors:
            self._raise_or_defer(error, ranges)
        return Acquired(tuple(ranges), data, complete and not errors and not self._fetches)

    def _still_held(self, node_id: int, ranges: Sequence[AcquiredRange]) -> Sequence[AcquiredRange]:
        """Leave out records that were lost since they were acquired: other members get them."""
        held_ranges: list[AcquiredRange] = []
        held = self._nodes[node_id].held
        for (topic_id, number), group in groupby(ranges, lambda run: (run.topic_id, run.partition)):
            of_partition = list(group)
            assert topic_id is not None
            acquired = [(run.first_offset, run.last_offset) for run in of_partition]
            spans = held.held((topic_id, number), acquired)
            if count(spans) < sum(run.count for run in of_partition):
                of_partition = [
                    replace(run, first_offset=first, last_offset=last)
                    for run in of_partition
                    for first, last in intersect(spans, [(run.first_offset, run.last_offset)])
                ]
            held_ranges += of_partition
        return held_ranges

    def _raise_or_defer(self, error: BaseException, ranges: Sequence[AcquiredRange]) -> None:
        """Raise an error, with the next acquire if this one has records to return."""
        if not ranges:
            raise error
        self._deferred = error

    async def _acquire_at(
        self, node: ShareNode, wanted: set[TopicIdPartition], limits: AcquireLimits
    ) -> Acquired:
        response = await node.fetch(wanted, limits)
        if response is None:
            await self._learn_topics()
            return Acquired(complete=False)
        ranges: list[AcquiredRange] = []
        data: dict[TopicPartition, bytes] = {}
        is_moved = False
        problem: ClientError | None = None
        for topic_response in response.responses:
            topic = self._topics.get(topic_response.topic_id)
            if topic is None:
                problem = InvalidResponse(
                    f"the response to ShareFetch has topic {topic_response.topic_id}, which was "
                    "not requested"
                )
                continue
            for partition in topic_response.partitions:
                key = (topic.name, partition.partition_index)
                if partition.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    problem = RequestRefused(
                        f"reading topic '{topic.name}'",
                        int(partition.error_code),
                        needs=f"READ on topic '{topic.name}'",
                    )
                elif partition.error_code:
                    is_moved = True
                    _log.warning(
                        "ShareFetch of %s-%d: %s", *key, error_name(int(partition.error_code))
                    )
                if not partition.acquired_records:
                    continue
                spans = [(a.first_offset, a.last_offset) for a in partition.acquired_records]
                for other in self._nodes.values():  # also one that has led the partition before
                    other.lose((topic.topic_id, key[1]), spans, "the lock has timed out")
                node.held.add((topic.topic_id, key[1]), spans, monotonic_ms())
                ranges += (
                    AcquiredRange(*key, *span, a.delivery_count, topic.topic_id)
                    for span, a in zip(spans, partition.acquired_records, strict=True)
                )
                if partition.records:
                    data[key] = bytes(partition.records)
        if is_moved and problem is None:
            await asyncio.sleep(_RETRY_PAUSE_MS / 1000)
            try:
                await self._learn_topics()
            except ClientError as error:
                problem = error
        if problem is not None:  # the records are locked: somebody has to have them
            self._raise_or_defer(problem, ranges)
        return Acquired(tuple(ranges), data, complete=not is_moved and problem is None)

    # -- acknowledging

    async def acknowledge(
        self, acknowledgements: Iterable[Acknowledgement]
    ) -> list[Acknowledgement]:
        """Send acknowledgements of held records; ignore records that are not held.

        The broker accepts or refuses the acknowledgements of a partition together. When it refuses
        them, or the connection breaks, the records are no longer held and are delivered again.

        :returns: the accepted acknowledgements
        """
        return await _to_the_end(self._acknowledge(acknowledgements))

    async def settle(self, outcomes: Outcomes, **terms: Any) -> Batches:
        """Send outcomes of held records, as :meth:`acknowledge` does, by topic id.

        :param terms: headrace's fields of ``ShareAcknowledgeRequest``
        :returns: the accepted ones
        """
        calls = [
            node.acknowledge(outcomes, **terms)
            for node in self._nodes.values()
            if any(node.held.spans(partition) for partition, _ in outcomes)
        ]
        if len(calls) == 1:  # as usual: no tasks
            return await calls[0]
        accepted: Batches = {}
        for answer in await asyncio.gather(*calls):
            accepted |= answer
        return accepted

    def holder(self, partition: TopicIdPartition) -> int:
        """Return the id of the broker that has the locks of a partition; -1 if there are none."""
        for node_id, node in self._nodes.items():
            if node.held.spans(partition):
                return node_id
        return -1

    async def release_unprocessed(self, ranges: Iterable[AcquiredRange]) -> None:
        """Release those of acquired records that are still held, and were not processed.

        On headrace's broker this delivery does not count, and the records can be acquired again
        after a second. Apache Kafka counts it.
        """
        released = [
            Acknowledgement(
                r.topic,
                r.partition,
                r.first_offset,
                r.last_offset,
                AcknowledgeType.RELEASE,
                r.topic_id,
            )
            for r in ranges
        ]
        if released:
            await _to_the_end(self._acknowledge(released, uncounted_release=True))

    async def _acknowledge(
        self, acknowledgements: Iterable[Acknowledgement], **terms: Any
    ) -> list[Acknowledgement]:
        by_name = {topic.name: topic_id for topic_id, topic in self._topics.items()}
        outcomes: dict[tuple[TopicIdPartition, AcknowledgeType], list[Span]] = {}
        for a in acknowledgements:
            topic_id = a.topic_id or by_name.get(a.topic)
            if topic_id is not None:
                key = ((topic_id, a.partition), a.type)
                outcomes.setdefault(key, []).append((a.first_offset, a.last_offset))
        return [
            Acknowledgement(self._topics[topic_id].name, number, *batch, topic_id)
            for (topic_id, number), batches in (await self.settle(outcomes, **terms)).items()
            for batch in batches
        ]

    async def renew(self, older_than_ms: int = 0) -> None:
        """Renew the acquisition locks of all held records, if the brokers support it.

        :param older_than_ms: renew only partitions with a lock of at least this age
        """
        await _to_the_end(
            asyncio.gather(*(node.renew(older_than_ms) for node in self._nodes.values()))
        )

    async def keep_locks(self) -> None:
        """Renew all locks in time, each after a third to a half of its duration, until cancelled.

        Log once that a broker cannot renew locks.
        """
        renewals: dict[ShareNode, asyncio.Task[None]] = {}
        may_warn = True
        while True:
            # The broker tells the duration of locks when records are first acquired.
            first_ms, last_ms = _RENEWAL_INTERVALS_MS
            await asyncio.sleep(max(min(self.lock_timeout_ms / 6, last_ms), first_ms) / 1000)
            for node in self._nodes.values():  # one that does not answer does not delay the others
                renewal = renewals.get(node)
                if renewal is None or renewal.done():
                    if renewal is not None and (error := renewal.exception()) is not None:
                        _log.warning("renewing locks of share group %s: %s", self.group_id, error)
                    renewals[node] = asyncio.create_task(node.renew(node.lock_timeout_ms // 3))
            if may_warn and not self.can_renew:
                may_warn = False
                _log.warning(
                    "the broker does not renew acquisition locks (Kafka 4.2 or later does, unless "
                    "share.renew.acknowledge.enable is false): records of share group %s that are "
                    "held for more than %d ms are delivered again",
                    self.group_id,
                    self.lock_timeout_ms,
                )

    # -- the group and the cluster

    async def _send_heartbeats(self) -> None:
        while self._ended is None:
            await asyncio.sleep(self._membership.heartbeat_delay_ms() / 1000)
            try:
                await self._heartbeat()
            except ConnectionFailed as failure:
                self.report(f"heartbeat of group {self.group_id}", failure)
            except ClientError as error:
                self._ended = error
            except Exception as error:  # else the consumer would wait for ever
                self._ended = ClientError(f"heartbeat of group {self.group_id}: {error!r}")
        self._membership_changed.set()

    async def _heartbeat(self) -> None:
        member_epoch, names = self._membership.next_heartbeat()
        response = await self._send_heartbeat(member_epoch, names)
        code = int(response.error_code)
        if code:
            if self._membership.refused(code):
                self.report(f"heartbeat of group {self.group_id}", error_name(code))
            else:
                needs = f"READ on group '{self.group_id}'"
                if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    needs = f"DESCRIBE on the topics {', '.join(self._membership.topics)}"
                self._ended = RequestRefused(
                    f"joining share group '{self.group_id}'", code, response.error_message, needs
                )
        else:
            assigned = response.assignment and frozenset(
                (topic.topic_id, p)
                for topic in response.assignment.topic_partitions
                for p in topic.partitions
            )
            interval_ms = int(response.heartbeat_interval.total_seconds() * 1000)
            self._membership.joined(response.member_epoch, interval_ms, assigned)
            self.report(f"heartbeat of group {self.group_id}", None)
            if any(topic_id not in self._topics for topic_id, _ in self._membership.assignment):
                await self._learn_topics()
        self._membership_changed.set()

    async def _send_heartbeat(self, member_epoch: int, names: tuple[str, ...] | None) -> Any:
        def build(connection: Connection) -> Any:
            messages = connection.messages("share_group_heartbeat")
            return messages.ShareGroupHeartbeatRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                member_epoch=member_epoch,
                rack_id=self._rack_id,
                subscribed_topic_names=names,
            )

        cluster = self.cluster
        return await cluster.coordinators.ask_one(self.group_id, build, cluster.timeout_ms)

    async def _learn_topics(self) -> None:
        try:
            metadata = await self.cluster.metadata(self._membership.topics)
        except ConnectionFailed as failure:
            self.report(f"topics of group {self.group_id}", failure)
            return
        self.report(f"topics of group {self.group_id}", None)
        # Keep deleted topics, whose held records may still be acknowledged.
        self._topics.update(
            {t.topic_id: t for t in metadata.values() if isinstance(t, TopicMetadata)}
        )

    async def _wanted_by_node(self) -> dict[int, set[TopicIdPartition]]:
        assigned = self._membership.assignment
        if any(
            i not in self._topics or self._topics[i].leaders.get(p, -1) < 0 for i, p in assigned
        ):
            await self._learn_topics()
        partitions_of: dict[int, set[TopicIdPartition]] = {
            n: set() for n, node in self._nodes.items() if node.session.partitions
        }
        for topic_id, partition in assigned:
            topic = self._topics.get(topic_id)
            leader = -1 if topic is None else topic.leaders.get(partition, -1)
            if topic is not None and leader >= 0 and (topic.name, partition) not in self._paused:
                partitions_of.setdefault(leader, set()).add((topic_id, partition))
        return partitions_of

    def _node(self, node_id: int) -> ShareNode:
        node = self._nodes.get(node_id)
        if node is None:
            node = ShareNode(
                self.cluster,
                node_id,
                self.group_id,
                self.member_id,
                self._lose,
                self.report,
            )
            self._nodes = {**self._nodes, node_id: node}
        return node

    def _lose(self, partition: TopicIdPartition, spans: Sequence[Span], reason: str) -> None:
        if self._is_closed:
            return
        if not self._losses:
            asyncio.get_running_loop().call_soon(self._log_losses)
        name = f"{self._topics[partition[0]].name}-{partition[1]}"
        self._losses.append((name, count(spans), reason))
        self._on_lost(partition, spans, reason)

    def _log_losses(self) -> None:
        """Log what was lost together, such as the records of a session, in one line."""
        names, counts, reasons = zip(*self._losses, strict=True)
        self._losses.clear()
        partitions = list(dict.fromkeys(names))
        more = len(partitions) - _MAX_NAMES
        _log.warning(
            "share group %s: lost %d records of %s, which are delivered again: %s",
            self.group_id,
            sum(counts),
            ", ".join(partitions[:_MAX_NAMES]) + (f" and {more} partitions more" * (more > 0)),
            "; ".join(
                reason
                for reason in dict.fromkeys(reasons)
                if not any(other != reason and other.startswith(reason) for other in reasons)
            ),
        )

    def report(self, about: str, problem: object) -> None:
        """Log a problem once for as long as it lasts, and its end."""
        text = "" if problem is None else str(problem)
        if self._reported.get(about, "") != text:
            self._reported[about] = text
            _log.log(WARNING if text else INFO, "%s: %s", about, text or "in order again")


async def _cancelled(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait for their ends."""
    tasks = tuple(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _to_the_end(work: Awaitable[T]) -> T:
    """Run a coroutine in a task of its own, which goes on if the caller is cancelled."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())  # mark as retrieved
    return await asyncio.shield(task)
