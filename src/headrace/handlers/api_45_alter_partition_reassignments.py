"""AlterPartitionReassignments (45), versions 0-1: move partitions to other replicas (KIP-455).

This node is the only valid replica, so a reassignment to it is complete at once, and any other is
refused. None can be in progress, so none can be cancelled.

Version notes:

* Version 1 can forbid changes of the replication factor (KIP-860); it can only be 1.
"""

from __future__ import annotations

from typing import Any

from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
)
from kio.schema.alter_partition_reassignments.v1.response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

from headrace.broker.broker import Broker
from headrace.broker.config.topic_rules import check_assignment
from headrace.errors import ErrorCode, Refusal
from headrace.protocol.messages import NO_THROTTLE

from .context import RequestContext
from .slicing import sliced

_DONE = Refusal(ErrorCode.NONE)


def handle(
    broker: Broker, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> Any:
    """Answer each partition of a request."""
    response = AlterPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None if request.topics else "",
        responses=tuple(
            ReassignableTopicResponse(
                name=topic.name,
                partitions=tuple(
                    _answered(asked, _check(broker, topic.name, asked))
                    for asked in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )
    return sliced(response, sum(len(topic.partitions) for topic in request.topics))


def _answered(asked: ReassignablePartition, result: Refusal) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=asked.partition_index,
        error_code=result.code,
        error_message=result.message,
    )


def _check(broker: Broker, name: str, asked: ReassignablePartition) -> Refusal:
    """Return the result for a partition, with code NONE for success."""
    topic = broker.catalog.topics.get(name)
    if topic is None:
        message = f"Unable to find a topic named {name}."
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    if not 0 <= asked.partition_index < topic.partitions:
        message = f"Unable to find partition {name}:{asked.partition_index}."
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    if asked.replicas is None:
        return Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    return check_assignment(asked.replicas, broker.node_id) or _DONE
