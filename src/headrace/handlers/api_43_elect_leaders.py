"""ElectLeaders (43), versions 0-2: elect the leaders of partitions (KIP-183, KIP-460).

This node leads every partition, so no election is ever needed.

Version notes:

* Version 0 elects preferred leaders only.
* Version 1 adds the election type, and an error for the whole response.
* Version 2 is flexible (KIP-482).
"""

from __future__ import annotations

from typing import Any

from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
from kio.schema.elect_leaders.v2.response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.protocol.messages import NO_THROTTLE

from .context import RequestContext
from .slicing import sliced

_PREFERRED, _UNCLEAN = 0, 1
_NOT_NEEDED = Refusal(
    ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
)


def handle(broker: Broker, request: ElectLeadersRequest, context: RequestContext) -> Any:
    """Answer each partition of a request. Without partitions, list all topics: partitions that
    need no election are omitted.
    """
    code, refusal = ErrorCode.NONE, None
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        code = ErrorCode.INVALID_REQUEST
        refusal = Refusal(code, f"Unknown election type {request.election_type}")
    if request.topic_partitions is None:
        if refusal is not None:
            return _response(code, ())
        names = broker.catalog.topics
        results = tuple(ReplicaElectionResult(topic=name, partition_result=()) for name in names)
        return sliced(_response(code, results), len(results))
    results = tuple(
        ReplicaElectionResult(
            topic=asked.topic,
            partition_result=tuple(
                _result(partition, refusal or _check(broker, asked.topic, partition))
                for partition in asked.partitions
            ),
        )
        for asked in request.topic_partitions
    )
    count = sum(len(asked.partitions) for asked in request.topic_partitions)
    return sliced(_response(code, results), count)


def _response(code: ErrorCode, results: tuple[ReplicaElectionResult, ...]) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        throttle_time=NO_THROTTLE, error_code=code, replica_election_results=results
    )


def _check(broker: Broker, name: str, partition: int) -> Refusal:
    topic = broker.catalog.topics.get(name)
    if topic is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    if not 0 <= partition < topic.partitions:
        message = f"No such partition as {name}-{partition}"
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    return _NOT_NEEDED


def _result(partition: int, refusal: Refusal) -> PartitionResult:
    return PartitionResult(
        partition_id=partition, error_code=refusal.code, error_message=refusal.message
    )
