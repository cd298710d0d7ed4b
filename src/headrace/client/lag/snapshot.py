"""A snapshot of the progress and lag of all groups of a cluster, from few requests.

A number of groups at a time is described, and their positions are read, with one request of each
kind to each coordinator. Then the ends of all their partitions are read, with two requests to each
broker, the starts of those where a group is behind, and then the timestamps of the records at the
positions. Reading the ends after the positions keeps lags from being negative.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError, UnknownGroup, has_code, is_missing_group
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
    CommittedOffset,
    ShareOffset,
    committed_offsets,
    share_offsets,
)
from headrace.client.share_state import share_states
from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.record_batch import NO_TIMESTAMP
from headrace.protocol.share_inspection import SpanState

from .model import EVERYTHING, GroupLag, LagQuery, PartitionLag, Snapshot, group_lag, records_left
from .partition_leaders import PartitionLeaders
from .times import RecordTimes

GROUPS_AT_ONCE = 50
"""The number of groups in one request."""
ROWS_AT_ONCE = 100_000
"""The approximate limit of partitions in memory; the groups of one request may exceed it."""


Position = CommittedOffset | ShareOffset


@dataclass(slots=True)
class GroupPositions:
    """The positions and members of a group.

    :param members: those that hold a partition of the query, or all
    :param holders: partition → the members that it is assigned to
    :param positions: partition → position; None for a partition that the call has named
    :param complete_counts: share groups: partition → delivery-complete count
    :param held: share groups on headrace: partition → records that members hold, and the largest
        delivery count
    """

    group_id: str
    type: str
    state: str
    members: list[GroupMember] = field(default_factory=list)
    holders: dict[TopicPartition, list[GroupMember]] = field(default_factory=dict)
    positions: dict[TopicPartition, Position | None] = field(default_factory=dict)
    complete_counts: dict[TopicPartition, int] = field(default_factory=dict)
    held: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The approximate number of partitions."""
        return max(len(self.holders), len(self.positions))

    def partitions(self) -> set[TopicPartition]:
        """Return all partitions of the group."""
        return self.holders.keys() | self.positions.keys()

    def within(self, partitions: Collection[TopicPartition]) -> GroupPositions:
        """Return the positions in some of the partitions."""
        return replace(
            self,
            holders={key: held for key, held in self.holders.items() if key in partitions},
            positions={key: at for key, at in self.positions.items() if key in partitions},
        )


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
        if isinstance(answer, ClientError) and has_code(
            answer, ErrorCode.GROUP_AUTHORIZATION_FAILED
        ):
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


# Positions ----------------------------------------------------------------------------------------


