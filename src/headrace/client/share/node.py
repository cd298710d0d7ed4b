"""The share session with one broker: its requests, one at a time, and the records held there.

Outcomes wait while a ShareFetch waits for records: Apache Kafka refuses to answer a ShareFetch with
its records after another request has moved the session to the next epoch.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.connection import Connection
from headrace.client.errors import ClientError, ConnectionFailed, RequestRefused, error_name
from headrace.protocol.api import ShareAcknowledgeRequest, ShareFetchRequest
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicIdPartition, by_topic
from headrace.protocol.schema import Message

from .membership import Trouble
from .spans import PartitionSpans, add, count, drop, intersection, normalize, subtract
from .types import AcknowledgeType, AcquireLimits

_FIRST_PAUSE_MS, _LAST_PAUSE_MS = 100, 1000
"""The first and the longest pause after a failure."""
_MAX_REQUESTS = 33
"""The limit of requests that look for the records for which a broker refuses others."""
_MAX_EPOCH = 2**31 - 1
_CLOSE_EPOCH = -1
"""The share session epoch that closes a session and releases its records."""
_WITHOUT_PAUSE = {
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
}
"""Errors after which the next request need not wait: another session helps, or nothing does."""

Terms = tuple[tuple[str, Any], ...]
"""headrace's fields of ShareAcknowledge (:mod:`headrace.protocol.own_fields`)."""
OnLost = Callable[[PartitionSpans, str], object]
"""Called with runs of records that are no longer held, and the reason."""


