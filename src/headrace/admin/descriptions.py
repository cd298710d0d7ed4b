"""Conversion of kio's parts of responses into the results of the admin client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    Node,
    TopicPartition,
)
from confluent_kafka.admin import AclOperation, MemberAssignment

from headrace.client import Cluster, RequestRefused
from headrace.client.errors import refused
from headrace.client.group_requests import assigned_partitions, task_partitions

from .results import (
    ConsumerGroupDescription,
    MemberDescription,
    ShareGroupDescription,
    ShareMemberDescription,
    SharePartitionOffsetInfo,
    StreamsGroupDescription,
    StreamsMemberDescription,
    StreamsSubtopologyDescription,
    StreamsTasks,
)
from .translation import kafka_error

_UNKNOWN = -1
_NO_OPERATIONS = -(2**31)
_UPGRADED = {0: False, 1: True}
_STATES = {
    "PreparingRebalance": ConsumerGroupState.PREPARING_REBALANCING,
    "CompletingRebalance": ConsumerGroupState.COMPLETING_REBALANCING,
    "Stable": ConsumerGroupState.STABLE,
    "Dead": ConsumerGroupState.DEAD,
    "Empty": ConsumerGroupState.EMPTY,
}
SHARE_STATE_NAMES = {
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.DEAD: "Dead",
    ConsumerGroupState.EMPTY: "Empty",
}
"""The states of share groups, by Kafka's names."""


def group_state(name: str) -> ConsumerGroupState:
    """Return the state with Kafka's name ``name``; UNKNOWN if confluent-kafka lacks it."""
    return _STATES.get(name, ConsumerGroupState.UNKNOWN)


def consumer_group(cluster: Cluster, group: Any) -> ConsumerGroupDescription:
    """Convert a group of ConsumerGroupDescribe (KIP-848)."""
    members = [
        MemberDescription(
            str(member.member_id),
            str(member.client_id),
            str(member.client_host),
            _assignment(member.assignment),
            member.instance_id,
            _assignment(member.target_assignment),
            member_epoch=int(member.member_epoch),
            # Version 0 has no member type.
            upgraded=_UPGRADED.get(getattr(member, "member_type", _UNKNOWN)),
        )
        for member in group.members
    ]
    return ConsumerGroupDescription(
        str(group.group_id),
        False,
        members,
        str(group.assignor_name),
        group_state(group.group_state),
        _coordinator(cluster, str(group.group_id)),
        _operations(int(group.authorized_operations)),
        ConsumerGroupType.CONSUMER,
        state_name=str(group.group_state),
        group_epoch=int(group.group_epoch),
        target_assignment_epoch=int(group.assignment_epoch),
    )


def classic_group(cluster: Cluster, group: Any) -> ConsumerGroupDescription:
    """Convert a group of DescribeGroups."""
    members = [
        MemberDescription(
            str(member.member_id),
            str(member.client_id),
            str(member.client_host),
            _member_assignment(assigned_partitions(member.member_assignment)),
            member.group_instance_id,
        )
        for member in group.members
    ]
    return ConsumerGroupDescription(
        str(group.group_id),
        not group.protocol_type,
        members,
        str(group.protocol_data),
        group_state(group.group_state),
        _coordinator(cluster, str(group.group_id)),
        _operations(int(group.authorized_operations)),
        ConsumerGroupType.CLASSIC,
        state_name=str(group.group_state),
    )


def share_group(cluster: Cluster, group: Any) -> ShareGroupDescription:
    """Convert a group of ShareGroupDescribe (KIP-932)."""
    group_id = str(group.group_id)
    return ShareGroupDescription(
        group_id=group_id,
        state=group_state(group.group_state),
        coordinator=_coordinator(cluster, group_id),
        group_epoch=int(group.group_epoch),
        assignment_epoch=int(group.assignment_epoch),
        assignor=str(group.assignor_name),
        members=tuple(map(_share_member, group.members)),
        authorized_operations=_operations(int(group.authorized_operations)),
    )


def streams_group(cluster: Cluster, group: Any) -> StreamsGroupDescription:
    """Convert a group of StreamsGroupDescribe (KIP-1071)."""
    group_id, topology = str(group.group_id), group.topology
    return StreamsGroupDescription(
        group_id=group_id,
        state_name=str(group.group_state),
        coordinator=_coordinator(cluster, group_id),
        group_epoch=int(group.group_epoch),
        target_assignment_epoch=int(group.assignment_epoch),
        topology_epoch=_UNKNOWN if topology is None else int(topology.epoch),
        subtopologies=tuple(
            map(_subtopology, () if topology is None else topology.subtopologies or ())
        ),
        members=tuple(_streams_member(topology, member) for member in group.members),
        authorized_operations=_operations(int(group.authorized_operations)),
    )


