"""ElectLeaders (43), versions 0-2: elect the leaders of partitions (KIP-183, KIP-460).

This node leads every partition, so no election is ever needed.

Version notes:

* Version 0 elects preferred leaders only.
* Version 1 adds the election type, and an error for the whole response.
* Version 2 is flexible (KIP-482).
"""

from __future__ import annotations

from functools import partial

from headrace.net.api import ALTER, Api, on_cluster
from headrace.net.call import Call
from headrace.protocol.api import ElectLeadersRequest, ElectLeadersResponse
from headrace.protocol.errors import ErrorCode, Refusal, invalid_request

TopicResult = ElectLeadersResponse.ReplicaElectionResult
PartitionResult = ElectLeadersResponse.PartitionResult

API = Api(43, on_cluster(ALTER))

_PREFERRED, _UNCLEAN = 0, 1
_NOT_NEEDED = Refusal(
    ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
)


async def handle(call: Call, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Answer each partition of a request. Without partitions, list all topics: partitions that
    need no election are omitted.
    """
    response = ElectLeadersResponse()
    unknown_type = None
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        unknown_type = invalid_request(f"Unknown election type {request.election_type}")
        response.error_code = unknown_type.code
    if request.topic_partitions is None:
        names = [] if unknown_type else list(call.catalog.topics)
        response.replica_election_results = call.lazily(TopicResult, names)
        return response
    response.replica_election_results = [
        TopicResult(
            topic.topic,
            await call.each(partial(_elect, call, unknown_type, topic.topic), topic.partitions),
        )
        for topic in request.topic_partitions
    ]
    return response


def _elect(call: Call, unknown_type: Refusal | None, name: str, index: int) -> PartitionResult:
    topic = call.catalog.topics.get(name)
    if unknown_type is not None:
        refusal = unknown_type
    elif topic is None:
        refusal = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    elif not 0 <= index < topic.partitions:
        refusal = Refusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}"
        )
    else:
        refusal = _NOT_NEEDED
    return PartitionResult(index).refused(refusal)
