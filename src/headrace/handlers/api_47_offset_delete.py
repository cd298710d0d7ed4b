"""OffsetDelete (47), version 0: delete committed offsets of a group (KIP-496).

Partitions that do not exist come first in the response, with UNKNOWN_TOPIC_OR_PARTITION. The group
refuses to delete offsets of topics to which it is subscribed. Deleting an offset that was not
committed succeeds.
"""

from __future__ import annotations

from collections import defaultdict

from headrace.net.api import DELETE, GROUP, READ, TOPIC, Api, Each, on
from headrace.net.call import Call
from headrace.protocol.api import OffsetDeleteRequest, OffsetDeleteResponse
from headrace.protocol.errors import ErrorCode

Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic
Partition = OffsetDeleteResponse.OffsetDeleteResponsePartition


API = Api(
    47,
    on(DELETE, GROUP, "group_id"),
    Each(READ, TOPIC, "name"),
    of_coordinator=True,
    has_one_error=True,
    is_audited=True,
)


async def handle(call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Delete the committed offsets of the partitions of a request."""
    allowed, refused = await call.allowed_items(request.topics, Topic)
    existing: list[tuple[str, int]] = []
    results: defaultdict[str, list[Partition]] = defaultdict(list)
    for topic in allowed:
        present = call.catalog.topics.get(topic.name)
        if present is None:  # in the response even without partitions
            results.setdefault(topic.name, [])
        for partition in topic.partitions:
            index = partition.partition_index
            if present is not None and 0 <= index < present.partitions:
                existing.append((topic.name, index))
            else:
                unknown = Partition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                results[topic.name].append(unknown)
    offsets = call.groups.offsets
    codes = await call.group_runtime.write(
        request.group_id, lambda now_ms, wall_ms: offsets.delete(request.group_id, existing)
    )
    if isinstance(codes, ErrorCode):
        return OffsetDeleteResponse(error_code=codes)
    for (name, index), code in zip(existing, codes, strict=True):
        results[name].append(Partition(index, code))
        if not code:
            call.changed(DELETE, GROUP, request.group_id, f"offset of {name}-{index}")
    topics = [Topic(name, partitions) for name, partitions in results.items()]
    return OffsetDeleteResponse(topics=topics + refused)
