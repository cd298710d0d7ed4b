"""A snapshot of the progress and lag of all groups of a cluster, from few requests.

A number of groups at a time is described, and their positions are read, with one request of each
kind to each coordinator. Then the ends of all their partitions are read, with two requests to each
broker, the starts of those where a group is behind, and then the timestamps of the records at the
positions. Reading the ends after the positions keeps lags from being negative.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.client.cluster import Cluster
from headrace.client.errors import Answers, ClientError, UnknownGroup, has_code, is_missing_group
from headrace.client.groups import (
    CLASSIC,
    SHARE,
    STREAMS,
    TYPES,
    GroupDescription,
    GroupMember,
    ListedGroup,
    describe_groups,
    list_groups,
)
from headrace.client.offsets import (
    EARLIEST,
    LATEST,
    ShareOffset,
    committed_offsets,
    share_offsets,
)
from headrace.client.share_state import share_states
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.record_batch import NO_TIMESTAMP

from .model import EVERYTHING, GroupLag, LagQuery, PartitionLag, Snapshot, group_lag, records_left
from .partition_leaders import PartitionLeaders
from .times import RecordTimes

GROUPS_AT_ONCE = 50
"""The number of groups in one request."""
ROWS_AT_ONCE = 100_000
"""The approximate limit of partitions in memory; the groups of one request may exceed it."""


@dataclass(slots=True)
class GroupProgress:
    """The members of a group and its partitions, as :func:`read_positions` fills them, and then
    :func:`measure`.

    :param members: those that hold a partition of the query, or all
    """

    group_id: str
    type: str
    state: str
    members: list[GroupMember] = field(default_factory=list)
    partitions: dict[TopicPartition, PartitionLag] = field(default_factory=dict)

    def partition(self, key: TopicPartition) -> PartitionLag:
        """Return what is known of a partition, which is the group's from now on."""
        lag = self.partitions.get(key)
        if lag is None:
            lag = self.partitions[key] = PartitionLag(*key)
        return lag


async def snapshot(cluster: Cluster, query: LagQuery = EVERYTHING) -> Snapshot:
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
        if has_code(answer, ErrorCode.GROUP_AUTHORIZATION_FAILED):
            raise answer
    warnings += [str(UnknownGroup(group_id)) for group_id in missing]
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
    for listed in groups:
        cluster.coordinators.setdefault(listed.group_id, listed.node_id)
    if cluster.cluster_id is None:
        await cluster.metadata()
    read: list[GroupProgress] = []
    for start in range(0, len(groups), GROUPS_AT_ONCE):
        some = groups[start : start + GROUPS_AT_ONCE]
        for group in (await read_positions(leaders, some, query)).values():
            if isinstance(group, GroupProgress) and (group.partitions or query.all_topics):
                read.append(group)
        row_count = sum(len(group.partitions) for group in read)
        if start + GROUPS_AT_ONCE >= len(groups) or row_count >= ROWS_AT_ONCE:
            lags = await measure(leaders, read, query, at_ms, times)
            warnings = list(leaders.problems)
            yield Snapshot(
                groups=lags, warnings=warnings, at_ms=at_ms, cluster_id=cluster.cluster_id
            )
            read = []
            leaders.problems.clear()


# Positions ----------------------------------------------------------------------------------------


async def read_positions(
    leaders: PartitionLeaders,
    groups: Sequence[ListedGroup],
    query: LagQuery,
    topics: Mapping[str, Collection[str]] | None = None,
) -> Answers[str, GroupProgress]:
    """Describe groups, and read their positions. Problems are added to ``leaders.problems``.

    :param topics: group id → topics of which all partitions are included, with a position or not
    :returns: group id → progress, or why it is unknown
    """
    cluster = leaders.cluster
    read = {
        group.group_id: GroupProgress(group.group_id, group.type, group.state) for group in groups
    }
    errors: dict[str, ClientError] = {}
    ids = {kind: [group.group_id for group in groups if group.type == kind] for kind in TYPES}
    committing = [group.group_id for group in groups if group.type != SHARE]
    committed, descriptions = await asyncio.gather(
        committed_offsets(cluster, committing), _describe(cluster, ids if query.members else {})
    )
    for group_id, offsets in committed.items():
        if isinstance(offsets, ClientError):
            errors[group_id] = offsets
            continue
        for key, commit in offsets.items():
            if query.wants_topic(key[0]):
                lag = read[group_id].partition(key)
                lag.position, lag.leader_epoch, lag.metadata = commit
    await leaders.learn(
        topic
        for group_id in ids[STREAMS]
        if isinstance(answer := descriptions.get(group_id), GroupDescription)
        for member in answer.members
        for topic, _ in member.assignment
    )
    for group_id, answer in descriptions.items():
        if not isinstance(answer, ClientError):
            _add_members(read[group_id], answer, query, leaders)
        elif not read[group_id].partitions:
            errors.setdefault(group_id, answer)
        elif not is_missing_group(answer):
            leaders.problems[f"group '{group_id}': {answer}"] = None
    shared = [read[group_id] for group_id in ids[SHARE] if group_id not in errors]
    errors |= await _add_share_offsets(leaders, shared, query)
    if query.held:
        tellers = [group for group in shared if group.group_id not in errors]
        await asyncio.gather(*(_add_held(leaders, group) for group in tellers))
    if topics:
        await leaders.learn({topic for names in topics.values() for topic in names})
        for group_id, names in topics.items():
            for topic in names:
                for number in leaders.partitions(topic) or ():
                    read[group_id].partition((topic, number))
    for group_id, error in errors.items():
        leaders.problems[f"group '{group_id}' is left out: {error}"] = None
    return {**read, **errors}


