"""The calls on share groups that librdkafka lacks, over our own connections.

Each returns for everything asked an answer, or the :class:`~headrace.client.ClientError` that says why there is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from confluent_kafka import ConsumerGroupState, Node, TopicPartition
from confluent_kafka.admin import AclOperation, MemberAssignment

from headrace.client import ClientError, Cluster, Connection, ConnectionFailed, RequestRefused
from headrace.client.coordinators import MOVED, backing_off, in_time
from headrace.errors import ErrorCode

from .results import ShareGroupDescription, ShareGroupListing, ShareMemberDescription, SharePartitionOffsetInfo
from .translation import kafka_error

T = TypeVar("T")
OffsetsOfGroup = Mapping[TopicPartition, SharePartitionOffsetInfo]

_UNKNOWN = -1
_NO_OPERATIONS = -(2**31)
_STATES = {
    "Empty": ConsumerGroupState.EMPTY,
    "Stable": ConsumerGroupState.STABLE,
    "Dead": ConsumerGroupState.DEAD,
}
_STATE_NAMES = {state: name for name, state in _STATES.items()}


async def list_groups(
    cluster: Cluster, states: Collection[ConsumerGroupState], timeout_ms: int
) -> tuple[list[ShareGroupListing], list[ClientError]]:
    """Ask every broker for the share groups that it coordinates.

    :param states: only groups in one of these; empty for all
    """
    await _eventually(lambda: cluster.metadata(), timeout_ms)
    wanted = tuple(sorted(_STATE_NAMES.get(state, "Unknown") for state in states))
    listed: dict[str, ShareGroupListing] = {}
    errors: list[ClientError] = []

    async def ask(node_id: int) -> None:
        connection = await cluster.connection(node_id)
        messages = connection.messages("list_groups")
        request = messages.ListGroupsRequest(states_filter=wanted, types_filter=("share",))
        response = await connection.request(request, timeout_ms=timeout_ms)
        if response.error_code:
            raise RequestRefused(f"listing the groups of {connection.address}", int(response.error_code))
        for group in response.groups:
            listed[str(group.group_id)] = ShareGroupListing(str(group.group_id), _state(group.group_state))

    async def ask_patiently(node_id: int) -> None:
        try:
            await _eventually(lambda: ask(node_id), timeout_ms)
        except ClientError as error:
            errors.append(error)

    await asyncio.gather(*(ask_patiently(node_id) for node_id in tuple(cluster.nodes)))
    return [listed[group_id] for group_id in sorted(listed)], errors


async def describe(
    cluster: Cluster, group_ids: Sequence[str], include_authorized_operations: bool, timeout_ms: int
) -> Mapping[str, ShareGroupDescription | ClientError]:
    """Describe share groups: epochs, members, assignments."""

    async def ask(connection: Connection, ids: Sequence[str], timeout_ms: int) -> Mapping[str, Any]:
        request = connection.messages("share_group_describe").ShareGroupDescribeRequest(
            group_ids=tuple(ids), include_authorized_operations=include_authorized_operations
        )
        response = await connection.request(request, timeout_ms=timeout_ms)
        return {
            str(group.group_id): _refused(f"describing share group '{group.group_id}'", group) or group
            for group in response.groups
        }

    answers = await cluster.coordinators.ask(group_ids, ask, timeout_ms)
    return {
        group_id: answer if isinstance(answer, ClientError) else _description(cluster, answer)
        for group_id, answer in answers.items()
    }


async def list_offsets(
    cluster: Cluster, wanted: Mapping[str, Sequence[TopicPartition] | None], timeout_ms: int
) -> Mapping[str, OffsetsOfGroup | ClientError]:
    """How far share groups are.

    :param wanted: group id → the partitions to tell of; None for all in which the group has a state
    """

    async def ask(connection: Connection, ids: Sequence[str], timeout_ms: int) -> Mapping[str, Any]:
        messages = connection.messages("describe_share_group_offsets")
        groups = []
        for group_id in ids:
            partitions = wanted[group_id]
            topics = None
            if partitions is not None:
                topics = tuple(
                    messages.DescribeShareGroupOffsetsRequestTopic(
                        topic_name=topic, partitions=tuple(p.partition for p in of_topic)
                    )
                    for topic, of_topic in _by_topic(partitions).items()
                )
            groups.append(messages.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics))
        request = messages.DescribeShareGroupOffsetsRequest(groups=tuple(groups))
        response = await connection.request(request, timeout_ms=timeout_ms)
        return {
            str(group.group_id): _refused(f"asking for the offsets of share group '{group.group_id}'", group)
            or _offsets(group)
            for group in response.groups
        }

    return await cluster.coordinators.ask(wanted, ask, timeout_ms)


async def alter_offsets(
    cluster: Cluster, group_id: str, partitions: Sequence[TopicPartition], timeout_ms: int
) -> Mapping[TopicPartition, ClientError | None]:
    """Set the start offsets of a share group that has no members, and create it when it does not exist."""

    def build(connection: Connection) -> Any:
        messages = connection.messages("alter_share_group_offsets")

        def topic(name: str, partitions: Iterable[TopicPartition]) -> Any:
            return messages.AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=tuple(
                    messages.AlterShareGroupOffsetsRequestPartition(partition_index=p.partition, start_offset=p.offset)
                    for p in partitions
                ),
            )

        topics = tuple(topic(name, of_topic) for name, of_topic in _by_topic(partitions).items())
        return messages.AlterShareGroupOffsetsRequest(group_id=group_id, topics=topics)

    what = f"setting the offsets of share group '{group_id}'"
    response = await _ask_for_one(cluster, group_id, build, what, timeout_ms)
    if isinstance(response, ClientError):
        return dict.fromkeys(partitions, response)
    outcomes = {
        TopicPartition(topic.topic_name, p.partition_index): _refused(f"{what} in {topic.topic_name}", p)
        for topic in response.responses
        for p in topic.partitions
    }
    return {partition: outcomes.get(partition, _not_mentioned(what)) for partition in partitions}


async def delete_offsets(
    cluster: Cluster, group_id: str, topics: Sequence[str], timeout_ms: int
) -> Mapping[str, ClientError | None]:
    """Make a share group that has no members forget all that it knows of some topics."""

    def build(connection: Connection) -> Any:
        messages = connection.messages("delete_share_group_offsets")
        forgotten = tuple(messages.DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics)
        return messages.DeleteShareGroupOffsetsRequest(group_id=group_id, topics=forgotten)

    what = f"deleting offsets of share group '{group_id}'"
    response = await _ask_for_one(cluster, group_id, build, what, timeout_ms)
    if isinstance(response, ClientError):
        return dict.fromkeys(topics, response)
    outcomes = {str(topic.topic_name): _refused(f"{what} in {topic.topic_name}", topic) for topic in response.responses}
    return {topic: outcomes.get(topic, _not_mentioned(what)) for topic in topics}


async def delete(cluster: Cluster, group_ids: Sequence[str], timeout_ms: int) -> Mapping[str, ClientError | None]:
    """Delete share groups that have no members. Groups of another type are refused, which DeleteGroups would delete."""
    described = await describe(cluster, group_ids, False, timeout_ms)
    outcomes: dict[str, ClientError | None] = {
        group_id: answer for group_id, answer in described.items() if isinstance(answer, ClientError)
    }

    async def ask(connection: Connection, ids: Sequence[str], timeout_ms: int) -> Mapping[str, Any]:
        request = connection.messages("delete_groups").DeleteGroupsRequest(groups_names=tuple(ids))
        response = await connection.request(request, timeout_ms=timeout_ms)
        return {
            str(result.group_id): _refused(f"deleting share group '{result.group_id}'", result)
            for result in response.results
        }

    share_groups = [group_id for group_id in described if group_id not in outcomes]
    outcomes.update(await cluster.coordinators.ask(share_groups, ask, timeout_ms))
    return outcomes


async def _ask_for_one(
    cluster: Cluster, group_id: str, build: Callable[[Connection], Any], what: str, timeout_ms: int
) -> Any | ClientError:
    """The answer of one group's coordinator to what ``build`` makes, or why it was refused as a whole."""

    async def ask(connection: Connection, _: Sequence[str], timeout_ms: int) -> Mapping[str, Any]:
        response = await connection.request(build(connection), timeout_ms=timeout_ms)
        return {group_id: _refused(what, response) or response}

    return (await cluster.coordinators.ask([group_id], ask, timeout_ms))[group_id]


