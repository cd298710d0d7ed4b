"""StreamsGroupHeartbeat (88), versions 0-1: join, stay in or leave a streams group (KIP-1071).

Refused if ``group.coordinator.rebalance.protocols`` does not have ``streams``.

The internal topics that the answer reports as missing are created after the heartbeat; the next one
finds them. Source topics by regular expression are refused, as by Apache Kafka 4.4, which does not
assign warm-up tasks either.

* Version 1 adds the acceptable recovery lag, the status MISSING_CLIENT_TAGS, and whether the broker
  needs a description of the topology (KIP-1331): never, as there is no plugin that stores it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

from headrace.groups.records import ByRole, InternalTopic, StreamsMember, Tasks, Topology
from headrace.groups.streams.member import (
    EndpointPartitions,
    StatusCode,
    StreamsHeartbeat,
    StreamsHeartbeatReply,
    TaskOffset,
)
from headrace.net.api import CLUSTER, CREATE, DESCRIBE, READ_GROUP, STREAMS, TOPIC, Api, Inside
from headrace.net.call import Call
from headrace.protocol.api import (
    CreateTopicsRequest,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.internal_topics import INTERNAL_TOPICS
from headrace.topics.catalog import MAX_TOPICS_PER_TRANSACTION, NOT_CREATED, Topic
from headrace.topics.topic_rules import (
    MAX_PARTITIONS_PER_REQUEST,
    TOO_MANY_PARTITIONS,
    Creation,
    check_topic_name,
    partition_count,
)

Status = StreamsGroupHeartbeatResponse.Status
TaskIds = StreamsGroupHeartbeatResponse.TaskIds
TopicPartition = StreamsGroupHeartbeatResponse.TopicPartition
EndpointToPartitions = StreamsGroupHeartbeatResponse.EndpointToPartitions

API = Api(
    88,
    READ_GROUP,
    Inside(DESCRIBE, TOPIC, "TOPIC_AUTHORIZATION_FAILED for the request"),
    Inside(CREATE, CLUSTER, "CREATE on each internal topic is needed"),
    Inside(CREATE, TOPIC, "internal topics are not created, and the status says so"),
    protocol=STREAMS,
    of_coordinator=True,
    has_one_error=True,
)

_FIRST_WITH_MISSING_CLIENT_TAGS = 1
_FAILURES_TOLD = 3
_DEFAULT_REPLICATION = -1
_THROTTLED = Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")


async def handle(
    call: Call, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse:
    """Let a member join, stay in or leave its group, and return its tasks."""
    group_id = request.group_id
    if request.topology is not None:
        names = list(dict.fromkeys(topic_names(request.topology)))
        if refusal := _check_topic_names(names):
            return StreamsGroupHeartbeatResponse().refused(refusal)
        if not call.access.allows_all(DESCRIBE, TOPIC, names):
            return StreamsGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    heartbeat = _heartbeat(call, request)

    decide = partial(call.groups.streams.heartbeat, group_id, heartbeat)
    reply = await call.group_runtime.write(group_id, decide)
    if isinstance(reply, Refusal):
        return StreamsGroupHeartbeatResponse().refused(reply)
    failures = _create_internal_topics(call, reply.missing_topics)
    response = StreamsGroupHeartbeatResponse(
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        task_offset_interval_ms=reply.task_offset_interval_ms,
        acceptable_recovery_lag=reply.acceptable_recovery_lag,
        status=_statuses(call.version, reply, failures),
        endpoint_information_epoch=reply.endpoint_epoch,
    )
    if reply.assigned is not None:
        active, standby, warmup = map(_task_ids, reply.assigned)
        response.active_tasks, response.standby_tasks = active, standby
        response.warmup_tasks = warmup
    if reply.endpoints is not None:
        response.partitions_by_user_endpoint = list(map(_endpoint, reply.endpoints))
    return response


# Request ------------------------------------------------------------------------------------------


def _check_topic_names(names: Iterable[str]) -> Refusal | None:
    """Return the error of a topology with names that no topic of an application may have."""
    if internal := [name for name in names if name in INTERNAL_TOPICS]:
        message = (
            f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is "
            f"prohibited."
        )
    elif invalid := [name for name in names if check_topic_name(name) is not None]:
        message = f"Topic names {','.join(invalid)} are not valid topic names."
    else:
        return None
    return Refusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def topic_names(topology: StreamsGroupHeartbeatRequest.Topology | Topology) -> Iterator[str]:
    """Yield the names of the topics in a topology."""
    for subtopology in topology.subtopologies:
        yield from subtopology.source_topics
        yield from subtopology.repartition_sink_topics
        internal = *subtopology.repartition_source_topics, *subtopology.state_changelog_topics
        yield from (topic.name for topic in internal)


def _heartbeat(call: Call, request: StreamsGroupHeartbeatRequest) -> StreamsHeartbeat:
    topology, endpoint, tags = request.topology, request.user_endpoint, request.client_tags
    return StreamsHeartbeat(
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=call.client_id or "",
        client_host=call.client.address,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topology=None if topology is None else Topology.SCHEMA.filled(topology.as_tuple()),
        tasks=ByRole(
            _tasks(request.active_tasks),
            _tasks(request.standby_tasks),
            _tasks(request.warmup_tasks),
        ),
        process_id=request.process_id,
        user_endpoint=None
        if endpoint is None
        else StreamsMember.Endpoint(endpoint.host, endpoint.port),
        client_tags=None
        if tags is None
        else tuple(
            StreamsMember.KeyValue(*tag)
            for tag in sorted({tag.key: tag.value for tag in tags}.items())
        ),
        task_offsets=_offsets(request.task_offsets),
        task_end_offsets=_offsets(request.task_end_offsets),
        shutdown_application=request.shutdown_application,
        endpoint_epoch=request.endpoint_information_epoch,
    )


def _tasks(tasks_of: Sequence[StreamsGroupHeartbeatRequest.TaskIds] | None) -> Tasks | None:
    if tasks_of is None:
        return None
    tasks: dict[str, tuple[int, ...]] = {}
    for subtopology in tasks_of:
        key = subtopology.subtopology_id
        tasks[key] = tasks.get(key, ()) + tuple(subtopology.partitions)
    return tasks


def _offsets(
    tasks: Sequence[StreamsGroupHeartbeatRequest.TaskOffset] | None,
) -> tuple[TaskOffset, ...] | None:
    if tasks is None:
        return None
    return tuple(task.field_values() for task in tasks)


# Internal topics ----------------------------------------------------------------------------------


def _create_internal_topics(call: Call, topics: Sequence[InternalTopic]) -> str:
    """Create the topics that a group misses, if its member may create all of them; return the end
    of the status that says why some could not be created, "" if all were.
    """
    if not topics:
        return ""
    if not call.access.allows_cluster(CREATE, is_audited=False):
        forbidden = [topic.name for topic in topics if not call.may(CREATE, TOPIC, topic.name)]
        if forbidden:
            return f"; Unauthorized to CREATE on topics {', '.join(forbidden)}."
    failures = _create(call, topics)
    if not failures:
        return ""
    texts = [f"{name} ({refusal.message})" for name, refusal in failures.items()]
    more = len(texts) - _FAILURES_TOLD
    told = ", ".join(texts[:_FAILURES_TOLD]) + (f" and {more} more" if more > 0 else "")
    return f"; Creation failed: {told}."


def _create(call: Call, topics: Sequence[InternalTopic]) -> dict[str, Refusal]:
    """Create topics; return the errors by name. The client's quota of mutations may refuse a topic
    for now, and topics beyond :data:`MAX_TOPICS_PER_TRANSACTION` are left for the next heartbeat.
    """
    creation = Creation(call.catalog)
    failures: dict[str, Refusal] = {}
    partitions = 0
    for topic in topics[:MAX_TOPICS_PER_TRANSACTION]:
        if topic.name in call.catalog.topics:  # another heartbeat was faster
            continue
        partitions += topic.partitions
        planned: Topic | Refusal = TOO_MANY_PARTITIONS
        if partitions <= MAX_PARTITIONS_PER_REQUEST:
            planned = creation.check_name(topic.name) or _plan(call, topic)
        if isinstance(planned, Refusal):
            failures[topic.name] = planned
        elif call.admits_auto_creation(planned.partitions):
            creation.plan(planned)
        else:
            failures[topic.name] = _THROTTLED
    outcomes = creation.create().items()
    return failures | {name: outcome for name, outcome in outcomes if isinstance(outcome, Refusal)}


def _plan(call: Call, topic: InternalTopic) -> Topic | Refusal:
    """Return the topic to create, or its error."""
    configs = {config.key: config.value for config in topic.topic_configs}
    replication = topic.replication_factor or _DEFAULT_REPLICATION
    requested = CreateTopicsRequest.CreatableTopic(topic.name, topic.partitions, replication)
    partitions = call.config.check("topic", configs) or partition_count(
        requested, topic.partitions, call.node_id
    )
    if isinstance(partitions, Refusal):
        return partitions
    return Topic(topic.name, NOT_CREATED, partitions, configs)


# Response -----------------------------------------------------------------------------------------


def _statuses(version: int, reply: StreamsHeartbeatReply, failures: str) -> list[Status]:
    """Return what a version reports of the group.

    :param failures: why internal topics could not be created
    """
    statuses = []
    for code, detail in reply.statuses:
        if code is StatusCode.MISSING_INTERNAL_TOPICS:
            detail += failures
        elif code is StatusCode.MISSING_CLIENT_TAGS and version < _FIRST_WITH_MISSING_CLIENT_TAGS:
            continue
        statuses.append(Status(code, detail))
    return statuses


def _task_ids(tasks: Mapping[str, Collection[int]]) -> list[TaskIds]:
    return [TaskIds(*task) for task in tasks.items()]


def _endpoint(partitions: EndpointPartitions) -> EndpointToPartitions:
    active, standby = (
        [TopicPartition(name, numbers) for name, numbers in topics]
        for topics in (partitions.active, partitions.standby)
    )
    endpoint = StreamsGroupHeartbeatResponse.Endpoint(*partitions.endpoint.field_values())
    return EndpointToPartitions(endpoint, active, standby)
