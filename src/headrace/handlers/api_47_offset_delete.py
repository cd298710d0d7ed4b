"""OffsetDelete (47), version 0: delete committed offsets of a group (KIP-496).

Partitions that do not exist come first in the response, with UNKNOWN_TOPIC_OR_PARTITION. The group
refuses to delete offsets of topics to which it is subscribed. Deleting an offset that was not
committed succeeds.
"""

from __future__ import annotations

from kio.schema.offset_delete.v0.request import OffsetDeleteRequest
from kio.schema.offset_delete.v0.response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from headrace.broker.broker import Broker
from headrace.coordinators.runtime import Deferred
from headrace.errors import ErrorCode
from headrace.groups.records import GroupRecord
from headrace.outcome import Outcome
from headrace.protocol.messages import NO_THROTTLE

from .context import RequestContext


def handle(
    broker: Broker, request: OffsetDeleteRequest, context: RequestContext
) -> Deferred[OffsetDeleteResponse]:
    """Delete the committed offsets of the partitions of a request."""
    existing: list[tuple[str, int]] = []
    topics: dict[str, list[OffsetDeleteResponsePartition]] = {}

    def answer(name: str, index: int, code: ErrorCode) -> None:
        partition = OffsetDeleteResponsePartition(partition_index=index, error_code=code)
        topics.setdefault(name, []).append(partition)

    for asked in request.topics:
        topic = broker.catalog.topics.get(asked.name)
        if topic is None:
            topics.setdefault(asked.name, [])  # in the response even without partitions
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

    def response(codes: ErrorCode | tuple[ErrorCode, ...]) -> OffsetDeleteResponse:
        if isinstance(codes, ErrorCode):
            return OffsetDeleteResponse(error_code=codes, throttle_time=NO_THROTTLE, topics=())
        for (name, index), code in zip(existing, codes, strict=True):
            answer(name, index, code)
        return OffsetDeleteResponse(
            error_code=ErrorCode.NONE,
            throttle_time=NO_THROTTLE,
            topics=tuple(
                OffsetDeleteResponseTopic(name=name, partitions=tuple(partitions))
                for name, partitions in topics.items()
            ),
        )

    return broker.group_runtime.write(request.group_id, delete, response)
