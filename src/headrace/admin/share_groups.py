"""The calls on share groups that librdkafka lacks, over our own connections.

Each returns for everything asked an answer, or the :class:`~headrace.client.ClientError` that says
why there is none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import ConsumerGroupState, TopicPartition
from confluent_kafka.admin import MemberAssignment

from headrace.client import ClientError, Cluster, Connection
from headrace.client.group_requests import asking_for_share_offsets, describe_share_groups, refused

from . import requests
from .requests import ask_for_one, by_topic, not_mentioned, operations, partitions_by_topic
from .results import (
    ShareGroupDescription,
    ShareGroupListing,
    ShareMemberDescription,
    SharePartitionOffsetInfo,
)
from .translation import kafka_error

OffsetsOfGroup = Mapping[TopicPartition, SharePartitionOffsetInfo]

_UNKNOWN = -1
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
    wanted = {_STATE_NAMES.get(state, "Unknown") for state in states}
    groups, errors = await requests.list_groups(cluster, wanted, ("share",), timeout_ms)
    return [ShareGroupListing(group.group_id, _state(group.state)) for group in groups], errors


async def describe(
    cluster: Cluster, group_ids: Sequence[str], include_authorized_operations: bool, timeout_ms: int
) -> Mapping[str, ShareGroupDescription | ClientError]:
    """Describe share groups: epochs, members, assignments."""

    ask = partial(describe_share_groups, authorized_operations=include_authorized_operations)
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

    ask = asking_for_share_offsets(
        {group_id: partitions_by_topic(asked) for group_id, asked in wanted.items()}
    )
    answers = await cluster.coordinators.ask(wanted, ask, timeout_ms)
    return {
        group_id: answer if isinstance(answer, ClientError) else _offsets(answer)
        for group_id, answer in answers.items()
    }


async def alter_offsets(
    cluster: Cluster, group_id: str, partitions: Sequence[TopicPartition], timeout_ms: int
) -> Mapping[TopicPartition, ClientError | None]:
    """Set the start offsets of a share group that has no members, and create it when it does not
    exist.
    """

    def build(connection: Connection) -> Any:
        messages = connection.messages("alter_share_group_offsets")

        def topic(name: str, partitions: Iterable[TopicPartition]) -> Any:
            return messages.AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=tuple(
                    messages.AlterShareGroupOffsetsRequestPartition(
                        partition_index=p.partition, start_offset=p.offset
                    )
                    for p in partitions
                ),
            )

        topics = tuple(topic(name, of_topic) for name, of_topic in by_topic(partitions).items())
        return messages.AlterShareGroupOffsetsRequest(group_id=group_id, topics=topics)

    what = f"setting the offsets of share group '{group_id}'"
    response = await ask_for_one(cluster, group_id, build, what, timeout_ms)
    if isinstance(response, ClientError):
        return dict.fromkeys(partitions, response)
    outcomes = {
        TopicPartition(topic.topic_name, p.partition_index): refused(
            f"{what} in {topic.topic_name}", p
        )
        for topic in response.responses
        for p in topic.partitions
    }
    return {partition: outcomes.get(partition, not_mentioned(what)) for partition in partitions}


async def delete_offsets(
    cluster: Cluster, group_id: str, topics: Sequence[str], timeout_ms: int
) -> Mapping[str, ClientError | None]:
    """Make a share group that has no members forget all that it knows of some topics."""

    def build(connection: Connection) -> Any:
        messages = connection.messages("delete_share_group_offsets")
        forgotten = tuple(
            messages.DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics
        )
        return messages.DeleteShareGroupOffsetsRequest(group_id=group_id, topics=forgotten)

    what = f"deleting offsets of share group '{group_id}'"
    response = await ask_for_one(cluster, group_id, build, what, timeout_ms)
    if isinstance(response, ClientError):
        return dict.fromkeys(topics, response)
    outcomes = {
        str(topic.topic_name): refused(f"{what} in {topic.topic_name}", topic)
        for topic in response.responses
    }
    return {topic: outcomes.get(topic, not_mentioned(what)) for topic in topics}


async def delete(
    cluster: Cluster, group_ids: Sequence[str], timeout_ms: int
) -> Mapping[str, ClientError | None]:
    """Delete share groups that have no members. Groups of another type are refused, which
    DeleteGroups would delete.
    """
    described = await describe(cluster, group_ids, False, timeout_ms)
    outcomes: dict[str, ClientError | None] = {
        group_id: answer
        for group_id, answer in described.items()
        if isinstance(answer, ClientError)
    }

    async def ask(connection: Connection, ids: Sequence[str], timeout_ms: int) -> Mapping[str, Any]:
        request = connection.messages("delete_groups").DeleteGroupsRequest(groups_names=tuple(ids))
        response = await connection.request(request, timeout_ms=timeout_ms)
        return {
            str(result.group_id): refused(f"deleting share group '{result.group_id}'", result)
            for result in response.results
        }

    share_groups = [group_id for group_id in described if group_id not in outcomes]
    outcomes.update(await cluster.coordinators.ask(share_groups, ask, timeout_ms))
    return outcomes


def _state(name: str) -> ConsumerGroupState:
    return _STATES.get(name, ConsumerGroupState.UNKNOWN)


def _offsets(group: Any) -> dict[TopicPartition, SharePartitionOffsetInfo]:
    found = {}
    for topic in group.topics:
        for p in topic.partitions:
            refusal = refused(f"asking for the offset of {topic.topic_name}-{p.partition_index}", p)
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
    return ShareGroupDescription(
        group_id=group_id,
        state=_state(group.group_state),
        coordinator=requests.coordinator(cluster, group_id),
        group_epoch=int(group.group_epoch),
        assignment_epoch=int(group.assignment_epoch),
        assignor=str(group.assignor_name),
        members=tuple(map(_member, group.members)),
        authorized_operations=operations(int(group.authorized_operations)),
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
