"""The lag of groups: what a group has in a topic partition still to finish, and sums of it. Pure.

None stands for an unknown value everywhere: unknown is never 0.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.patterns import matches
from headrace.protocol.dead_letters import REDRIVE_GROUP
from headrace.protocol.partitions import TopicPartition

if TYPE_CHECKING:
    from headrace.client.groups import GroupMember, ListedGroup

GROUP_TYPES = ("classic", "consumer", "share", "streams")
"""The group types, by the names of ListGroups."""

_PROTOCOLS = ("", "consumer", "share", "streams")

KEEPS_UP_S = 10.0
"""A group keeps up if it finishes what waits within this time. It is longer than the default
interval of two commits, between which the lag of a healthy group grows.
"""


@dataclass(frozen=True, slots=True)
class LagQuery:
    """The groups and topics of a snapshot.

    :param groups: group ids; empty for all
    :param groups_pattern: a regular expression that matches whole group ids; None for all
    :param groups_excluded: a regular expression of whole group ids to leave out; None for none
    :param group_types: some of :data:`GROUP_TYPES`
    :param topics: topic names; empty for all
    :param topics_pattern: a regular expression that matches whole topic names; None for all
    :param topics_excluded: a regular expression of whole topic names to leave out; None for none
    :param read_committed: compute the lag to the last stable offset, except for share groups
    :param time_lag: determine ``seconds``, and whether records follow a position at all, which
        requires reading records
    :param complete_counts: determine ``delivery_complete_count``, which requires reading the end
        offsets of share groups twice
    :param members: describe the groups, for their members and states
    :param held: determine ``held`` and ``delivery_count``, with a request for each share group
    """

    groups: tuple[str, ...] = ()
    groups_pattern: str | None = None
    group_types: tuple[str, ...] = GROUP_TYPES
    topics: tuple[str, ...] = ()
    topics_pattern: str | None = None
    read_committed: bool = False
    time_lag: bool = True
    complete_counts: bool = True
    members: bool = True
    held: bool = False
    groups_excluded: str | None = None
    topics_excluded: str | None = None

    @property
    def all_topics(self) -> bool:
        """True if no topics are selected; then groups without partitions are in the snapshot."""
        return not self.topics and self.topics_pattern is None

    def wants_topic(self, name: str) -> bool:
        """Return whether a topic is selected."""
        return _selects(self.topics, self.topics_pattern, self.topics_excluded, name)

    def wants_group(self, group: ListedGroup) -> bool:
        """Return whether a group is selected. Groups of other protocols, such as Kafka Connect's
        workers, never are; those of redrives, which nobody waits for, only if they are named.
        """
        is_redrive = group.group_id.startswith(REDRIVE_GROUP)
        return (
            group.type in self.group_types
            and (not is_redrive or group.group_id in self.groups)
            and group.protocol_type in _PROTOCOLS
            and _selects(self.groups, self.groups_pattern, self.groups_excluded, group.group_id)
        )


EVERYTHING = LagQuery()
"""All groups and topics."""


def _selects(names: Collection[str], pattern: str | None, excluded: str | None, name: str) -> bool:
    return (
        (not names or name in names)
        and (pattern is None or matches(pattern, name))
        and (excluded is None or not matches(excluded, name))
    )


@dataclass(slots=True)
class PartitionLag:
    """The progress of a group in one partition, as far as it was read. Not frozen, as a cluster has
    100,000 of them, which a snapshot fills in several steps.

    :param position: the committed offset; of a share group the share-partition start offset
        (KIP-932)
    :param records: the lag (see :func:`records_left`): to ``end_offset``, or with read_committed to
        ``last_stable_offset``. With ``LagQuery.time_lag`` it is 0 if only transaction markers, or
        aborted records of another type of group than share, follow
    :param seconds: the age of the first record to read; 0 if there is none
    :param log_start_offset: read only where the group is behind
    :param end_offset: the high watermark; None if the topic is missing or its leader unreachable
    :param last_stable_offset: the end for read_committed consumers
    :param delivery_complete_count: share groups only: records from ``position`` on that are
        accepted, rejected or archived (KIP-1226)
    :param leader_epoch: stored with the position
    :param metadata: stored with the position
    :param members: those it is assigned to; several for a share group
    :param held: share groups only: records that members have acquired; only headrace tells
    :param delivery_count: the largest of the records in flight; only headrace tells
    """

    topic: str
    partition: int
    position: int | None = None
    records: int | None = None
    seconds: float | None = None
    log_start_offset: int | None = None
    end_offset: int | None = None
    last_stable_offset: int | None = None
    delivery_complete_count: int | None = None
    leader_epoch: int | None = None
    metadata: str | None = None
    members: Sequence[GroupMember] = ()
    held: int | None = None
    delivery_count: int | None = None

    @property
    def key(self) -> TopicPartition:
        """Topic and partition."""
        return self.topic, self.partition

    @property
    def time_lag_ms(self) -> int | None:
        """``seconds`` in milliseconds."""
        return _milliseconds(self.seconds)


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class LagSum:
    """The lag of a group, as a whole or in one topic, and its trend.

    :param partitions: their number
    :param unknown: the number of those whose lag is unknown
    :param records: the sum of the known lags, see :func:`known_sum`
    :param seconds: the largest known time lag; None if ``records`` is
    :param done: records finished since the first snapshot of a watch
    :param done_per_s: records finished per second; None before the second snapshot
    :param produced_per_s: records produced per second in the partitions whose lag is known, if
        there are some
    """

    partitions: int
    unknown: int
    records: int | None
    seconds: float | None
    done: int = 0
    done_per_s: float | None = None
    produced_per_s: float | None = None

    @property
    def time_lag_ms(self) -> int | None:
        """``seconds`` in milliseconds."""
        return _milliseconds(self.seconds)

    @property
    def seconds_to_zero(self) -> float | None:
        """A forecast of the time until the group has finished what waits now: infinity if the lag
        does not shrink, None if unknown.

        A lag that does not shrink is told even if some partitions are unknown: they cannot make it
        better. Good news needs to know them all.
        """
        if self.records is None:
            return None
        left_s: float | None = 0.0
        if self.records > 0:
            if self.done_per_s is None or self.produced_per_s is None:
                return None
            if self.records <= KEEPS_UP_S * self.done_per_s:
                left_s = self.records / self.done_per_s
            else:
                left_s = eta_s(self.records, self.done_per_s, self.produced_per_s)
        if left_s is None:
            return math.inf
        return None if self.unknown else left_s


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """The lag of a group.

    :param type: one of :data:`GROUP_TYPES`
    :param state: Kafka's name of the state, such as "Stable"
    :param members: with those that no partition is assigned to
    :param partitions: by topic and number; empty in the snapshots of a watch
    :param topics: topic → sum
    :param lag: the sum over all topics
    """

    group_id: str
    type: str
    state: str
    members: Sequence[GroupMember]
    partitions: Sequence[PartitionLag]
    topics: Mapping[str, LagSum]
    lag: LagSum

    @property
    def idle(self) -> list[GroupMember]:
        """The members that no partition is assigned to."""
        busy = {member.member_id for lag in self.partitions for member in lag.members}
        return [member for member in self.members if member.member_id not in busy]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The lag of groups at one time, or a part of it.

    :param groups: by group id, but in parts by coordinator
    :param warnings: what could not be determined, one line each
    :param at_ms: time since the epoch
    """

    groups: Sequence[GroupLag]
    warnings: Sequence[str]
    at_ms: int
    cluster_id: str | None = None


