"""ConsumerGroupHeartbeat (68), versions 0-1: join, stay in or leave a consumer group (KIP-848).

Refused if ``group.coordinator.rebalance.protocols`` does not have ``consumer``.

Version notes:

* Version 1 adds member ids chosen by the client (KIP-1082); in version 0 the coordinator chooses
  them. It also adds subscriptions by regular expression.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from functools import partial

from headrace.groups.consumer.member import ConsumerHeartbeat
from headrace.groups.heartbeats.member import JOIN_EPOCH
from headrace.net.api import CONSUMER, DESCRIBE, READ_GROUP, TOPIC, Api, Inside, on
from headrace.net.call import Call
from headrace.protocol.api import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from headrace.protocol.errors import Refusal
from headrace.protocol.uuid_text import uuid_text

REGEX_WAIT_S = 0.5
"""How long a heartbeat waits until its regular expression is matched. After that it is answered
without the topics, and a later one continues.
"""

Assignment = ConsumerGroupHeartbeatResponse.Assignment
TopicPartitions = ConsumerGroupHeartbeatResponse.TopicPartitions

API = Api(
    68,
    READ_GROUP,
    on(DESCRIBE, TOPIC, "subscribed_topic_names"),
    Inside(DESCRIBE, TOPIC, "not matched by a regular expression"),
    is_quick=True,
    protocol=CONSUMER,
    of_coordinator=True,
    has_one_error=True,
)

_FIRST_WITH_OWN_MEMBER_ID = 1


async def handle(
    call: Call, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Let a member join, stay in or leave its group, and return its assignment."""
    group_id, member_id = request.group_id, request.member_id
    is_new = not member_id and request.member_epoch == JOIN_EPOCH
    if is_new and call.version < _FIRST_WITH_OWN_MEMBER_ID:
        member_id = uuid_text(uuid.uuid4())
    owned, names = request.topic_partitions, request.subscribed_topic_names
    heartbeat = ConsumerHeartbeat(
        member_id=member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=call.client_id or "",
        client_host=call.client.address,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_topic_names=None if names is None else tuple(sorted(set(names))),
        subscribed_topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=None
        if owned is None
        else {topic.topic_id: frozenset(topic.partitions) for topic in owned if topic.topic_id},
        may_see=call.sees_topic(),
    )
    regex = call.groups.consumer.unresolved_regex(group_id, heartbeat)
    if regex is not None:
        # If that takes long, a later heartbeat brings the partitions.
        match = await call.regex_matcher.match_topics(regex, REGEX_WAIT_S)
        heartbeat = replace(heartbeat, regex_match=match)

    decide = partial(call.groups.consumer.heartbeat, group_id, heartbeat)
    reply = await call.group_runtime.write(group_id, decide)
    if isinstance(reply, Refusal):
        return ConsumerGroupHeartbeatResponse().refused(reply)
    response = ConsumerGroupHeartbeatResponse(
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
    )
    if reply.assigned is not None:
        response.assignment = Assignment(
            [TopicPartitions(*topic) for topic in reply.assigned.items()]
        )
    return response
