"""The work that groups have, for an autoscaler, from few requests for all groups together.

Records that members of a share group hold are work, too: they count until they are accepted,
rejected or archived (KIP-1226).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.client.cluster import Cluster
from headrace.client.configs import ConfigType, describe_configs
from headrace.client.errors import ClientError, UnknownTopic
from headrace.client.groups import ListedGroup
from headrace.client.lag.model import GroupLag, LagQuery, PartitionLag, records_left
from headrace.client.lag.partition_leaders import PartitionLeaders
from headrace.client.lag.snapshot import GroupProgress, measure, read_positions
from headrace.client.lag.times import RecordTimes

SHARE, CONSUMER = "share", "consumer"
GROUPS_AT_ONCE = 200
"""The number of groups in one request."""

_RESET = "share.auto.offset.reset"
_QUERY = LagQuery(members=False, complete_counts=False)


@dataclass(frozen=True, slots=True)
class BacklogQuery:
    """A group and its topics.

    :param kind: :data:`SHARE` or :data:`CONSUMER`
    :param topics: empty for those in which the group has a position
    :param from_earliest: True if the group begins with the oldest record of a partition in which
        it has no position, False if with the newest; None to use the config of a share group, and
        the newest record for other groups
    """

    group_id: str
    kind: str
    topics: tuple[str, ...] = ()
    from_earliest: bool | None = None


@dataclass(frozen=True, slots=True)
class Backlog:
    """The work of a group.

    :param records: those that it still has to finish. A partition in which it has no position, and
        begins with the newest record, counts as one if it has records: a member must come to set
        the position
    :param partitions: number of partitions of its topics
    """

    records: int
    partitions: int


async def backlogs(
    leaders: PartitionLeaders, times: RecordTimes, queries: Iterable[BacklogQuery]
) -> dict[BacklogQuery, Backlog | ClientError]:
    """Return the work of each group, or the reason why it is unknown.

    :param leaders: a cache, as is ``times``
    :raises ClientError: no broker answers
    """
    now_ms = time.time_ns() // 1_000_000
    answers: dict[tuple[str, str], GroupLag | ClientError] = {}
    for kind in (SHARE, CONSUMER):
        topics: dict[str, set[str]] = {}
        for query in queries:
            if query.kind == kind:
                topics.setdefault(query.group_id, set()).update(query.topics)
        groups = [ListedGroup(group_id, kind, "", "", -1) for group_id in topics]
        for start in range(0, len(groups), GROUPS_AT_ONCE):
            some = groups[start : start + GROUPS_AT_ONCE]
            of_some = {group.group_id: topics[group.group_id] for group in some}
            read = await read_positions(leaders, some, _QUERY, of_some)
            positions = [at for at in read.values() if isinstance(at, GroupProgress)]
            for lag in await measure(leaders, positions, _QUERY, now_ms, times):
                answers[kind, lag.group_id] = lag
            for group_id, at in read.items():
                if isinstance(at, ClientError):
                    answers[kind, group_id] = at
    early = await _starting_early(
        leaders.cluster,
        [
            lag.group_id
            for (kind, _), lag in answers.items()
            if kind == SHARE and isinstance(lag, GroupLag)
            if any(partition.position is None for partition in lag.partitions)
        ],
    )
    results: dict[BacklogQuery, Backlog | ClientError] = {}
    for query in queries:
        answer = answers[query.kind, query.group_id]
        is_early = query.from_earliest
        if is_early is None:
            is_early = query.kind == SHARE and query.group_id in early
        if isinstance(answer, GroupLag):
            results[query] = backlog(query, answer, is_early)
        else:
            results[query] = answer
    return results


async def _starting_early(cluster: Cluster, group_ids: Sequence[str]) -> frozenset[str]:
    """Return the share groups that begin before the newest record, as far as their configs are
    known.
    """
    if not group_ids:
        return frozenset()
    configs = await describe_configs(cluster, ConfigType.GROUP, group_ids, keys=[_RESET])
    return frozenset(
        group_id
        for group_id, of_group in configs.items()
        if not isinstance(of_group, ClientError)
        for config in of_group
        if config.name == _RESET and config.value not in (None, "latest")
    )


def backlog(query: BacklogQuery, group: GroupLag, is_early: bool) -> Backlog | ClientError:
    """Return the work of a group, or the reason why it is unknown. Pure.

    :param is_early: the group begins with the oldest record of a partition without a position
    """
    for topic in query.topics:
        if topic not in group.topics:
            return UnknownTopic(topic)
    partitions = [
        lag
        for lag in group.partitions
        if (lag.topic in query.topics if query.topics else lag.position is not None)
    ]
    if not partitions:
        return ClientError(
            f"group '{query.group_id}' has no position in any topic: name its topics"
        )
    records = 0
    for lag in partitions:
        left = _left(lag, is_early)
        if left is None:
            return ClientError(f"the end of {lag.topic}-{lag.partition} is unknown")
        records += left
    return Backlog(records, len(partitions))


def _left(lag: PartitionLag, is_early: bool) -> int | None:
    if lag.records is not None:
        return lag.records
    if lag.position is not None:  # the broker does not tell what is finished
        return records_left(lag.position, lag.log_start_offset, lag.end_offset)
    left = records_left(lag.log_start_offset, lag.log_start_offset, lag.end_offset)
    return left if is_early or left is None else min(left, 1)