async def _describe(
    cluster: Cluster, ids: Mapping[str, Sequence[str]]
) -> Answers[str, GroupDescription]:
    """Describe groups.

    :param ids: type → group ids
    """
    answers = await asyncio.gather(*(describe_groups(cluster, ids[kind], (kind,)) for kind in ids))
    return {group_id: answer for of_kind in answers for group_id, answer in of_kind.items()}


def _add_members(
    group: GroupProgress, description: GroupDescription, query: LagQuery, leaders: PartitionLeaders
) -> None:
    group.state = description.state
    holders: defaultdict[TopicPartition, list[GroupMember]] = defaultdict(list)
    for member in description.members:
        partitions = [key for key in member.assignment if query.wants_topic(key[0])]
        if group.type == STREAMS:
            partitions = list(filter(leaders.may_exist, partitions))
        if partitions or query.all_topics:
            group.members.append(member)
        for partition in partitions:
            holders[partition].append(member)
    for partition, members in holders.items():
        group.partition(partition).members = members


async def _add_share_offsets(
    leaders: PartitionLeaders, groups: Sequence[GroupProgress], query: LagQuery
) -> dict[str, ClientError]:
    """Add the positions of share groups, their lags, and their delivery-complete counts.

    A broker reports the lag but not the delivery-complete count, which follows from the end offset
    that it used. So the end offsets are read before and after the lag: if they are equal, the
    broker used that one. A group with an end that was unknown or has moved is asked once more;
    if the end moves again, the count is unknown.

    :returns: group id → why there are none
    """
    errors: dict[str, ClientError] = {}
    pending = {group.group_id: group for group in groups}
    before: dict[TopicPartition, int] = {}
    if query.complete_counts:  # of the partitions of the members first
        before = await leaders.offsets(
            {key for group in groups for key in group.partitions}, LATEST
        )
    for is_retry in (False, True):
        for group_id, answer in (await share_offsets(leaders.cluster, list(pending))).items():
            if not isinstance(answer, ClientError):
                _add_offsets(pending[group_id], answer, query)
                continue
            del pending[group_id]
            if not is_retry:
                errors[group_id] = answer
        if not query.complete_counts:
            break
        told = [
            lag
            for group in pending.values()
            for lag in group.partitions.values()
            if lag.records is not None
        ]
        after = await leaders.offsets({lag.key for lag in told}, LATEST)
        for lag in told:
            end = after.get(lag.key)
            if end is not None and end == before.get(lag.key):
                finished_to = (lag.position or 0) + (lag.records or 0)
                lag.delivery_complete_count = max(0, end - finished_to)
        before = after
        pending = {
            group_id: group
            for group_id, group in pending.items()
            if any(
                lag.records is not None and lag.delivery_complete_count is None
                for lag in group.partitions.values()
            )
        }
    return errors


def _add_offsets(
    group: GroupProgress,
    offsets: Mapping[TopicPartition, ShareOffset | ClientError],
    query: LagQuery,
) -> None:
    """Add positions, and as ``records`` the lags that the broker tells."""
    for key, offset in offsets.items():
        if not query.wants_topic(key[0]):
            continue
        if isinstance(offset, ClientError):
            offset = ShareOffset()
        lag = group.partition(key)
        lag.position, lag.records = offset.start_offset, offset.lag
        lag.leader_epoch, lag.delivery_complete_count = offset.leader_epoch, None


