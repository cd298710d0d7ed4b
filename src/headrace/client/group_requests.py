"""Requests about many groups of one coordinator at once, and the list of the groups of all brokers.

The functions that take ``(connection, group ids, timeout_ms)`` are what
:meth:`headrace.client.coordinators.Coordinators.ask` calls: they return kio's part of the response
for each group, or the refusal that stands in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from headrace.protocol.consumer_protocol import read_assignment

from .connection import Connection
from .coordinators import Ask
from .errors import RequestRefused

T = TypeVar("T")

Partitions = Mapping[str, Sequence[int]]
"""Topic → numbers of its partitions."""


def refused(what: str, answer: Any) -> RequestRefused | None:
    """The refusal in a part of a response, if it is one."""
    if not answer.error_code:
        return None
    return RequestRefused(what, int(answer.error_code), getattr(answer, "error_message", None))


def _by_group(groups: Iterable[Any], what: str) -> dict[str, Any]:
    return {
        str(group.group_id): refused(f"{what} '{group.group_id}'", group) or group
        for group in groups
    }


class Describe:
    """Asks a coordinator to describe groups of one type: states, members, assignments.

    :param api: the name of the API, and of its request, in kio
    :param field: the request's field for the group ids
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
        """Group id → kio's part of the response, or the refusal."""
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
    """A part of a request for each group, made by ``group`` of the parts that ``topic`` makes."""
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
    """OffsetFetch for several groups in one request (KIP-88, KIP-709).

    :param wanted: group id → the partitions to tell of; None, as for a group not named, for all
        with a committed offset
    :param require_stable: refuse where a transaction is about to commit
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
    """DescribeShareGroupOffsets for several groups in one request (KIP-932, KIP-1226).

    :param wanted: group id → the partitions to tell of; None, as for a group not named, for all
        with a state
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
    """What the tasks of a streams group read: of each source topic the partition that has the
    task's number.

    A topic may have fewer partitions than another one of its subtopology, and so fewer than there
    are tasks.

    :param topology: of kio's description of the group; None while it is not known
    :param tasks: a subtopology's id and the numbers of its tasks, each
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
    """Return the partitions in an assignment that the leader of a classic group has given a member.

    None at all where the bytes are something else, which only the members have to understand.
    """
    try:
        assignment = read_assignment(data)
    except ValueError:
        assignment = {}
    return ((topic, number) for topic, numbers in assignment.items() for number in numbers)
