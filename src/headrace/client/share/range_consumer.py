"""A member of a share group that acquires and acknowledges runs of offsets (KIP-932)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError, InvalidResponse, error_name, refused
from headrace.log_lines import get_logger
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicIdPartition, TopicPartition

from .membership import Membership, trouble_of
from .node import OnLost, ShareNode
from .spans import PartitionSpans, Span, add, count, intersect, intersection, normalize
from .types import (
    Acknowledgement,
    AcknowledgeType,
    Acquired,
    AcquiredRange,
    AcquireLimits,
    AcquireMode,
    parts,
)

_log = get_logger(__name__)

_RETRY_PAUSE_MS = 100
_MAX_NAMES = 10
"""The limit of partitions that a log line names."""
_CLOSE_TIMEOUT_MS = 3000
_MIN_RENEWAL_MS, _MAX_RENEWAL_MS = 20, 250
"""The shortest and the longest interval of looking for locks to renew."""


Sent = list[asyncio.Task[PartitionSpans]]
"""Requests with outcomes. The result of each is what a broker has accepted, of all calls."""


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
    :param on_lost: called with held records that are lost, and the reason, unless a close has lost
        them
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
        self.cluster = Cluster(cluster) if isinstance(cluster, str) else cluster
        self._trouble = trouble_of(self.cluster)
        self._membership = Membership(self.cluster, group_id, topics, rack_id, self._trouble)
        self.member_id = self._membership.id
        self._on_lost = on_lost
        self._is_closed = False
        self._problem: ClientError | None = None
        """What a broker has refused; the next acquire without records raises it."""
        self._fetches: dict[int, asyncio.Task[Acquired]] = {}
        """By node id. A fetch goes on when the call that began it ends; a later call returns its
        records.
        """
        self._nodes: Mapping[int, ShareNode] = {}
        """Replaced, never changed: calls that wait iterate over it."""
        self._paused: set[TopicPartition] = set()

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
            await self._membership.join()
        except BaseException:
            await self.close()
            raise

    async def close(self, timeout_ms: int = _CLOSE_TIMEOUT_MS) -> None:
        """Leave the group and close the sessions: the brokers release the held records at once.

        Records that no call has returned are released as by :meth:`release_unprocessed`. A call of
        :meth:`acquire` that waits raises an error. If the close is cancelled, the connections are
        closed, which releases the records, too.
        """
        self._is_closed = True
        fetches = tuple(self._fetches.values())
        try:
            await self._membership.stop()
            if fetches:  # records that a broker acquires after the end of the session stay locked
                await asyncio.wait(fetches, timeout=timeout_ms / 4000)
            # A broker that does not answer leaves time to tell the coordinator.
            for step in (self._close_sessions, self._membership.leave):
                try:
                    async with asyncio.timeout(timeout_ms / 2000):
                        await step()
                except (TimeoutError, ClientError) as problem:
                    if self._membership.has_joined:  # else it tells why it has not begun
                        text = str(problem) or "timed out"
                        _log.warning("leaving group %s: %s", self.group_id, text)
        finally:
            for fetch in fetches:
                fetch.cancel()
            for node in self._nodes.values():
                node.cancel()
            self._fetches.clear()
            await self.cluster.close()

    async def _close_sessions(self) -> None:
        fetches = self._fetches.values()
        for fetch in fetches:
            fetch.cancel()
        answers = await asyncio.gather(*fetches, return_exceptions=True)
        await self.release_unprocessed(
            run for answer in answers if isinstance(answer, Acquired) for run in answer.ranges
        )
        await asyncio.gather(*(node.close() for node in self._nodes.values()))

    def subscribe(self, topics: Iterable[str]) -> None:
        """Replace the subscription; the next heartbeat sends it. Held records stay held."""
        self._membership.names = tuple(sorted(set(topics)))

    # -- assignment and held records

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The assigned partitions; empty until the coordinator has assigned some."""
        member = self._membership
        return frozenset(member.named(p) for p in member.assignment if p[0] in member.topics)

    @property
    def problem(self) -> str | None:
        """Why this is not a member of the group now; None while it is one."""
        return self._membership.problem

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
            self._membership.named(partition): list(spans)
            for node in self._nodes.values()
            for partition, spans in node.held.items()
        }

    async def wait_for_assignment(self, timeout_ms: int) -> bool:
        """Wait until partitions are assigned.

        :returns: whether some are, within ``timeout_ms``
        :raises ClientError: the membership has ended
        """
        return await self._membership.wait_for_assignment(timeout_ms)

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
        offsets_only: bool = False,
    ) -> Acquired:
        """Acquire up to ``max_records`` records from the assigned partitions.

        The result is empty if there was no record within ``max_wait_ms``. A broker that has not
        answered then, or when the call is cancelled, goes on: the next call returns the records
        that it acquires, whatever the limits of that one.

        :param max_bytes: limit of the record batches of each broker
        :param offsets_only: the records are read by others: headrace's broker does not send them
        :raises ClientError: the membership has ended, the member is closed, or a broker refuses. If
            other brokers or partitions have records, the call returns them, and the next call
            raises the error
        """
        self._raise_problem()
        limits = AcquireLimits(max_records, max_wait_ms, max_bytes, mode, offsets_only)
        deadline_s = time.monotonic() + max_wait_ms / 1000
        begun = set[asyncio.Task[Acquired]]()
        if not self._is_closed and await self._membership.wait_for_assignment(max_wait_ms):
            begun = await self._begin_fetches(limits)
        return await self._end_fetches(begun, deadline_s)

    def _raise_problem(self) -> None:
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem

    async def _begin_fetches(self, limits: AcquireLimits) -> set[asyncio.Task[Acquired]]:
        """Ask the leaders of the assigned partitions, except those that have not answered yet."""
        begun = set[asyncio.Task[Acquired]]()
        led = await self._membership.partitions_by_leader(self._paused)
        if self._is_closed:
            return begun
        # A broker that leads none of them any more removes them from its session.
        node_ids = led.keys() | {n for n, node in self._nodes.items() if node.partitions}
        if self._membership.have_leaders():  # no other broker is missed, or asked again
            for node_id in self._nodes.keys() - node_ids - self._fetches.keys():
                self._trouble.end(self._nodes[node_id])
        share = replace(limits, max_records=max(1, limits.max_records // (len(node_ids) or 1)))
        for node_id in node_ids - self._fetches.keys():
            fetch = self._fetch(node_id, led.get(node_id, set()), share)
            self._fetches[node_id] = asyncio.create_task(fetch)
            begun.add(self._fetches[node_id])
        if not led:
            await asyncio.sleep(limits.max_wait_ms / 1000)
        return begun

    async def _end_fetches(self, begun: set[asyncio.Task[Acquired]], deadline_s: float) -> Acquired:
        """Return the records of the first brokers that have some.

        :param begun: the fetches of this call, whose answers may come a while after the deadline
        """
        ranges: list[AcquiredRange] = []
        data: dict[TopicPartition, bytes] = {}
        complete = True
        while not self._is_closed:
            for node_id, fetch in tuple(self._fetches.items()):
                if fetch.done():
                    del self._fetches[node_id]
                    answer = fetch.result()
                    ranges += self._still_held(node_id, answer.ranges)
                    complete &= answer.complete
                    for key, batches in answer.data.items():  # of two brokers after a move
                        data[key] = data.get(key, b"") + batches
            wait_s = deadline_s - time.monotonic()
            if not begun.isdisjoint(self._fetches.values()):
                wait_s += self.lock_timeout_ms / 6000
            if ranges or self._problem or not self._fetches or wait_s <= 0:
                break
            await asyncio.wait(
                self._fetches.values(),
                timeout=wait_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
        if self._is_closed:
            raise ClientError(f"the member of share group '{self.group_id}' is closed")
        if not ranges:
            self._raise_problem()
        return Acquired(tuple(ranges), data, complete and not self._fetches)

    def _still_held(self, node_id: int, ranges: Iterable[AcquiredRange]) -> list[AcquiredRange]:
        """Leave out records that were lost since they were acquired: other members get them."""
        held = self._nodes[node_id].held
        return [
            part
            for run in ranges
            for part in parts(run, intersect(held.get(run.key, ()), [run.span]))
        ]

    async def _fetch(
        self, node_id: int, partitions: set[TopicIdPartition], limits: AcquireLimits
    ) -> Acquired:
        node = self._node(node_id)
        acquired, is_moved = Acquired(complete=False), True
        try:
            response = await node.fetch(partitions, limits)
            if response is not None:
                # Its records are locked: somebody has to have them, whatever else fails.
                acquired, is_moved = self._acquired(node, response)
                if is_moved:
                    await asyncio.sleep(_RETRY_PAUSE_MS / 1000)
            if is_moved:
                await self._membership.learn_topics()
        except ClientError as error:
            self._problem = error
        return acquired

    def _acquired(self, node: ShareNode, response: Any) -> tuple[Acquired, bool]:
        """Return what a broker has acquired, and whether a partition has moved."""
        ranges: list[AcquiredRange] = []
        data: dict[TopicPartition, bytes] = {}
        is_moved = is_refused = False
        for topic_response in response.responses:
            topic = self._membership.topics.get(topic_response.topic_id)
            if topic is None:
                is_refused, text = True, "the response to ShareFetch has topic {}, not requested"
                self._problem = InvalidResponse(text.format(topic_response.topic_id))
                continue
            for partition in topic_response.partitions:
                key = (topic.name, partition.partition_index)
                if partition.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    is_refused, what = True, f"topic '{topic.name}'"
                    self._problem = refused(f"reading {what}", partition, f"READ on {what}")
                elif partition.error_code:
                    is_moved = True
                    problem = error_name(int(partition.error_code))
                    place = "{}-{}".format(*key)
                    self._trouble.begin(node, f"group {self.group_id}, {place}: {problem}")
                if partition.acquired_records:
                    ranges += (
                        AcquiredRange(
                            *key, a.first_offset, a.last_offset, a.delivery_count, topic.topic_id
                        )
                        for a in partition.acquired_records
                    )
                    if partition.records:
                        data[key] = bytes(partition.records)
        acquired = self._by_id(ranges)
        for other in self._nodes.values():  # also one that has led the partition before
            other.lose(acquired, "the lock has timed out")
        add(node.held, acquired)
        if not is_moved:
            self._trouble.end(node)
        return Acquired(tuple(ranges), data, not (is_moved or is_refused)), is_moved

    # -- acknowledging

    async def acknowledge(
        self, acknowledgements: Iterable[Acknowledgement]
    ) -> list[Acknowledgement]:
        """Send acknowledgements of held records; ignore records that are not held.

        The broker accepts or refuses the acknowledgements of a partition together. When it refuses
        them, or the connection breaks, the records are no longer held and are delivered again.

        :returns: the accepted acknowledgements
        """
        by_outcome = defaultdict[tuple[AcknowledgeType, str, int], list[Acknowledgement]](list)
        for run in acknowledgements:
            by_outcome[run.type, run.reason, run.delay_ms].append(run)
        calls: list[tuple[AcknowledgeType, PartitionSpans, Sent]] = []
        for (kind, reason, delay_ms), runs in by_outcome.items():
            records = self._by_id(runs)
            sent = self.submit(kind, records, reject_reason=reason, release_delay_ms=delay_ms)
            calls.append((kind, records, sent))
        return [
            Acknowledgement(*self._membership.named(partition), *span, kind, partition[0])
            for kind, records, sent in calls
            for partition, spans in (await _accepted(records, sent)).items()
            for span in spans
        ]

    async def release_unprocessed(self, ranges: Iterable[AcquiredRange]) -> None:
        """Release those of acquired records that are still held, and were not processed.

        On headrace's broker this delivery does not count, and the records can be acquired again
        after a second. Apache Kafka counts it.
        """
        await self.settle(AcknowledgeType.RELEASE, self._by_id(ranges), uncounted_release=True)

    def _by_id(self, runs: Iterable[AcquiredRange | Acknowledgement]) -> PartitionSpans:
        ids = {topic.name: topic_id for topic_id, topic in self._membership.topics.items()}
        records = defaultdict[TopicIdPartition, list[Span]](list)
        for run in runs:
            if (topic_id := run.topic_id or ids.get(run.topic)) is not None:
                records[topic_id, run.partition].append(run.span)
        return {partition: normalize(spans) for partition, spans in records.items()}

    async def settle(
        self, kind: AcknowledgeType, records: PartitionSpans, **terms: Any
    ) -> PartitionSpans:
        """Send the outcome of records, as far as they are held; also if the caller is cancelled.

        :param terms: headrace's fields of ``ShareAcknowledgeRequest``; false ones are left out
        :returns: those whose outcome the brokers have accepted
        """
        return await _accepted(records, self.submit(kind, records, **terms))

    def submit(self, kind: AcknowledgeType, records: PartitionSpans, **terms: Any) -> Sent:
        """Begin to send the outcome of records, as far as they are held."""
        own_fields = tuple(term for term in terms.items() if term[1])
        return [
            node.acknowledge(kind, held, own_fields)
            for node in self._nodes.values()
            if (held := intersection(records, node.held))
        ]

    async def renew(self) -> None:
        """Renew the acquisition locks of all held records, if the brokers support it."""
        renewals = [node.renew() for node in self._nodes.values()]
        if tasks := list(filter(None, renewals)):
            await asyncio.wait(tasks)

    async def keep_locks(self) -> None:
        """Renew all locks in time, each after a third to a half of its duration, until cancelled.

        Log once that a broker cannot renew locks.
        """
        may_warn, renewed_s = True, time.monotonic()
        while True:
            # The broker tells the duration of locks when records are first acquired.
            interval_ms = max(min(self.lock_timeout_ms / 6, _MAX_RENEWAL_MS), _MIN_RENEWAL_MS)
            await asyncio.sleep(interval_ms / 1000)
            if time.monotonic() - renewed_s >= self.lock_timeout_ms / 3000:
                renewed_s = time.monotonic()
                for node in self._nodes.values():
                    node.renew()
            if may_warn and not self.can_renew:
                may_warn = False
                _log.warning(
                    "the broker does not renew acquisition locks (Kafka 4.2 or later does, unless "
                    "share.renew.acknowledge.enable is false): records of share group %s that are "
                    "held for more than %d ms are delivered again",
                    self.group_id,
                    self.lock_timeout_ms,
                )

    def _node(self, node_id: int) -> ShareNode:
        node = self._nodes.get(node_id)
        if node is None:
            node = ShareNode(
                self.cluster, node_id, self.group_id, self.member_id, self._lose, self._trouble
            )
            self._nodes = {**self._nodes, node_id: node}
        return node

    def _lose(self, records: PartitionSpans, reason: str) -> None:
        if self._is_closed:
            return
        names = ["{}-{}".format(*self._membership.named(partition)) for partition in records]
        more = len(names) - _MAX_NAMES
        _log.log(
            logging.INFO if self._trouble.is_on else logging.WARNING,
            "share group %s: %d records of %s are not held here any more, and are delivered again "
            "to some member: %s",
            self.group_id,
            sum(map(count, records.values())),
            ", ".join(names[:_MAX_NAMES]) + (f" and {more} partitions more" * (more > 0)),
            reason,
        )
        self._on_lost(records, reason)


async def _accepted(records: PartitionSpans, sent: Sent) -> PartitionSpans:
    """Wait for requests with outcomes of records; return those that brokers have accepted."""
    accepted: PartitionSpans = {}
    if sent:
        await asyncio.wait(sent)
    for request in sent:
        if not request.cancelled():  # by a close
            add(accepted, intersection(records, request.result()))
    return accepted
