"""InitializeShareGroupState (83), version 0: initialise the state of share-partitions at an offset
(KIP-932).

The group coordinator of this broker initialises state without this request. A share-partition in
memory is loaded again, and its acquisition locks are lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

from headrace.net.api import CLUSTER_ACTION, Api, on_cluster
from headrace.net.call import Call
from headrace.protocol.api import (
    DeleteShareGroupStateRequest,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    WriteShareGroupStateRequest,
)
from headrace.protocol.errors import Refusal
from headrace.protocol.schema import Message
from headrace.share.records import NO_TOPIC, SharePartitionKey

Result = InitializeShareGroupStateResponse.InitializeStateResult
Partition = InitializeShareGroupStateResponse.PartitionResult

API = Api(83, on_cluster(CLUSTER_ACTION), of_coordinator=True, has_message=True)


async def handle(
    call: Call, request: InitializeShareGroupStateRequest
) -> InitializeShareGroupStateResponse:
    """Initialise each share-partition of a request."""
    state = call.share_state_runtime

    def initialize(
        key: SharePartitionKey,
        partition: InitializeShareGroupStateRequest.PartitionData,
        count: int | None,
    ) -> Refusal | None:
        outcome = state.coordinator.initialize(
            key, partition.state_epoch, partition.start_offset, call.clock.wall_ms(), count
        )
        refusal = state.write_now(str(key), outcome)
        if refusal is None:
            call.share.fence(key)
        return refusal

    return InitializeShareGroupStateResponse(
        await serve_each(call, request, initialize, Result, Partition)
    )


# Requests about share state (83-87) ---------------------------------------------------------------


Request = (
    InitializeShareGroupStateRequest
    | ReadShareGroupStateRequest
    | WriteShareGroupStateRequest
    | DeleteShareGroupStateRequest
    | ReadShareGroupStateSummaryRequest
)
R = TypeVar("R", bound=Message)
T = TypeVar("T")


async def serve_each(
    call: Call,
    request: Request,
    serve: Callable[[SharePartitionKey, Any, int | None], R | Refusal | None],
    topic_result: Callable[[UUID, list[R]], T],
    partition_result: Callable[[int], R],
) -> list[T]:
    """Serve the share-partitions of a request in order; return the results by topic when everything
    that was written is durable.

    As in Apache Kafka, the response to a request without a group id is empty, topics without
    partitions are left out, and a duplicate share-partition is served twice but has one result, the
    last.

    :param serve: given the share-partition, its part of the request, and the number of partitions
        of its topic (None if there is no such topic); returns its result, its error, or None for a
        result without details
    :param topic_result: returns the results of a topic, given those of its partitions
    :param partition_result: returns an empty result of a partition
    """
    results: dict[UUID, dict[int, R]] = {}
    for topic in request.topics if request.group_id else ():
        topic_id = topic.topic_id or NO_TOPIC
        existing = call.catalog.topics_by_id.get(topic_id)
        count = None if existing is None else existing.partitions
        for partition in topic.partitions:
            key = SharePartitionKey(request.group_id, topic_id, partition.partition)
            result = serve(key, partition, count)
            if result is None or isinstance(result, Refusal):
                result = partition_result(key.partition).refused(result)
            results.setdefault(topic_id, {})[key.partition] = result
            await call.pause()
    await call.durable()
    return [topic_result(topic_id, [*of_topic.values()]) for topic_id, of_topic in results.items()]
