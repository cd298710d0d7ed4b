"""Topics: describe them with their partitions, create them, add partitions, delete them and their
records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from headrace.protocol.api import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeLogDirsRequest,
    DescribeTopicPartitionsRequest,
)
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition, by_topic

from .cluster import Cluster
from .coordinators import KeyedRequest, Leaders, ask_brokers, partition_answers
from .errors import Answers, ClientError, Outcomes, RequestRefused, check_answer, has_code, refused

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


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic with its partitions, by number."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[PartitionInfo, ...] = ()


async def describe_topics(cluster: Cluster, names: Iterable[str]) -> Answers[str, TopicDescription]:
    """Describe topics (DescribeTopicPartitions, KIP-966).

    :returns: name → topic, or the error, by name
    :raises ClientError: no broker answers
    """
    answers: dict[str, Any] = {}
    partitions: dict[str, list[PartitionInfo]] = {}
    pending = sorted(set(names))
    cursor: tuple[str, int] | None = None
    while pending:
        request = DescribeTopicPartitionsRequest(
            [DescribeTopicPartitionsRequest.TopicRequest(name) for name in pending],
            PARTITIONS_AT_ONCE,
            cursor and DescribeTopicPartitionsRequest.Cursor(*cursor),
        )
        response = await cluster.ask(request)
        for topic in response.topics:
            answers[topic.name] = topic
            partitions.setdefault(topic.name, []).extend(
                PartitionInfo(
                    answer.partition_index,
                    answer.leader_id,
                    answer.replica_nodes,
                    answer.isr_nodes,
                    answer.eligible_leader_replicas,
                    answer.last_known_elr,
                )
                for answer in topic.partitions
            )
        if response.next_cursor is None:
            break
        after = (response.next_cursor.topic_name, response.next_cursor.partition_index)
        if cursor is not None and after <= cursor:
            raise ClientError("the broker repeats its answer about topics")
        cursor = after
        pending = [name for name in pending if name >= cursor[0]]
    return {
        name: refused(f"describing topic '{name}'", topic, f"DESCRIBE on topic '{name}'")
        or TopicDescription(name, topic.topic_id, topic.is_internal, tuple(partitions[name]))
        for name, topic in answers.items()
    }


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    :param partitions: -1 for the broker's default
    :param replication_factor: -1 for the broker's default
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


async def create_topic(cluster: Cluster, topic: NewTopic, *, validate_only: bool = False) -> None:
    """Create a topic (CreateTopics).

    :param validate_only: have the broker check it without creating it
    :raises ClientError: the broker refuses or does not answer
    """
    new = CreateTopicsRequest.CreatableTopic(
        topic.name,
        topic.partitions,
        topic.replication_factor,
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name, value)
            for name, value in topic.configs.items()
        ],
    )
    response = await cluster.ask(CreateTopicsRequest([new], cluster.timeout_ms, validate_only))
    for answer in response.topics:
        check_answer(f"creating topic '{topic.name}'", answer, f"CREATE on topic '{topic.name}'")


async def ensure_topic(cluster: Cluster, topic: NewTopic) -> None:
    """Create a topic, unless there is one of its name: then no permission to create is needed.

    :raises ClientError: the broker refuses or does not answer
    """
    if await cluster.existing_topics([topic.name]):
        return
    try:
        await create_topic(cluster, topic)
    except RequestRefused as refusal:
        if not has_code(refusal, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise


async def create_partitions(
    cluster: Cluster, topic: str, count: int, *, validate_only: bool = False
) -> None:
    """Add partitions to a topic (CreatePartitions).

    :param count: the total number of partitions afterwards
    :param validate_only: have the broker check it without a change
    :raises ClientError: the broker refuses or does not answer
    """
    grown = CreatePartitionsRequest.CreatePartitionsTopic(topic, count, None)
    request = CreatePartitionsRequest([grown], cluster.timeout_ms, validate_only)
    response = await cluster.ask(request)
    for answer in response.results:
        check_answer(f"adding partitions to topic '{topic}'", answer, f"ALTER on topic '{topic}'")


async def delete_topics(cluster: Cluster, names: Iterable[str]) -> Outcomes[str]:
    """Delete topics (DeleteTopics).

    :returns: name → None if it is deleted, or the error
    :raises ClientError: no broker answers
    """
    topics = [DeleteTopicsRequest.DeleteTopicState(name) for name in names]
    response = await cluster.ask(DeleteTopicsRequest(topics, timeout_ms=cluster.timeout_ms))
    return {
        topic.name: refused(
            f"deleting topic '{topic.name}'", topic, f"DELETE on topic '{topic.name}'"
        )
        for topic in response.responses
    }


async def delete_records(
    cluster: Cluster, offsets: Mapping[TopicPartition, int]
) -> Answers[TopicPartition, int]:
    """Delete the first records of partitions (DeleteRecords).

    :param offsets: partition → the first offset to keep; -1 to delete all
    :returns: partition → its new first offset, or the error
    """

    request = KeyedRequest[TopicPartition, int](
        lambda partitions: DeleteRecordsRequest(
            [
                DeleteRecordsRequest.DeleteRecordsTopic(
                    topic,
                    [
                        DeleteRecordsRequest.DeleteRecordsPartition(number, offsets[topic, number])
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(partitions).items()
            ],
            cluster.timeout_ms,
        ),
        lambda response: {
            (topic, number): refused(
                f"deleting records of {topic}-{number}", answer, f"DELETE on topic '{topic}'"
            )
            or answer.low_watermark
            for (topic, number), answer in partition_answers(response)
        },
    )
    return await ask_brokers(cluster, Leaders(cluster), offsets, request)


async def topic_sizes(cluster: Cluster) -> dict[str, int]:
    """Return the bytes that the partitions of each topic have on disk, without their replicas
    (DescribeLogDirs).

    :raises ClientError: a broker refuses or does not answer
    """
    sizes: dict[TopicPartition, int] = {}
    for node_id in list(cluster.nodes):
        response = await cluster.ask(DescribeLogDirsRequest(None), node_id)
        for log_dir in response.results:
            check_answer("describing the sizes of topics", log_dir, "DESCRIBE on the cluster")
            for topic in log_dir.topics:
                for partition in topic.partitions:
                    key = (topic.name, partition.partition_index)
                    sizes[key] = max(sizes.get(key, 0), partition.partition_size)
    totals: dict[str, int] = {}
    for (name, _), size_bytes in sizes.items():
        totals[name] = totals.get(name, 0) + size_bytes
    return totals