async def _eventually(call: Callable[[], Any], timeout_ms: int) -> Any:
    """What ``call`` gives, tried again while brokers cannot be reached or coordinators are loading."""
    problem = ClientError("not tried")
    deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000

    async def attempt() -> tuple[Any] | None:
        nonlocal problem
        try:
            return (await in_time(call(), deadline_s, "the cluster"),)
        except RequestRefused as refusal:
            if refusal.code not in MOVED:
                raise
            problem = refusal
        except ConnectionFailed as failure:
            problem = failure
        return None

    result = await backing_off(attempt, timeout_ms)
    if result is None:
        raise problem
    return result[0]


def _refused(what: str, answer: Any) -> RequestRefused | None:
    """The refusal in a part of a response, if it is one."""
    if not answer.error_code:
        return None
    return RequestRefused(what, int(answer.error_code), getattr(answer, "error_message", None))


def _not_mentioned(what: str) -> RequestRefused:
    return RequestRefused(what, ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's answer does not mention it")


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    grouped: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        grouped.setdefault(partition.topic, []).append(partition)
    return grouped


def _state(name: str) -> ConsumerGroupState:
    return _STATES.get(name, ConsumerGroupState.UNKNOWN)


def _offsets(group: Any) -> dict[TopicPartition, SharePartitionOffsetInfo]:
    found = {}
    for topic in group.topics:
        for p in topic.partitions:
            refusal = _refused(f"asking for the offset of {topic.topic_name}-{p.partition_index}", p)
            begun = not refusal and p.start_offset != _UNKNOWN
            lag = getattr(p, "lag", _UNKNOWN)  # version 0 does not tell it
            found[TopicPartition(topic.topic_name, p.partition_index)] = SharePartitionOffsetInfo(
                start_offset=int(p.start_offset) if begun else None,
                leader_epoch=int(p.leader_epoch) if begun else None,
                lag=int(lag) if begun and lag != _UNKNOWN else None,
                error=kafka_error(refusal) if refusal else None,
            )
    return found


def _description(cluster: Cluster, group: Any) -> ShareGroupDescription:
    group_id = str(group.group_id)
    node_id = cluster.coordinators.node_id(group_id)
    host, port = cluster.nodes.get(node_id, ("", -1)) if node_id is not None else ("", -1)
    return ShareGroupDescription(
        group_id=group_id,
        state=_state(group.group_state),
        coordinator=Node(-1 if node_id is None else node_id, host, port),
        group_epoch=int(group.group_epoch),
        assignment_epoch=int(group.assignment_epoch),
        assignor=str(group.assignor_name),
        members=tuple(map(_member, group.members)),
        authorized_operations=_operations(int(group.authorized_operations)),
    )


def _member(member: Any) -> ShareMemberDescription:
    partitions = [
        TopicPartition(topic.topic_name, partition)
        for topic in member.assignment.topic_partitions
        for partition in topic.partitions
    ]
    return ShareMemberDescription(
        member_id=str(member.member_id),
        client_id=str(member.client_id),
        host=str(member.client_host),
        member_epoch=int(member.member_epoch),
        rack_id=member.rack_id,
        subscribed_topics=tuple(map(str, member.subscribed_topic_names)),
        assignment=MemberAssignment(partitions),
    )


def _operations(bits: int) -> tuple[AclOperation, ...] | None:
    if bits == _NO_OPERATIONS:
        return None
    return tuple(operation for operation in AclOperation if bits >> operation.value & 1)
