"""What calls on groups of any type have in common, over our own connections."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Node, TopicPartition
from confluent_kafka.admin import AclOperation

from headrace.client import ClientError, Cluster, Connection, RequestRefused, group_requests
from headrace.client.group_requests import refused
from headrace.errors import ErrorCode

from .results import GroupListing

_NO_OPERATIONS = -(2**31)


async def list_groups(
    cluster: Cluster, states: Collection[str], types: Collection[str], timeout_ms: int
) -> tuple[list[GroupListing], list[ClientError]]:
    """Ask every broker for the groups that it coordinates.

    :param states: only groups in one of these, by Kafka's names; empty for all
    :param types: only groups of one of these; empty for all
    """
    listed, errors = await group_requests.list_groups(cluster, states, types, timeout_ms)
    return [
        GroupListing(one.group_id, one.type, one.protocol_type, one.state) for one in listed
    ], errors


async def ask_for_one(
    cluster: Cluster, group_id: str, build: Callable[[Connection], Any], what: str, timeout_ms: int
) -> Any | ClientError:
    """The answer of one group's coordinator to what ``build`` makes, or why it was refused as a
    whole.
    """

    async def ask(connection: Connection, _: Sequence[str], timeout_ms: int) -> Mapping[str, Any]:
        response = await connection.request(build(connection), timeout_ms=timeout_ms)
        return {group_id: refused(what, response) or response}

    return (await cluster.coordinators.ask([group_id], ask, timeout_ms))[group_id]


def not_mentioned(what: str) -> RequestRefused:
    """What stands for an answer that lacks a part of what was asked."""
    return RequestRefused(
        what, ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's answer does not mention it"
    )


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """The partitions of each topic, in the order given."""
    grouped: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        grouped.setdefault(partition.topic, []).append(partition)
    return grouped


def partitions_by_topic(partitions: Sequence[TopicPartition] | None) -> dict[str, list[int]] | None:
    """The numbers of the partitions of each topic, in the order given; None for None."""
    if partitions is None:
        return None
    return {
        topic: [p.partition for p in of_topic] for topic, of_topic in by_topic(partitions).items()
    }


def coordinator(cluster: Cluster, group_id: str) -> Node:
    """The broker that was last found to coordinate a group."""
    node_id = cluster.coordinators.node_id(group_id)
    host, port = cluster.nodes.get(node_id, ("", -1)) if node_id is not None else ("", -1)
    return Node(-1 if node_id is None else node_id, host, port)


def operations(bits: int) -> tuple[AclOperation, ...] | None:
    """What the bits of an answer allow; None where the broker does not tell."""
    if bits == _NO_OPERATIONS:
        return None
    return tuple(operation for operation in AclOperation if bits >> operation.value & 1)
