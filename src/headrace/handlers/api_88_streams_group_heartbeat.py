"""StreamsGroupHeartbeat (88), versions 0-1: join, stay in or leave a streams group (KIP-1071).

Refused if ``group.coordinator.rebalance.protocols`` does not have ``streams``.

The internal topics that the answer reports as missing are created with the heartbeat; the next one
finds them. Source topics by regular expression are refused, as by Apache Kafka 4.4, which does not
assign warm-up tasks either.

* Version 1 adds the acceptable recovery lag, the status MISSING_CLIENT_TAGS, and whether the broker
  needs a description of the topology (KIP-1331): never, as there is no plugin that stores it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from kio.schema.streams_group_heartbeat.v0 import request as schema
from kio.schema.streams_group_heartbeat.v0.response import (
    Endpoint,
    EndpointToPartitions,
    Status,
    TaskIds,
    TopicPartition,
)

from headrace.broker.broker import Broker
from headrace.broker.config.group_protocols import REBALANCE_PROTOCOLS, STREAMS
from headrace.broker.config.topic_rules import check_topic_name
from headrace.coordinators.runtime import Deferred
from headrace.errors import ErrorCode, Refusal
from headrace.groups.records import (
    CopartitionGroup,
    GroupRecord,
    InternalTopic,
    Subtopology,
    Tasks,
    Topology,
)
from headrace.groups.records import Endpoint as UserEndpoint
from headrace.groups.streams.member import (
    EndpointPartitions,
    StatusCode,
    StreamsHeartbeat,
    StreamsHeartbeatReply,
    TaskOffset,
)
from headrace.internal_topics import INTERNAL_TOPICS
from headrace.outcome import Outcome
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.messages import NO_THROTTLE
from headrace.protocol.newer_messages import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from headrace.protocol.primitives import shortened
from headrace.security.access import AnyAccess
from headrace.security.acls import ResourceType

from .context import RequestContext
from .durations import to_ms, to_timedelta
from .streams_topics import create_internal_topics, creation_failures


def handle(
    broker: Broker, request: StreamsGroupHeartbeatRequest, context: RequestContext
) -> Deferred[StreamsGroupHeartbeatResponse] | StreamsGroupHeartbeatResponse:
    """Let a member join, stay in or leave its group, and return its tasks."""
    if STREAMS not in broker.config.get_list(REBALANCE_PROTOCOLS):
        return _refused(Refusal(ErrorCode.UNSUPPORTED_VERSION))
    refusal = _check_topic_names(request.topology)
    if refusal is not None:
        return _refused(refusal)
    access = context.access
    if request.topology is not None and not access.allows_all(
        Operation.DESCRIBE, ResourceType.TOPIC, dict.fromkeys(_topic_names(request.topology))
    ):
        return _refused(Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    endpoint, tags = request.user_endpoint, request.client_tags
    heartbeat = StreamsHeartbeat(
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        group_instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=to_ms(request.rebalance_timeout),
        topology=None if request.topology is None else _topology(request.topology),
        active=_tasks(request.active_tasks),
        standby=_tasks(request.standby_tasks),
        warmup=_tasks(request.warmup_tasks),
        process_id=request.process_id,
        user_endpoint=None if endpoint is None else UserEndpoint(endpoint.host, endpoint.port),
        client_tags=None if tags is None else tuple({one.key: one.value for one in tags}.items()),
        client_id=context.client_id or "",
        client_host=context.client_host,
        task_offsets=_offsets(request.task_offsets),
        task_end_offsets=_offsets(request.task_end_offsets),
        shutdown_application=request.shutdown_application,
        endpoint_epoch=request.endpoint_information_epoch,
    )

    def decide(now_ms: int, wall_ms: int) -> Outcome[GroupRecord, StreamsHeartbeatReply | Refusal]:
        return broker.groups.streams.heartbeat(request.group_id, heartbeat, now_ms, wall_ms)

    return broker.group_runtime.write(request.group_id, decide, partial(_response, broker, context))


# Request ------------------------------------------------------------------------------------------


def _check_topic_names(topology: schema.Topology | None) -> Refusal | None:
    """Return the error of a topology with names that no topic of an application may have."""
    if topology is None:
        return None
    names = list(dict.fromkeys(_topic_names(topology)))
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal:
        message = (
            f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is "
            f"prohibited."
        )
        return Refusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
    invalid = [name for name in names if check_topic_name(name) is not None]
    if invalid:
        message = f"Topic names {','.join(invalid)} are not valid topic names."
        return Refusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
    return None


def _topic_names(topology: schema.Topology) -> Iterable[str]:
    for one in topology.subtopologies:
        yield from one.source_topics
        yield from one.repartition_sink_topics
        yield from (topic.name for topic in one.repartition_source_topics)
        yield from (topic.name for topic in one.state_changelog_topics)


def _topology(topology: schema.Topology) -> Topology:
    return Topology(topology.epoch, tuple(map(_subtopology, topology.subtopologies)))


def _subtopology(one: schema.Subtopology) -> Subtopology:
    return Subtopology(
        one.subtopology_id,
        tuple(one.source_topics),
        tuple(one.source_topic_regex),
        tuple(map(_internal_topic, one.state_changelog_topics)),
        tuple(one.repartition_sink_topics),
        tuple(map(_internal_topic, one.repartition_source_topics)),
        tuple(
            CopartitionGroup(
                tuple(group.source_topics),
                tuple(group.source_topic_regex),
                tuple(group.repartition_source_topics),
            )
            for group in one.copartition_groups
        ),
    )


def _internal_topic(topic: schema.TopicInfo) -> InternalTopic:
    configs = tuple((config.key, config.value) for config in topic.topic_configs)
    return InternalTopic(topic.name, topic.partitions, topic.replication_factor, configs)


def _tasks(listed: tuple[schema.TaskIds, ...] | None) -> Tasks | None:
    if listed is None:
        return None
    tasks: dict[str, tuple[int, ...]] = {}
    for one in listed:
        tasks[one.subtopology_id] = tasks.get(one.subtopology_id, ()) + tuple(one.partitions)
    return tasks


def _offsets(listed: tuple[schema.TaskOffset, ...] | None) -> tuple[TaskOffset, ...] | None:
    if listed is None:
        return None
    return tuple((task.subtopology_id, task.partition, task.offset) for task in listed)


# Response -----------------------------------------------------------------------------------------


def _refused(refusal: Refusal) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=refusal.code,
        error_message=refusal.message,
        member_id="",
        member_epoch=0,
        heartbeat_interval=NO_THROTTLE,
        task_offset_interval=NO_THROTTLE,
        status=(),
        active_tasks=None,
        standby_tasks=None,
        warmup_tasks=None,
        endpoint_information_epoch=0,
        partitions_by_user_endpoint=None,
    )


def _response(
    broker: Broker, context: RequestContext, reply: StreamsHeartbeatReply | Refusal
) -> StreamsGroupHeartbeatResponse:
    if isinstance(reply, Refusal):
        return _refused(reply)
    failures = ""
    not_allowed = _not_allowed(reply.missing_topics, context.access)
    if not_allowed:
        failures = f"; Unauthorized to CREATE on topics {', '.join(not_allowed)}."
    elif reply.missing_topics:
        refused = create_internal_topics(broker, reply.missing_topics, context.charge)
        failures = creation_failures(refused)
    statuses = tuple(
        Status(
            status_code=status.code,
            status_detail=shortened(
                status.detail + failures
                if status.code is StatusCode.MISSING_INTERNAL_TOPICS
                else status.detail
            ),
        )
        for status in reply.statuses
    )
    assigned, endpoints = reply.assigned, reply.endpoints
    return StreamsGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.NONE,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval=to_timedelta(reply.heartbeat_interval_ms),
        task_offset_interval=to_timedelta(reply.task_offset_interval_ms),
        acceptable_recovery_lag=reply.acceptable_recovery_lag,
        status=statuses,
        active_tasks=None if assigned is None else _task_ids(assigned.active),
        standby_tasks=None if assigned is None else _task_ids(assigned.standby),
        warmup_tasks=None if assigned is None else _task_ids(assigned.warmup),
        endpoint_information_epoch=reply.endpoint_epoch,
        partitions_by_user_endpoint=None if endpoints is None else tuple(map(_endpoint, endpoints)),
    )


def _not_allowed(topics: Iterable[InternalTopic], access: AnyAccess) -> list[str]:
    """Return the names of the internal topics that a member may not create. If there are any, none
    is created.
    """
    if not access.is_limited or access.allows_cluster(Operation.CREATE, is_audited=False):
        return []
    return [
        topic.name
        for topic in topics
        if not access.allows(Operation.CREATE, ResourceType.TOPIC, topic.name)
    ]


def _task_ids(tasks: Mapping[str, Iterable[int]]) -> tuple[TaskIds, ...]:
    return tuple(
        TaskIds(subtopology_id=subtopology_id, partitions=tuple(partitions))
        for subtopology_id, partitions in tasks.items()
    )


def _endpoint(one: EndpointPartitions) -> EndpointToPartitions:
    active, standby = (
        tuple(TopicPartition(topic=name, partitions=numbers) for name, numbers in topics)
        for topics in (one.active, one.standby)
    )
    return EndpointToPartitions(
        user_endpoint=Endpoint(host=one.endpoint.host, port=one.endpoint.port),
        active_partitions=active,
        standby_partitions=standby,
    )
