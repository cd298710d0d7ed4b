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
from dataclasses import dataclass
from time import perf_counter
from uuid import UUID

from headrace.coordinators.share_fetches import Fetched, acquire, has_bytes, wait_keys
from headrace.log.partition_log import LEADER_EPOCH
from headrace.net.api import READ, READ_GROUP, READ_PARTITIONS, Api
from headrace.net.call import SLICED_ABOVE, Call
from headrace.protocol.api import ShareFetchRequest, ShareFetchResponse
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.share.acknowledgement import AcknowledgeTerms
from headrace.share.records import NO_TOPIC
from headrace.share.settings import FetchLimits, ShareSettings
from headrace.share.share_session import FINAL_EPOCH, INITIAL_EPOCH, ShareSession
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
    fetch = _Fetch(call, request, session)
    fetched = [] if is_last else await fetch.records()
    if fetched:
        gained = [(data.topic_id, data.error_code, data.acquired) for data in fetched]
        call.metrics.share.fetched(group_id, started, len(session.partitions), gained)
    return _response(fetch, fetched, acknowledged)


@dataclass(frozen=True, slots=True)
class _Fetch:
    """A ShareFetch whose acknowledgements have been applied."""

    call: Call
    request: ShareFetchRequest
    session: ShareSession

    @property
    def settings(self) -> ShareSettings:
        """The current settings of the group; they may change while the request waits."""
        return self.call.share.settings(self.session.group_id)

    @property
    def takes_records(self) -> bool:
        """True unless its limits leave no room for records."""
        return self.request.max_records > 0 < self.request.max_bytes

    def is_open(self) -> bool:
        """Return False if the session has ended, as it may while the request waits. Nothing would
        release records that are acquired afterwards.
        """
        return self.call.share.sessions.is_open(self.session)

    async def records(self) -> list[Fetched]:
        """Change the partitions of the session, and acquire records. Wait for them if there are
        none.
        """
        if not self.is_open():
            return []
        request, session = self.request, self.session
        session.update(
            (
                (topic.topic_id or NO_TOPIC, partition.partition_index)
                for topic in request.topics
                for partition in topic.partitions
            ),
            (
                (topic.topic_id or NO_TOPIC, index)
                for topic in request.forgotten_topics_data
                for index in topic.partitions
            ),
        )
        if request.is_renew_ack or not self.takes_records:
            return []
        if sum(len(topic.partitions) for topic in request.topics) > SLICED_ABOVE:
            await self._load()
        if not self.is_open():
            return []
        self.call.metrics.share.fetch(session.partitions)
        if request.min_bytes <= 1 or self._has_bytes():
            fetched = self._acquire()
            if self._is_enough(fetched) or request.max_wait_ms <= 0:
                return fetched
        return await self._wait()

    async def _load(self) -> None:
        """Load the share-partitions: the first use of a log reads its directory."""
        share, session = self.call.share, self.session
        for topic_id, partition in list(session.partitions):
            if self.is_open() and self._may_read(topic_id):
                share.load(session.group_id, topic_id, partition)
            await self.call.pause()

    async def _wait(self) -> list[Fetched]:
        """Acquire records as soon as there are enough, or when the request may wait no longer."""
        call, metrics = self.call, self.call.metrics.share
        wait_ms = min(self.request.max_wait_ms, MAX_FETCH_WAIT_MS)
        end_s = asyncio.get_running_loop().time() + wait_ms / 1000
        metrics.delayed_fetches += 1
        try:
            while True:
                keys = wait_keys(call.share, self.session, self.settings)
                is_in_time = await call.long_polls.until(keys, end_s)
                if not self.is_open():
                    return []
                if is_in_time and self.request.min_bytes > 1 and not self._has_bytes():
                    continue
                fetched = self._acquire()
                if not is_in_time:
                    metrics.expired_fetches += 1
                    return fetched
                if self._is_enough(fetched):
                    return fetched
        finally:
            metrics.delayed_fetches -= 1

    def _acquire(self) -> list[Fetched]:
        call, request = self.call, self.request
        limits = FetchLimits(
            max_bytes=min(request.max_bytes, call.fetch_max_bytes),
            max_records=request.max_records,
            batch_size=request.batch_size,
            record_limit=request.share_acquire_mode == _RECORD_LIMIT,
        )
        return acquire(call.share, self.session, limits, self.settings, self._may_read)

    def _has_bytes(self) -> bool:
        share, min_bytes = self.call.share, self.request.min_bytes
        return has_bytes(share, self.session, min_bytes, self.settings, self._may_read)

    def _may_read(self, topic_id: UUID) -> bool:
        """Return whether the member may read a topic; True for an unknown id."""
        return self.call.may_use_topic(READ, topic_id)

    def _is_enough(self, fetched: list[Fetched]) -> bool:
        """Return True if records were acquired, or if every partition has an error."""
        return len(fetched) == len(self.session.partitions) or any(
            data.acquired for data in fetched
        )


def _response(
    fetch: _Fetch, fetched: list[Fetched], acknowledged: Acknowledged
) -> ShareFetchResponse:
    """Return the acquired records and the results of acknowledgements by topic.

    The response to a full request (epoch 0) has all partitions of the session.
    """
    results = {(data.topic_id, data.partition): data for data in fetched}
    keys = dict.fromkeys((*results, *acknowledged))
    if fetch.request.share_session_epoch == INITIAL_EPOCH and fetch.takes_records:
        keys |= fetch.session.partitions
    topics: dict[UUID, list[Partition]] = {}
    is_led_elsewhere = False
    for key in keys:
        topic_id, index = key
        partition = Partition(index, records=b"")
        if data := results.get(key):
            partition.error_code = data.error_code
            if not fetch.request.offsets_only:
                partition.records = data.records
            partition.acquired_records = [AcquiredRecords(*run) for run in data.acquired]
        if refusal := acknowledged.get(key):
            partition.acknowledge_error_code = refusal.code
            partition.acknowledge_error_message = refusal.message
        if NOT_LEADER in (partition.error_code, partition.acknowledge_error_code):
            is_led_elsewhere = True
            partition.current_leader = ShareFetchResponse.LeaderIdAndEpoch(
                fetch.call.node_id, LEADER_EPOCH
            )
        topics.setdefault(topic_id, []).append(partition)
    response = ShareFetchResponse(
        acquisition_lock_timeout_ms=fetch.settings.lock_duration_ms,
        responses=[Topic(topic_id, partitions) for topic_id, partitions in topics.items()],
    )
    if is_led_elsewhere:
        response.node_endpoints = [ShareFetchResponse.NodeEndpoint(*fetch.call.node)]
    return response
