"""OffsetDelete (47), version 0: delete committed offsets of a group (KIP-496).

Partitions that do not exist come first in the response, with UNKNOWN_TOPIC_OR_PARTITION. The group
refuses to delete offsets of topics to which it is subscribed. Deleting an offset that was not
committed succeeds.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.errors import ErrorCode
from headrace.groups.records import GroupRecord
from headrace.net.api import Api
from headrace.net.audit import Change
from headrace.net.call import Call
from headrace.net.rules import DELETE, GROUP, READ, TOPIC, each, on
from headrace.outcome import Outcome
from headrace.protocol.api import OffsetDeleteRequest, OffsetDeleteResponse
from headrace.protocol.authorized_operations import Operation

Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic
Partition = OffsetDeleteResponse.OffsetDeleteResponsePartition


def changes(request: OffsetDeleteRequest, response: OffsetDeleteResponse) -> Iterator[Change]:
    """Yield the offsets that were deleted, for the log."""
    if not response.error_code:
        for topic in response.topics:
            for partition in topic.partitions:
                if not partition.error_code:
                    detail = f"offset of {topic.name}-{partition.partition_index}"
                    yield Change(Operation.DELETE, "GROUP", request.group_id, detail)


API = Api(
    47,
    on(DELETE, GROUP, "group_id"),
    each(READ, TOPIC, "topics", "name"),
    storage_error=ErrorCode.NOT_COORDINATOR,
    refuse=lambda request, code: OffsetDeleteResponse(error_code=code),
    changes=changes,
)


async def handle(call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Delete the committed offsets of the partitions of a request."""
    broker = call.broker
    existing: list[tuple[str, int]] = []
    topics: dict[str, list[Partition]] = {}

    def answer(name: str, index: int, code: int) -> None:
        partition = Partition(partition_index=index, error_code=code)
        topics.setdefault(name, []).append(partition)

    allowed, refused = call.allowed(request.topics)
    for asked in allowed:
        topic = broker.catalog.topics.get(asked.name)
        if topic is None:  # in the response even without partitions
            topics.setdefault(asked.name, [])
        for partition in asked.partitions:
            index = partition.partition_index
            if topic is None or not 0 <= index < topic.partitions:
                answer(asked.name, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                existing.append((asked.name, index))

    def delete(
        now_ms: int, wall_ms: int
    ) -> Outcome[GroupRecord, ErrorCode | tuple[ErrorCode, ...]]:
        return broker.groups.offsets.delete(request.group_id, existing)

    codes = await broker.group_runtime.write(request.group_id, delete)
    if isinstance(codes, ErrorCode):
        return OffsetDeleteResponse(error_code=codes)
    for (name, index), code in zip(existing, codes, strict=True):
        answer(name, index, code)
    answers = [Topic(name=name, partitions=partitions) for name, partitions in topics.items()]
    return OffsetDeleteResponse(topics=answers + call.refused_items(Topic, refused))
