"""A snapshot of the progress and lag of all groups of a cluster, from few requests.

A number of groups at a time is described, and their positions are read. Then the ends of all their
partitions are read, with two requests to each broker, the starts of those where a group is behind,
and then the timestamps of the records at the positions. Reading the ends after the positions keeps
lags from being negative.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError, has_code
from headrace.client.groups import CLASSIC, SHARE, ListedGroup, describe_groups, list_groups
from headrace.client.offsets import EARLIEST, LATEST, CommittedOffset, ShareOffset
from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.record_batch import NO_TIMESTAMP

from .model import GroupLag, LagQuery, PartitionLag, Snapshot, group_lag, records_left
from .partition_leaders import PartitionLeaders
from .positions import GroupPositions, read_positions
from .times import RecordTimes, Times

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


Offsets = Mapping[TopicPartition, int]


class _Ends(NamedTuple):
    """The offsets of the partitions whose leader answered.

    :param start: the log start offsets, where a group has no position, or one before the end
    :param stable: the last stable offsets
    """

    start: Offsets
    end: Offsets
    stable: Offsets


@dataclass(slots=True)
class _Place:
    """Where a group reads on in a partition, and what is left there.

    :param reads_from: the position, or the log start if that is later
    :param committed_only: True if records of open and aborted transactions are not looked for
    :param records: None if unknown
    """

    key: TopicPartition
    reads_from: int
    committed_only: bool
    records: int | None
    seconds: float | None = None


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
    behind = {
        key
        for group in groups
        for key in group.partitions()
        if key in end and ((offset := group.offset(key)) is None or offset < end[key])
    }
    start = await leaders.offsets(behind, EARLIEST) if behind else {}
    ends = _Ends(start, end, stable)
    places = [
        [_place(group, key, query, ends) for key in sorted(group.partitions())] for group in groups
    ]
    if query.time_lag:
        await _look_at_records(
            [place for of_group in places for place in of_group], query, ends, leaders, times, at_ms
        )
    return [
        group_lag(
            group.group_id,
            group.type,
            group.state,
            group.members,
            [_partition_lag(group, place, ends) for place in of_group],
        )
        for group, of_group in zip(groups, places, strict=True)
    ]


def _place(group: GroupPositions, key: TopicPartition, query: LagQuery, ends: _Ends) -> _Place:
    offset, start, is_share = group.offset(key), ends.start.get(key), group.type == SHARE
    end = (ends.stable if query.read_committed and not is_share else ends.end).get(key)
    complete_count = group.complete_counts.get(key)
    records = records_left(offset, start, end, complete_count or 0)
    at = group.positions.get(key)
    if isinstance(at, ShareOffset) and offset is not None and complete_count is None:
        # The broker's own number is older than the end.
        records = None if records is None or at.lag is None else min(records, max(0, at.lag))
    return _Place(key, max(offset or 0, start or 0), not is_share, records)


async def _look_at_records(
    places: Sequence[_Place],
    query: LagQuery,
    ends: _Ends,
    leaders: PartitionLeaders,
    times: RecordTimes,
    at_ms: int,
) -> None:
    """Set the time lags of places. A lag of which no record is left becomes 0.

    Markers of transactions are no records, and neither are aborted records, except for share
    groups, which get them unless configured otherwise. Equal positions of several groups are looked
    up once.
    """

    async def search(committed_only: bool) -> Times:
        ends_of = ends.stable if committed_only else ends.end
        positions: dict[TopicPartition, set[int]] = {}
        for place in places:
            if (
                place.records != 0
                and place.committed_only == committed_only
                and place.key in ends_of
                and place.key in ends.end
            ):
                positions.setdefault(place.key, set()).add(place.reads_from)
        return await times.search(
            leaders, positions, ends_of, read_committed=committed_only, now_ms=at_ms
        )

    def timestamp_ms(place: _Place) -> int | None:
        return found[place.committed_only].get(place.key, {}).get(place.reads_from, NO_TIMESTAMP)

    found = {True: await search(True)}
    for place in places:
        if place.records != 0 and place.committed_only and timestamp_ms(place) is None:
            # What is left belongs to open transactions.
            place.reads_from = max(place.reads_from, ends.stable[place.key])
            left = 0 if query.read_committed else max(0, ends.end[place.key] - place.reads_from)
            place.records = left if left == 0 or place.records is not None else None
            place.committed_only = False
    found[False] = await search(False)
    for place in places:
        if place.records == 0:
            place.seconds = 0.0
            continue
        first_ms = timestamp_ms(place)
        if first_ms is None:
            place.records, place.seconds = 0, 0.0
        elif place.records is not None and first_ms != NO_TIMESTAMP:
            place.seconds = max(0, at_ms - first_ms) / 1000


def _partition_lag(group: GroupPositions, place: _Place, ends: _Ends) -> PartitionLag:
    key = place.key
    at = group.positions.get(key)
    held, delivery_count = group.held.get(key, (None, None))
    return PartitionLag(
        topic=key[0],
        partition=key[1],
        position=group.offset(key),
        records=place.records,
        seconds=place.seconds,
        log_start_offset=ends.start.get(key),
        end_offset=ends.end.get(key),
        last_stable_offset=ends.stable.get(key),
        delivery_complete_count=group.complete_counts.get(key),
        leader_epoch=None if at is None else at.leader_epoch,
        metadata=at.metadata if isinstance(at, CommittedOffset) else None,
        members=group.holders.get(key, ()),
        held=held,
        delivery_count=delivery_count,
    )
