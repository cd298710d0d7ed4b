"""Requests about many groups of one coordinator.

A function that takes ``(connection, group ids, timeout_ms)`` fits
:meth:`headrace.client.coordinators.Coordinators.ask`. It returns for each group kio's part of the
response, or the refusal that stands in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from headrace.protocol.consumer_protocol import read_assignment

from .connection import Connection
from .coordinators import Ask
from .errors import refused

Partitions = Mapping[str, Sequence[int]]
"""Topic → partition numbers."""


def _by_group(groups: Iterable[Any], what: str) -> dict[str, Any]:
    return {
        str(group.group_id): refused(
            f"{what} '{group.group_id}'", group, f"DESCRIBE on group '{group.group_id}'"
        )
        or group
        for group in groups
    }


class Describe:
    """A request that describes groups of one type: states, members, assignments.

    :param api: kio's name of the API
    :param request: kio's name of its request class
    :param field: the request's field of group ids
    :param what: the request, for error texts
    """

    def __init__(self, api: str, request: str, field: str, what: str) -> None:
        self._api, self._request, self._field, self._what = api, request, field, what

    async def __call__(
        self,
        connection: Connection,
        group_ids: Sequence[str],
        timeout_ms: int,
        *,
        authorized_operations: bool = False,
    ) -> dict[str, Any]:
        """Send the request.

        :returns: group id → kio's part of the response, or the refusal
        """
        request = getattr(connection.messages(self._api), self._request)(
            **{self._field: tuple(group_ids)}, include_authorized_operations=authorized_operations
        )
        return _by_group(
            (await connection.request(request, timeout_ms=timeout_ms)).groups, self._what
        )


describe_consumer_groups = Describe(
    "consumer_group_describe", "ConsumerGroupDescribeRequest", "group_ids", "describing group"
)
"""ConsumerGroupDescribe (KIP-848)."""
describe_classic_groups = Describe(
    "describe_groups", "DescribeGroupsRequest", "groups", "describing group"
)
"""DescribeGroups; the assignments are bytes (see :func:`assigned_partitions`)."""
describe_share_groups = Describe(
    "share_group_describe", "ShareGroupDescribeRequest", "group_ids", "describing share group"
)
"""ShareGroupDescribe (KIP-932)."""
describe_streams_groups = Describe(
    "streams_group_describe", "StreamsGroupDescribeRequest", "group_ids", "describing streams group"
)
"""StreamsGroupDescribe (KIP-1071); members are assigned tasks (see :func:`task_partitions`)."""


def _with_partitions(
    wanted: Mapping[str, Partitions | None],
    group_ids: Sequence[str],
    group: Callable[[str, tuple[Any, ...] | None], Any],
    topic: Callable[[str, tuple[int, ...]], Any],
) -> tuple[Any, ...]:
    """Build the part of a request for each group.

    :param wanted: group id → partitions; None for all
    :param group: makes the part of a group from its id and topics
    :param topic: makes the part of a topic from its name and partition numbers
    """
    asked = []
    for group_id in group_ids:
        partitions = wanted.get(group_id)
        topics = (
            None
            if partitions is None
            else tuple(topic(name, tuple(ps)) for name, ps in partitions.items())
        )
        asked.append(group(group_id, topics))
    return tuple(asked)


def asking_for_commits(
    wanted: Mapping[str, Partitions | None], *, require_stable: bool = False
) -> Ask[Any]:
    """Return a request for the committed offsets of groups: OffsetFetch (KIP-88, KIP-709).

    :param wanted: group id → partitions; all with a committed offset if it is None or missing
    :param require_stable: have the broker refuse partitions with offsets of an open transaction
    """

    async def ask(
        connection: Connection, group_ids: Sequence[str], timeout_ms: int
    ) -> dict[str, Any]:
        messages = connection.messages("offset_fetch")
        groups = _with_partitions(
            wanted,
            group_ids,
            lambda group_id, topics: messages.OffsetFetchRequestGroup(
                group_id=group_id, topics=topics
            ),
            lambda name, indexes: messages.OffsetFetchRequestTopics(
                name=name, partition_indexes=indexes
            ),
        )
        request = messages.OffsetFetchRequest(groups=groups, require_stable=require_stable)
        response = await connection.request(request, timeout_ms=timeout_ms)
        return _by_group(response.groups, "asking for the offsets of group")

    return ask


def asking_for_share_offsets(wanted: Mapping[str, Partitions | None]) -> Ask[Any]:
    """Return a request for the offsets of share groups: DescribeShareGroupOffsets (KIP-932,
    KIP-1226).

    :param wanted: group id → partitions; all with a state if it is None or missing
    """

    async def ask(
        connection: Connection, group_ids: Sequence[str], timeout_ms: int
    ) -> dict[str, Any]:
        messages = connection.messages("describe_share_group_offsets")
        groups = _with_partitions(
            wanted,
            group_ids,
            lambda group_id, topics: messages.DescribeShareGroupOffsetsRequestGroup(
                group_id=group_id, topics=topics
            ),
            lambda name, ps: messages.DescribeShareGroupOffsetsRequestTopic(
                topic_name=name, partitions=ps
            ),
        )
        request = messages.DescribeShareGroupOffsetsRequest(groups=groups)
        response = await connection.request(request, timeout_ms=timeout_ms)
        return _by_group(response.groups, "asking for the offsets of share group")

    return ask


def task_partitions(topology: Any, tasks: Iterable[Any]) -> Iterator[tuple[str, int]]:
    """Yield the partitions that tasks of a streams group read (KIP-1071).

    Task *n* of a subtopology reads partition *n* of each of its source topics. Such a partition may
    not exist: a topic may have fewer partitions than the subtopology has tasks.

    :param topology: part of kio's description of the group; None while it is unknown
    :param tasks: parts of the same: a subtopology's id and its task numbers
    """
    read = {
        str(one.subtopology_id): [
            *map(str, one.source_topics),
            *(str(topic.name) for topic in one.repartition_source_topics),
        ]
        for one in (topology.subtopologies if topology is not None else None) or ()
    }
    for task in tasks:
        for topic in read.get(str(task.subtopology_id), ()):
            for number in task.partitions:
                yield topic, int(number)


def assigned_partitions(data: bytes) -> Iterator[tuple[str, int]]:
    """Yield the partitions of a member of a classic group.

    Yields none if the bytes are not an assignment of the consumer protocol: other kinds of groups
    have formats of their own.

    :param data: the member's assignment
    """
    try:
        assignment = read_assignment(data)
    except ValueError:
        assignment = {}
    return ((topic, number) for topic, numbers in assignment.items() for number in numbers)