class ShareNode:
    """A member's share session with one broker. It ends with the connection that opened it.

    :param on_lost: called when held records are lost
    :ivar held: the offsets of the records held on this broker
    :ivar partitions: the partitions in the session
    :ivar lock_timeout_ms: duration of an acquisition lock, as the broker last reported it
    """

    def __init__(
        self,
        cluster: Cluster,
        node_id: int,
        group_id: str,
        member_id: str,
        on_lost: OnLost,
        trouble: Trouble,
    ) -> None:
        self.held: PartitionSpans = {}
        self.partitions: frozenset[TopicIdPartition] = frozenset()
        self.lock_timeout_ms = 30_000
        self._cluster = cluster
        self._node_id = node_id
        self._group_id = group_id
        self._member_id = member_id
        self._on_lost = on_lost
        self._trouble = trouble
        self._about = f"share session of group {group_id} with broker {node_id}"
        self._epoch = 0
        """The share session epoch of the next request; 0 while no session is open."""
        self._pause_ms = _FIRST_PAUSE_MS
        self._lock = asyncio.Lock()
        self._connection: Connection | None = None
        self._may_renew = True
        self._waiting: dict[
            tuple[AcknowledgeType, Terms], tuple[PartitionSpans, asyncio.Task[PartitionSpans]]
        ] = {}
        """Outcomes that wait for the request before theirs. Their records are held; the runs of
        several calls are in no order.
        """
        self._sending = set[asyncio.Task[PartitionSpans]]()

    @property
    def can_renew(self) -> bool:
        """True if the broker renews locks (ShareAcknowledge 2), or it is not connected yet."""
        connection = self._connection
        return self._may_renew and (
            connection is None or connection.version(ShareAcknowledgeRequest) >= 2
        )

    async def fetch(
        self, partition_ids: Iterable[TopicIdPartition], limits: AcquireLimits
    ) -> Any | None:
        """Send a ShareFetch for exactly the partitions ``partition_ids``.

        :returns: the response; None if the session was lost, so that the next call opens another
        """
        async with self._lock:
            try:
                if self._connection is None or not self._connection.is_open:
                    self._connection = await self._cluster.connection(self._node_id, "share")
                    self._forget("the connection has ended")
                partitions = frozenset(partition_ids)
                request = self._share_fetch(partitions, limits)
                response = await self._request(
                    self._connection, request, self._cluster.timeout_ms + limits.max_wait_ms
                )
            except ConnectionFailed as failure:
                await self._end_session(self.held, str(failure))
                return None
            if code := response.error_code:
                await self._refused(code, "ShareFetch", {})
                if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
                    group = f"group '{self._group_id}'"
                    raise RequestRefused(f"ShareFetch of {group}", code, needs=f"READ on {group}")
                return None
            self.partitions = partitions
            self._epoch = next_epoch(self._epoch)
            self._pause_ms = _FIRST_PAUSE_MS
            if response.acquisition_lock_timeout_ms > 0:
                self.lock_timeout_ms = response.acquisition_lock_timeout_ms
            return response

    # -- outcomes

    def acknowledge(
        self, kind: AcknowledgeType, records: PartitionSpans, terms: Terms = ()
    ) -> asyncio.Task[PartitionSpans]:
        """Send the outcome of records that are held here, with the next request; those of many
        calls travel together. Afterwards they are no longer held, unless their locks were renewed.

        The broker takes or refuses the outcomes of a partition together. If it refuses them because
        of some records, they are sent in parts.

        :returns: a task that goes on if the caller is cancelled. Its result is what the broker has
            accepted, of all calls
        """
        key = kind, terms
        if key not in self._waiting:
            task = asyncio.create_task(self._send(kind, terms))
            self._waiting[key] = {}, task
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        waiting, task = self._waiting[key]
        for partition, spans in records.items():
            waiting.setdefault(partition, []).extend(spans)
        return task

    async def _send(self, kind: AcknowledgeType, terms: Terms) -> PartitionSpans:
        accepted: PartitionSpans = {}
        async with self._lock:
            waiting, _ = self._waiting.pop((kind, terms))
            runs = {partition: normalize(spans) for partition, spans in waiting.items() if spans}
            parts, requests = deque([runs]), 0
            while parts:
                requests += 1
                part, may_split = parts.popleft(), requests < _MAX_REQUESTS
                response = await self._share_acknowledge(kind, part, terms)
                if response is not None:
                    refused = self._settle(kind, part, response, accepted, may_split)
                    if refused:
                        parts += _halves(refused)
        return accepted

    async def _share_acknowledge(
        self, kind: AcknowledgeType, part: PartitionSpans, terms: Terms
    ) -> Any | None:
        """Send one ShareAcknowledge; return the response, None if the session has ended."""
        if not part:
            return None
        if not self._epoch or self._connection is None:
            self.lose(part, "the share session has ended")
            return None
        try:
            request = self._acknowledge_request(kind, part, terms)
            response = await self._request(self._connection, request, self._cluster.timeout_ms)
        except ClientError as failure:
            problem = f"{failure}; outcomes on the way may have been applied"
            await self._end_session(self.held, problem)
            return None
        if response.error_code:
            await self._refused(response.error_code, "ShareAcknowledge", part)
            return None  # the next fetch raises it
        self._epoch = next_epoch(self._epoch)
        return response

    def _settle(
        self,
        kind: AcknowledgeType,
        part: PartitionSpans,
        response: Any,
        accepted: PartitionSpans,
        may_split: bool,
    ) -> PartitionSpans:
        """Apply the response to a ShareAcknowledge, and add to ``accepted`` what it accepts.

        :returns: what it refuses because of some of the records, to be sent in parts
        """
        answers = {
            (topic.topic_id, p.partition_index): p
            for topic in response.responses
            for p in topic.partitions
        }
        ended: PartitionSpans = {}
        refused: PartitionSpans = {}
        lost: defaultdict[str, PartitionSpans] = defaultdict(dict)
        for partition, spans in part.items():
            answer = answers.get(partition)
            code = ErrorCode.UNKNOWN_SERVER_ERROR if answer is None else answer.error_code
            message = None if answer is None else answer.error_message
            if not code:
                ended[partition] = spans
            elif kind is AcknowledgeType.RENEW and "not enabled" in (message or ""):
                self._may_renew = False  # the locks go on, to their ends
            elif may_split and code == ErrorCode.INVALID_RECORD_STATE and count(spans) > 1:
                refused[partition] = spans
            else:
                reason = error_name(code) + (f" ({message})" if message else "")
                lost[reason][partition] = spans
        add(accepted, ended)
        if kind is not AcknowledgeType.RENEW:
            self._drop(ended)
        for reason, records in lost.items():
            self.lose(records, reason)
        return refused

    def renew(self) -> asyncio.Task[PartitionSpans] | None:
        """Renew the locks of all records that are held, if the broker can."""
        if waiting := self._waiting.get((AcknowledgeType.RENEW, ())):
            return waiting[1]
        may_renew = self.held and self.can_renew
        return self.acknowledge(AcknowledgeType.RENEW, self.held) if may_renew else None

    # -- the end

    async def close(self) -> None:
        """Close the session: the broker releases the held records."""
        async with self._lock:
            connection = self._connection
            if self._epoch and connection is not None and connection.is_open:
                request = ShareAcknowledgeRequest(self._group_id, self._member_id, _CLOSE_EPOCH)
                try:
                    await connection.ask(request, timeout_ms=self._cluster.timeout_ms)
                except ConnectionFailed:
                    pass
            self._forget("the consumer was closed")

    def cancel(self) -> None:
        """Give up the outcomes that have no answer."""
        self._waiting.clear()
        self._trouble.forget(self)
        for task in self._sending:
            task.cancel()

    def lose(self, records: PartitionSpans, reason: str) -> None:
        """Hold records no longer, and tell it, as far as they are held."""
        if lost := intersection(records, self.held):
            self._drop(lost)
            self._on_lost(lost, reason)

    def _drop(self, records: PartitionSpans) -> None:
        drop(self.held, records)
        for waiting, _ in self._waiting.values():  # the next delivery of them is another one
            for partition in waiting.keys() & records.keys():
                waiting[partition] = subtract(normalize(waiting[partition]), records[partition])

    def _forget(self, reason: str) -> None:
        """Lose the session and its records."""
        self._epoch, self.partitions = 0, frozenset()
        self.lose(self.held, reason)

    async def _refused(self, code: int, what: str, sent: PartitionSpans) -> None:
        """Lose the session.

        :param sent: refused outcomes, whose records are lost
        """
        lost = self.held if code == ErrorCode.SHARE_SESSION_NOT_FOUND else sent
        pauses = code not in _WITHOUT_PAUSE
        await self._end_session(lost, error_name(code), f"{what}: ", pauses=pauses)

    async def _end_session(
        self, lost: PartitionSpans, reason: str, what: str = "", *, pauses: bool = True
    ) -> None:
        """Lose the session and records, so that the next call opens another."""
        is_told = bool(lost)
        self._epoch, self.partitions = 0, frozenset()
        self.lose(lost, reason)  # which says it
        self._trouble.begin(self, f"{self._about}: {what}{reason}", is_told=is_told)
        if pauses:
            pause_ms, self._pause_ms = self._pause_ms, min(2 * self._pause_ms, _LAST_PAUSE_MS)
            await asyncio.sleep(pause_ms / 1000)

    # -- requests

    async def _request(self, connection: Connection, request: Message, timeout_ms: int) -> Any:
        try:
            return await connection.ask(request, timeout_ms=timeout_ms)
        except asyncio.CancelledError:
            # The records that the broker acquires for this request are unknown here. It releases
            # them when the connection ends.
            self._forget("the request was cancelled")
            await connection.close()
            raise

    def _share_fetch(
        self, partitions: frozenset[TopicIdPartition], limits: AcquireLimits
    ) -> ShareFetchRequest:
        added = by_topic(sorted(partitions - self.partitions))
        removed = by_topic(sorted(self.partitions - partitions))
        return ShareFetchRequest(
            self._group_id,
            self._member_id,
            self._epoch,
            max_wait_ms=limits.max_wait_ms,
            min_bytes=1,
            max_bytes=limits.max_bytes,
            max_records=limits.max_records,
            batch_size=limits.max_records,
            share_acquire_mode=limits.mode,
            offsets_only=limits.offsets_only,
            topics=[
                ShareFetchRequest.FetchTopic(
                    topic_id, list(map(ShareFetchRequest.FetchPartition, numbers))
                )
                for topic_id, numbers in added.items()
            ],
            forgotten_topics_data=[
                ShareFetchRequest.ForgottenTopic(topic_id, numbers)
                for topic_id, numbers in removed.items()
            ],
        )

    def _acknowledge_request(
        self, kind: AcknowledgeType, records: PartitionSpans, terms: Terms
    ) -> ShareAcknowledgeRequest:
        topics = [
            ShareAcknowledgeRequest.AcknowledgeTopic(
                topic_id,
                [
                    ShareAcknowledgeRequest.AcknowledgePartition(
                        number,
                        [
                            ShareAcknowledgeRequest.AcknowledgementBatch(first, last, (kind,))
                            for first, last in records[topic_id, number]
                        ],
                    )
                    for number in numbers
                ],
            )
            for topic_id, numbers in by_topic(records).items()
        ]
        return ShareAcknowledgeRequest(
            self._group_id,
            self._member_id,
            self._epoch,
            is_renew_ack=kind is AcknowledgeType.RENEW,
            topics=topics,
            **dict(terms),
        )


def next_epoch(epoch: int) -> int:
    """Return the share session epoch of the request after one."""
    return 1 if epoch == _MAX_EPOCH else epoch + 1


def _halves(records: PartitionSpans) -> tuple[PartitionSpans, PartitionSpans]:
    """Divide the records of each partition in the middle. There are two or more of each."""
    before: PartitionSpans = {}
    after: PartitionSpans = {}
    for partition, spans in records.items():
        if len(spans) == 1:
            ((first, last),) = spans
            spans = [(first, (first + last) // 2), ((first + last) // 2 + 1, last)]
        middle = len(spans) // 2
        before[partition], after[partition] = spans[:middle], spans[middle:]
    return before, after
