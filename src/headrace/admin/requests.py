"""What calls on groups of any type have in common, over our own connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Node, TopicPartition
from confluent_kafka.admin import AclOperation

from headrace.client import ClientError, Cluster, Connection, ConnectionFailed, RequestRefused
from headrace.client.coordinators import MOVED, backing_off, in_time
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
    await _eventually(lambda: cluster.metadata(), timeout_ms)
    listed: dict[str, GroupListing] = {}
    errors: list[ClientError] = []

    async def ask(node_id: int) -> None:
        connection = await cluster.connection(node_id)
        messages = connection.messages("list_groups")
        request = messages.ListGroupsRequest(states_filter=tuple(sorted(states)), types_filter=tuple(sorted(types)))
        response = await connection.request(request, timeout_ms=timeout_ms)
        if response.error_code:
            raise RequestRefused(f"listing the groups of {connection.address}", int(response.error_code))
        for group in response.groups:
            listed[str(group.group_id)] = GroupListing(
                str(group.group_id), str(group.group_type), str(group.protocol_type), str(group.group_state)
            )

    async def ask_patiently(node_id: int) -> None:
        try:
            await _eventually(lambda: ask(node_id), timeout_ms)
        except ClientError as error:
            errors.append(error)

    await asyncio.gather(*(ask_patiently(node_id) for node_id in tuple(cluster.nodes)))
    return [listed[group_id] for group_id in sorted(listed)], errors


async def ask_for_one(
    cluster: Cluster, group_id: str, build: Callable[[Connection], Any], what: str, timeout_ms: int
) -> Any | ClientError:
    """The answer of one group's coordinator to what ``build`` makes, or why it was refused as a whole."""

    async def ask(connection: Connection, _: Sequence[str], timeout_ms: int) -> Mapping[str, Any]:
        response = await connection.request(build(connection), timeout_ms=timeout_ms)
        return {group_id: refused(what, response) or response}

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


def refused(what: str, answer: Any) -> RequestRefused | None:
    """The refusal in a part of a response, if it is one."""
    if not answer.error_code:
        return None
    return RequestRefused(what, int(answer.error_code), getattr(answer, "error_message", None))


def not_mentioned(what: str) -> RequestRefused:
    """What stands for an answer that lacks a part of what was asked."""
    return RequestRefused(what, ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's answer does not mention it")


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """The partitions of each topic, in the order given."""
    grouped: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        grouped.setdefault(partition.topic, []).append(partition)
    return grouped


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
