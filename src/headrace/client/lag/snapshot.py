"""A snapshot of the progress and lag of all groups of a cluster, from few requests.

A number of groups at a time is described, and their committed offsets are fetched, with one request
of each kind to each coordinator. Then the ends of all their partitions are read, with two requests
to each broker, and then the timestamps of the records at the committed offsets. Reading the ends
after the committed offsets keeps lags from being negative.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

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
from headrace.client.list_offsets import LATEST
from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition

from .partition_leaders import PartitionLeaders
from .record_times import RepeatedTimes, Times, record_times
from .rows import LagPart, LagQuery, LagRow
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
    """The end offsets and last stable offsets of the partitions whose leader answered."""

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
    ends = _Ends(await leaders.offsets(partitions, LATEST), stable)
    places = [_places(progress, query, ends) for progress in held]
    times: Mapping[bool, Times] = {}
    if query.time_lag:
        times = await _times(
            cluster,
            [one for of_group in places for one in of_group],
            leaders,
            ends,
            snapshot_time_ms,
            repeated,
        )
    rows: list[LagRow] = []
    for progress, of_group in zip(held, places, strict=True):
        head = (cluster.cluster_id, progress.group.group_id, progress.group.type, progress.state)
        for at in of_group:
            rows.append(_row(head, progress, at, ends, times, snapshot_time_ms))
        if query.all_topics:
            for worker in _workers(progress) or ([] if of_group else [(None, None, None)]):
                rows.append(LagRow(*head, None, None, *worker, *(None,) * 9, snapshot_time_ms))
    return rows


class _Place(NamedTuple):
    """The position of a group in one partition.

    :param position: the committed offset, or the start offset of a share group
    :param committed_only: True if the time lag ignores records of open and aborted transactions
    """

    key: TopicPartition
    position: int | None
    delivery_complete_count: int | None
    lag: int | None
    leader_epoch: int | None
    metadata: str | None
    committed_only: bool


def _places(progress: Progress, query: LagQuery, ends: _Ends) -> list[_Place]:
    found = []
    for key in sorted(progress.partitions()):
        end = ends.end.get(key)
        lag = None
        if progress.group.type == _SHARE:
            at = progress.shared.get(key, _NO_STATE)
            if end is not None and at.start_offset is not None:
                count = at.delivery_complete_count
                lag = at.lag if count is None else end - at.start_offset - count
                lag = None if lag is None else max(0, lag)
            place = _Place(
                key,
                at.start_offset,
                at.delivery_complete_count,
                lag,
                at.leader_epoch,
                None,
                committed_only=False,
            )
        elif (commit := progress.commits.get(key)) is not None:
            offset, epoch, metadata = commit
            target = ends.stable.get(key) if query.read_committed else end
            if target is not None:
                lag = max(0, target - offset)
            place = _Place(
                key,
                offset,
                None,
                lag,
                epoch if epoch >= 0 else None,
                metadata,
                query.read_committed,
            )
        else:
            place = _Place(key, None, None, None, None, None, query.read_committed)
        found.append(place)
    return found


def _workers(progress: Progress) -> list[tuple[str | None, str | None, str | None]]:
    """Return the columns of the members without a partition."""
    return [(one.member_id, one.client_id, one.host) for one in progress.idle]


async def _times(
    cluster: Cluster,
    places: Sequence[_Place],
    leaders: PartitionLeaders,
    ends: _Ends,
    snapshot_time_ms: int,
    repeated: RepeatedTimes | None,
) -> dict[bool, Times]:
    """Find the timestamps of the records at positions with a lag. Equal positions of several groups
    are looked up once.

    :returns: ``committed_only`` → times
    """
    wanted: dict[bool, dict[TopicPartition, set[int]]] = {False: {}, True: {}}
    for at in places:
        if at.lag and at.position is not None:
            wanted[at.committed_only].setdefault(at.key, set()).add(at.position)
    found: dict[bool, Times] = {}
    for committed_only, positions in wanted.items():
        end = ends.stable if committed_only else ends.end
        if repeated is None:
            found[committed_only] = await record_times(
                cluster, leaders, positions, end, read_committed=committed_only
            )
        else:
            found[committed_only] = await repeated.search(
                cluster,
                leaders,
                positions,
                end,
                read_committed=committed_only,
                now_ms=snapshot_time_ms,
            )
    return found


def _row(
    head: tuple[str | None, str, str, str],
    progress: Progress,
    at: _Place,
    ends: _Ends,
    times: Mapping[bool, Times],
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
    time_lag_ms = None
    if times and at.lag is not None:
        time_lag_ms = 0
        if at.lag:
            time_lag_ms = _age_ms(times[at.committed_only].get(key, {}), position, snapshot_time_ms)
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
        time_lag_ms,
        at.leader_epoch,
        at.metadata,
        snapshot_time_ms,
    )


def _age_ms(
    times: Mapping[int, int | None], position: int | None, snapshot_time_ms: int
) -> int | None:
    """Return the age of the record at a position: 0 if no record follows, None if unknown."""
    if position is None or position not in times:
        return None
    timestamp_ms = times[position]
    return 0 if timestamp_ms is None else max(0, snapshot_time_ms - timestamp_ms)