async def _add_held(leaders: PartitionLeaders, group: GroupProgress) -> None:
    """Add what is in flight, as headrace's broker tells it."""
    try:
        states = await share_states(leaders.cluster, group.group_id, group.partitions)
    except ClientError as error:
        leaders.problems[f"group '{group.group_id}': {error}"] = None
        return
    for key, state in states.items():
        if state.spans is not None and not state.is_cut:
            lag = group.partition(key)
            lag.held = sum(span.record_count for span in state.spans if span.state == "locked")
            lag.delivery_count = max((span.delivery_count for span in state.spans), default=0)


# Lags ---------------------------------------------------------------------------------------------


async def measure(
    leaders: PartitionLeaders,
    groups: Sequence[GroupProgress],
    query: LagQuery,
    at_ms: int,
    times: RecordTimes,
) -> list[GroupLag]:
    """Return the lag of groups whose positions are known.

    :param at_ms: time of the snapshot, since the epoch
    """
    places = [(lag, group.type == SHARE) for group in groups for lag in group.partitions.values()]
    keys = {key for group in groups for key in group.partitions}
    # After the positions, and in this order: no position can be beyond the end that is read last.
    stable = await leaders.offsets(keys, LATEST, read_committed=True)
    end = await leaders.offsets(keys, LATEST)
    behind = []
    for lag, _ in places:
        lag.end_offset, lag.last_stable_offset = end.get(lag.key), stable.get(lag.key)
        if lag.end_offset is not None and (lag.position is None or lag.position < lag.end_offset):
            behind.append(lag)
    start = await leaders.offsets({lag.key for lag in behind}, EARLIEST)
    for lag in behind:
        lag.log_start_offset = start.get(lag.key)
    for lag, is_share in places:
        _count(lag, is_share, query)
    if query.time_lag:
        await _look_at_records(places, query, leaders, times, at_ms)
    return [
        group_lag(
            group.group_id,
            group.type,
            group.state,
            group.members,
            [lag for _, lag in sorted(group.partitions.items())],
        )
        for group in groups
    ]


def _count(lag: PartitionLag, is_share: bool, query: LagQuery) -> None:
    """Set the number of records that are left."""
    told, count = lag.records, lag.delivery_complete_count
    end = lag.last_stable_offset if query.read_committed and not is_share else lag.end_offset
    lag.records = records_left(lag.position, lag.log_start_offset, end, count or 0)
    if is_share and lag.position is not None and count is None:
        # The broker's own number is older than the end.
        lag.records = None if lag.records is None or told is None else min(lag.records, told)


async def _look_at_records(
    places: Sequence[tuple[PartitionLag, bool]],
    query: LagQuery,
    leaders: PartitionLeaders,
    times: RecordTimes,
    at_ms: int,
) -> None:
    """Set the time lags. A lag of which no record is left becomes 0.

    Markers of transactions are no records, and neither are aborted records, except for share
    groups, which get them unless configured otherwise. Equal positions of several groups are looked
    up once.

    :param places: each partition of a group, and whether it is a share group's
    """

    async def set_ages(begins: Sequence[_Begin], *, committed: bool) -> list[_Begin]:
        """Set the ages of first records; return where none is."""
        ends = {
            lag.key: (lag.last_stable_offset if committed else lag.end_offset) or 0
            for lag, _ in begins
        }
        positions = {(lag.key, offset) for lag, offset in begins}
        first_ms = await times.search(
            leaders, positions, ends, read_committed=committed, now_ms=at_ms
        )
        ended = []
        for lag, offset in begins:
            time_ms = first_ms.get((lag.key, offset), NO_TIMESTAMP)
            if time_ms is None:
                ended.append((lag, offset))
            elif lag.records is not None and time_ms != NO_TIMESTAMP:
                lag.seconds = max(0, at_ms - time_ms) / 1000
        return ended

    committed: list[_Begin] = []
    others: list[_Begin] = []
    for lag, is_share in places:
        if lag.records != 0 and lag.end_offset is not None:
            begin = lag, max(lag.position or 0, lag.log_start_offset or 0)
            if is_share:
                others.append(begin)
            elif lag.last_stable_offset is not None:
                committed.append(begin)
    for lag, offset in await set_ages(committed, committed=True):
        # What is left belongs to open transactions, and may still be committed.
        offset = max(offset, lag.last_stable_offset or 0)
        left = 0 if query.read_committed else max(0, (lag.end_offset or 0) - offset)
        if left == 0 or lag.records is not None:
            lag.records = left
        if left:
            others.append((lag, offset))
    for lag, _ in await set_ages(others, committed=False):
        lag.records = 0
    for lag, _ in places:
        if lag.records == 0:
            lag.seconds = 0.0


_Begin = tuple[PartitionLag, int]
"""A partition, and the offset from which the first record is looked for."""
