"""A snapshot of the progress and lag of all groups of a cluster, from few requests.

A number of groups at a time is described, and their committed offsets are fetched, with one request
of each kind to each coordinator. Then the ends of all their partitions are read, with two requests
to each broker, the starts of those where a group is behind, and then the timestamps of the records
at the committed offsets. Reading the ends after the committed offsets keeps lags from being
negative.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.coordinators import Ask
from headrace.client.errors import ClientError, RequestRefused, is_missing_group
from headrace.client.group_listing import ListedGroup, list_groups
from headrace.client.group_requests import (
    asking_for_commits,
    assigned_partitions,
    describe_classic_groups,
    describe_consumer_groups,
    describe_share_groups,
    describe_streams_groups,
    task_partitions,
)
from headrace.client.list_offsets import EARLIEST, LATEST
from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.record_batch import NO_TIMESTAMP

from .partition_leaders import PartitionLeaders
from .record_times import RepeatedTimes, Times, record_times
from .rows import LagPart, LagQuery, LagRow, records_left
from .share_progress import SharePosition, ShareProgress, share_positions, share_progress

GROUPS_AT_ONCE = 50
"""The number of groups in one request."""
ROWS_AT_ONCE = 100_000
"""The approximate limit of rows in memory; the groups of one request may exceed it."""

_SHARE, _STREAMS = "share", "streams"
_NO_STATE = SharePosition(None, None, None)
_DESCRIBE: Mapping[str, Ask[Any]] = {
    "classic": describe_classic_groups,
    "consumer": describe_consumer_groups,
    _SHARE: describe_share_groups,
    _STREAMS: describe_streams_groups,
}


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group."""

    member_id: str
    client_id: str
    host: str


