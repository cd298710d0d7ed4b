"""ConsumerGroupHeartbeat (68), versions 0-1: join, stay in or leave a consumer group (KIP-848).

Refused if ``group.coordinator.rebalance.protocols`` does not have ``consumer``.

Version notes:

* Version 1 adds member ids chosen by the client (KIP-1082); in version 0 the coordinator chooses
  them. It also adds subscriptions by regular expression.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable
from dataclasses import replace

from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest
from kio.schema.consumer_group_heartbeat.v1.response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

from headrace.broker.broker import Broker
from headrace.broker.config.group_protocols import CONSUMER, REBALANCE_PROTOCOLS
from headrace.broker.limits import REGEX_WAIT_S
from headrace.coordinators.runtime import Deferred
from headrace.errors import ErrorCode, Refusal
from headrace.groups.consumer.member import JOIN_EPOCH, ConsumerHeartbeat, ConsumerHeartbeatReply
from headrace.groups.records import GroupRecord
from headrace.outcome import Outcome
from headrace.protocol.messages import NO_THROTTLE
from headrace.uuid_text import uuid_text

from .context import RequestContext
from .durations import to_ms, to_timedelta
from .topic_names import may_see

_FIRST_WITH_OWN_MEMBER_ID = 1


def handle(
    broker: Broker, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> Awaitable[ConsumerGroupHeartbeatResponse] | ConsumerGroupHeartbeatResponse:
    """Let a member join, stay in or leave its group, and return its assignment."""
    if CONSUMER not in broker.config.get_list(REBALANCE_PROTOCOLS):
        return _response(Refusal(ErrorCode.UNSUPPORTED_VERSION))
    member_id = request.member_id
    if (
        not member_id
        and request.member_epoch == JOIN_EPOCH
        and context.api_version < _FIRST_WITH_OWN_MEMBER_ID
    ):
        member_id = uuid_text(uuid.uuid4())
    owned = request.topic_partitions
    heartbeat = ConsumerHeartbeat(
        member_id=member_id,
        member_epoch=request.member_epoch,
        group_instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=to_ms(request.rebalance_timeout),
        subscribed_topic_names=request.subscribed_topic_names,
        subscribed_topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=None
        if owned is None
        else {one.topic_id: frozenset(one.partitions) for one in owned if one.topic_id},
        client_id=context.client_id or "",
        client_host=context.client_host,
        may_see=may_see(context.access),
    )

    regex = broker.groups.consumer.unresolved_regex(request.group_id, heartbeat)
    if regex is None:
        return _submit(broker, request.group_id, heartbeat)
    return _match_and_submit(broker, request.group_id, heartbeat, regex)


async def _match_and_submit(
    broker: Broker, group_id: str, heartbeat: ConsumerHeartbeat, regex: str
) -> ConsumerGroupHeartbeatResponse:
    """Match the topics with the member's regular expression before the heartbeat is decided. If
    that takes long, a later heartbeat brings the partitions.
    """
    match = await broker.regex_matcher.match_topics(regex, REGEX_WAIT_S)
    return await _submit(broker, group_id, replace(heartbeat, regex_match=match))


def _submit(
    broker: Broker, group_id: str, heartbeat: ConsumerHeartbeat
) -> Deferred[ConsumerGroupHeartbeatResponse]:
    def decide(now_ms: int, wall_ms: int) -> Outcome[GroupRecord, ConsumerHeartbeatReply | Refusal]:
        return broker.groups.consumer.heartbeat(group_id, heartbeat, now_ms, wall_ms)

    return broker.group_runtime.write(group_id, decide, _response)


def _response(reply: ConsumerHeartbeatReply | Refusal) -> ConsumerGroupHeartbeatResponse:
    if isinstance(reply, Refusal):
        return ConsumerGroupHeartbeatResponse(
            throttle_time=NO_THROTTLE,
            error_code=reply.code,
            error_message=reply.message,
            member_epoch=0,
            heartbeat_interval=NO_THROTTLE,
        )
    assignment = None
    if reply.assigned is not None:
        assignment = Assignment(
            topic_partitions=tuple(
                TopicPartitions(topic_id=topic_id, partitions=tuple(partitions))
                for topic_id, partitions in reply.assigned.items()
            )
        )
    return ConsumerGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.NONE,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval=to_timedelta(reply.heartbeat_interval_ms),
        assignment=assignment,
    )
