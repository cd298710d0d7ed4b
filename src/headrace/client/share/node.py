"""The share session with one broker: its requests, one at a time, and the records held there.

Outcomes wait while a ShareFetch waits for records: Apache Kafka refuses to answer a ShareFetch with
its records after another request has moved the session to the next epoch.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.connection import Connection
from headrace.client.errors import ClientError, ConnectionFailed, RequestRefused, error_name
from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicIdPartition, by_topic
from headrace.protocol.share_inspection import ShareAcknowledgeRequest

from .session import CLOSE_EPOCH, HeldRecords, SessionStep, ShareSession
from .spans import Span, count, subtract
from .types import AcknowledgeType, AcquireLimits

_RETRY_PAUSES_MS = (100, 1000)
"""The first and the longest pause after a failure."""
_MAX_SPLITS = 32
"""The limit of requests that look for the records for which a broker refuses others."""
_SESSION_GONE = {ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH}

AcknowledgeBatch = tuple[int, int, AcknowledgeType]
"""(first offset, last offset inclusive, outcome)"""
Batches = dict[TopicIdPartition, list[AcknowledgeBatch]]
Outcomes = Mapping[tuple[TopicIdPartition, AcknowledgeType], Sequence[Span]]
"""Outcomes of records, by partition and outcome."""
OnLost = Callable[[TopicIdPartition, Sequence[Span], str], object]
"""Called with a partition, runs of records that are no longer held, and the reason."""


Report = Callable[[str, object], object]
"""Called with what it is about, and a problem; None at its end."""


class ShareNode:
    """A member's share session with one broker. It ends with the connection that opened it.

    :param on_lost: called when held records are lost
    :param report: logs a problem once for as long as it lasts
    :ivar held: the records held on this broker
    :ivar lock_timeout_ms: duration of an acquisition lock, as the broker last reported it
    """

    def __init__(
        self,
        cluster: Cluster,
        node_id: int,
        group_id: str,
        member_id: str,
        on_lost: OnLost = lambda *_: None,
        report: Report = lambda *_: None,
    ) -> None:
        self.held = HeldRecords()
        self.session = ShareSession()
        self.lock_timeout_ms = 30_000
        self._cluster = cluster
        self._node_id = node_id
        self._group_id = group_id
        self._member_id = member_id
        self._on_lost = on_lost
        self._report = partial(report, f"share session of group {group_id} with broker {node_id}")
        self._pause_ms = _RETRY_PAUSES_MS[0]
        self._lock = asyncio.Lock()
        self._connection: Connection | None = None
        self._may_renew = True

    @property
    def can_renew(self) -> bool:
        """True if the broker renews locks (ShareAcknowledge 2), or it is not connected yet."""
        connection = self._connection
        return self._may_renew and (
            connection is None or connection.version("share_acknowledge") >= 2
        )

    async def fetch(self, wanted: Iterable[TopicIdPartition], limits: AcquireLimits) -> Any | None:
        """Send a ShareFetch for exactly the partitions ``wanted``.

        :returns: kio's response; None if the session was lost, so that the next call opens another
        """
        async with self._lock:
            try:
                if self._connection is None or not self._connection.is_open:
                    self._connection = await self._cluster.connection(self._node_id, "share")
                    self._forget("the connection has ended")
                step = self.session.fetch(wanted)
                request = self._share_fetch(self._connection, step, limits)
                response = await self._request(
                    self._connection, request, self._cluster.timeout_ms + limits.max_wait_ms
                )
            except ConnectionFailed as failure:
                await self._connection_lost(failure)
                return None
            if response.error_code:
                if refusal := await self._refused(int(response.error_code), "ShareFetch"):
                    raise refusal
                return None
            self.session.fetched(step)
            self._report(None)
            self._pause_ms = _RETRY_PAUSES_MS[0]
            lock_timeout_ms = response.acquisition_lock_timeout // timedelta(milliseconds=1)
            if lock_timeout_ms > 0:
                self.lock_timeout_ms = lock_timeout_ms
            return response

    async def acknowledge(self, outcomes: Outcomes, **terms: Any) -> Batches:
        """Send outcomes of those records that are held. Afterwards the member no longer holds them,
        unless their locks were renewed.

        The broker takes or refuses the outcomes of a partition together. If it refuses them because
        of some records, they are sent in parts.

        :param terms: headrace's fields of :class:`ShareAcknowledgeRequest`
        :returns: what the broker has accepted
        """
        accepted: Batches = {}
        async with self._lock:
            # The request before this one may have acknowledged some of them, or lost all.
            parts = deque([self._of_held(outcomes)])
            splits = 0
            lost: dict[TopicIdPartition, tuple[list[AcknowledgeBatch], str]] = {}
            while parts:
                batches = parts.popleft()
                if not batches:
                    continue
                refused = await self._acknowledge(batches, accepted, terms)
                halves: tuple[Batches, Batches] = ({}, {})
                for partition, reason in refused.items():
                    if splits < _MAX_SPLITS and count(_spans(batches[partition])) > 1:
                        for half, of_half in zip(halves, _halves(batches[partition]), strict=True):
                            half[partition] = of_half
                    else:
                        lost.setdefault(partition, ([], reason))[0].extend(batches[partition])
                splits += 2 * bool(halves[0])
                parts += halves
            for partition, (batches_of, reason) in lost.items():
                self._lose({partition: batches_of}, reason)
        return accepted

    async def _acknowledge(
        self, batches: Batches, accepted: Batches, terms: Mapping[str, Any]
    ) -> dict[TopicIdPartition, str]:
        """Send one ShareAcknowledge, and add to ``accepted`` what the broker accepts.

        :returns: the partitions that it refuses because of some of their records, and its reasons
        """
        if not self.session.is_open or self._connection is None:
            self._lose(batches, "the share session has ended")
            return {}
        try:
            request = self._share_acknowledge(self._connection, self.session.epoch, batches, terms)
            response = await self._request(self._connection, request, self._cluster.timeout_ms)
        except ClientError as failure:
            await self._connection_lost(failure, batches)
            return {}
        if response.error_code:
            await self._refused(int(response.error_code), "ShareAcknowledge", batches)
            return {}  # the next fetch raises it
        self.session.acknowledged()
        return self._settle(response, batches, accepted)

    def _settle(
        self, response: Any, batches: Batches, accepted: Batches
    ) -> dict[TopicIdPartition, str]:
        now_ms, refused = monotonic_ms(), {}
        answers = {
            (topic.topic_id, p.partition_index): p
            for topic in response.responses
            for p in topic.partitions
        }
        for partition, spans in batches.items():
            answer = answers.get(partition)
            code = ErrorCode.UNKNOWN_SERVER_ERROR if answer is None else int(answer.error_code)
            renews = any(kind is AcknowledgeType.RENEW for _, _, kind in spans)
            if not code:
                accepted.setdefault(partition, []).extend(spans)
                if not renews:
                    self.held.drop(partition, _spans(spans))
                elif not subtract(self.held.spans(partition), _spans(spans)):
                    self.held.renewed(partition, now_ms)  # all of them
                continue
            message = None if answer is None else answer.error_message
            reason = error_name(code) + (f" ({message})" if message else "")
            if renews and "not enabled" in (message or ""):  # the locks go on, to their ends
                self._may_renew = False
            elif code == ErrorCode.INVALID_RECORD_STATE:
                refused[partition] = reason
            else:
                self._lose({partition: spans}, reason)
        return refused

    async def renew(self, older_than_ms: int = 0) -> None:
        """Renew the locks of the partitions with a lock of at least this age."""
        due = self.held.locked_before(monotonic_ms() - older_than_ms)
        renewals = {(key, AcknowledgeType.RENEW): self.held.spans(key) for key in due}
        if renewals and self.can_renew:
            await self.acknowledge(renewals)

    async def close(self) -> None:
        """Close the session: the broker releases the held records."""
        async with self._lock:
            connection = self._connection
            if self.session.is_open and connection is not None and connection.is_open:
                request = self._share_acknowledge(connection, CLOSE_EPOCH, {}, {})
                try:
                    await connection.request(request, timeout_ms=self._cluster.timeout_ms)
                except ConnectionFailed:
                    pass
            self._forget("the consumer was closed")

    async def _request(self, connection: Connection, request: Any, timeout_ms: int) -> Any:
        try:
            return await connection.request(request, timeout_ms=timeout_ms)
        except asyncio.CancelledError:
            # The records that the broker acquires for this request are unknown here. It releases
            # them when the connection ends.
            self._forget("the request was cancelled")
            await connection.close()
            raise

    def _of_held(self, outcomes: Outcomes) -> Batches:
        batches: Batches = {}
        for (partition, kind), spans in outcomes.items():
            if held := self.held.held(partition, spans):
                batches.setdefault(partition, []).extend((*span, kind) for span in held)
        return batches

    def lose(self, partition: TopicIdPartition, spans: Iterable[Span], reason: str) -> None:
        """Hold records no longer, and tell it, as far as they are held."""
        if lost := self.held.held(partition, spans):
            self.held.drop(partition, lost)
            self._on_lost(partition, lost, reason)

    def _lose(self, batches: Batches, reason: str) -> None:
        for partition, spans in batches.items():
            self.lose(partition, _spans(spans), reason)

    async def _connection_lost(self, failure: ClientError, sent: Batches | None = None) -> None:
        """Lose the session and its records.

        :param sent: outcomes without an answer
        """
        if not self.held.partitions():  # else the loss says it
            self._report(failure)
        self._lose(sent or {}, f"{failure}; the broker may have applied it before")
        self._forget(str(failure))
        await self._pause()

    async def _pause(self) -> None:
        pause_ms, self._pause_ms = self._pause_ms, min(2 * self._pause_ms, _RETRY_PAUSES_MS[1])
        await asyncio.sleep(pause_ms / 1000)

    async def _refused(
        self, code: int, what: str, sent: Batches | None = None
    ) -> RequestRefused | None:
        """Lose the session, so that the next call opens another.

        :param sent: refused outcomes, whose records are lost
        :returns: the refusal if the user may not read with this group
        """
        is_gone = code == ErrorCode.SHARE_SESSION_NOT_FOUND
        if not (sent or (is_gone and self.held.partitions())):  # else the loss says it
            self._report(f"{what}: {error_name(code)}")
        self._lose(sent or {}, error_name(code))
        if is_gone:
            self._forget(error_name(code))
        self.session.lost()
        if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            needs = f"READ on group '{self._group_id}'"
            return RequestRefused(f"{what} of group '{self._group_id}'", code, needs=needs)
        if code not in _SESSION_GONE:
            await self._pause()
        return None

    def _forget(self, reason: str) -> None:
        self.session.lost()
        held, self.held = self.held, HeldRecords()
        for partition in held.partitions():
            self._on_lost(partition, held.spans(partition), reason)

    def _share_fetch(self, connection: Connection, step: SessionStep, limits: AcquireLimits) -> Any:
        messages = connection.messages("share_fetch")
        newer = {}
        if connection.version("share_fetch") >= 2:
            newer = {"share_acquire_mode": limits.mode}
        return messages.ShareFetchRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=step.epoch,
            max_wait=timedelta(milliseconds=limits.max_wait_ms),
            min_bytes=1,
            max_bytes=limits.max_bytes,
            max_records=limits.max_records,
            batch_size=limits.max_records,
            topics=_by_topic(
                step.add,
                lambda topic_id, partitions: messages.FetchTopic(
                    topic_id=topic_id,
                    partitions=tuple(
                        messages.FetchPartition(partition_index=p, acknowledgement_batches=())
                        for p in partitions
                    ),
                ),
            ),
            forgotten_topics_data=_by_topic(
                step.forget,
                lambda topic_id, partitions: messages.ForgottenTopic(
                    topic_id=topic_id, partitions=partitions
                ),
            ),
            **newer,
        )

    def _share_acknowledge(
        self,
        connection: Connection,
        epoch: int,
        batches: Batches,
        terms: Mapping[str, Any],
    ) -> Any:
        messages = connection.messages("share_acknowledge")
        request_type, newer = messages.ShareAcknowledgeRequest, dict[str, Any]()
        if connection.version("share_acknowledge") >= 2:
            renews = any(
                kind is AcknowledgeType.RENEW for spans in batches.values() for _, _, kind in spans
            )
            request_type = ShareAcknowledgeRequest
            newer = {"is_renew_ack": renews, **terms}

        def topic(topic_id: Any, partitions: tuple[int, ...]) -> Any:
            return messages.AcknowledgeTopic(
                topic_id=topic_id,
                partitions=tuple(partition(p, batches[topic_id, p]) for p in partitions),
            )

        def partition(index: int, spans: list[AcknowledgeBatch]) -> Any:
            return messages.AcknowledgePartition(
                partition_index=index,
                acknowledgement_batches=tuple(
                    messages.AcknowledgementBatch(
                        first_offset=first, last_offset=last, acknowledge_types=(kind,)
                    )
                    for first, last, kind in sorted(spans)
                ),
            )

        return request_type(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=epoch,
            topics=_by_topic(batches, topic),
            **newer,
        )


def monotonic_ms() -> int:
    """Return the monotonic clock, in milliseconds."""
    return time.monotonic_ns() // 1_000_000


def _spans(batches: Iterable[AcknowledgeBatch]) -> list[Span]:
    return [(first, last) for first, last, _ in batches]


def _halves(
    batches: Sequence[AcknowledgeBatch],
) -> tuple[list[AcknowledgeBatch], list[AcknowledgeBatch]]:
    """Divide runs of two records or more in the middle; both halves have some."""
    middle = len(batches) // 2
    if middle:
        return list(batches[:middle]), list(batches[middle:])
    ((first, last, kind),) = batches
    middle = (first + last) // 2
    return [(first, middle, kind)], [(middle + 1, last, kind)]


def _by_topic(partitions: Iterable[TopicIdPartition], make: Any) -> tuple[Any, ...]:
    return tuple(
        make(topic_id, tuple(indexes)) for topic_id, indexes in by_topic(partitions).items()
    )
