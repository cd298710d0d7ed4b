"""The calls on consumer groups that librdkafka lacks or makes one by one, over our own connections.

Each returns for everything asked an answer, or the :class:`~headrace.client.ClientError` that says
why there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
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
from headrace.client.group_requests import (
    CONSUMER_PROTOCOL,
    asking_for_commits,
    assigned_partitions,
    describe_classic_groups,
    describe_consumer_groups,
    refused,
)
from headrace.errors import ErrorCode

from .requests import (
    ask_for_one,
    by_topic,
    coordinator,
    not_mentioned,
    operations,
    partitions_by_topic,
)
from .results import ConsumerGroupDescription, MemberDescription

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
    :param require_stable: wait, within ``timeout_ms``, for transactions that are about to commit
        offsets
    """
    partitions = {group_id: partitions_by_topic(asked) for group_id, asked in wanted.items()}
    ask_all = asking_for_commits(partitions, require_stable=require_stable)
    answers: dict[str, Any] = {}

    async def ask(connection: Connection, ids: Sequence[str], timeout_ms: int) -> Mapping[str, Any]:
        asked = await ask_all(connection, ids, timeout_ms)
        return {
            one: answer if isinstance(answer, ClientError) else _committed(answer)
            for one, answer in asked.items()
        }

    async def attempt() -> bool | None:
        waiting = [
            group_id
            for group_id in wanted
            if group_id not in answers or _is_unstable(answers[group_id])
        ]
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
                partitions=tuple(
                    messages.OffsetDeleteRequestPartition(partition_index=p.partition)
                    for p in of_topic
                ),
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
    """Describe consumer groups of the consumer protocol (KIP-848), and those that are none as
    classic groups.
    """

    ask = partial(describe_consumer_groups, authorized_operations=include_authorized_operations)

    async def ask_classic(
        connection: Connection, ids: Sequence[str], timeout_ms: int
    ) -> Mapping[str, Any]:
        asked = await describe_classic_groups(
            connection, ids, timeout_ms, authorized_operations=include_authorized_operations
        )
        return {
            one: answer if isinstance(answer, ClientError) else _no_consumer(answer) or answer
            for one, answer in asked.items()
        }

    answers = await cluster.coordinators.ask(group_ids, ask, timeout_ms)
    descriptions: dict[str, ConsumerGroupDescription | ClientError] = {
        group_id: answer
        if isinstance(answer, ClientError)
        else _of_consumer_protocol(cluster, answer)
        for group_id, answer in answers.items()
    }
    others = [group_id for group_id, answer in descriptions.items() if _may_be_classic(answer)]
    for group_id, answer in (
        await cluster.coordinators.ask(others, ask_classic, timeout_ms)
    ).items():
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
    if isinstance(
        answer, RequestRefused
    ):  # an invalid id is the empty one, which a classic group may have
        return answer.code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_GROUP_ID)
    return isinstance(answer, ApiMissing)


def _no_consumer(group: Any) -> RequestRefused | None:
    """The refusal of a classic group that is not there, or whose members do something else than
    consume topics.
    """
    reason = None
    if group.group_state == "Dead":  # which is how DescribeGroups 5 says it
        reason = f"Group {group.group_id} not found."
    elif group.protocol_type not in ("", CONSUMER_PROTOCOL):
        reason = (
            f"Group {group.group_id} is not a consumer group but one of the protocol "
            f"'{group.protocol_type}'."
        )
    if reason is None:
        return None
    return RequestRefused(
        f"describing group '{group.group_id}'", ErrorCode.GROUP_ID_NOT_FOUND, reason
    )


def _committed(group: Any) -> ConsumerGroupTopicPartitions | RequestRefused:
    found = []
    for topic in group.topics:
        for p in topic.partitions:
            what = (
                f"asking for the offset of group '{group.group_id}' in "
                f"{topic.name}-{p.partition_index}"
            )
            if (refusal := refused(what, p)) is not None:
                return refusal
            known: dict[str, Any] = {}
            if p.committed_leader_epoch >= 0:
                known["leader_epoch"] = int(p.committed_leader_epoch)
            if (
                p.metadata
            ):  # which librdkafka ends with a NUL when it writes it, and TopicPartition takes none
                known["metadata"] = str(p.metadata).partition("\0")[0]
            found.append(
                TopicPartition(
                    str(topic.name), int(p.partition_index), int(p.committed_offset), **known
                )
            )
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
            upgraded=_UPGRADED.get(
                getattr(member, "member_type", -1)
            ),  # which version 0 does not tell
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
            MemberAssignment(
                [TopicPartition(*one) for one in assigned_partitions(member.member_assignment)]
            ),
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
