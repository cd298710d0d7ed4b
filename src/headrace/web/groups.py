"""A group in detail: its partitions, members, settings, and what is in flight."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.configs import Config, ConfigType, describe_configs
from headrace.client.errors import ClientError
from headrace.client.lag.rows import LagQuery, LagRow
from headrace.client.lag.snapshot import lag_snapshot, wanted_groups
from headrace.client.share_inspection import SharePartitionState, share_states
from headrace.protocol.partitions import TopicPartition

from .limits import PARTITIONS_OF_PAGE


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

    :param share: None for other groups, or if it was not asked for
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

    :param partitions: those of the page
    :param partition_count: of all pages
    :param configs: None if the broker does not tell them
    :param tells_spans: whether the broker tells what is in flight; None if there is nothing to tell
    :param warnings: what could not be determined, one line each
    """

    group_id: str
    type: str
    state: str
    partitions: Sequence[PartitionOfGroup]
    partition_count: int
    members: Sequence[MemberOfGroup]
    configs: Sequence[Config] | None
    tells_spans: bool | None
    warnings: Sequence[str]

    @property
    def holders(self) -> dict[str, str]:
        """Member id → client id and host."""
        return {one.member_id: f"{one.client_id} {one.host}".strip() for one in self.members}


async def group_rows(cluster: Cluster, group_id: str) -> tuple[list[LagRow], list[str]]:
    """Return the rows of a group, by topic and partition; none if there is no such group.

    :returns: the rows, and what could not be determined
    :raises ClientError: the cluster cannot be reached, or refuses
    """
    query = LagQuery(groups=(group_id,))
    listed, warnings = await wanted_groups(cluster, query)
    rows: list[LagRow] = []
    now_ms = time.time_ns() // 1_000_000
    async for part in lag_snapshot(cluster, listed, query, now_ms):
        rows += part.rows
        warnings += part.warnings
    return rows, warnings


async def group_detail(cluster: Cluster, group_id: str, page: int = 1) -> GroupDetail | None:
    """Return a group, or None if it does not exist.

    :param page: of its partitions, from 1
    :raises ClientError: the cluster cannot be reached, or refuses
    """
    rows, warnings = await group_rows(cluster, group_id)
    if not rows:
        return None
    with_partition = [row for row in rows if row.topic is not None]
    first = (page - 1) * PARTITIONS_OF_PAGE
    shown = with_partition[first : first + PARTITIONS_OF_PAGE]
    is_share = rows[0].group_type == "share"
    states: Mapping[TopicPartition, SharePartitionState] = {}
    if is_share and shown:
        keys = [(row.topic or "", row.partition or 0) for row in shown]
        states = await share_states(cluster, group_id, keys)
    partitions = [
        PartitionOfGroup(row, states.get((row.topic or "", row.partition or 0))) for row in shown
    ]
    tells = None
    if partitions and is_share:
        tells = any(one.share is not None and one.share.spans is not None for one in partitions)
    configs = await configs_of(cluster, ConfigType.GROUP, group_id, warnings)
    others = tuple(
        f"{one}." for one in ("share", "consumer", "streams") if one != rows[0].group_type
    )
    if configs is not None:
        configs = [one for one in configs if not one.name.startswith(others)]
    return GroupDetail(
        group_id,
        rows[0].group_type,
        rows[0].group_state,
        partitions,
        len(with_partition),
        members_of(rows),
        configs,
        tells,
        warnings,
    )


async def configs_of(
    cluster: Cluster, kind: ConfigType, name: str, warnings: list[str]
) -> Sequence[Config] | None:
    """Return the configs of a group or topic; None, with a warning, if the broker refuses."""
    try:
        connection = await cluster.connection()
        found = await describe_configs(connection, kind, [name], timeout_ms=cluster.timeout_ms)
    except ClientError as error:
        warnings.append(f"the configs are unknown: {error}")
        return None
    return found.get(name, [])


def members_of(rows: Sequence[LagRow]) -> list[MemberOfGroup]:
    """Return the members that rows name, by client id."""
    named: dict[str, tuple[str, str]] = {}
    assigned: dict[str, dict[str, list[int]]] = {}
    for row in rows:
        if row.member_id is None:
            continue
        parts = zip(
            row.member_id.split(","),
            (row.client_id or "").split(","),
            (row.host or "").split(","),
            strict=False,
        )
        for member_id, client_id, host in parts:
            named[member_id] = (client_id, host.removeprefix("/"))
            if row.topic is not None and row.partition is not None:
                assigned.setdefault(member_id, {}).setdefault(row.topic, []).append(row.partition)
    found = [
        MemberOfGroup(member_id, *names, sorted(assigned.get(member_id, {}).items()))
        for member_id, names in named.items()
    ]
    return sorted(found, key=lambda one: (one.client_id, one.member_id))
