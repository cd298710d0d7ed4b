"""The list of the groups of all brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

from .cluster import Cluster
from .coordinators import MOVED, backing_off, in_time
from .errors import ClientError, ConnectionFailed, RequestRefused, check_answer

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group of any type as ListGroups names it.

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


async def list_groups(
    cluster: Cluster, states: Collection[str], types: Collection[str], timeout_ms: int
) -> tuple[list[ListedGroup], list[ClientError]]:
    """Ask every broker for the groups that it coordinates.

    :param states: Kafka's names of the states to list; empty for all
    :param types: Kafka's names of the types to list; empty for all
    :returns: the groups by id, and one error for each broker that did not answer
    :raises ClientError: the brokers of the cluster cannot be looked up
    """
    await _retried(cluster.metadata, timeout_ms)
    listed: dict[str, ListedGroup] = {}
    errors: list[ClientError] = []

    async def ask(node_id: int) -> None:
        connection = await cluster.connection(node_id)
        messages = connection.messages("list_groups")
        request = messages.ListGroupsRequest(
            states_filter=tuple(sorted(states)), types_filter=tuple(sorted(types))
        )
        response = await connection.request(request, timeout_ms=timeout_ms)
        check_answer(f"listing the groups of {connection.address}", response)
        for group in response.groups:
            group_id = str(group.group_id)
            listed[group_id] = ListedGroup(
                group_id,
                str(group.group_type),
                str(group.protocol_type),
                str(group.group_state),
                node_id,
            )

    async def ask_with_retries(node_id: int) -> None:
        try:
            await _retried(lambda: ask(node_id), timeout_ms)
        except ClientError as error:
            errors.append(error)

    await asyncio.gather(*(ask_with_retries(node_id) for node_id in tuple(cluster.nodes)))
    return [listed[group_id] for group_id in sorted(listed)], errors


async def _retried(call: Callable[[], Awaitable[T]], timeout_ms: int) -> T:
    """Return the result of ``call``; retry while brokers are unreachable or coordinators load.

    :raises ClientError: the last error, after ``timeout_ms`` or when it is not worth a retry
    """
    problem = ClientError("not tried")
    deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000

    async def attempt() -> tuple[T] | None:
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
