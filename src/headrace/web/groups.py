"""A group in detail: its partitions, members, settings, and what is in flight.

The cost of a page grows with the partitions on it, not with those of the group: only their end
offsets, timestamps and spans are queried.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.configs import Config, ConfigType, describe_configs
from headrace.client.errors import ClientError, raised
from headrace.client.group_listing import ListedGroup
from headrace.client.lag.group_lines import GroupLine
from headrace.client.lag.partition_leaders import PartitionLeaders
from headrace.client.lag.rows import LagQuery, LagRow
from headrace.client.lag.snapshot import (
    Progress,
    lag_snapshot,
    progress_rows,
    read_progress,
    wanted_groups,
)
from headrace.client.share_state import (
    SPANS_OF_PARTITION,
    SharePartitionState,
    share_states,
)
from headrace.protocol.partitions import TopicPartition

from .limits import LEAST_SPANS_OF_PARTITION, MAX_SPANS_OF_PAGE, PARTITIONS_OF_PAGE
from .paging import Page, page_of

_UNKNOWN_NODE = -1


class MemberOfGroup(NamedTuple):
    """A member of a group.

    :param partitions: (topic, numbers), by topic
    """

    member_id: str
    client_id: str
    host: str
    partitions: Sequence[tuple[str, Sequence[int]]]

    @property
    def partition_count(self) -> int:
        """The number of its partitions."""
        return sum(len(numbers) for _, numbers in self.partitions)


class PartitionOfGroup(NamedTuple):
    """A partition of a group: its row, and for a share group what is in flight.

    :param share: None for other groups, or if it was not queried
    """

    row: LagRow
    share: SharePartitionState | None

    @property
    def topic(self) -> str:
        """The topic."""
        return self.row.topic or ""

    @property
    def number(self) -> int:
        """The partition number."""
        return -1 if self.row.partition is None else self.row.partition


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """A group in detail.

    :param page: of the partitions
    :param configs: None if the broker refuses to describe them; empty if they were not queried
    :param tells_spans: True if the broker reports what is in flight; None if there is nothing
    :param spans_limit: the largest number of spans queried of a partition
    :param warnings: what could not be determined, one line each
    """

    group_id: str
    type: str
    state: str
    page: Page[PartitionOfGroup]
    members: Sequence[MemberOfGroup]
    configs: Sequence[Config] | None
    tells_spans: bool | None
    spans_limit: int
    warnings: Sequence[str]

    @property
    def partitions(self) -> Sequence[PartitionOfGroup]:
        """The partitions of the page."""
        return self.page.rows

    @property
    def holders(self) -> dict[str, str]:
        """Member id → client id and host."""
        return {one.member_id: f"{one.client_id} {one.host}".strip() for one in self.members}


async def group_rows(cluster: Cluster, group_id: str) -> list[LagRow]:
    """Return the rows of a group, by topic and partition, without times; none if there is no such
    group.

    :raises ClientError: the cluster cannot be reached, or refuses
    """
    query = LagQuery(groups=(group_id,), time_lag=False, complete_counts=False)
    listed, _ = await wanted_groups(cluster, query)
    rows: list[LagRow] = []
    async for part in lag_snapshot(cluster, listed, query, time.time_ns() // 1_000_000):
        rows += part.rows
    return rows


async def group_detail(
    cluster: Cluster,
    group_id: str,
    page: int = 1,
    *,
    known: GroupLine | None = None,
    with_configs: bool = True,
) -> GroupDetail | None:
    """Return a group, or None if it does not exist.

    :param page: of its partitions, from 1
    :param known: the group as it was seen last, which saves listing all groups
    :raises ClientError: the cluster cannot be reached, or refuses
    """
    leaders = PartitionLeaders(cluster)
    query = LagQuery(groups=(group_id,), complete_counts=False)
    warnings: list[str] = []
    progress = await _progress(cluster, query, leaders, known, warnings)
    if progress is None:
        return None
    shown = page_of(sorted(progress.partitions()), page, PARTITIONS_OF_PAGE)
    keys = set(shown.rows)
    spans_limit = _spans_limit(len(keys))
    now_ms = time.time_ns() // 1_000_000
    rows, states, configs = await asyncio.gather(
        progress_rows(cluster, [progress.within(keys)], query, leaders, now_ms),
        _states(cluster, progress, shown.rows, spans_limit),
        _configs(cluster, progress, warnings) if with_configs else no_configs(),
    )
    partitions = []
    for row in rows:
        if row.topic is not None and row.partition is not None:  # others are idle members
            share = states.get((row.topic, row.partition))
            partitions.append(PartitionOfGroup(row, share))
    tells = None
    if partitions and progress.group.type == "share":
        tells = any(one.share is not None and one.share.spans is not None for one in partitions)
    return GroupDetail(
        group_id,
        progress.group.type,
        progress.state,
        Page(partitions, shown.number, shown.count, shown.total),
        members_of(progress),
        configs,
        tells,
        spans_limit,
        [*warnings, *leaders.problems],
    )


async def _progress(
    cluster: Cluster,
    query: LagQuery,
    leaders: PartitionLeaders,
    known: GroupLine | None,
    warnings: list[str],
) -> Progress | None:
    """Return the progress of the group of a query, or None if it does not exist."""
    if known is not None:
        group = ListedGroup(known.group, known.type, "", known.state, _UNKNOWN_NODE)
        said: list[str] = []
        found = await read_progress(cluster, [group], query, leaders, said)
        if found:
            warnings += said
            return found[0]
    # The group may be new, or was created again with another type.
    listed, said = await wanted_groups(cluster, query)
    warnings += said
    for one in listed:
        cluster.coordinators.assume(one.group_id, one.node_id)
    found = await read_progress(cluster, listed, query, leaders, warnings)
    return found[0] if found else None


def _spans_limit(partitions: int) -> int:
    """Return the number of spans to show of each partition of a page."""
    fair = MAX_SPANS_OF_PAGE // max(1, partitions)
    return min(max(LEAST_SPANS_OF_PARTITION, fair), SPANS_OF_PARTITION)


async def _states(
    cluster: Cluster, progress: Progress, keys: Sequence[TopicPartition], spans_limit: int
) -> Mapping[TopicPartition, SharePartitionState]:
    """Return what is in flight; empty for other groups than share groups."""
    if progress.group.type != "share" or not keys:
        return {}
    return await share_states(cluster, progress.group.group_id, keys, spans_limit)


async def _configs(
    cluster: Cluster, progress: Progress, warnings: list[str]
) -> Sequence[Config] | None:
    """Return the configs that a group of this type has."""
    group = progress.group
    configs = await configs_of(cluster, ConfigType.GROUP, group.group_id, warnings)
    others = tuple(f"{one}." for one in ("share", "consumer", "streams") if one != group.type)
    if configs is None:
        return None
    return [one for one in configs if not one.name.startswith(others)]


async def no_configs() -> Sequence[Config]:
    """Return no configs, for a view that does not show them."""
    return ()


async def configs_of(
    cluster: Cluster, kind: ConfigType, name: str, warnings: list[str]
) -> Sequence[Config] | None:
    """Return the configs of a group or topic; None, with a warning, if the broker refuses."""
    try:
        return raised(await describe_configs(cluster, kind, [name]))[name]
    except ClientError as error:
        warnings.append(f"the configs are unknown: {error}")
        return None


def members_of(progress: Progress) -> list[MemberOfGroup]:
    """Return the members of a group, by client id."""
    members = {one.member_id: one for one in progress.idle}
    assigned: dict[str, dict[str, list[int]]] = {}
    for (topic, number), holders in sorted(progress.members.items()):
        for one in holders:
            members[one.member_id] = one
            assigned.setdefault(one.member_id, {}).setdefault(topic, []).append(number)
    found = [
        MemberOfGroup(
            one.member_id,
            one.client_id,
            one.host.removeprefix("/"),
            sorted(assigned.get(one.member_id, {}).items()),
        )
        for one in members.values()
    ]
    return sorted(found, key=lambda one: (one.client_id, one.member_id))
