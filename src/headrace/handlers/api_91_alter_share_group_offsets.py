"""AlterShareGroupOffsets (91), version 0: set the start offsets of an empty share group (KIP-932).

A group that does not exist is created. Offsets are not checked against the log: after -1 the next
fetch resolves ``share.auto.offset.reset``; after an offset past the end, fetches are empty until
the log reaches it. Acquisition locks of the partitions are lost.

A tagged field of headrace's own releases records that members hold
(:mod:`headrace.protocol.own_fields`). Such a request sets no offsets, and the group may have
members.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from headrace.coordinators import share_state_recovery
from headrace.coordinators.waiting import run_to_end
from headrace.net.api import ALTER, GROUP, READ, READ_GROUP, TOPIC, TOPIC_DENIED, Api, Each
from headrace.net.call import Call
from headrace.protocol.api import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
from headrace.protocol.errors import ErrorCode, Refusal, invalid_request
from headrace.share.records import SharePartitionKey
from headrace.share.share_state import NOT_HOSTED

MAX_RELEASES_PER_REQUEST = 1000
"""The ranges of records to release in one request of AlterShareGroupOffsets."""

RequestTopic = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
ResponseTopic = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
Partition = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition


API = Api(
    91,
    READ_GROUP,
    Each(READ, TOPIC, "topic_name"),
    of_coordinator=True,
    has_one_error=True,
    has_message=True,
    is_audited=True,
)

NOTHING_HELD = Refusal(ErrorCode.INVALID_RECORD_STATE, "No member holds a record of the range.")
_BAD_RELEASES = invalid_request(
    f"A request releases at most {MAX_RELEASES_PER_REQUEST} ranges of records, and sets no offsets."
)


async def handle(
    call: Call, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    """Set the start offsets of the partitions of a request, or release records."""
    allowed, refused = await call.allowed_items(request.topics, ResponseTopic)
    if request.releases:
        topics = await _release_each(call, request, allowed)
    else:
        topics = _set_starts(call, request.group_id, allowed)
    if isinstance(topics, Refusal):
        return AlterShareGroupOffsetsResponse().refused(topics)
    await call.durable()
    topics += refused
    for topic in topics:
        existing = call.catalog.topics.get(topic.topic_name)
        topic.topic_id = None if existing is None else existing.topic_id
    return AlterShareGroupOffsetsResponse(responses=topics)


def _set_starts(
    call: Call, group_id: str, topics: Sequence[RequestTopic]
) -> list[ResponseTopic] | Refusal:
    group = call.groups.share.empty_group(group_id, create=True)
    if isinstance(group, Refusal):
        return group
    results: dict[str, list[Partition]] = {}
    starts: dict[UUID, dict[int, int]] = {}
    for requested in topics:
        topic = call.catalog.topics.get(requested.topic_name)
        partitions = results.setdefault(requested.topic_name, [])
        for partition in requested.partitions:
            index = partition.partition_index
            if topic is None or not 0 <= index < topic.partitions:
                partitions.append(Partition(index).refused(NOT_HOSTED))
                continue
            partitions.append(Partition(index))
            starts.setdefault(topic.topic_id, {})[index] = partition.start_offset
            detail = f"start of {topic.name}-{index} at {partition.start_offset}"
            call.changed(ALTER, GROUP, group_id, detail)
    if starts:
        share_state_recovery.initialize(call.coordinators, group, starts, group.state.epoch)
    return [ResponseTopic(name, None, partitions) for name, partitions in results.items()]


async def _release_each(
    call: Call, request: AlterShareGroupOffsetsRequest, topics: Sequence[RequestTopic]
) -> list[ResponseTopic] | Refusal:
    """Release records that members hold: one partition in the response for each range."""
    if topics or len(request.releases) > MAX_RELEASES_PER_REQUEST:
        return _BAD_RELEASES
    responses = []
    for release in request.releases:
        refusal = await _release(call, request.group_id, release)
        partition = Partition(release.partition_index).refused(refusal)
        responses.append(ResponseTopic(release.topic_name, None, [partition]))
    return responses


async def _release(
    call: Call, group_id: str, release: AlterShareGroupOffsetsRequest.Release
) -> Refusal | None:
    """Release a range of records, with dead letters of those that were delivered too often; return
    the error, or None.
    """
    if not call.may(READ, TOPIC, release.topic_name):
        return TOPIC_DENIED
    topic = call.catalog.topics.get(release.topic_name)
    if topic is None or not 0 <= release.partition_index < topic.partitions:
        return NOT_HOSTED
    key = SharePartitionKey(group_id, topic.topic_id, release.partition_index)
    releasing = call.share.release_range(key, release.first_offset, release.last_offset)
    count = await run_to_end(releasing)
    if isinstance(count, Refusal):
        return count
    if not count:
        return NOTHING_HELD
    name = f"{release.topic_name}-{release.partition_index}"
    detail = f"released {release.first_offset} to {release.last_offset} of {name}"
    call.changed(ALTER, GROUP, group_id, detail)
    return None
