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
from functools import partial
from time import perf_counter
from uuid import UUID

from headrace.coordinators.share_fetches import Fetched, SessionFetch
from headrace.log.partition_log import LEADER_EPOCH
from headrace.net.api import READ, READ_GROUP, READ_PARTITIONS, Api
from headrace.net.call import SLICED_ABOVE, Call
from headrace.protocol.api import ShareFetchRequest, ShareFetchResponse
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.share.acknowledgement import AcknowledgeTerms
from headrace.share.records import NO_TOPIC, SharePartitionKey
from headrace.share.settings import FetchLimits
from headrace.share.share_session import FINAL_EPOCH, INITIAL_EPOCH
from headrace.topics.long_polls import MAX_FETCH_WAIT_MS

from .acknowledging import NOT_LEADER, Acknowledged, acknowledge, names_member

Topic = ShareFetchResponse.ShareFetchableTopicResponse
Partition = ShareFetchResponse.PartitionData
AcquiredRecords = ShareFetchResponse.AcquiredRecords

API = Api(
    78,
    READ_GROUP,
    READ_PARTITIONS,
    is_quick=True,
    has_one_error=True,
)

_BATCH_OPTIMIZED, _RECORD_LIMIT = 0, 1


async def handle(call: Call, request: ShareFetchRequest) -> ShareFetchResponse:
    """Apply acknowledgements, then acquire records. Wait for them if there are none."""
    if not names_member(request) or (
        request.is_renew_ack
        and any((request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms))
    ):
        return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    share = call.share
    group_id = request.group_id or ""
    session = share.sessions.fetch(
        group_id,
        request.member_id or "",
        request.share_session_epoch,
        call.client.connection_id,
        acknowledges=any(
            partition.acknowledgement_batches
            for topic in request.topics
            for partition in topic.partitions
        ),
        limit=call.config.get_int("group.share.max.share.sessions"),
    )
    if isinstance(session, Refusal):
        return ShareFetchResponse(error_code=session.code)
    if request.share_acquire_mode not in (_BATCH_OPTIMIZED, _RECORD_LIMIT):
        return ShareFetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    terms = AcknowledgeTerms(renew=request.is_renew_ack)
    settings = share.settings(group_id)
    started = perf_counter()
    acknowledged = await acknowledge(call, session, request.topics, settings, terms)
    is_last = request.share_session_epoch == FINAL_EPOCH
    if is_last:
        share.close_session(session)
    await call.durable()  # before records are acquired: their locks would run meanwhile
    fetch = SessionFetch(share, session, partial(call.may_use_topic, READ))
    fetched = [] if is_last else await _records(call, request, fetch)
    if fetched:
        gained = [(data.key.topic_id, data.error_code, data.acquired) for data in fetched]
        call.metrics.share.fetched(group_id, started, len(session.partitions), gained)
    return _response(call, request, fetch, fetched, acknowledged)


async def _records(call: Call, request: ShareFetchRequest, fetch: SessionFetch) -> list[Fetched]:
    """Change the partitions of the session, and acquire records. Wait for them if there are
    none.
    """
    if not fetch.is_open():
        return []
    session = fetch.session
    session.update(
        (
            SharePartitionKey(
                session.group_id, topic.topic_id or NO_TOPIC, partition.partition_index
            )
            for topic in request.topics
            for partition in topic.partitions
        ),
        (
            SharePartitionKey(session.group_id, topic.topic_id or NO_TOPIC, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ),
    )
    if request.is_renew_ack or not _takes_records(request):
        return []
    if sum(len(topic.partitions) for topic in request.topics) > SLICED_ABOVE:
        for key in list(session.partitions):
            if fetch.is_open():
                fetch.load(key)
            await call.pause()
    if not fetch.is_open():
        return []
    call.metrics.share.fetch(session.partitions)
    limits = FetchLimits(
        max_bytes=min(request.max_bytes, call.fetch_max_bytes),
        max_records=request.max_records,
        batch_size=request.batch_size,
        record_limit=request.share_acquire_mode == _RECORD_LIMIT,
    )
    if fetch.has_bytes(request.min_bytes):
        fetched = fetch.acquire(limits)
        if _is_enough(fetch, fetched) or request.max_wait_ms <= 0:
            return fetched
    return await _wait(call, request, fetch, limits)


def _takes_records(request: ShareFetchRequest) -> bool:
    """Return True unless the limits of a request leave no room for records."""
    return request.max_records > 0 < request.max_bytes


async def _wait(
    call: Call, request: ShareFetchRequest, fetch: SessionFetch, limits: FetchLimits
) -> list[Fetched]:
    """Acquire records as soon as there are enough, or when the request may wait no longer."""
    metrics = call.metrics.share
    wait_ms = min(request.max_wait_ms, MAX_FETCH_WAIT_MS)
    end_s = asyncio.get_running_loop().time() + wait_ms / 1000
    metrics.delayed_fetches += 1
    try:
        while True:
            is_in_time = await call.long_polls.until(fetch.wait_keys(), end_s)
            if not fetch.is_open():
                return []
            if is_in_time and not fetch.has_bytes(request.min_bytes):
                continue
            fetched = fetch.acquire(limits)
            if not is_in_time:
                metrics.expired_fetches += 1
                return fetched
            if _is_enough(fetch, fetched):
                return fetched
    finally:
        metrics.delayed_fetches -= 1


def _is_enough(fetch: SessionFetch, fetched: list[Fetched]) -> bool:
    """Return True if records were acquired, or if every partition has an error."""
    return len(fetched) == len(fetch.session.partitions) or any(data.acquired for data in fetched)


def _response(
    call: Call,
    request: ShareFetchRequest,
    fetch: SessionFetch,
    fetched: list[Fetched],
    acknowledged: Acknowledged,
) -> ShareFetchResponse:
    """Return the acquired records and the results of acknowledgements by topic.

    The response to a full request (epoch 0) has all partitions of the session.
    """
    results = {data.key: data for data in fetched}
    keys = dict.fromkeys((*results, *acknowledged))
    if request.share_session_epoch == INITIAL_EPOCH and _takes_records(request):
        keys |= fetch.session.partitions
    topics: dict[UUID, list[Partition]] = {}
    is_led_elsewhere = False
    for key in keys:
        partition = Partition(key.partition, records=b"")
        if data := results.get(key):
            partition.error_code = data.error_code
            if not request.offsets_only:
                partition.records = data.records
            partition.acquired_records = [AcquiredRecords(*run) for run in data.acquired]
        if refusal := acknowledged.get(key):
            partition.acknowledge_error_code = refusal.code
            partition.acknowledge_error_message = refusal.message
        if NOT_LEADER in (partition.error_code, partition.acknowledge_error_code):
            is_led_elsewhere = True
            partition.current_leader = ShareFetchResponse.LeaderIdAndEpoch(
                call.node_id, LEADER_EPOCH
            )
        topics.setdefault(key.topic_id, []).append(partition)
    response = ShareFetchResponse(
        acquisition_lock_timeout_ms=fetch.settings.lock_duration_ms,
        responses=[Topic(topic_id, partitions) for topic_id, partitions in topics.items()],
    )
    if is_led_elsewhere:
        response.node_endpoints = [ShareFetchResponse.NodeEndpoint(*call.node)]
    return response
