"""OffsetCommit (8), versions 2-10: commit offsets of a group.

The response has no top-level error: an error of the group is the error of every partition. Topics
without partitions are left out of the response.

Version notes:

* Version 5 removes the retention time (KIP-211); the broker's applies.
* Version 6 adds leader epochs (KIP-320).
* Version 7 adds the group instance id (KIP-345).
* Version 9 adds member epochs, STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND (KIP-848).
* Version 10 replaces topic names by ids (KIP-848).
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from headrace.groups.classic.member import MemberIdentity
from headrace.groups.records import GroupRecord
from headrace.net.api import (
    GROUP,
    READ,
    TOPIC,
    Api,
    Each,
    on,
)
from headrace.net.call import Call
from headrace.outcome import Outcome
from headrace.protocol.api import OffsetCommitRequest, OffsetCommitResponse
from headrace.protocol.errors import ErrorCode

from .offset_commits import RequestedCommits

RequestedTopic = OffsetCommitRequest.OffsetCommitRequestTopic
Topic = OffsetCommitResponse.OffsetCommitResponseTopic
Partition = OffsetCommitResponse.OffsetCommitResponsePartition

COMMITS_AT_ONCE = 1000
"""The offsets of a request that are decided and written in one turn of the event loop."""

_FIRST_WITH_GROUP_ID_NOT_FOUND = 9
_FIRST_WITH_TOPIC_IDS = 10

API = Api(
    8,
    on(READ, GROUP, "group_id"),
    Each(READ, TOPIC, "topics", "name", ids_from=_FIRST_WITH_TOPIC_IDS),
    is_quick=True,
    storage_error=ErrorCode.NOT_COORDINATOR,
)


async def handle(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Commit offsets at the end of this turn, together with other commits."""
    allowed, refused = await call.allowed(request.topics)
    if sum([len(topic.partitions) for topic in allowed]) <= COMMITS_AT_ONCE:
        topics = await _commit(call, request, allowed)
    else:
        topics = await _commit_in_portions(call, request, allowed)
    if refused:
        topics += await call.refused_items(Topic, refused)
    return OffsetCommitResponse(topics=topics)


async def _commit_in_portions(
    call: Call, request: OffsetCommitRequest, requested: Sequence[RequestedTopic]
) -> list[Topic]:
    """Commit some offsets after the others: those of different partitions are independent."""
    topics: list[Topic] = []
    portion: list[RequestedTopic] = []
    room = COMMITS_AT_ONCE
    continues = False  # the portion begins within a topic

    async def commit_portion() -> None:
        committed = await _commit(call, request, portion)
        if continues:
            rest = committed.pop(0).partitions
            topics[-1].partitions = [*topics[-1].partitions, *rest]
        topics.extend(committed)

    for topic in requested:
        start = 0
        while start < len(topic.partitions) or not start:
            partitions = topic.partitions[start : start + room]
            portion.append(RequestedTopic(topic.name, topic.topic_id, partitions))
            start += max(len(partitions), 1)
            room -= max(len(partitions), 1)
            if not room:
                await commit_portion()
                continues = start < len(topic.partitions)
                portion, room = [], COMMITS_AT_ONCE
            await call.pause()
    if portion:
        await commit_portion()
    return topics


def _commit(
    call: Call, request: OffsetCommitRequest, requested: Sequence[RequestedTopic]
) -> Awaitable[list[Topic]]:
    def decide(now_ms: int, wall_ms: int) -> Outcome[GroupRecord, list[Topic]]:
        commits = RequestedCommits(
            call.catalog,
            request.group_id,
            requested,
            Topic,
            Partition,
            has_ids=call.version >= _FIRST_WITH_TOPIC_IDS,
            wall_ms=wall_ms,
            retention_ms=request.retention_time_ms,
        )
        if not commits.records:
            return commits.refused(ErrorCode.NONE)
        return commits.decided(
            call.group_runtime.coordinator.offsets.commit(
                request.group_id,
                MemberIdentity(request.member_id, request.group_instance_id),
                request.generation_id_or_member_epoch,
                commits.records,
                now_ms,
                knows_group_id_not_found=call.version >= _FIRST_WITH_GROUP_ID_NOT_FOUND,
            )
        )

    return call.group_runtime.write(request.group_id, decide, commutes=True)
