"""InitializeShareGroupState (83), version 0: initialise the state of share-partitions at an offset
(KIP-932).

The group coordinator of this broker initialises state without this request. A share-partition in
memory is loaded again, and its acquisition locks are lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar
from uuid import UUID

from headrace.net.api import CLUSTER_ACTION, Api, on_cluster
from headrace.net.call import Call
from headrace.protocol.api import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
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
        key: SharePartitionKey, partition: InitializeShareGroupStateRequest.PartitionData
    ) -> Refusal | None:
        outcome = state.coordinator.initialize(
            key, partition.state_epoch, partition.start_offset, call.clock.wall_ms()
        )
        refusal = state.write_now(str(key), outcome)
        if refusal is None:
            call.share.fence(key)
        return refusal

    return InitializeShareGroupStateResponse(
        await serve_each(call, request.group_id, request.topics, initialize, Result, Partition)
    )


# Requests about share state (83-87) ---------------------------------------------------------------


class RequestedPartition(Protocol):
    """What a request says of a share-partition."""

    partition: int


P = TypeVar("P", bound=RequestedPartition)
R = TypeVar("R", bound=Message)
T = TypeVar("T")


class RequestedTopic(Protocol[P]):
    """The share-partitions of a topic in a request."""

    topic_id: UUID | None
    partitions: Sequence[P]


async def serve_each(
    call: Call,
    group_id: str,
    topics: Sequence[RequestedTopic[P]],
    serve: Callable[[SharePartitionKey, P], R | Refusal | None],
    topic_result: Callable[[UUID, list[R]], T],
    partition_result: Callable[[int], R],
) -> list[T]:
    """Serve the share-partitions of a request in order; return the results by topic when everything
    that was written is durable.

    As in Apache Kafka, the response to a request without a group id is empty, topics without
    partitions are left out, and a duplicate share-partition is served twice but has one result, the
    last.

    :param serve: given the share-partition and its part of the request; returns its result, its
        error, or None for a result without details
    :param topic_result: returns the results of a topic, given those of its partitions
    :param partition_result: returns an empty result of a partition
    """
    results: dict[UUID, dict[int, R]] = {}
    for topic in topics if group_id else ():
        topic_id = topic.topic_id or NO_TOPIC
        for partition in topic.partitions:
            key = SharePartitionKey(group_id, topic_id, partition.partition)
            result = serve(key, partition)
            if result is None or isinstance(result, Refusal):
                result = partition_result(key.partition).refused(result)
            results.setdefault(topic_id, {})[key.partition] = result
            await call.pause()
    await call.durable()
    return [topic_result(topic_id, [*of_topic.values()]) for topic_id, of_topic in results.items()]