def _subtopology(one: Any) -> StreamsSubtopologyDescription:
    return StreamsSubtopologyDescription(
        subtopology_id=str(one.subtopology_id),
        source_topics=tuple(map(str, one.source_topics)),
        repartition_source_topics=tuple(str(topic.name) for topic in one.repartition_source_topics),
        repartition_sink_topics=tuple(map(str, one.repartition_sink_topics)),
        state_changelog_topics=tuple(str(topic.name) for topic in one.state_changelog_topics),
    )


def _streams_member(topology: Any, member: Any) -> StreamsMemberDescription:
    return StreamsMemberDescription(
        member_id=str(member.member_id),
        client_id=str(member.client_id),
        host=str(member.client_host),
        member_epoch=int(member.member_epoch),
        topology_epoch=int(member.topology_epoch),
        process_id=str(member.process_id),
        tasks=_tasks(member.assignment),
        target_tasks=_tasks(member.target_assignment),
        assignment=_member_assignment(
            dict.fromkeys(task_partitions(topology, member.assignment.active_tasks))
        ),
    )


def _tasks(assignment: Any) -> StreamsTasks:
    return StreamsTasks(
        *(
            {str(one.subtopology_id): tuple(map(int, one.partitions)) for one in tasks}
            for tasks in (
                assignment.active_tasks,
                assignment.standby_tasks,
                assignment.warmup_tasks,
            )
        )
    )


def committed_offsets(group: Any) -> ConsumerGroupTopicPartitions | RequestRefused:
    """Convert a group of OffsetFetch; return the first refusal of a partition, if there is one."""
    found = []
    for topic in group.topics:
        for p in topic.partitions:
            what = (
                f"asking for the offset of group '{group.group_id}' in "
                f"{topic.name}-{p.partition_index}"
            )
            if (refusal := refused(what, p, f"DESCRIBE on topic '{topic.name}'")) is not None:
                return refusal
            known: dict[str, Any] = {}
            if p.committed_leader_epoch >= 0:
                known["leader_epoch"] = int(p.committed_leader_epoch)
            if p.metadata:
                # librdkafka stores a NUL at the end, which TopicPartition does not accept.
                known["metadata"] = str(p.metadata).partition("\0")[0]
            offset = int(p.committed_offset)
            found.append(TopicPartition(str(topic.name), int(p.partition_index), offset, **known))
    found.sort(key=lambda partition: (partition.topic, partition.partition))
    return ConsumerGroupTopicPartitions(str(group.group_id), found)


def share_offsets(group: Any) -> dict[TopicPartition, SharePartitionOffsetInfo]:
    """Convert a group of DescribeShareGroupOffsets (KIP-932, KIP-1226)."""
    found = {}
    for topic in group.topics:
        for p in topic.partitions:
            refusal = refused(
                f"asking for the offset of {topic.topic_name}-{p.partition_index}",
                p,
                f"DESCRIBE on topic '{topic.topic_name}'",
            )
            has_state = not refusal and p.start_offset != _UNKNOWN
            lag = getattr(p, "lag", _UNKNOWN)  # version 0 has no lag
            found[TopicPartition(topic.topic_name, p.partition_index)] = SharePartitionOffsetInfo(
                start_offset=int(p.start_offset) if has_state else None,
                leader_epoch=int(p.leader_epoch) if has_state else None,
                lag=int(lag) if has_state and lag != _UNKNOWN else None,
                error=kafka_error(refusal) if refusal else None,
            )
    return found


def _share_member(member: Any) -> ShareMemberDescription:
    return ShareMemberDescription(
        member_id=str(member.member_id),
        client_id=str(member.client_id),
        host=str(member.client_host),
        member_epoch=int(member.member_epoch),
        rack_id=member.rack_id,
        subscribed_topics=tuple(map(str, member.subscribed_topic_names)),
        assignment=_assignment(member.assignment),
    )


def _assignment(assignment: Any) -> MemberAssignment:
    return _member_assignment(
        (str(topic.topic_name), int(partition))
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )


def _member_assignment(partitions: Iterable[tuple[str, int]]) -> MemberAssignment:
    return MemberAssignment([TopicPartition(*partition) for partition in partitions])


def _coordinator(cluster: Cluster, group_id: str) -> Node:
    """Return the broker last known to coordinate a group."""
    node_id = cluster.coordinators.node_id(group_id)
    if node_id is None:
        return Node(-1, "", -1)
    broker = cluster.nodes.get(node_id)
    return Node(node_id, "", -1) if broker is None else Node(node_id, broker.host, broker.port)


def _operations(bits: int) -> tuple[AclOperation, ...] | None:
    """Return the authorized operations in a bit field; None if the broker sends none."""
    if bits == _NO_OPERATIONS:
        return None
    return tuple(operation for operation in AclOperation if bits >> operation.value & 1)
