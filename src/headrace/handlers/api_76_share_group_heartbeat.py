"""ShareGroupHeartbeat (76), version 1: a member of a share group joins, stays or leaves (KIP-932).

A heartbeat that first sees a partition has its share state initialised, which on a single node is done before the
answer. So a member that joins is decided upon twice, and gets its partitions with its first heartbeat instead of
waiting for the next; a member that is there already learns of new partitions with its next one.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
from kio.schema.share_group_heartbeat.v1.response import Assignment, ShareGroupHeartbeatResponse, TopicPartitions

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.groups.records import SharedTopic
from headrace.groups.share_heartbeat import JOIN_EPOCH, ShareHeartbeat, ShareHeartbeatReply
from headrace.share.records import UNKNOWN, SharePartitionKey
from headrace.wire.messages import NO_THROTTLE

from . import RequestContext


def handle(broker: Broker, request: ShareGroupHeartbeatRequest, context: RequestContext) -> Any:
    heartbeat = ShareHeartbeat(
        request.member_id,
        request.member_epoch,
        request.rack_id,
        request.subscribed_topic_names,
        context.client_id or "",
        context.client_host,
    )
    reply = _decide(broker, request.group_id, heartbeat)
    if isinstance(reply, ShareHeartbeatReply) and reply.initialize:
        _initialize(broker, request.group_id, reply)
        if heartbeat.member_epoch == JOIN_EPOCH:
            reply = _decide(broker, request.group_id, heartbeat)
    if isinstance(reply, Refusal):
        return ShareGroupHeartbeatResponse(
            throttle_time=NO_THROTTLE,
            error_code=reply.code,
            error_message=reply.message,
            member_epoch=0,
            heartbeat_interval=NO_THROTTLE,
        )
    return broker.when_durable(_response(reply))


def _decide(broker: Broker, group_id: str, heartbeat: ShareHeartbeat) -> ShareHeartbeatReply | Refusal:
    outcome = broker.groups.share_heartbeat(group_id, heartbeat, broker.catalog.topics, broker.now_ms())
    return broker.submit(broker.groups, group_id, outcome)


def _initialize(broker: Broker, group_id: str, reply: ShareHeartbeatReply) -> None:
    """Have the share coordinator begin these share-partitions, at an offset that their first fetch resolves."""
    now_ms, groups = broker.now_ms(), broker.groups
    records = []
    refused: dict[UUID, SharedTopic] = {}
    for topic_id, (name, partitions) in reply.initialize.items():
        for partition in partitions:
            key = SharePartitionKey(group_id, topic_id, partition)
            count = broker.catalog.topics[name].partitions
            outcome = broker.share_state.initialize(key, reply.state_epoch, UNKNOWN, now_ms, count)
            records.append((str(key), outcome.records))
            if outcome.reply is not None:  # the coordinator knows a later epoch: try again with the group's next
                known = refused.get(topic_id, SharedTopic(name, ()))
                refused[topic_id] = SharedTopic(name, (*known.partitions, partition))
    broker.submit_all(broker.share_state, records)
    if refused:
        broker.submit(groups, group_id, groups.share_initialize_failed(group_id, refused))
    broker.submit(groups, group_id, groups.share_initialized(group_id, reply.initialize))


def _response(reply: ShareHeartbeatReply) -> ShareGroupHeartbeatResponse:
    assignment = None
    if reply.assignment is not None:
        assignment = Assignment(
            topic_partitions=tuple(
                TopicPartitions(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in reply.assignment.items()
            )
        )
    return ShareGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.NONE,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval=timedelta(milliseconds=reply.heartbeat_interval_ms),
        assignment=assignment,
    )
