"""DescribeQuorum (55), versions 0-2: describe the quorum of ``__cluster_metadata`` (KIP-595).

There is no quorum and no metadata log: this node is described as the only voter, which leads. The
offsets are the version of the catalog, which rises with each change of topics and configs and
begins at 0 with each start. The node has no listener for controllers.

Version notes:

* Version 1 adds the times of the last fetch (KIP-836).
* Version 2 adds error messages, directory ids and the listeners of controllers (KIP-853).
"""

from __future__ import annotations

from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest
from kio.schema.describe_quorum.v2.response import (
    DescribeQuorumResponse,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode

from .api_03_metadata import LEADER_EPOCH
from .context import RequestContext

_METADATA_TOPIC = "__cluster_metadata"
_UNKNOWN = "This server does not host this topic-partition."


def handle(
    broker: Broker, request: DescribeQuorumRequest, context: RequestContext
) -> DescribeQuorumResponse:
    """Describe this node as a quorum of its own."""
    asked = [
        (one.topic_name, [part.partition_index for part in one.partitions])
        for one in request.topics
    ]
    if asked == [(_METADATA_TOPIC, [0])]:
        nodes: tuple[Node, ...] = (Node(node_id=broker.node_id, listeners=()),)
        topics: tuple[TopicData, ...] = (
            TopicData(topic_name=_METADATA_TOPIC, partitions=(_quorum(broker),)),
        )
    else:
        nodes = ()
        topics = tuple(
            TopicData(topic_name=name, partitions=tuple(map(_unknown, partitions)))
            for name, partitions in asked
        )
    return DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        error_message="",
        topics=topics,
        nodes=nodes,
    )


def _quorum(broker: Broker) -> PartitionData:
    now_ms, end_offset = broker.clock.wall_ms(), broker.catalog.version
    voter = ReplicaState(
        replica_id=broker.node_id,
        replica_directory_id=None,
        log_end_offset=end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return PartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        error_message="",
        leader_id=broker.node_id,
        leader_epoch=LEADER_EPOCH,
        high_watermark=end_offset,
        current_voters=(voter,),
        observers=(),
    )


def _unknown(partition: int) -> PartitionData:
    return PartitionData(
        partition_index=partition,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=_UNKNOWN,
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=(),
        observers=(),
    )
