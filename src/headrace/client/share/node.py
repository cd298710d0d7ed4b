"""The share session with one broker: its requests, one at a time, and the records held there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.connection import Connection
from headrace.client.errors import ConnectionFailed, RequestRefused, error_name
from headrace.errors import ErrorCode
from headrace.log_lines import get_logger
from headrace.protocol.partitions import TopicIdPartition
from headrace.protocol.share_inspection import ShareAcknowledgeRequest

from .session import CLOSE_EPOCH, HeldRecords, SessionStep, ShareSession
from .spans import Span
from .types import AcknowledgeType, AcquireLimits

_log = get_logger(__name__)

_RETRY_PAUSE_MS = 100
_SESSION_GONE = {ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH}

AcknowledgeBatch = tuple[int, int, AcknowledgeType]
"""(first offset, last offset inclusive, outcome)"""
Outcomes = Mapping[tuple[TopicIdPartition, AcknowledgeType], Sequence[Span]]
"""Outcomes of records, by partition and outcome."""


class ShareNode:
    """A member's share session with one broker. It ends with the connection that opened it.

    :ivar held: the records held on this broker
    :ivar lock_timeout_ms: duration of an acquisition lock, as the broker last reported it
    """

    def __init__(
        self, cluster: Cluster, node_id: int, group_id: str, member_id: str, timeout_ms: int
    ) -> None:
        self.held = HeldRecords()
        self.session = ShareSession()
        self.lock_timeout_ms = 30_000
        self._cluster = cluster
        self._node_id = node_id
        self._group_id = group_id
        self._member_id = member_id
        self._timeout_ms = timeout_ms
        self._lock = asyncio.Lock()
        self._connection: Connection | None = None

    def offers(self, api: str, version: int) -> bool:
        """Return whether the broker supports ``version`` of ``api``; True until it is connected."""
        return self._connection is None or self._connection.version(api) >= version

    async def fetch(self, wanted: Iterable[TopicIdPartition], limits: AcquireLimits) -> Any | None:
        """Send a ShareFetch for exactly the partitions ``wanted``.

        :returns: kio's response; None if the session was lost, so that the next call opens another
        """
        async with self._lock:
            try:
                if self._connection is None or not self._connection.is_open:
                    self._connection = await self._cluster.connection(self._node_id, "share")
                    self._forget()
                step = self.session.fetch(wanted)
                request = self._share_fetch(self._connection, step, limits)
                response = await self._request(
                    self._connection, request, self._timeout_ms + limits.max_wait_ms
                )
            except ConnectionFailed as failure:
                await self._connection_lost(failure)
                return None
            if response.error_code:
                await self._refused(int(response.error_code), "ShareFetch")
                return None
            self.session.fetched(step)
            lock_timeout_ms = response.acquisition_lock_timeout // timedelta(milliseconds=1)
            if lock_timeout_ms > 0:
                self.lock_timeout_ms = lock_timeout_ms
            return response

    async def acknowledge(
        self, wanted: Outcomes, *, uncounted: bool = False
    ) -> dict[TopicIdPartition, list[AcknowledgeBatch]]:
        """Send a ShareAcknowledge of those records that are held. Afterwards the member no longer
        holds them, unless their locks were renewed.

        :param uncounted: this delivery of records that are released does not count, if the broker
            is headrace's
        :returns: what the broker has accepted
        """
        if not self._of_held(wanted):
            return {}
        async with self._lock:
            # The request before this one may have acknowledged some of them, or lost all.
            batches = self._of_held(wanted)
            if not batches:
                return {}
            if not self.session.is_open or self._connection is None:
                self._lost(batches)
                return {}
            try:
                request = self._share_acknowledge(
                    self._connection, self.session.epoch, batches, uncounted=uncounted
                )
                response = await self._request(self._connection, request, self._timeout_ms)
            except ConnectionFailed as failure:
                await self._connection_lost(failure)
                return {}
            if response.error_code:
                self._lost(batches)
                await self._refused(int(response.error_code), "ShareAcknowledge")
                return {}
            self.session.acknowledged()
            return self._settle(response, batches)

    async def close(self) -> None:
        """Close the session: the broker releases the held records."""
        async with self._lock:
            if self.session.is_open and self._connection is not None and self._connection.is_open:
                request = self._share_acknowledge(self._connection, CLOSE_EPOCH, {})
                try:
                    await self._connection.request(request, timeout_ms=self._timeout_ms)
                except ConnectionFailed:
                    pass
            self._forget()

    async def _request(self, connection: Connection, request: Any, timeout_ms: int) -> Any:
        try:
            return await connection.request(request, timeout_ms=timeout_ms)
        except asyncio.CancelledError:
            # The records that the broker acquires for this request are unknown here. It releases
            # them when the connection ends.
            self._forget()
            await connection.close()
            raise

    def _of_held(self, wanted: Outcomes) -> dict[TopicIdPartition, list[AcknowledgeBatch]]:
        batches: dict[TopicIdPartition, list[AcknowledgeBatch]] = {}
        for (partition, kind), spans in wanted.items():
            if held := self.held.held(partition, spans):
                batches.setdefault(partition, []).extend((*span, kind) for span in held)
        return batches

    def _settle(
        self, response: Any, batches: Mapping[TopicIdPartition, list[AcknowledgeBatch]]
    ) -> dict[TopicIdPartition, list[AcknowledgeBatch]]:
        now_ms = monotonic_ms()
        codes = {
            (topic.topic_id, int(p.partition_index)): (ErrorCode(p.error_code), p.error_message)
            for topic in response.responses
            for p in topic.partitions
        }
        accepted = {}
        for key, spans in batches.items():
            code, message = codes.get(
                key, (ErrorCode.UNKNOWN_SERVER_ERROR, "the answer does not mention it")
            )
            if code:
                _log.warning("acknowledging %s-%d: %s (%s)", *key, code.name, message)
                self._lost({key: spans})
                continue
            accepted[key] = spans
            self.held.drop(
                key,
                [(first, last) for first, last, kind in spans if kind is not AcknowledgeType.RENEW],
            )
            if any(kind is AcknowledgeType.RENEW for _, _, kind in spans):
                self.held.renewed(key, now_ms)
        return accepted

    def _lost(self, batches: Mapping[TopicIdPartition, list[AcknowledgeBatch]]) -> None:
        for key, spans in batches.items():
            self.held.drop(key, [(first, last) for first, last, _ in spans])

    async def _connection_lost(self, failure: ConnectionFailed) -> None:
        _log.warning(
            "share session of group %s with broker %d: %s", self._group_id, self._node_id, failure
        )
        self._forget()
        await asyncio.sleep(_RETRY_PAUSE_MS / 1000)

    async def _refused(self, code: int, what: str) -> None:
        """Lose the session, so that the next call opens another.

        :raises RequestRefused: the user may not read with this group
        """
        _log.warning(
            "%s of group %s at broker %d: %s", what, self._group_id, self._node_id, error_name(code)
        )
        if code == ErrorCode.SHARE_SESSION_NOT_FOUND:
            self._forget()
        self.session.lost()
        if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            needs = f"READ on group '{self._group_id}'"
            raise RequestRefused(f"{what} of group '{self._group_id}'", code, needs=needs)
        if code not in _SESSION_GONE:
            await asyncio.sleep(_RETRY_PAUSE_MS / 1000)

    def _forget(self) -> None:
        self.session.lost()
        self.held = HeldRecords()

    def _share_fetch(self, connection: Connection, step: SessionStep, limits: AcquireLimits) -> Any:
        messages = connection.messages("share_fetch")
        newer = {}
        if connection.version("share_fetch") >= 2:
            newer = {"share_acquire_mode": int(limits.mode)}
        return messages.ShareFetchRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=step.epoch,
            max_wait=timedelta(milliseconds=limits.max_wait_ms),
            min_bytes=1,
            max_bytes=limits.max_bytes,
            max_records=limits.max_records,
            batch_size=limits.batch_size,
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
        batches: Mapping[TopicIdPartition, list[AcknowledgeBatch]],
        *,
        uncounted: bool = False,
    ) -> Any:
        messages = connection.messages("share_acknowledge")
        request_type, newer = messages.ShareAcknowledgeRequest, {}
        if connection.version("share_acknowledge") >= 2:
            renews = any(
                kind is AcknowledgeType.RENEW for spans in batches.values() for _, _, kind in spans
            )
            request_type = ShareAcknowledgeRequest
            newer = {"is_renew_ack": renews, "uncounted_release": uncounted}

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
                        first_offset=first, last_offset=last, acknowledge_types=(int(kind),)
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


def _by_topic(partitions: Iterable[TopicIdPartition], make: Any) -> tuple[Any, ...]:
    grouped: dict[Any, list[int]] = {}
    for topic_id, partition in partitions:
        grouped.setdefault(topic_id, []).append(partition)
    return tuple(make(topic_id, tuple(indexes)) for topic_id, indexes in grouped.items())
