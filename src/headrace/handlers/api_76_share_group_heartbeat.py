"""ShareGroupHeartbeat (76), version 1: join, stay in or leave a share group (KIP-932).

Missing share state is initialised before the group decides, so that the member gets new partitions
with this heartbeat, not with the next one.
"""

from __future__ import annotations

from headrace.coordinators import share_state_recovery
from headrace.groups.records import GroupRecord
from headrace.groups.share.group import ShareHeartbeat, ShareHeartbeatReply
from headrace.net.api import DESCRIBE, READ_GROUP, TOPIC, Api, on
from headrace.net.call import Call
from headrace.outcome import Outcome
from headrace.protocol.api import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from headrace.protocol.errors import Refusal
from headrace.share.records import UNKNOWN

Assignment = ShareGroupHeartbeatResponse.Assignment
TopicPartitions = ShareGroupHeartbeatResponse.TopicPartitions

API = Api(
    76,
    READ_GROUP,
    on(DESCRIBE, TOPIC, "subscribed_topic_names"),
    is_quick=True,
    of_coordinator=True,
    has_one_error=True,
)


async def handle(call: Call, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
    """Let a member join, stay in or leave its group, and return its assignment."""
    group_id, names = request.group_id, request.subscribed_topic_names
    groups = call.groups.share
    heartbeat = ShareHeartbeat(
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=None,
        rack_id=request.rack_id,
        client_id=call.client_id or "",
        client_host=call.client.address,
        subscribed_topic_names=None if names is None else tuple(sorted(set(names))),
    )

    def decide(
        now_ms: int, wall_ms: int
    ) -> Outcome[GroupRecord, ShareHeartbeatReply | Refusal | None]:
        if groups.to_initialize(group_id, heartbeat) is not None:
            return Outcome(None)
        return groups.heartbeat(group_id, heartbeat, now_ms, wall_ms)

    while (reply := await call.group_runtime.write(group_id, decide)) is None:
        # Groups and topics may have changed since it was decided.
        if uninitialized := groups.to_initialize(group_id, heartbeat):
            group, partitions = uninitialized
            starts = {  # unknown: the first fetch resolves the start offset
                topic_id: dict.fromkeys(topic.partitions, UNKNOWN)
                for topic_id, topic in partitions.items()
            }
            least_epoch = group.state.epoch + 1
            share_state_recovery.initialize(call.coordinators, group, starts, least_epoch)
    if isinstance(reply, Refusal):
        return ShareGroupHeartbeatResponse().refused(reply)
    response = ShareGroupHeartbeatResponse(
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
    )
    if reply.assigned is not None:
        response.assignment = Assignment(
            [TopicPartitions(*topic) for topic in reply.assigned.items()]
        )
    return response