async def read_positions(
    leaders: PartitionLeaders,
    groups: Sequence[ListedGroup],
    query: LagQuery,
    topics: Mapping[str, Collection[str]] | None = None,
) -> dict[str, GroupPositions | ClientError]:
    """Describe groups, and read their positions. Problems are added to ``leaders.problems``.

    :param topics: group id → topics of which all partitions are included, with a position or not
    :returns: group id → positions, or why they are unknown
    """
    cluster = leaders.cluster
    read = {
        group.group_id: GroupPositions(group.group_id, group.type, group.state) for group in groups
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
        else:
            read[group_id].positions = {
                key: at for key, at in offsets.items() if query.wants_topic(key[0])
            }
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
        elif not read[group_id].positions:
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
                    read[group_id].positions.setdefault((topic, number))
    for group_id, error in errors.items():
        leaders.problems[f"group '{group_id}' is left out: {error}"] = None
    return {**read, **errors}


async def _describe(
    cluster: Cluster, ids: Mapping[str, Sequence[str]]
) -> dict[str, GroupDescription | ClientError]:
    """Describe groups.

    :param ids: type → group ids
    """
    answers = await asyncio.gather(*(describe_groups(cluster, ids[kind], (kind,)) for kind in ids))
    return {group_id: answer for of_kind in answers for group_id, answer in of_kind.items()}


def _add_members(
    group: GroupPositions, description: GroupDescription, query: LagQuery, leaders: PartitionLeaders
) -> None:
    group.state = description.state
    for member in description.members:
        partitions = [key for key in member.assignment if query.wants_topic(key[0])]
        if group.type == STREAMS:
            partitions = list(filter(leaders.may_exist, partitions))
        if partitions or query.all_topics:
            group.members.append(member)
        for partition in partitions:
            group.holders.setdefault(partition, []).append(member)


async def _add_share_offsets(
    leaders: PartitionLeaders, groups: Sequence[GroupPositions], query: LagQuery
) -> dict[str, ClientError]:
    """Add the positions of share groups, with their delivery-complete counts.

    A broker reports the lag but not the delivery-complete count, which follows from the end offset
    that it used. So the end offsets are read before and after the lag: if they are equal, the
    broker used that one. A group with an end that was unknown or has moved is asked once more;
    if the end moves again, the count is unknown.

    :returns: group id → why there are none
    """
    errors: dict[str, ClientError] = {}
    before: dict[TopicPartition, int] = {}
    if query.complete_counts:  # of the partitions of the members first
        before = await leaders.offsets({key for group in groups for key in group.holders}, LATEST)
    pending = list(groups)
    for is_retry in (False, True):
        answers = await share_offsets(leaders.cluster, [group.group_id for group in pending])
        with_lag = [key for answer in answers.values() for key in _lags(answer)]
        after = await leaders.offsets(with_lag, LATEST) if query.complete_counts else {}
        moved = []
        for group in pending:
            answer = answers[group.group_id]
            if isinstance(answer, ClientError):
                if not is_retry:
                    errors[group.group_id] = answer
                continue
            group.positions = {
                key: None if isinstance(at, ClientError) else at
                for key, at in answer.items()
                if query.wants_topic(key[0])
            }
            group.complete_counts = {
                key: max(0, after[key] - unfinished)
                for key, unfinished in _lags(answer).items()
                if key in after and after[key] == before.get(key)
            }
            if any(before.get(key) != after.get(key) for key in _lags(answer)):
                moved.append(group)
        before.update(after)
        pending = moved
        if not pending or not query.complete_counts:
            break
    return errors


def _lags(
    answer: Mapping[TopicPartition, ShareOffset | ClientError] | ClientError,
) -> dict[TopicPartition, int]:
    """Return partition → start offset + lag, where the lag is known."""
    return {
        key: at.start_offset + at.lag
        for key, at in ({} if isinstance(answer, ClientError) else answer).items()
        if isinstance(at, ShareOffset) and at.start_offset is not None and at.lag is not None
    }


async def _add_held(leaders: PartitionLeaders, group: GroupPositions) -> None:
    """Add what is in flight, as headrace's broker tells it."""
    try:
        states = await share_states(leaders.cluster, group.group_id, group.partitions())
    except ClientError as error:
        leaders.problems[f"group '{group.group_id}': {error}"] = None
        return
    for key, state in states.items():
        if state.spans is not None and not state.is_cut:
            held = [span.record_count for span in state.spans if span.state is SpanState.LOCKED]
            most = max((span.delivery_count for span in state.spans), default=0)
            group.held[key] = sum(held), most


# Lags ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Place:
    """Where a group reads on in a partition, and what is left there; None if unknown.

    :param committed_only: True if records of open and aborted transactions are not looked for
    :param start: the log start offset, where the group has no position, or one before the end
    :param reads_from: the position, or the log start if that is later
    """

    group: GroupPositions
    key: TopicPartition
    end: int | None
    stable: int | None
    committed_only: bool
    start: int | None = None
    reads_from: int = 0
    records: int | None = None
    seconds: float | None = None

    @property
    def at(self) -> Position | None:
        """What the group has stored."""
        return self.group.positions.get(self.key)

    @property
    def offset(self) -> int | None:
        """The committed offset, or the start offset of a share group."""
        at = self.at
        if isinstance(at, ShareOffset):
            return at.start_offset
        return None if at is None else at.offset

    def count(self, read_committed: bool) -> None:
        """Set the number of records that are left."""
        at, offset = self.at, self.offset
        end = self.stable if read_committed and self.committed_only else self.end
        complete_count = self.group.complete_counts.get(self.key)
        self.records = records_left(offset, self.start, end, complete_count or 0)
        self.reads_from = max(offset or 0, self.start or 0)
        if isinstance(at, ShareOffset) and offset is not None and complete_count is None:
            # The broker's own number is older than the end.
            lag = at.lag
            self.records = None if self.records is None or lag is None else min(self.records, lag)

    def lag(self) -> PartitionLag:
        """Return what is known of the place."""
        group, key, at = self.group, self.key, self.at
        held, delivery_count = group.held.get(key, (None, None))
        return PartitionLag(
            *key,
            position=self.offset,
            records=self.records,
            seconds=self.seconds,
            log_start_offset=self.start,
            end_offset=self.end,
            last_stable_offset=self.stable,
            delivery_complete_count=group.complete_counts.get(key),
            leader_epoch=None if at is None else at.leader_epoch,
            metadata=at.metadata if isinstance(at, CommittedOffset) else None,
            members=group.holders.get(key, ()),
            held=held,
            delivery_count=delivery_count,
        )


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
        _Place(group, key, end.get(key), stable.get(key), group.type != SHARE)
        for group in groups
        for key in sorted(group.partitions())
    ]
    behind = [
        place
        for place in places
        if place.end is not None and (place.offset is None or place.offset < place.end)
    ]
    start = await leaders.offsets({place.key for place in behind}, EARLIEST) if behind else {}
    for place in behind:
        place.start = start.get(place.key)
    for place in places:
        place.count(query.read_committed)
    if query.time_lag:
        await _look_at_records(places, query, leaders, times, at_ms)
    lags: dict[str, list[PartitionLag]] = {group.group_id: [] for group in groups}
    for place in places:
        lags[place.group.group_id].append(place.lag())
    return [
        group_lag(group.group_id, group.type, group.state, group.members, lags[group.group_id])
        for group in groups
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
