"""Groups of all types: list them, describe them with their members, delete them.

A classic, a consumer (KIP-848), a share (KIP-932) and a streams group (KIP-1071) have one
description. What a type does not have is None or empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from headrace.protocol.api import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeClusterRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    ShareGroupDescribeRequest,
    StreamsGroupDescribeRequest,
)
from headrace.protocol.authorized_operations import NOT_ASKED, Operation
from headrace.protocol.consumer_protocol import read_assignment
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.schema import Message

from .cluster import BrokerNode, Cluster
from .coordinators import Coordinators, KeyedRequest, ask_brokers, ask_every_broker
from .errors import (
    Answers,
    ApiMissing,
    ClientError,
    Outcomes,
    RequestRefused,
    has_code,
    is_missing_group,
    refused,
)

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
"""The types of groups, by Kafka's names."""
TYPES = (CONSUMER, CLASSIC, SHARE, STREAMS)

_MISSING_GROUPS = (
    "groups may be missing: the user needs the permission DESCRIBE on the cluster, or on each group"
)


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group of any type in a list, by Kafka's names.

    :param type: "classic", "consumer", "share" or "streams"
    :param protocol_type: "consumer", "share", "connect" …; empty for a group that has only
        committed offsets
    :param state: "Empty", "Stable", "PreparingRebalance" …
    :param node_id: the broker that coordinates it
    """

    group_id: str
    type: str
    protocol_type: str
    state: str
    node_id: int


@dataclass(frozen=True, slots=True)
class GroupList:
    """The groups of a cluster.

    :param groups: by id
    :param errors: an error for each broker that refused or did not answer
    :param advice: a line that says which permission to give, if groups may be missing for lack of
        it: brokers leave out what the user may not describe. None otherwise
    """

    groups: tuple[ListedGroup, ...]
    errors: tuple[ClientError, ...] = ()
    advice: str | None = None


Partitions = tuple[TopicPartition, ...]

StreamsTasks = Mapping[str, Mapping[str, tuple[int, ...]]]
"""Tasks of a member of a streams group: "active", "standby" or "warmup" → subtopology id → task
numbers.
"""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group.

    :param host: its address with a leading slash, as in Kafka's tools
    :param epoch: None in a classic group
    :param assignment: the partitions that it reads. In a streams group those of its active tasks,
        which may not exist: a topic may have fewer partitions than the subtopology has tasks
    :param target_assignment: None if the type has none
    :param subscribed_topics: empty for a classic group
    :param process_id: the Kafka Streams instance
    """

    member_id: str
    client_id: str
    host: str
    assignment: Partitions = ()
    target_assignment: Partitions | None = None
    epoch: int | None = None
    instance_id: str | None = None
    rack_id: str | None = None
    subscribed_topics: tuple[str, ...] = ()
    process_id: str | None = None
    tasks: StreamsTasks | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A description of a group of any type.

    :param state: Kafka's name: "Empty", "Stable", "Assigning", "Reconciling", "NotReady" …
    :param protocol_type: as in :class:`ListedGroup`
    :param coordinator: None if it is unknown
    :param assignor: the server's assignor, or the protocol that a classic group has chosen
    :param group_epoch: None in a classic group, and so the assignment epoch
    :param topology_epoch: None if it has no topology
    :param authorized_operations: what this client may do with it; None if it was not asked for, or
        the broker sends none
    """

    group_id: str
    type: str
    protocol_type: str
    state: str
    coordinator: BrokerNode | None
    members: tuple[GroupMember, ...]
    assignor: str = ""
    group_epoch: int | None = None
    assignment_epoch: int | None = None
    topology_epoch: int | None = None
    authorized_operations: frozenset[Operation] | None = None


# Listing ------------------------------------------------------------------------------------------


async def list_groups(
    cluster: Cluster, *, types: Collection[str] = (), states: Collection[str] = ()
) -> GroupList:
    """Ask every broker for the groups that it coordinates (ListGroups).

    :param types: Kafka's names of the types to list; empty for all
    :param states: Kafka's names of the states to list; empty for all
    :raises ClientError: the brokers of the cluster cannot be looked up
    """
    request = ListGroupsRequest(sorted(states), sorted(types))
    answers, may_describe = await asyncio.gather(
        ask_every_broker(cluster, request, "groups"),
        _may_describe_cluster(cluster),
    )
    groups = {
        group.group_id: ListedGroup(
            group.group_id, group.group_type, group.protocol_type, group.group_state, node_id
        )
        for node_id, answer in answers.items()
        if not isinstance(answer, ClientError)
        for group in answer.groups
    }
    return GroupList(
        tuple(groups[group_id] for group_id in sorted(groups)),
        tuple(answer for answer in answers.values() if isinstance(answer, ClientError)),
        None if may_describe else _MISSING_GROUPS,
    )


async def _may_describe_cluster(cluster: Cluster) -> bool:
    """Return False if the user lacks DESCRIBE on the cluster: the broker names no operations then.

    Without this right ListGroups leaves out, without an error, what the user may not describe.
    """
    try:
        response = await cluster.ask(
            DescribeClusterRequest(include_cluster_authorized_operations=True)
        )
    except ClientError:
        return True  # the list has its own errors
    return bool(response.error_code or response.cluster_authorized_operations)


# Describing ---------------------------------------------------------------------------------------


async def describe_groups(
    cluster: Cluster,
    group_ids: Iterable[str],
    types: Sequence[str] = TYPES,
    *,
    authorized_operations: bool = False,
) -> Answers[str, GroupDescription]:
    """Describe groups with their members.

    :param types: the types that the groups may have, which are asked for in this order
    :returns: group id → description, or the error that stands in its place: GROUP_ID_NOT_FOUND if
        there is no group of these types
    """
    pending = list(dict.fromkeys(group_ids))
    answers: Answers[str, GroupDescription] = {}
    for group_type in types:
        request = _describing(cluster, group_type, authorized_operations)
        described = await ask_brokers(cluster, Coordinators(cluster), pending, request)
        for group_id, answer in described.items():
            # The first error tells more than a later one.
            if not (isinstance(answer, ClientError) and is_missing_group(answers.get(group_id))):
                answers[group_id] = answer
        pending = [
            group_id
            for group_id in pending
            if isinstance(answers[group_id], ApiMissing)
            # The newer protocols reject the empty group id, which a classic group may have.
            or has_code(answers[group_id], ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_GROUP_ID)
        ]
    return answers


async def describe_group(
    cluster: Cluster, group_id: str, types: Sequence[str] = TYPES
) -> GroupDescription | None:
    """Describe one group; None if there is none of these types.

    :raises ClientError: the coordinator refuses or does not answer
    """
    answer = (await describe_groups(cluster, [group_id], types))[group_id]
    if is_missing_group(answer) or isinstance(answer, ApiMissing):
        return None
    if isinstance(answer, ClientError):
        raise answer
    return answer


PartitionsOf = Callable[[Any], Partitions]
"""Reads an assignment of a response."""

_REQUESTS: Mapping[str, Callable[[Sequence[str], bool], Message]] = {
    CLASSIC: DescribeGroupsRequest,
    CONSUMER: ConsumerGroupDescribeRequest,
    SHARE: ShareGroupDescribeRequest,
    STREAMS: StreamsGroupDescribeRequest,
}


def _describing(
    cluster: Cluster, group_type: str, authorized_operations: bool
) -> KeyedRequest[str, GroupDescription]:
    return KeyedRequest(
        lambda ids: _REQUESTS[group_type](ids, authorized_operations),
        lambda response: {
            group.group_id: _missing(group) or _description(cluster, group_type, group)
            for group in response.groups
        },
    )


def _missing(group: Any) -> RequestRefused | None:
    group_id = group.group_id
    what = f"describing group '{group_id}'"
    if not group.error_code and group.group_state == "Dead":
        # DescribeGroups 5 describes a missing group as dead.
        return RequestRefused(what, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    return refused(what, group, f"DESCRIBE on group '{group_id}'")


def _description(cluster: Cluster, group_type: str, group: Any) -> GroupDescription:
    """Read a description, whose type has some of the fields only."""
    group_id, bits = group.group_id, group.authorized_operations
    topology = getattr(group, "topology", None)
    subtopologies = () if topology is None else topology.subtopologies or ()
    partitions_of: PartitionsOf = _assignment
    if group_type == CLASSIC:
        partitions_of = _classic_assignment
    elif group_type == STREAMS:
        partitions_of = partial(_task_partitions, subtopologies)
    node_id = cluster.coordinators.get(group_id)
    return GroupDescription(
        group_id=group_id,
        type=group_type,
        protocol_type=group.protocol_type if group_type == CLASSIC else group_type,
        state=group.group_state,
        coordinator=None if node_id is None else cluster.nodes.get(node_id),
        members=tuple(_member(member, partitions_of) for member in group.members),
        assignor=getattr(group, "protocol_data", "") or getattr(group, "assignor_name", ""),
        group_epoch=getattr(group, "group_epoch", None),
        assignment_epoch=getattr(group, "assignment_epoch", None),
        topology_epoch=None if topology is None else topology.epoch,
        authorized_operations=None
        if bits == NOT_ASKED
        else frozenset(operation for operation in Operation if bits >> operation & 1),
    )


def _member(member: Any, partitions_of: PartitionsOf) -> GroupMember:
    is_classic = hasattr(member, "member_assignment")
    assignment = member.member_assignment if is_classic else member.assignment
    target = getattr(member, "target_assignment", None)
    process_id = getattr(member, "process_id", None)
    return GroupMember(
        member.member_id,
        member.client_id,
        member.client_host,
        partitions_of(assignment),
        None if target is None else partitions_of(target),
        epoch=getattr(member, "member_epoch", None),
        instance_id=getattr(member, "group_instance_id" if is_classic else "instance_id", None),
        rack_id=getattr(member, "rack_id", None),
        subscribed_topics=tuple(getattr(member, "subscribed_topic_names", ())),
        process_id=process_id,
        tasks=None
        if process_id is None
        else {
            role: {
                task.subtopology_id: task.partitions
                for task in getattr(assignment, f"{role}_tasks")
            }
            for role in ("active", "standby", "warmup")
        },
    )


def _classic_assignment(data: bytes) -> Partitions:
    """Return the partitions of a member of a classic group.

    Of none if the bytes are not an assignment of the consumer protocol: other kinds of groups have
    formats of their own.
    """
    try:
        assignment = read_assignment(data)
    except ValueError:
        return ()
    return tuple((topic, number) for topic, numbers in assignment.items() for number in numbers)


def _assignment(assignment: Any) -> Partitions:
    return tuple(
        (topic.topic_name, number)
        for topic in assignment.topic_partitions
        for number in topic.partitions
    )


def _task_partitions(subtopologies: Iterable[Any], assignment: Any) -> Partitions:
    """Return the partitions that tasks read: task *n* of a subtopology reads partition *n* of each
    of its source topics.
    """
    sources = {
        part.subtopology_id: (
            *part.source_topics,
            *(topic.name for topic in part.repartition_source_topics),
        )
        for part in subtopologies
    }
    partitions = {
        (topic, number): None
        for task in assignment.active_tasks
        for topic in sources.get(task.subtopology_id, ())
        for number in task.partitions
    }
    return tuple(partitions)


# Deleting -----------------------------------------------------------------------------------------


async def delete_groups(
    cluster: Cluster, group_ids: Iterable[str], types: Sequence[str] = ()
) -> Outcomes[str]:
    """Delete groups without members, with their offsets or state (DeleteGroups).

    :param types: a group of another type is refused with GROUP_ID_NOT_FOUND, because DeleteGroups
        deletes any; empty for all types
    :returns: group id → None if it was deleted, or the error
    """
    outcomes: Outcomes[str] = dict.fromkeys(group_ids)
    if types:
        described = await describe_groups(cluster, outcomes, types)
        outcomes |= {
            group_id: answer
            for group_id, answer in described.items()
            if isinstance(answer, ClientError)
        }
    deleted = [group_id for group_id, error in outcomes.items() if error is None]
    return outcomes | await ask_brokers(cluster, Coordinators(cluster), deleted, _DELETE)


_DELETE = KeyedRequest[str, None](
    DeleteGroupsRequest,
    lambda response: {
        result.group_id: refused(
            f"deleting group '{result.group_id}'", result, f"DELETE on group '{result.group_id}'"
        )
        for result in response.results
    },
)
