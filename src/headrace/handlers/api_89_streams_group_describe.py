"""StreamsGroupDescribe (89), versions 0-1: describe streams groups and their members (KIP-1071).

Refused if ``group.coordinator.rebalance.protocols`` does not have ``streams``.

* Version 1 adds the assignor (KIP-1357) and how the application describes its topology (KIP-1331),
  which is not stored here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from kio.schema.streams_group_describe.v0 import response as schema

from headrace.broker.broker import Broker
from headrace.broker.config.group_protocols import REBALANCE_PROTOCOLS, STREAMS
from headrace.errors import ErrorCode
from headrace.groups.records import (
    InternalTopic,
    StreamsAssignment,
    StreamsMember,
    Subtopology,
    TaskAssignment,
)
from headrace.groups.streams.group import StreamsGroup
from headrace.protocol.newer_messages import (
    StreamsDescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

from .context import RequestContext
from .group_descriptions import HiddenTopics, describe_each, group_operations, refuse_each
from .slicing import lazily

_NOT_STORED = 1
"""The status of a description of the topology that the broker does not have."""


def handle(broker: Broker, request: StreamsGroupDescribeRequest, context: RequestContext) -> Any:
    """Describe the streams groups of a request."""
    described, response = StreamsDescribedGroup, StreamsGroupDescribeResponse
    if STREAMS not in broker.config.get_list(REBALANCE_PROTOCOLS):
        return refuse_each(described, response, request.group_ids, ErrorCode.UNSUPPORTED_VERSION)
    find = broker.groups.streams.group
    describe = partial(_describe, broker, request, context)
    message = "The described group uses topics that the client is not authorized to describe."
    hidden = HiddenTopics(context, _topics, message)
    return describe_each(described, response, request.group_ids, find, describe, hidden)


def _topics(group: StreamsGroup) -> Iterable[str]:
    """Yield the names of the topics in a group's topology, as it is described."""
    topology = _topology(group)
    for one in () if topology is None else topology.subtopologies:
        yield from one.source_topics
        yield from one.repartition_sink_topics
        yield from (topic.name for topic in one.repartition_source_topics)
        yield from (topic.name for topic in one.state_changelog_topics)


def _describe(
    broker: Broker,
    request: StreamsGroupDescribeRequest,
    context: RequestContext,
    group_id: str,
    group: StreamsGroup,
) -> StreamsDescribedGroup:
    state = group.state
    return StreamsDescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=state.state_name,
        group_epoch=state.epoch.epoch,
        assignment_epoch=state.target_epoch.epoch,
        topology=_topology(group),
        authorized_operations=group_operations(request, context, group_id),
        members=lazily(partial(_member, group), tuple(state.members.items())),
        topology_description_status=_NOT_STORED if request.include_topology_description else 0,
        assignor_name=broker.config.group_value(group_id, "streams.assignor.name"),
    )


def _topology(group: StreamsGroup) -> schema.Topology | None:
    """Return the topology; with all numbers of partitions if its topics exist."""
    topology, configured = group.state.topology, group.configured
    if topology is None:
        return None
    if configured is not None and configured.is_ready:
        subtopologies = tuple(
            _subtopology(one.subtopology, one.changelogs, one.repartitions)
            for one in configured.subtopologies.values()
        )
    else:
        subtopologies = tuple(
            _subtopology(one, one.state_changelog_topics, one.repartition_source_topics)
            for one in sorted(topology.subtopologies)
        )
    return schema.Topology(epoch=topology.epoch, subtopologies=subtopologies)


def _subtopology(
    one: Subtopology, changelogs: Iterable[InternalTopic], repartitions: Iterable[InternalTopic]
) -> schema.Subtopology:
    return schema.Subtopology(
        subtopology_id=one.subtopology_id,
        source_topics=tuple(sorted(one.source_topics)),
        repartition_sink_topics=tuple(sorted(one.repartition_sink_topics)),
        state_changelog_topics=tuple(map(_topic, sorted(changelogs))),
        repartition_source_topics=tuple(map(_topic, sorted(repartitions))),
    )


def _topic(topic: InternalTopic) -> schema.TopicInfo:
    return schema.TopicInfo(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=_key_values(topic.configs),
    )


def _key_values(pairs: Iterable[tuple[str, str]]) -> tuple[schema.KeyValue, ...]:
    return tuple(schema.KeyValue(key=key, value=value) for key, value in pairs)


def _member(group: StreamsGroup, known: tuple[str, StreamsMember]) -> schema.Member:
    member_id, member = known
    current = group.state.current.get(member_id, StreamsAssignment())
    target = group.state.target.get(member_id, TaskAssignment())
    endpoint = member.user_endpoint
    return schema.Member(
        member_id=member_id,
        member_epoch=current.member_epoch,
        instance_id=member.group_instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None
        if endpoint is None
        else schema.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=_key_values(member.client_tags),
        task_offsets=_offsets(group.task_offsets.get(member_id, {})),
        task_end_offsets=_offsets(group.task_end_offsets.get(member_id, {})),
        assignment=schema.Assignment(
            active_tasks=_tasks(current.assigned.active),
            standby_tasks=_tasks(current.assigned.standby),
            warmup_tasks=_tasks(current.assigned.warmup),
        ),
        target_assignment=schema.Assignment(
            active_tasks=_tasks(target.active),
            standby_tasks=_tasks(target.standby),
            warmup_tasks=_tasks(target.warmup),
        ),
        is_classic=False,
    )


def _offsets(offsets: Mapping[tuple[str, int], int]) -> tuple[schema.TaskOffset, ...]:
    return tuple(
        schema.TaskOffset(subtopology_id=subtopology_id, partition=partition, offset=offset)
        for (subtopology_id, partition), offset in offsets.items()
    )


def _tasks(tasks: Mapping[str, Iterable[int]]) -> tuple[schema.TaskIds, ...]:
    return tuple(
        schema.TaskIds(subtopology_id=subtopology_id, partitions=tuple(partitions))
        for subtopology_id, partitions in tasks.items()
    )
