"""The calls on consumer groups that librdkafka lacks or makes one by one, over our own connections.

Each returns for everything asked an answer, or the :class:`~headrace.client.ClientError` that says why there is none.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    TopicPartition,
)
from confluent_kafka.admin import MemberAssignment

from headrace.client import ApiMissing, ClientError, Cluster, Connection, RequestRefused
from headrace.client.coordinators import backing_off
from headrace.errors import ErrorCode

from .requests import ask_for_one, by_topic, coordinator, not_mentioned, operations, refused
from .results import ConsumerGroupDescription, MemberDescription

_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
_CONSUMER_PROTOCOL = "consumer"
_UPGRADED = {0: False, 1: True}
_STATES = {
    "PreparingRebalance": ConsumerGroupState.PREPARING_REBALANCING,
    "CompletingRebalance": ConsumerGroupState.COMPLETING_REBALANCING,
    "Stable": ConsumerGroupState.STABLE,
    "Dead": ConsumerGroupState.DEAD,
    "Empty": ConsumerGroupState.EMPTY,
}


async def list_offsets(
    cluster: Cluster,
    wanted: Mapping[str, Sequence[TopicPartition] | None],
    require_stable: bool,
    timeout_ms: int,
) -> Mapping[str, ConsumerGroupTopicPartitions | ClientError]:
    """What groups have committed, one request for all groups of a coordinator (KIP-88, KIP-709).

    :param wanted: group id → the partitions to tell of; None for all that have a committed offset
    :param require_stable: wait, within ``timeout_ms``, for transactions that are about to commit offsets
    """
    answers: dict[str, Any] = {}

    async def ask(connection: Connection, ids: Sequence[str], timeout_ms: int) -> Mapping[str, Any]:
        messages = connection.messages("offset_fetch")

        def group(group_id: str, partitions: Sequence[TopicPartition] | None) -> Any:
            topics = None
            if partitions is not None:
                topics = tuple(
                    messages.OffsetFetchRequestTopics(name=name, partition_indexes=tuple(p.partition for p in of_topic))
                    for name, of_topic in by_topic(partitions).items()
                )
            return messages.OffsetFetchRequestGroup(group_id=group_id, topics=topics)

        groups = tuple(group(group_id, wanted[group_id]) for group_id in ids)
        request = messages.OffsetFetchRequest(groups=groups, require_stable=require_stable)
        response = await connection.request(request, timeout_ms=timeout_ms)
        return {
            str(group.group_id): refused(f"asking for the offsets of group '{group.group_id}'", group)
            or _committed(group)
            for group in response.groups
        }

    async def attempt() -> bool | None:
        waiting = [group_id for group_id in wanted if group_id not in answers or _is_unstable(answers[group_id])]
        answers.update(await cluster.coordinators.ask(waiting, ask, timeout_ms))
        return None if any(map(_is_unstable, answers.values())) else True

    await backing_off(attempt, timeout_ms)
    return answers


async def delete_offsets(
    cluster: Cluster, group_id: str, partitions: Sequence[TopicPartition], timeout_ms: int
) -> Mapping[TopicPartition, ClientError | None]:
    """Make a group forget what it has committed for some partitions (KIP-496)."""

    def build(connection: Connection) -> Any:
        messages = connection.messages("offset_delete")
        topics = tuple(
            messages.OffsetDeleteRequestTopic(
                name=name,
                partitions=tuple(messages.OffsetDeleteRequestPartition(partition_index=p.partition) for p in of_topic),
            )
            for name, of_topic in by_topic(partitions).items()
        )
        return messages.OffsetDeleteRequest(group_id=group_id, topics=topics)

    what = f"deleting offsets of group '{group_id}'"
    response = await ask_for_one(cluster, group_id, build, what, timeout_ms)
    if isinstance(response, ClientError):
        return dict.fromkeys(partitions, response)
    outcomes = {
        TopicPartition(topic.name, p.partition_index): refused(f"{what} in {topic.name}", p)
        for topic in response.topics
        for p in topic.partitions
    }
    return {partition: outcomes.get(partition, not_mentioned(what)) for partition in partitions}


async def describe(
    cluster: Cluster, group_ids: Sequence[str], include_authorized_operations: bool, timeout_ms: int
) -> Mapping[str, ConsumerGroupDescription | ClientError]:
    """Describe consumer groups of the consumer protocol (KIP-848), and those that are none as classic groups."""

    async def ask(connection: Connection, ids: Sequence[str], timeout_ms: int) -> Mapping[str, Any]:
        request = connection.messages("consumer_group_describe").ConsumerGroupDescribeRequest(
            group_ids=tuple(ids), include_authorized_operations=include_authorized_operations
        )
        response = await connection.request(request, timeout_ms=timeout_ms)
        return {
            str(group.group_id): refused(f"describing group '{group.group_id}'", group) or group
            for group in response.groups
        }

    async def ask_classic(connection: Connection, ids: Sequence[str], timeout_ms: int) -> Mapping[str, Any]:
        request = connection.messages("describe_groups").DescribeGroupsRequest(
            groups=tuple(ids), include_authorized_operations=include_authorized_operations
        )
        response = await connection.request(request, timeout_ms=timeout_ms)
        return {
            str(group.group_id): refused(f"describing group '{group.group_id}'", group) or _no_consumer(group) or group
            for group in response.groups
        }

    answers = await cluster.coordinators.ask(group_ids, ask, timeout_ms)
    descriptions: dict[str, ConsumerGroupDescription | ClientError] = {
        group_id: answer if isinstance(answer, ClientError) else _of_consumer_protocol(cluster, answer)
        for group_id, answer in answers.items()
    }
    others = [group_id for group_id, answer in descriptions.items() if _may_be_classic(answer)]
    for group_id, answer in (await cluster.coordinators.ask(others, ask_classic, timeout_ms)).items():
        if not isinstance(answer, ClientError):
            descriptions[group_id] = _of_classic_protocol(cluster, answer)
        elif not _is_refusal(descriptions[group_id], ErrorCode.GROUP_ID_NOT_FOUND):
            descriptions[group_id] = answer
    return descriptions


def _is_refusal(answer: object, code: ErrorCode) -> bool:
    return isinstance(answer, RequestRefused) and answer.code == code


def _is_unstable(answer: object) -> bool:
    return _is_refusal(answer, ErrorCode.UNSTABLE_OFFSET_COMMIT)


def _may_be_classic(answer: object) -> bool:
    if isinstance(answer, RequestRefused):  # an invalid id is the empty one, which a classic group may have
        return answer.code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_GROUP_ID)
    return isinstance(answer, ApiMissing)


def _no_consumer(group: Any) -> RequestRefused | None:
    """The refusal of a classic group that is not there, or whose members do something else than consume topics."""
    reason = None
    if group.group_state == "Dead":  # which is how DescribeGroups 5 says it
        reason = f"Group {group.group_id} not found."
    elif group.protocol_type not in ("", _CONSUMER_PROTOCOL):
        reason = f"Group {group.group_id} is not a consumer group but one of the protocol '{group.protocol_type}'."
    if reason is None:
        return None
    return RequestRefused(f"describing group '{group.group_id}'", ErrorCode.GROUP_ID_NOT_FOUND, reason)


def _committed(group: Any) -> ConsumerGroupTopicPartitions | RequestRefused:
    found = []
    for topic in group.topics:
        for p in topic.partitions:
            what = f"asking for the offset of group '{group.group_id}' in {topic.name}-{p.partition_index}"
            if (refusal := refused(what, p)) is not None:
                return refusal
            known: dict[str, Any] = {}
            if p.committed_leader_epoch >= 0:
                known["leader_epoch"] = int(p.committed_leader_epoch)
            if p.metadata:  # which librdkafka ends with a NUL when it writes it, and TopicPartition takes none
                known["metadata"] = str(p.metadata).partition("\0")[0]
            found.append(TopicPartition(str(topic.name), int(p.partition_index), int(p.committed_offset), **known))
    found.sort(key=lambda one: (one.topic, one.partition))
    return ConsumerGroupTopicPartitions(str(group.group_id), found)


def _of_consumer_protocol(cluster: Cluster, group: Any) -> ConsumerGroupDescription:
    members = [
        MemberDescription(
            str(member.member_id),
            str(member.client_id),
            str(member.client_host),
            _assignment(member.assignment),
            member.instance_id,
            _assignment(member.target_assignment),
            member_epoch=int(member.member_epoch),
            upgraded=_UPGRADED.get(getattr(member, "member_type", -1)),  # which version 0 does not tell
        )
        for member in group.members
    ]
    return ConsumerGroupDescription(
        str(group.group_id),
        False,
        members,
        str(group.assignor_name),
        _STATES.get(group.group_state, ConsumerGroupState.UNKNOWN),
        coordinator(cluster, str(group.group_id)),
        operations(int(group.authorized_operations)),
        ConsumerGroupType.CONSUMER,
        state_name=str(group.group_state),
        group_epoch=int(group.group_epoch),
        target_assignment_epoch=int(group.assignment_epoch),
    )


def _of_classic_protocol(cluster: Cluster, group: Any) -> ConsumerGroupDescription:
    members = [
        MemberDescription(
            str(member.member_id),
            str(member.client_id),
            str(member.client_host),
            MemberAssignment(list(_assigned_partitions(member.member_assignment))),
            member.group_instance_id,
        )
        for member in group.members
    ]
    return ConsumerGroupDescription(
        str(group.group_id),
        not group.protocol_type,
        members,
        str(group.protocol_data),
        _STATES.get(group.group_state, ConsumerGroupState.UNKNOWN),
        coordinator(cluster, str(group.group_id)),
        operations(int(group.authorized_operations)),
        ConsumerGroupType.CLASSIC,
        state_name=str(group.group_state),
    )


def _assignment(assignment: Any) -> MemberAssignment:
    return MemberAssignment(
        [
            TopicPartition(str(topic.topic_name), int(partition))
            for topic in assignment.topic_partitions
            for partition in topic.partitions
        ]
    )


def _assigned_partitions(data: bytes) -> Iterator[TopicPartition]:
    """What the leader of a classic group has assigned to a member: version, then topics with partitions, then more.

    None at all where the bytes are something else, which only the members have to understand.
    """
    found = []
    try:
        (topics,) = _INT32.unpack_from(data, _INT16.size)
        at = _INT16.size + _INT32.size
        for _ in range(topics):
            (length,) = _INT16.unpack_from(data, at)
            at += _INT16.size
            topic = bytes(data[at : at + length]).decode()
            at += length
            (count,) = _INT32.unpack_from(data, at)
            at += _INT32.size
            found += [TopicPartition(topic, n) for n in struct.unpack_from(f">{count}i", data, at)]
            at += count * _INT32.size
    except (struct.error, UnicodeDecodeError):
        return iter(())
    return iter(found)