@dataclass(slots=True)
class Progress:
    """The progress of one group.

    :param members: partition → the members it is assigned to
    :param idle: the members without a partition
    :param commits: partition → (committed offset, leader epoch, metadata)
    :param shared: share groups only: partition → progress
    """

    group: ListedGroup
    state: str
    members: dict[TopicPartition, list[Member]] = field(default_factory=dict)
    idle: list[Member] = field(default_factory=list)
    commits: dict[TopicPartition, tuple[int, int, str]] = field(default_factory=dict)
    shared: ShareProgress = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The approximate number of rows."""
        return max(len(self.members), len(self.commits), len(self.shared))

    def partitions(self) -> set[TopicPartition]:
        """Return all partitions of the group."""
        return self.members.keys() | self.commits.keys() | self.shared.keys()

    def position(self, partition: TopicPartition) -> int | None:
        """Return the committed offset, or the start offset of a share group."""
        if self.group.type == _SHARE:
            return self.shared.get(partition, _NO_STATE).start_offset
        commit = self.commits.get(partition)
        return None if commit is None else commit[0]

    def within(self, partitions: Collection[TopicPartition]) -> Progress:
        """Return the progress in some of the partitions."""
        return replace(
            self,
            members={one: at for one, at in self.members.items() if one in partitions},
            commits={one: at for one, at in self.commits.items() if one in partitions},
            shared={one: at for one, at in self.shared.items() if one in partitions},
        )


async def wanted_groups(cluster: Cluster, query: LagQuery) -> tuple[list[ListedGroup], list[str]]:
    """List the groups that a query selects.

    :returns: the groups by coordinator and id, and a warning for each missing group or broker
    :raises RequestRefused: a named group is hidden, because the user may not describe it
    :raises ClientError: the cluster cannot be reached
    """
    await cluster.metadata()  # fails at once, while list_groups retries
    listed, errors = await list_groups(cluster, (), query.group_types, cluster.timeout_ms)
    warnings = [f"groups are missing: {error}" for error in errors]
    groups = sorted(filter(query.wants_group, listed), key=lambda one: (one.node_id, one.group_id))
    found = {group.group_id for group in groups}
    missing = [group_id for group_id in query.groups if group_id not in found]
    await _check_permissions(cluster, missing)
    warnings += [f"group '{group_id}' is not there" for group_id in missing]
    return groups, warnings


async def _check_permissions(cluster: Cluster, group_ids: Sequence[str]) -> None:
    """Check that missing groups may be described: a list of groups leaves others out.

    :raises RequestRefused: one may not
    """
    answers = await cluster.coordinators.ask(group_ids, describe_classic_groups, cluster.timeout_ms)
    for answer in answers.values():
        if (
            isinstance(answer, RequestRefused)
            and answer.code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        ):
            raise answer


async def lag_snapshot(
    cluster: Cluster,
    groups: Sequence[ListedGroup],
    query: LagQuery,
    snapshot_time_ms: int,
    repeated: RepeatedTimes | None = None,
) -> AsyncIterator[LagPart]:
    """Yield the rows of ``groups`` in parts. A group that fails does not affect the others.

    :param snapshot_time_ms: time of the snapshot, since the epoch
    :param repeated: the timestamps of earlier snapshots, and the limit of requests for new ones
    :raises ClientError: the cluster cannot be reached
    """
    leaders = PartitionLeaders(cluster)
    if repeated is not None:
        repeated.begin()
    for group in groups:
        cluster.coordinators.assume(group.group_id, group.node_id)
    held: list[Progress] = []
    warnings: list[str] = []
    if cluster.cluster_id is None:
        await cluster.metadata()
    for start in range(0, len(groups), GROUPS_AT_ONCE):
        some = groups[start : start + GROUPS_AT_ONCE]
        held += await read_progress(cluster, some, query, leaders, warnings)
        last = start + GROUPS_AT_ONCE >= len(groups)
        if last or sum(one.size for one in held) >= ROWS_AT_ONCE:
            rows = await progress_rows(cluster, held, query, leaders, snapshot_time_ms, repeated)
            yield LagPart(rows, [*warnings, *leaders.problems])
            held, warnings = [], []
            leaders.problems.clear()


async def read_progress(
    cluster: Cluster,
    groups: Sequence[ListedGroup],
    query: LagQuery,
    leaders: PartitionLeaders,
    warnings: list[str],
) -> list[Progress]:
    """Describe groups and fetch their positions. A group that is missing or refused is left out.

    :param warnings: gets the reason for each group left out
    """
    by_type: dict[str, list[str]] = {}
    for group in groups:
        by_type.setdefault(group.type, []).append(group.group_id)
    committing = [group.group_id for group in groups if group.type != _SHARE]

    async def ask(group_ids: Sequence[str], how: Ask[Any]) -> Mapping[str, Any]:
        return (
            await cluster.coordinators.ask(group_ids, how, cluster.timeout_ms) if group_ids else {}
        )

    answers = await asyncio.gather(
        ask(committing, asking_for_commits({})),
        *(ask(by_type.get(kind, []), how) for kind, how in _DESCRIBE.items()),
    )
    committed = answers[0]
    described = {
        group_id: answer for of_kind in answers[1:] for group_id, answer in of_kind.items()
    }
    await leaders.learn(_source_topics(map(described.get, by_type.get(_STREAMS, ()))))
    known: dict[str, Progress] = {}
    for group in groups:
        progress = Progress(group, group.state)
        offsets = committed.get(group.group_id)
        if isinstance(offsets, ClientError):
            warnings.append(f"group '{group.group_id}' is left out: {offsets}")
            continue
        if offsets is not None:
            _add_commits(progress, offsets, query)
        answer = described.get(group.group_id)
        if isinstance(answer, ClientError):
            if not progress.commits or not is_missing_group(answer):
                warnings.append(f"group '{group.group_id}': {answer}")
            if not progress.commits:
                continue
        elif answer is not None:
            _add_members(progress, answer, query, leaders)
        known[group.group_id] = progress
    shared = [one for one in known.values() if one.group.type == _SHARE]
    share_ids = [one.group.group_id for one in shared]
    if query.complete_counts:
        assigned = {partition for one in shared for partition in one.members}
        progress_of = await share_progress(cluster, leaders, share_ids, assigned)
    else:
        progress_of = await share_positions(cluster, share_ids) if share_ids else {}
    for group_id, of_group in progress_of.items():
        if isinstance(of_group, ClientError):
            warnings.append(f"group '{group_id}' is left out: {of_group}")
            del known[group_id]
        else:
            known[group_id].shared = {
                key: at for key, at in of_group.items() if query.wants_topic(key[0])
            }
    return list(known.values())


def _add_commits(progress: Progress, answer: Any, query: LagQuery) -> None:
    for topic in answer.topics:
        if not query.wants_topic(topic.name):
            continue
        for p in topic.partitions:
            if p.committed_offset >= 0:
                metadata = (p.metadata or "").partition("\0")[0]  # librdkafka appends a NUL
                at = (p.committed_offset, p.committed_leader_epoch, metadata)
                progress.commits[topic.name, p.partition_index] = at


def _source_topics(answers: Iterable[Any]) -> set[str]:
    """Return the topics that members of streams groups read.

    :param answers: descriptions or errors
    """
    return {
        topic
        for answer in answers
        if answer is not None and not isinstance(answer, ClientError)
        for member in answer.members
        for topic, _ in task_partitions(answer.topology, member.assignment.active_tasks)
    }


def _add_members(
    progress: Progress, answer: Any, query: LagQuery, leaders: PartitionLeaders
) -> None:
    progress.state = str(answer.group_state)
    for one in answer.members:
        member = Member(str(one.member_id), str(one.client_id), str(one.client_host))
        if progress.group.type == "classic":
            partitions = list(assigned_partitions(one.member_assignment))
        elif progress.group.type == _STREAMS:
            tasks = task_partitions(answer.topology, one.assignment.active_tasks)
            partitions = list(filter(leaders.may_exist, tasks))
        else:
            partitions = [
                (str(t.topic_name), p)
                for t in one.assignment.topic_partitions
                for p in t.partitions
            ]
        if not partitions:
            progress.idle.append(member)
        for partition in partitions:
            if query.wants_topic(partition[0]):
                progress.members.setdefault(partition, []).append(member)


@dataclass(frozen=True, slots=True)
class _Ends:
    """The offsets of the partitions whose leader answered.

    :param start: the log start offsets, where a group has no position, or one before the end
    :param stable: the last stable offsets
    """

    start: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]
    stable: Mapping[TopicPartition, int]


async def progress_rows(
    cluster: Cluster,
    held: Sequence[Progress],
    query: LagQuery,
    leaders: PartitionLeaders,
    snapshot_time_ms: int,
    repeated: RepeatedTimes | None = None,
) -> list[LagRow]:
    """Return the rows of groups whose positions are known.

    :param snapshot_time_ms: time of the snapshot, since the epoch
    :param repeated: the timestamps of earlier snapshots, and the limit of requests for new ones
    """
    partitions = {partition for progress in held for partition in progress.partitions()}
    # After the commits, and in this order: no position can be beyond the end that is read last.
    stable = await leaders.offsets(partitions, LATEST, read_committed=True)
    end = await leaders.offsets(partitions, LATEST)
    behind = {
        key
        for progress in held
        for key in progress.partitions()
        if key in end and _is_behind(progress.position(key), end[key])
    }
    start = await leaders.offsets(behind, EARLIEST) if behind else {}
    ends = _Ends(start, end, stable)
    places = [_places(progress, query, ends) for progress in held]
    if query.time_lag:
        all_places = [one for of_group in places for one in of_group]

        async def search(positions: _Positions, end: _Offsets, read_committed: bool) -> Times:
            if repeated is None:
                return await record_times(
                    cluster, leaders, positions, end, read_committed=read_committed
                )
            return await repeated.search(
                cluster,
                leaders,
                positions,
                end,
                read_committed=read_committed,
                now_ms=snapshot_time_ms,
            )

        await _look_at_records(all_places, query, ends, snapshot_time_ms, search)
    rows: list[LagRow] = []
    for progress, of_group in zip(held, places, strict=True):
        head = (cluster.cluster_id, progress.group.group_id, progress.group.type, progress.state)
        for at in of_group:
            rows.append(_row(head, progress, at, ends, snapshot_time_ms))
        if query.all_topics:
            for worker in _workers(progress) or ([] if of_group else [(None, None, None)]):
                rows.append(LagRow(*head, None, None, *worker, *(None,) * 9, snapshot_time_ms))
    return rows


@dataclass(slots=True)
class _Place:
    """The position of a group in one partition.

    :param committed_only: True if records of open and aborted transactions are not looked for
    :param position: the committed offset, or the start offset of a share group
    :param reads_from: the position, or the log start if that is later
    :param time_lag_ms: set by :func:`_look_at_records`
    """

    key: TopicPartition
    committed_only: bool
    position: int | None
    reads_from: int
    delivery_complete_count: int | None
    lag: int | None
    leader_epoch: int | None
    metadata: str | None
    time_lag_ms: int | None = None


def _is_behind(position: int | None, end: int) -> bool:
    return position is None or position < end


def _places(progress: Progress, query: LagQuery, ends: _Ends) -> list[_Place]:
    places = []
    is_share = progress.group.type == _SHARE
    for key in sorted(progress.partitions()):
        position, start, end = progress.position(key), ends.start.get(key), ends.end.get(key)
        count, leader_epoch, metadata = None, None, None
        if is_share:
            at = progress.shared.get(key, _NO_STATE)
            count, leader_epoch = at.delivery_complete_count, at.leader_epoch
            lag = records_left(position, start, end, count or 0)
            if count is None and position is not None and lag is not None:
                lag = None if at.lag is None else min(lag, max(0, at.lag))
        else:
            if (commit := progress.commits.get(key)) is not None:
                _, epoch, metadata = commit
                leader_epoch = epoch if epoch >= 0 else None
            target = ends.stable.get(key) if query.read_committed else end
            lag = records_left(position, start, target)
        reads_from = max(position or 0, start or 0)
        places.append(
            _Place(key, not is_share, position, reads_from, count, lag, leader_epoch, metadata)
        )
    return places


def _workers(progress: Progress) -> list[tuple[str | None, str | None, str | None]]:
    """Return the columns of the members without a partition."""
    return [(one.member_id, one.client_id, one.host) for one in progress.idle]


_Positions = Mapping[TopicPartition, Collection[int]]
_Offsets = Mapping[TopicPartition, int]
_Search = Callable[[_Positions, _Offsets, bool], Awaitable[Times]]


async def _look_at_records(
    places: Sequence[_Place],
    query: LagQuery,
    ends: _Ends,
    snapshot_time_ms: int,
    search: _Search,
) -> None:
    """Set the time lags of places. A lag of which no record is left becomes 0.

    Markers of transactions are no records, and neither are aborted records, except for share
    groups, which get them unless configured otherwise. Equal positions of several groups are looked
    up once.

    :param search: reads the records at positions
    """
    times = {True: await search(_behind_at(places, True, ends.stable), ends.stable, True)}
    for at in places:
        if at.lag and at.committed_only and _is_empty(times[True], at):
            # What is left belongs to open transactions.
            at.reads_from = max(at.reads_from, ends.stable[at.key])
            at.lag = 0 if query.read_committed else max(0, ends.end[at.key] - at.reads_from)
            at.committed_only = False
    times[False] = await search(_behind_at(places, False, ends.end), ends.end, False)
    for at in places:
        if at.lag and _is_empty(times[at.committed_only], at):
            at.lag = 0
        if at.lag is not None:
            age_ms = _age_ms(times[at.committed_only], at, snapshot_time_ms)
            at.time_lag_ms = age_ms if at.lag else 0


def _behind_at(places: Sequence[_Place], committed_only: bool, ends: _Offsets) -> _Positions:
    """Return the positions with a lag, by partition."""
    positions: dict[TopicPartition, set[int]] = {}
    for at in places:
        if at.lag and at.committed_only == committed_only and at.key in ends:
            positions.setdefault(at.key, set()).add(at.reads_from)
    return positions


def _is_empty(times: Times, at: _Place) -> bool:
    """Return whether no record follows a place, as far as it was searched."""
    return times.get(at.key, {}).get(at.reads_from, NO_TIMESTAMP) is None


def _age_ms(times: Times, at: _Place, snapshot_time_ms: int) -> int | None:
    """Return the age of the first record at a place; None if unknown."""
    timestamp_ms = times.get(at.key, {}).get(at.reads_from)
    if timestamp_ms is None or timestamp_ms == NO_TIMESTAMP:
        return None
    return max(0, snapshot_time_ms - timestamp_ms)


def _row(
    head: tuple[str | None, str, str, str],
    progress: Progress,
    at: _Place,
    ends: _Ends,
    snapshot_time_ms: int,
) -> LagRow:
    key, position, shared = at.key, at.position, progress.group.type == _SHARE
    members = progress.members.get(key)
    worker: tuple[str | None, str | None, str | None] = (None, None, None)
    if members:
        worker = (
            ",".join([one.member_id for one in members]),
            ",".join([one.client_id for one in members]),
            ",".join([one.host for one in members]),
        )
    return LagRow(
        *head,
        *key,
        *worker,
        position if shared else None,
        None if shared else position,
        ends.end.get(key),
        ends.stable.get(key),
        at.delivery_complete_count,
        at.lag,
        at.time_lag_ms,
        at.leader_epoch,
        at.metadata,
        snapshot_time_ms,
    )
