"""ElectLeaders (43), versions 0-2: elect the leaders of partitions (KIP-183, KIP-460).

This node leads every partition, so no election is ever needed.

Version notes:

* Version 0 elects preferred leaders only.
* Version 1 adds the election type, and an error for the whole response.
* Version 2 is flexible (KIP-482).
"""

from __future__ import annotations

from headrace.errors import ErrorCode, Refusal
from headrace.net.api import Api
from headrace.net.call import Call
from headrace.net.rules import ALTER, on_cluster
from headrace.protocol.api import ElectLeadersRequest, ElectLeadersResponse

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
    topics = call.broker.catalog.topics
    unknown_type = None
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        message = f"Unknown election type {request.election_type}"
        unknown_type = Refusal(ErrorCode.INVALID_REQUEST, message)
    code = ErrorCode.NONE if unknown_type is None else unknown_type.code

    def check(name: str, partition: int) -> Refusal:
        topic = topics.get(name)
        if topic is None:
            return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
        if not 0 <= partition < topic.partitions:
            message = f"No such partition as {name}-{partition}"
            return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        return _NOT_NEEDED

    if request.topic_partitions is None:
        names = [] if unknown_type else list(topics)
        return ElectLeadersResponse(
            error_code=code, replica_election_results=call.lazily(TopicResult, names)
        )
    results = []
    for named in request.topic_partitions:
        partitions = []
        for partition in named.partitions:
            refusal = unknown_type or check(named.topic, partition)
            partitions.append(PartitionResult(partition, refusal.code, refusal.message))
            await call.pause()
        results.append(TopicResult(named.topic, partitions))
    return ElectLeadersResponse(error_code=code, replica_election_results=results)
