"""ShareFetch (78), versions 1-2: acquire records for a member of a share group (KIP-932).

A share session remembers the member's partitions; a request names those to add and to forget. Its
acknowledgements are applied first. Then it waits up to ``max_wait`` for records. The records of a
partition are whole log batches as stored; ``acquired_records`` names the offsets that the client
has acquired.

Version notes:

* Version 2 adds the acquire mode (KIP-1206), and acknowledgements that renew locks (KIP-1222).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Hashable, Iterable
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any
from uuid import UUID

from kio.schema.share_fetch.v2.request import ShareFetchRequest
from kio.schema.share_fetch.v2.response import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)

from headrace.broker.broker import Broker
from headrace.broker.limits import MAX_FETCH_WAIT_MS, SLICED_ABOVE
from headrace.broker.long_polls import LongPoll
from headrace.coordinators.share_fetches import Fetched, FetchLimits, acquire, has_bytes, wait_keys
from headrace.coordinators.share_partitions import LEADER_EPOCH
from headrace.errors import ErrorCode, Refusal
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.messages import NO_THROTTLE
from headrace.share.acknowledgement import AcknowledgeTerms
from headrace.share.settings import ShareSettings
from headrace.share.share_session import FINAL_EPOCH, INITIAL_EPOCH, ShareSession

from .api_79_share_acknowledge import (
    NOT_LEADER,
    Acknowledged,
    acknowledge,
    answer_when_applied,
    names_member,
)
from .context import RequestContext
from .durations import to_timedelta
from .topic_names import allows_topic

_BATCH_OPTIMIZED, _RECORD_LIMIT = 0, 1


@dataclass(frozen=True, slots=True)
class _Fetch:
    """A ShareFetch whose acknowledgements have been applied."""

    broker: Broker
    request: ShareFetchRequest
    context: RequestContext
    session: ShareSession
    limits: FetchLimits
    acknowledged: Acknowledged
    started: float

    @property
    def settings(self) -> ShareSettings:
        """The current settings of the group; they may change while the request waits."""
        return self.broker.share.settings(self.session.group_id)

    def may_read(self, topic_id: UUID) -> bool:
        """Return whether the member may read a topic; True for an unknown id."""
        return allows_topic(self.broker, Operation.READ, topic_id, self.context)


def handle(broker: Broker, request: ShareFetchRequest, context: RequestContext) -> Any:
    """Apply acknowledgements, then acquire records. Wait for them if there are none."""
    share = broker.share
    group_id, member_id, epoch = (
        request.group_id or "",
        request.member_id or "",
        request.share_session_epoch,
    )
    if not names_member(request) or (request.is_renew_ack and _wants_records(request)):
        return _error(ErrorCode.INVALID_REQUEST)
    session = share.sessions.fetch(
        group_id,
        member_id,
        epoch,
        context.connection_id,
        acknowledges=any(
            partition.acknowledgement_batches
            for topic in request.topics
            for partition in topic.partitions
        ),
        limit=broker.config.get_int("group.share.max.share.sessions"),
    )
    if isinstance(session, Refusal):
        return _error(session.code)
    if request.share_acquire_mode not in (_BATCH_OPTIMIZED, _RECORD_LIMIT):
        return _error(ErrorCode.UNKNOWN_SERVER_ERROR)
    settings = share.settings(group_id)
    terms = AcknowledgeTerms(renew=request.is_renew_ack)
    acknowledged = acknowledge(broker, session, request.topics, settings, context, terms)
    limits = FetchLimits(
        max_bytes=min(request.max_bytes, broker.fetch_max_bytes),
        max_records=request.max_records,
        batch_size=request.batch_size,
        record_limit=request.share_acquire_mode == _RECORD_LIMIT,
    )
    fetch = partial(_fetch, broker, request, context, session, limits, perf_counter())
    return answer_when_applied(acknowledged, fetch)


def _fetch(
    broker: Broker,
    request: ShareFetchRequest,
    context: RequestContext,
    session: ShareSession,
    limits: FetchLimits,
    started: float,
    acknowledged: Acknowledged,
) -> Any:
    """Change the session and acquire records, after the acknowledgements were applied. Of many new
    partitions in slices.
    """
    share = broker.share
    fetch = _Fetch(broker, request, context, session, limits, acknowledged, started)
    if request.share_session_epoch == FINAL_EPOCH:
        share.close_session(session)
        return _answer(fetch, [])
    if not share.sessions.is_open(session):  # ended while dead letters were written
        return _answer(fetch, [])
    session.update(
        (
            (topic.topic_id, partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
        ),
        (
            (topic.topic_id, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ),
    )
    if request.is_renew_ack or limits.max_records <= 0 or limits.max_bytes <= 0:
        return _answer(fetch, [])
    if sum(len(topic.partitions) for topic in request.topics) > SLICED_ABOVE:
        return _load_and_acquire(fetch)
    return _acquire(fetch)


async def _load_and_acquire(fetch: _Fetch) -> ShareFetchResponse:
    """Load the share-partitions in slices, as the first use of a log reads its directory; then
    acquire records.
    """
    await fetch.broker.slices.run(_load(fetch))
    response = _acquire(fetch)
    return await response if isinstance(response, Awaitable) else response


def _load(fetch: _Fetch) -> Generator[None]:
    share, session = fetch.broker.share, fetch.session
    for topic_id, partition in list(session.partitions):
        if not share.sessions.is_open(session):
            return
        if fetch.may_read(topic_id):
            share.load(session.group_id, topic_id, partition)
        yield


def _acquire(fetch: _Fetch) -> Any:
    """Acquire records, or wait for them."""
    broker, request, session, limits = fetch.broker, fetch.request, fetch.session, fetch.limits
    share = broker.share
    if not share.sessions.is_open(session):  # ended while share-partitions were loaded
        return _answer(fetch, [])
    broker.metrics.share.fetch(session.partitions)
    if request.min_bytes <= 1 or has_bytes(
        share, session, request.min_bytes, fetch.settings, fetch.may_read
    ):
        fetched = acquire(share, session, limits, fetch.settings, fetch.may_read)
        if _enough(session, fetched) or request.max_wait <= NO_THROTTLE:
            return _answer(fetch, fetched)
    poll = _Poll(fetch)
    if broker.topic_logs.is_durable:
        return poll
    return _when_durable(broker.durable(), poll.future())


def _wants_records(request: ShareFetchRequest) -> bool:
    return bool(request.max_bytes or request.min_bytes or request.max_records or request.max_wait)


def _enough(session: ShareSession, fetched: list[Fetched]) -> bool:
    """Return True if records were acquired, or if every partition has an error."""
    return len(fetched) == len(session.partitions) or any(one.acquired for one in fetched)


class _Poll(LongPoll[ShareFetchResponse]):
    """A ShareFetch that waits for records up to its ``max_wait``."""

    __slots__ = ("_fetch",)

    def __init__(self, fetch: _Fetch) -> None:
        self._fetch = fetch
        fetch.broker.metrics.share.delayed_fetches += 1
        wait_ms = min(fetch.request.max_wait.total_seconds() * 1000, MAX_FETCH_WAIT_MS)
        super().__init__(fetch.broker.long_polls, self._wait_keys, self._acquire, wait_ms)

    def _wait_keys(self) -> Iterable[Hashable]:
        fetch = self._fetch
        return wait_keys(fetch.broker.share, fetch.session, fetch.settings)

    def _acquire(self, is_over: bool) -> ShareFetchResponse | None:
        fetch, min_bytes = self._fetch, self._fetch.request.min_bytes
        share, session, settings = fetch.broker.share, fetch.session, fetch.settings
        if not share.sessions.is_open(session):
            return _response(fetch, [])  # nothing would release records acquired from here on
        may_read = fetch.may_read
        if (
            not is_over
            and min_bytes > 1
            and not has_bytes(share, session, min_bytes, settings, may_read)
        ):
            return None
        fetched = acquire(share, session, fetch.limits, settings, may_read)
        if not is_over and not _enough(session, fetched):
            return None
        fetch.broker.metrics.share.expired_fetches += is_over
        return _response(fetch, fetched)

    def answer(self, answer: ShareFetchResponse | Exception) -> None:
        self._fetch.broker.metrics.share.delayed_fetches -= 1
        super().answer(answer)

    def cancel(self) -> None:
        self._fetch.broker.metrics.share.delayed_fetches -= 1
        super().cancel()


async def _when_durable(
    durable: Awaitable[None], answer: asyncio.Future[ShareFetchResponse]
) -> ShareFetchResponse:
    """Wait for the poll's answer, and until the acknowledgements are durable."""
    try:
        await durable
        return await answer
    finally:
        answer.cancel()


