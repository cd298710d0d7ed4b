"""DescribeQuorum (55), versions 0-2: describe the quorum of ``__cluster_metadata`` (KIP-595).

There is no quorum and no metadata log: this node is described as the only voter, which leads. The
offsets are the version of the catalog, which rises with each change of topics and configs and
begins at 0 with each start. The node has no listener for controllers.

Version notes:

* Version 1 adds the times of the last fetch (KIP-836).
* Version 2 adds error messages, directory ids and the listeners of controllers (KIP-853).
"""

from __future__ import annotations

from headrace.log.partition_log import LEADER_EPOCH
from headrace.net.api import DESCRIBE, Api, on_cluster
from headrace.net.call import Call
from headrace.protocol.api import DescribeQuorumRequest, DescribeQuorumResponse
from headrace.protocol.errors import ErrorCode

Node = DescribeQuorumResponse.Node
TopicData = DescribeQuorumResponse.TopicData
PartitionData = DescribeQuorumResponse.PartitionData
ReplicaState = DescribeQuorumResponse.ReplicaState

API = Api(55, on_cluster(DESCRIBE), has_one_error=True)

_METADATA_TOPIC = "__cluster_metadata"
_UNKNOWN = "This server does not host this topic-partition."


async def handle(call: Call, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Describe this node as a quorum of its own."""
    topics = [
        (topic.topic_name, [partition.partition_index for partition in topic.partitions])
        for topic in request.topics
    ]
    if topics != [(_METADATA_TOPIC, [0])]:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DescribeQuorumResponse(
            topics=[
                TopicData(name, [PartitionData(index, code, _UNKNOWN) for index in indexes])
                for name, indexes in topics
            ]
        )
    now_ms, end_offset = call.clock.wall_ms(), call.catalog.version
    voter = ReplicaState(
        replica_id=call.node_id,
        log_end_offset=end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    quorum = PartitionData(
        leader_id=call.node_id,
        leader_epoch=LEADER_EPOCH,
        high_watermark=end_offset,
        current_voters=[voter],
    )
    return DescribeQuorumResponse(
        topics=[TopicData(_METADATA_TOPIC, [quorum])], nodes=[Node(call.node_id)]
    )