def records_left(
    position: int | None, log_start: int | None, end: int | None, complete_count: int = 0
) -> int | None:
    """Return the number of offsets that a group still has to finish in a partition.

    Records that retention has deleted are not among them. A group without a position has nothing
    to finish in an empty partition; in another it is unknown where the group will begin.

    :param position: the committed offset, or the start offset of a share group; None without one
    :param log_start: None if unknown
    :param end: the exclusive end; None if unknown
    :param complete_count: records after ``position`` that are finished
    :returns: None if unknown
    """
    if end is None:
        return None
    in_log = None if log_start is None else max(0, end - log_start)
    if position is None:
        return 0 if in_log == 0 else None
    left = max(0, end - position - complete_count)
    return left if in_log is None else min(left, in_log)


def known_sum(lags: Iterable[int | None]) -> int | None:
    """Return the sum of lags, as far as they are known: the lag is at least that.

    :returns: None if none is known, or if nothing is left where it is known: unknown is not zero
    """
    values = list(lags)
    counts = [lag for lag in values if lag is not None]
    total = sum(counts)
    return total if counts and (total or len(counts) == len(values)) else None


def eta_s(lag: float, done_per_s: float, produced_per_s: float) -> float | None:
    """Return the seconds until the lag is zero at these rates; None if it does not shrink."""
    if lag <= 0:
        return 0.0
    gain_per_s = done_per_s - produced_per_s
    return lag / gain_per_s if gain_per_s > 0 else None


