"""A snapshot of the progress and lag of all groups of a cluster, from few requests.

A number of groups at a time is described, and their positions are read. Then the ends of all their
partitions are read, with two requests to each broker, the starts of those where a group is behind,
and then the timestamps of the records at the positions. Reading the ends after the positions keeps
lags from being negative.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError, has_code
from headrace.client.groups import CLASSIC, SHARE, ListedGroup, describe_groups, list_groups
from headrace.client.offsets import EARLIEST, LATEST, CommittedOffset, ShareOffset
from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.record_batch import NO_TIMESTAMP

from .model import GroupLag, LagQuery, PartitionLag, Snapshot, group_lag, records_left
from .partition_leaders import PartitionLeaders
from .positions import GroupPositions, Position, offset_of, read_positions
from .times import RecordTimes

GROUPS_AT_ONCE = 50
"""The number of groups in one request."""
ROWS_AT_ONCE = 100_000
"""The approximate limit of partitions in memory; the groups of one request may exceed it."""


async def snapshot(cluster: Cluster, query: LagQuery) -> Snapshot:
    """Return the lag of the groups that a query selects.

    :raises RequestRefused: a named group is hidden, because the user may not describe it
    :raises ClientError: the cluster cannot be reached
    """
    listed, warnings = await select_groups(cluster, query)
    at_ms = time.time_ns() // 1_000_000
    groups: list[GroupLag] = []
    async for part in parts(cluster, listed, query, at_ms):
        groups += part.groups
        warnings += part.warnings
    groups.sort(key=lambda group: group.group_id)
    return Snapshot(groups=groups, warnings=warnings, at_ms=at_ms, cluster_id=cluster.cluster_id)


async def select_groups(cluster: Cluster, query: LagQuery) -> tuple[list[ListedGroup], list[str]]:
    """List the groups that a query selects.

    :returns: the groups by coordinator and id, and a warning for each missing group or broker
    :raises RequestRefused: a named group is hidden, because the user may not describe it
    :raises ClientError: the cluster cannot be reached
    """
    await cluster.metadata()  # fails at once, while list_groups retries
    listed = await list_groups(cluster, types=query.group_types)
    warnings = [f"groups are missing: {error}" for error in listed.errors]
    groups = [group for group in listed.groups if query.wants_group(group)]
    groups.sort(key=lambda group: (group.node_id, group.group_id))
    if not listed.groups and listed.advice is not None:
        warnings.append(listed.advice)
    missing = sorted({*query.groups} - {group.group_id for group in groups})
    for answer in (await describe_groups(cluster, missing, (CLASSIC,))).values():
        # A list of groups leaves out those that the user may not describe.
        if isinstance(answer, ClientError) and has_code(
            answer, ErrorCode.GROUP_AUTHORIZATION_FAILED
        ):
            raise answer
    warnings += [f"group '{group_id}' is not there" for group_id in missing]
    return groups, warnings


async def parts(
    cluster: Cluster,
    groups: Sequence[ListedGroup],
    query: LagQuery,
    at_ms: int,
    times: RecordTimes | None = None,
) -> AsyncIterator[Snapshot]:
    """Yield a snapshot of any number of groups in parts of bounded size. A group that fails does
    not affect the others.

    :param groups: by coordinator, as :func:`select_groups` returns them
    :param at_ms: time of the snapshot, since the epoch
    :param times: of earlier snapshots, with the limit of requests for new ones
    :raises ClientError: the cluster cannot be reached
    """
    leaders = PartitionLeaders(cluster)
    times = times or RecordTimes()
    times.begin()
    for group in groups:
        cluster.coordinators.assume(group.group_id, group.node_id)
    if cluster.cluster_id is None:
        await cluster.metadata()
    read: list[GroupPositions] = []
    for start in range(0, len(groups), GROUPS_AT_ONCE):
        some = groups[start : start + GROUPS_AT_ONCE]
        for positions in (await read_positions(leaders, some, query)).values():
            if isinstance(positions, GroupPositions) and (positions.size or query.all_topics):
                read.append(positions)
        if start + GROUPS_AT_ONCE >= len(groups) or sum(at.size for at in read) >= ROWS_AT_ONCE:
            lags = await measure(leaders, read, query, at_ms, times)
            warnings = list(leaders.problems)
            yield Snapshot(
                groups=lags, warnings=warnings, at_ms=at_ms, cluster_id=cluster.cluster_id
            )
            read = []
            leaders.problems.clear()


@dataclass(slots=True)
class _Place:
    """Where a group reads on in a partition, and what is left there; None if unknown.

    :param offset: the position
    :param committed_only: True if records of open and aborted transactions are not looked for
    :param start: the log start offset, where the group has no position, or one before the end
    :param reads_from: the position, or the log start if that is later
    """

    key: TopicPartition
    at: Position | None
    offset: int | None
    end: int | None
    stable: int | None
    committed_only: bool
    start: int | None = None
    reads_from: int = 0
    records: int | None = None
    seconds: float | None = None

    def count(self, complete_count: int | None, read_committed: bool) -> None:
        """Set the number of records that are left."""
        end = self.stable if read_committed and self.committed_only else self.end
        self.records = records_left(self.offset, self.start, end, complete_count or 0)
        self.reads_from = max(self.offset or 0, self.start or 0)
        if isinstance(self.at, ShareOffset) and self.offset is not None and complete_count is None:
            # The broker's own number is older than the end.
            lag = self.at.lag
            self.records = None if self.records is None or lag is None else min(self.records, lag)


async def measure(
    leaders: PartitionLeaders,
    groups: Sequence[GroupPositions],
    query: LagQuery,
    at_ms: int,
    times: RecordTimes,
) -> list[GroupLag]:
    """Return the lag of groups whose positions are known.

    :param at_ms: time of the snapshot, since the epoch
    """
    partitions = {partition for group in groups for partition in group.partitions()}
    # After the positions, and in this order: no position can be beyond the end that is read last.
    stable = await leaders.offsets(partitions, LATEST, read_committed=True)
    end = await leaders.offsets(partitions, LATEST)
    places = [
        [
            _Place(key, at, offset_of(at), end.get(key), stable.get(key), group.type != SHARE)
            for key in sorted(group.partitions())
            for at in (group.positions.get(key),)
        ]
        for group in groups
    ]
    behind = [
        place
        for of_group in places
        for place in of_group
        if place.end is not None and (place.offset is None or place.offset < place.end)
    ]
    start = await leaders.offsets({place.key for place in behind}, EARLIEST) if behind else {}
    for place in behind:
        place.start = start.get(place.key)
    for group, of_group in zip(groups, places, strict=True):
        for place in of_group:
            place.count(group.complete_counts.get(place.key), query.read_committed)
    if query.time_lag:
        all_places = [place for of_group in places for place in of_group]
        await _look_at_records(all_places, query, leaders, times, at_ms)
    return [
        group_lag(
            group.group_id,
            group.type,
            group.state,
            group.members,
            [_partition_lag(group, place) for place in of_group],
        )
        for group, of_group in zip(groups, places, strict=True)
    ]


async def _look_at_records(
    places: Sequence[_Place],
    query: LagQuery,
    leaders: PartitionLeaders,
    times: RecordTimes,
    at_ms: int,
) -> None:
    """Set the time lags of places. A lag of which no record is left becomes 0.

    Markers of transactions are no records, and neither are aborted records, except for share
    groups, which get them unless configured otherwise. Equal positions of several groups are looked
    up once.
    """
    pending = [place for place in places if place.records != 0 and place.end is not None]
    for committed_only in (True, False):
        ends: dict[TopicPartition, int] = {}
        positions: dict[TopicPartition, set[int]] = {}
        searched = []
        for place in pending:
            end = place.stable if committed_only else place.end
            if place.committed_only == committed_only and end is not None and place.records != 0:
                ends[place.key] = end
                positions.setdefault(place.key, set()).add(place.reads_from)
                searched.append(place)
        found = await times.search(
            leaders, positions, ends, read_committed=committed_only, now_ms=at_ms
        )
        for place in searched:
            first_ms = found[place.key].get(place.reads_from, NO_TIMESTAMP)
            if first_ms is None and committed_only:
                # What is left belongs to open transactions, and may still be committed.
                place.committed_only = False
                place.reads_from = max(place.reads_from, ends[place.key])
                left = 0 if query.read_committed else max(0, (place.end or 0) - place.reads_from)
                place.records = left if left == 0 or place.records is not None else None
            elif first_ms is None:
                place.records = 0
            elif place.records is not None and first_ms != NO_TIMESTAMP:
                place.seconds = max(0, at_ms - first_ms) / 1000
    for place in places:
        if place.records == 0:
            place.seconds = 0.0


def _partition_lag(group: GroupPositions, place: _Place) -> PartitionLag:
    key, at = place.key, place.at
    held, delivery_count = group.held.get(key, (None, None))
    return PartitionLag(
        topic=key[0],
        partition=key[1],
        position=place.offset,
        records=place.records,
        seconds=place.seconds,
        log_start_offset=place.start,
        end_offset=place.end,
        last_stable_offset=place.stable,
        delivery_complete_count=group.complete_counts.get(key),
        leader_epoch=None if at is None else at.leader_epoch,
        metadata=at.metadata if isinstance(at, CommittedOffset) else None,
        members=group.holders.get(key, ()),
        held=held,
        delivery_count=delivery_count,
    )
