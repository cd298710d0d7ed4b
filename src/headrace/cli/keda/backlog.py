"""The work that groups have, for an autoscaler, from few requests for all groups together.

Records that members of a share group hold are work, too: they count until they are accepted,
rejected or archived (KIP-1226).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from headrace.client.configs import ConfigType, config_values
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
    """

    group_id: str
    kind: str
    topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Backlog:
    """The work of a group.

    :param records: those that it still has to finish. A partition in which it has no position
        counts as one if it has records, as a member must come to set the position; but in whole if
        a config of the share group says that it begins with the oldest record
    :param partitions: number of partitions of its topics
    """

    records: int
    partitions: int


Backlogs = dict[BacklogQuery, Backlog | ClientError]
"""The work of each group, or the reason why it is unknown."""


async def backlogs(
    leaders: PartitionLeaders, times: RecordTimes, queries: Collection[BacklogQuery]
) -> Backlogs:
    """Return the work of groups.

    :param leaders: a cache, as is ``times``
    :raises ClientError: no broker answers
    """
    results: Backlogs = {}
    for kind in (SHARE, CONSUMER):
        of_kind = [query for query in queries if query.kind == kind]
        for start in range(0, len(of_kind), GROUPS_AT_ONCE):
            some = of_kind[start : start + GROUPS_AT_ONCE]
            results |= await _backlogs(leaders, times, kind, some)
    return results


async def _backlogs(
    leaders: PartitionLeaders, times: RecordTimes, kind: str, queries: Sequence[BacklogQuery]
) -> Backlogs:
    topics: defaultdict[str, set[str]] = defaultdict(set)
    for query in queries:
        topics[query.group_id].update(query.topics)
    groups = [ListedGroup(group_id, kind, "", "", -1) for group_id in topics]
    read = await read_positions(leaders, groups, _QUERY, topics)
    progress = [group for group in read.values() if isinstance(group, GroupProgress)]
    now_ms = time.time_ns() // 1_000_000
    lags: dict[str, GroupLag | ClientError] = {
        group_id: error for group_id, error in read.items() if isinstance(error, ClientError)
    }
    for lag in await measure(leaders, progress, _QUERY, now_ms, times):
        lags[lag.group_id] = lag
    resets = {}
    if kind == SHARE:
        beginning = [
            group.group_id
            for group in progress
            if any(lag.position is None for lag in group.partitions.values())
        ]
        resets = await config_values(leaders.cluster, ConfigType.GROUP, beginning, _RESET)
    results: Backlogs = {}
    for query in queries:
        group = lags[query.group_id]
        is_early = resets.get(query.group_id, "latest") != "latest"
        results[query] = backlog(query, group, is_early) if isinstance(group, GroupLag) else group
    return results


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