def _answer(fetch: _Fetch, fetched: list[Fetched]) -> Any:
    """Return the response when the acknowledgements are durable."""
    return fetch.broker.when_durable(_response(fetch, fetched))


_NO_LEADER = LeaderIdAndEpoch(leader_id=0, leader_epoch=0)


def _leader(broker: Broker) -> LeaderIdAndEpoch:
    return LeaderIdAndEpoch(leader_id=broker.node_id, leader_epoch=LEADER_EPOCH)


def _response(fetch: _Fetch, fetched: list[Fetched]) -> ShareFetchResponse:
    """Return the acquired records and the results of acknowledgements by topic.

    The response to a full request (epoch 0) has all partitions of the session.
    """
    if fetched:
        session = fetch.session
        gained = [(one.topic_id, one.error_code, one.acquired) for one in fetched]
        fetch.broker.metrics.share.fetched(
            session.group_id, fetch.started, len(session.partitions), gained
        )
    acknowledged = fetch.acknowledged
    results = {(one.topic_id, one.partition): one for one in fetched}
    partitions = dict.fromkeys(results)
    partitions.update(dict.fromkeys(acknowledged))
    if (
        fetch.request.share_session_epoch == INITIAL_EPOCH
        and fetch.limits.max_records > 0 < fetch.limits.max_bytes
    ):
        partitions.update(fetch.session.partitions)
    topics: dict[UUID, list[PartitionData]] = {}
    moved = False
    for topic_id, partition in partitions:
        data = results.get((topic_id, partition)) or Fetched(topic_id, partition, ErrorCode.NONE)
        refusal = acknowledged.get((topic_id, partition))
        refused = ErrorCode.NONE if refusal is None else refusal.code
        led_elsewhere = data.error_code in NOT_LEADER or refused in NOT_LEADER
        moved = moved or led_elsewhere
        topics.setdefault(topic_id, []).append(
            PartitionData(
                partition_index=partition,
                error_code=data.error_code,
                acknowledge_error_code=refused,
                acknowledge_error_message=None if refusal is None else refusal.message,
                current_leader=_leader(fetch.broker) if led_elsewhere else _NO_LEADER,
                records=data.records,
                acquired_records=tuple(
                    AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                    for first, last, count in data.acquired
                ),
            )
        )
    context = fetch.context
    endpoint = NodeEndpoint(
        node_id=fetch.broker.node_id, host=context.listener_host, port=context.listener_port
    )
    return ShareFetchResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.NONE,
        acquisition_lock_timeout=to_timedelta(fetch.settings.lock_duration_ms),
        responses=tuple(
            ShareFetchableTopicResponse(topic_id=topic_id, partitions=tuple(data))
            for topic_id, data in topics.items()
        ),
        node_endpoints=(endpoint,) if moved else (),
    )


def _error(code: ErrorCode) -> ShareFetchResponse:
    return ShareFetchResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        acquisition_lock_timeout=NO_THROTTLE,
        responses=(),
        node_endpoints=(),
    )
