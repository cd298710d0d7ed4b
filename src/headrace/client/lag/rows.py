"""The query and the rows of a lag snapshot: one row for each partition of each group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.client.group_listing import ListedGroup
from headrace.patterns import matches

GROUP_TYPES = ("classic", "consumer", "share", "streams")
"""The group types, by the names of ListGroups."""

_PROTOCOLS = ("", "consumer", "share", "streams")


class LagRow(NamedTuple):
    """The progress of a group in one partition; None for a value that is unknown or does not apply.

    A group or member without partitions has one row with the ``topic`` and ``partition`` None.

    :param cluster: cluster id
    :param group_type: one of :data:`GROUP_TYPES`
    :param group_state: Kafka's name of the state, such as "Stable"
    :param member_id: the assigned member; for a share group all members, separated by commas, and
        so are ``client_id`` and ``host``
    :param start_offset: share groups only: the share-partition start offset (KIP-932)
    :param committed_offset: other groups only
    :param end_offset: the high watermark; None if the topic is missing or its leader unreachable
    :param last_stable_offset: the end for read_committed consumers
    :param delivery_complete_count: share groups only: records from ``start_offset`` on that are
        accepted, rejected or archived (KIP-1226)
    :param lag: ``end_offset - committed_offset``, or with ``read_committed``
        ``last_stable_offset - committed_offset``; for share groups
        ``end_offset - start_offset - delivery_complete_count``. Without the records before the log
        start: see :func:`records_left`. With ``time_lag`` it is 0 if only transaction markers, or
        aborted records of another type of group than share, follow
    :param time_lag_ms: age of the first record to read; 0 if there is none
    :param leader_epoch: stored with the offset
    :param metadata: stored with the offset
    :param snapshot_time_ms: time of the snapshot, since the epoch
    """

    cluster: str | None
    group_id: str
    group_type: str
    group_state: str
    topic: str | None
    partition: int | None
    member_id: str | None
    client_id: str | None
    host: str | None
    start_offset: int | None
    committed_offset: int | None
    end_offset: int | None
    last_stable_offset: int | None
    delivery_complete_count: int | None
    lag: int | None
    time_lag_ms: int | None
    leader_epoch: int | None
    metadata: str | None
    snapshot_time_ms: int


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
    :param time_lag: determine ``time_lag_ms``, and whether records follow a position at all, which
        requires reading records
    :param complete_counts: determine ``delivery_complete_count``, which requires reading the end
        offsets of share groups twice
    """

    groups: tuple[str, ...] = ()
    groups_pattern: str | None = None
    group_types: tuple[str, ...] = GROUP_TYPES
    topics: tuple[str, ...] = ()
    topics_pattern: str | None = None
    read_committed: bool = False
    time_lag: bool = True
    complete_counts: bool = True
    groups_excluded: str | None = None
    topics_excluded: str | None = None

    @property
    def all_topics(self) -> bool:
        """True if no topics are selected; then groups without partitions have rows."""
        return not self.topics and self.topics_pattern is None

    def wants_topic(self, name: str) -> bool:
        """Return whether a topic is selected."""
        if self.topics and name not in self.topics:
            return False
        return _selects(self.topics_pattern, self.topics_excluded, name)

    def wants_group(self, group: ListedGroup) -> bool:
        """Return whether a group is selected. Groups of other protocols, such as Kafka Connect's
        workers, never are.
        """
        return (
            group.type in self.group_types
            and group.protocol_type in _PROTOCOLS
            and (not self.groups or group.group_id in self.groups)
            and _selects(self.groups_pattern, self.groups_excluded, group.group_id)
        )


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
    total, unknown, is_known = 0, False, False
    for lag in lags:
        if lag is None:
            unknown = True
        else:
            total, is_known = total + lag, True
    return total if is_known and (total or not unknown) else None


def _selects(pattern: str | None, excluded: str | None, name: str) -> bool:
    if pattern is not None and not matches(pattern, name):
        return False
    return excluded is None or not matches(excluded, name)


@dataclass(frozen=True, slots=True)
class LagPart:
    """A part of a snapshot.

    :param warnings: data that could not be determined, with the reason; one line each
    """

    rows: Sequence[LagRow]
    warnings: Sequence[str] = ()
