"""ShareGroupHeartbeat (76), version 1: join, stay in or leave a share group (KIP-932).

A heartbeat initialises missing share state before the group decides, so that the member gets new
partitions with this heartbeat, not with the next one.
"""

from __future__ import annotations

from typing import Any

from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
from kio.schema.share_group_heartbeat.v1.response import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

from headrace.broker.broker import Broker
from headrace.broker.limits import MAX_SHARE_MEMBER_ID_LENGTH
from headrace.coordinators import share_state_recovery
from headrace.coordinators.runtime import Deferred
from headrace.errors import ErrorCode, Refusal
from headrace.groups.records import GroupRecord
from headrace.groups.share.group import ShareGroup
from headrace.groups.share.member import LEAVE_EPOCH, ShareHeartbeat, ShareHeartbeatReply
from headrace.groups.topics import Partitions
from headrace.outcome import Outcome
from headrace.protocol.messages import NO_THROTTLE
from headrace.share.records import UNKNOWN

from .context import RequestContext
from .durations import to_timedelta


def handle(
    broker: Broker, request: ShareGroupHeartbeatRequest, context: RequestContext
) -> Deferred[ShareGroupHeartbeatResponse] | ShareGroupHeartbeatResponse:
    """Let a member join, stay in or leave its group, and return its assignment."""
    if len(request.member_id) > MAX_SHARE_MEMBER_ID_LENGTH:
        return _response(Refusal(ErrorCode.INVALID_REQUEST))
    heartbeat = ShareHeartbeat(
        request.member_id,
        request.member_epoch,
        request.rack_id,
        request.subscribed_topic_names,
        context.client_id or "",
        context.client_host,
    )
    group_id, topics = request.group_id, broker.catalog.topics

    def decide(now_ms: int, wall_ms: int) -> Outcome[GroupRecord, Any]:
        group = broker.groups.share.member_group(group_id, heartbeat)
        if isinstance(group, Refusal):
            return Outcome(group)
        if heartbeat.member_epoch != LEAVE_EPOCH:
            _initialize(broker, group, group.to_initialize(heartbeat, topics))
        return broker.groups.share.heartbeat(group_id, heartbeat, topics, now_ms, wall_ms)

    return broker.group_runtime.write(group_id, decide, _response)


def _initialize(broker: Broker, group: ShareGroup, partitions: Partitions) -> None:
    """Initialise share-partitions with the next group epoch and no start offset.

    The first fetch resolves the start offset.
    """
    if partitions:
        starts = {
            topic_id: dict.fromkeys(topic.partitions, UNKNOWN)
            for topic_id, topic in partitions.items()
        }
        share_state_recovery.initialize(broker.coordinators, group, starts, group.epoch + 1)


def _response(reply: ShareHeartbeatReply | Refusal) -> ShareGroupHeartbeatResponse:
    if isinstance(reply, Refusal):
        return ShareGroupHeartbeatResponse(
            throttle_time=NO_THROTTLE,
            error_code=reply.code,
            error_message=reply.message,
            member_epoch=0,
            heartbeat_interval=NO_THROTTLE,
        )
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
        heartbeat_interval=to_timedelta(reply.heartbeat_interval_ms),
        assignment=assignment,
    )
