"""StreamsGroupDescribe (89), versions 0-1: describe streams groups and their members (KIP-1071).

Refused if ``group.coordinator.rebalance.protocols`` does not have ``streams``.

* Version 1 adds the assignor (KIP-1357) and how the application describes its topology (KIP-1331),
  which is not stored here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter

from headrace.groups.records import InternalTopic, StreamsMember
from headrace.groups.records import Subtopology as RecordedSubtopology
from headrace.groups.streams.group import StreamsGroup
from headrace.groups.streams.topics import in_order
from headrace.net.api import DESCRIBE, GROUP, STREAMS, TOPIC, Api, Each, Inside
from headrace.net.call import Call
from headrace.protocol.api import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse

from .api_88_streams_group_heartbeat import topic_names
from .group_descriptions import Describer, describe_groups

DescribedGroup = StreamsGroupDescribeResponse.DescribedGroup
Topology = StreamsGroupDescribeResponse.Topology
Subtopology = StreamsGroupDescribeResponse.Subtopology
TopicInfo = StreamsGroupDescribeResponse.TopicInfo
KeyValue = StreamsGroupDescribeResponse.KeyValue
Member = StreamsGroupDescribeResponse.Member
Endpoint = StreamsGroupDescribeResponse.Endpoint
Assignment = StreamsGroupDescribeResponse.Assignment
TaskIds = StreamsGroupDescribeResponse.TaskIds
TaskOffset = StreamsGroupDescribeResponse.TaskOffset

API = Api(
    89,
    Each(DESCRIBE, GROUP),
    Inside(DESCRIBE, TOPIC, "TOPIC_AUTHORIZATION_FAILED for a group whose topology uses the topic"),
    protocol=STREAMS,
)

_HIDDEN = "The described group uses topics that the client is not authorized to describe."
_NOT_STORED = 1
"""The status of a description of the topology that the broker does not have."""


async def handle(call: Call, request: StreamsGroupDescribeRequest) -> StreamsGroupDescribeResponse:
    """Describe the streams groups of a request."""

    def describe(group: StreamsGroup) -> DescribedGroup:
        state = group.state
        return DescribedGroup(
            group_state=state.state_name,
            group_epoch=state.epoch,
            assignment_epoch=state.target_epoch.epoch,
            topology=_topology(group),
            topology_description_status=_NOT_STORED if request.include_topology_description else 0,
            assignor_name=call.config.group_value(group.group_id, "streams.assignor.name"),
            members=call.lazily(partial(_member, group), list(state.members.items())),
        )

    find = call.groups.streams.group
    describer = Describer(DescribedGroup, find, describe, _topics, _HIDDEN)
    return StreamsGroupDescribeResponse(groups=await describe_groups(call, request, describer))


def _topics(group: StreamsGroup) -> Iterator[str]:
    """Return the names of the topics in a group's topology."""
    topology = group.state.topology
    return iter(()) if topology is None else topic_names(topology)


def _topology(group: StreamsGroup) -> Topology | None:
    """Return the topology; with all numbers of partitions if its topics exist."""
    topology, configured = group.state.topology, group.configured
    if topology is None:
        return None
    if configured is not None and configured.is_ready:
        subtopologies = [
            _subtopology(part.subtopology, part.changelogs, part.repartitions)
            for part in configured.subtopologies.values()
        ]
    else:
        subtopologies = [
            _subtopology(part, part.state_changelog_topics, part.repartition_source_topics)
            for part in in_order(topology.subtopologies)
        ]
    return Topology(topology.epoch, subtopologies)


def _subtopology(
    subtopology: RecordedSubtopology,
    changelogs: Iterable[InternalTopic],
    repartitions: Iterable[InternalTopic],
) -> Subtopology:
    return Subtopology(
        subtopology_id=subtopology.subtopology_id,
        source_topics=sorted(subtopology.source_topics),
        repartition_sink_topics=sorted(subtopology.repartition_sink_topics),
        state_changelog_topics=_topics_in_order(changelogs),
        repartition_source_topics=_topics_in_order(repartitions),
    )


def _topics_in_order(topics: Iterable[InternalTopic]) -> list[TopicInfo]:
    return [
        TopicInfo(
            topic.name,
            topic.partitions,
            topic.replication_factor,
            [KeyValue(config.key, config.value) for config in topic.topic_configs],
        )
        for topic in sorted(topics, key=attrgetter("name"))
    ]


def _member(group: StreamsGroup, item: tuple[str, StreamsMember]) -> Member:
    member_id, member = item
    current = group.state.current.get(member_id, group.state.no_current)
    endpoint = member.user_endpoint
    return Member(
        member_id=member_id,
        member_epoch=current.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(*endpoint.field_values()),
        client_tags=[KeyValue(*tag.field_values()) for tag in member.client_tags],
        task_offsets=_offsets(group.task_offsets.get(member_id, {})),
        task_end_offsets=_offsets(group.task_end_offsets.get(member_id, {})),
        assignment=Assignment(*map(_tasks, current.assigned)),
        target_assignment=Assignment(
            *map(_tasks, group.state.target.get(member_id, group.state.no_target))
        ),
    )


def _offsets(offsets: Mapping[tuple[str, int], int]) -> list[TaskOffset]:
    return [TaskOffset(*task, offset) for task, offset in offsets.items()]


def _tasks(tasks: Mapping[str, Collection[int]]) -> list[TaskIds]:
    return [TaskIds(*task) for task in tasks.items()]