def total(sums: Collection[LagSum]) -> LagSum:
    """Return the sum over the topics of a group, or over groups."""
    return _sum(
        sums,
        partitions=sum(lag.partitions for lag in sums),
        unknown=sum(lag.unknown for lag in sums),
        done=sum(lag.done for lag in sums),
        done_per_s=sum_of_known(lag.done_per_s for lag in sums),
        produced_per_s=sum_of_known(lag.produced_per_s for lag in sums),
    )


def _sum(lags: Collection[PartitionLag | LagSum], **fields: Any) -> LagSum:
    records = known_sum(lag.records for lag in lags)
    times = [lag.seconds for lag in lags if lag.seconds is not None]
    seconds = None if records is None else max(times, default=None)
    return LagSum(records=records, seconds=seconds, **fields)


def sum_of_known(values: Iterable[float | None]) -> float | None:
    """Return the sum of the known values; None if there is none."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None


def group_lag(
    group_id: str,
    kind: str,
    state: str,
    members: Sequence[GroupMember],
    partitions: Sequence[PartitionLag],
) -> GroupLag:
    """Return a group with the sums over its partitions, without a trend.

    :param kind: its type
    :param partitions: by topic and number
    """
    by_topic: dict[str, list[PartitionLag]] = {}
    for lag in partitions:
        by_topic.setdefault(lag.topic, []).append(lag)
    topics = {
        topic: _sum(lags, partitions=len(lags), unknown=sum(lag.records is None for lag in lags))
        for topic, lags in by_topic.items()
    }
    return GroupLag(
        group_id=group_id,
        type=kind,
        state=state,
        members=members,
        partitions=partitions,
        topics=topics,
        lag=total(topics.values()),
    )


_NOTHING = PartitionLag(topic="", partition=-1)


def rows(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    """Yield the partitions of groups as flat rows, such as ``kafka-lag`` and ``lag show -o json``
    have. A group or member without partitions has one row with the ``topic`` None.

    ``member_id``, ``client_id`` and ``host`` are of the assigned member; for a share group of all
    members, separated by commas.
    """
    for group in snapshot.groups:
        for lag in group.partitions:
            yield _row(snapshot, group, lag, lag.members)
        idle = group.idle
        for member in idle:
            yield _row(snapshot, group, _NOTHING, [member])
        if not idle and not group.partitions:
            yield _row(snapshot, group, _NOTHING, [])


def _row(
    snapshot: Snapshot, group: GroupLag, lag: PartitionLag, members: Sequence[GroupMember]
) -> dict[str, Any]:
    is_share = group.type == "share"
    return {
        "cluster": snapshot.cluster_id,
        "group_id": group.group_id,
        "group_type": group.type,
        "group_state": group.state,
        "topic": lag.topic or None,
        "partition": lag.partition if lag.topic else None,
        **{
            name: ",".join(getattr(member, name) for member in members) if members else None
            for name in ("member_id", "client_id", "host")
        },
        "start_offset": lag.position if is_share else None,
        "committed_offset": None if is_share else lag.position,
        "end_offset": lag.end_offset,
        "last_stable_offset": lag.last_stable_offset,
        "delivery_complete_count": lag.delivery_complete_count,
        "lag": lag.records,
        "time_lag_ms": lag.time_lag_ms,
        "held": lag.held,
        "delivery_count": lag.delivery_count,
        "leader_epoch": lag.leader_epoch,
        "metadata": lag.metadata,
        "snapshot_time_ms": snapshot.at_ms,
    }


def summary(group: GroupLag) -> dict[str, Any]:
    """Return the lag and trend of a group as JSON has them; ``seconds_to_zero`` is -1 if the lag
    does not shrink.
    """
    lag, left_s = group.lag, group.lag.seconds_to_zero
    return {
        "group_id": group.group_id,
        "group_type": group.type,
        "group_state": group.state,
        "member_count": len(group.members),
        "lag": lag.records,
        "time_lag_ms": lag.time_lag_ms,
        "done_per_s": lag.done_per_s,
        "produced_per_s": lag.produced_per_s,
        "seconds_to_zero": -1.0 if left_s == math.inf else left_s,
    }
