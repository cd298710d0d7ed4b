"""Topics: describe them with their partitions, create them, add partitions, delete them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from .cluster import Cluster
from .errors import ClientError, RequestRefused, check_answer, refused

PARTITIONS_AT_ONCE = 2_000
"""The limit of partitions in one response."""


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition of a topic; brokers are node ids.

    :param leader: -1 while it has none
    :param elr: eligible leader replicas (KIP-966); None if the cluster does not report them
    :param last_known_elr: the last known ones; None if the cluster does not report them
    """

    number: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] | None
    last_known_elr: tuple[int, ...] | None


@dataclass(slots=True)
class TopicInfo:
    """A topic with its partitions, by number."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: list[PartitionInfo] = field(default_factory=list)


async def describe_topics(
    cluster: Cluster, names: Iterable[str]
) -> dict[str, TopicInfo | RequestRefused]:
    """Describe topics (DescribeTopicPartitions, KIP-966).

    :returns: name → topic, or the refusal, by name
    :raises ClientError: no broker answers
    """
    found: dict[str, TopicInfo | RequestRefused] = {}
    wanted = sorted(set(names))
    connection = await cluster.connection()
    messages = connection.messages("describe_topic_partitions")
    cursor = None
    while wanted:
        request = messages.DescribeTopicPartitionsRequest(
            topics=tuple(messages.TopicRequest(name=name) for name in wanted),
            response_partition_limit=PARTITIONS_AT_ONCE,
            cursor=cursor,
        )
        response = await connection.request(request, timeout_ms=cluster.timeout_ms)
        for topic in response.topics:
            _add(found, topic)
        after = response.next_cursor
        if after is None:
            break
        if cursor is not None and (after.topic_name, after.partition_index) <= (
            cursor.topic_name,
            cursor.partition_index,
        ):
            raise ClientError(f"{connection.address} repeats its answer about topics")
        cursor = messages.Cursor(topic_name=after.topic_name, partition_index=after.partition_index)
        wanted = [name for name in wanted if name >= after.topic_name]
    return found


def _add(found: dict[str, TopicInfo | RequestRefused], answer: Any) -> None:
    name = str(answer.name)
    refusal = refused(f"describing topic '{name}'", answer, f"DESCRIBE on topic '{name}'")
    if refusal is not None:
        found[name] = refusal
        return
    topic = found.get(name)
    if not isinstance(topic, TopicInfo):
        topic = found[name] = TopicInfo(name, answer.topic_id, bool(answer.is_internal))
    topic.partitions += (
        PartitionInfo(
            int(one.partition_index),
            int(one.leader_id),
            _nodes(one.replica_nodes) or (),
            _nodes(one.isr_nodes) or (),
            _nodes(one.eligible_leader_replicas),
            _nodes(one.last_known_elr),
        )
        for one in answer.partitions
    )


def _nodes(brokers: Iterable[int] | None) -> tuple[int, ...] | None:
    return None if brokers is None else tuple(map(int, brokers))


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    :param partitions: -1 for the broker's default
    :param replication_factor: -1 for the broker's default
    :param assignment: the replicas of each partition; replaces both numbers
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignment: Sequence[Sequence[int]] = ()
    configs: Mapping[str, str] = field(default_factory=dict)


async def create_topic(cluster: Cluster, topic: NewTopic, *, validate_only: bool = False) -> None:
    """Create a topic.

    :param validate_only: have the broker check it without creating it
    :raises RequestRefused: the broker refuses
    """
    connection = await cluster.connection()
    messages = connection.messages("create_topics")
    made = messages.CreatableTopic(
        name=topic.name,
        num_partitions=-1 if topic.assignment else topic.partitions,
        replication_factor=-1 if topic.assignment else topic.replication_factor,
        assignments=tuple(
            messages.CreatableReplicaAssignment(partition_index=number, broker_ids=tuple(replicas))
            for number, replicas in enumerate(topic.assignment)
        ),
        configs=tuple(
            messages.CreatableTopicConfig(name=name, value=value)
            for name, value in topic.configs.items()
        ),
    )
    request = messages.CreateTopicsRequest(
        topics=(made,), timeout=_timeout(cluster), validate_only=validate_only
    )
    response = await connection.request(request, timeout_ms=cluster.timeout_ms)
    needs = f"CREATE on topic '{topic.name}'"
    for answer in response.topics:
        check_answer(f"creating topic '{topic.name}'", answer, needs)


async def create_partitions(
    cluster: Cluster,
    topic: str,
    count: int,
    assignment: Sequence[Sequence[int]] | None = None,
    *,
    validate_only: bool = False,
) -> None:
    """Add partitions to a topic.

    :param count: the total number of partitions afterwards
    :param assignment: the replicas of each new partition
    :param validate_only: have the broker check it without a change
    :raises RequestRefused: the broker refuses
    """
    connection = await cluster.connection()
    messages = connection.messages("create_partitions")
    assignments = None
    if assignment is not None:
        assignments = tuple(
            messages.CreatePartitionsAssignment(broker_ids=tuple(replicas))
            for replicas in assignment
        )
    request = messages.CreatePartitionsRequest(
        topics=(messages.CreatePartitionsTopic(name=topic, count=count, assignments=assignments),),
        timeout=_timeout(cluster),
        validate_only=validate_only,
    )
    response = await connection.request(request, timeout_ms=cluster.timeout_ms)
    needs = f"ALTER on topic '{topic}'"
    for answer in response.results:
        check_answer(f"adding partitions to topic '{topic}'", answer, needs)


async def delete_topics(cluster: Cluster, names: Sequence[str]) -> dict[str, RequestRefused | None]:
    """Delete topics.

    :returns: name → the refusal, or None if it is deleted
    :raises ClientError: no broker answers
    """
    connection = await cluster.connection()
    messages = connection.messages("delete_topics")
    request = messages.DeleteTopicsRequest(
        topics=tuple(messages.DeleteTopicState(name=name, topic_id=None) for name in names),
        timeout=_timeout(cluster),
    )
    response = await connection.request(request, timeout_ms=cluster.timeout_ms)
    return {
        str(one.name): refused(f"deleting topic '{one.name}'", one, f"DELETE on topic '{one.name}'")
        for one in response.responses
    }


def _timeout(cluster: Cluster) -> timedelta:
    return timedelta(milliseconds=cluster.timeout_ms)
