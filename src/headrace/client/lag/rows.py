"""What a snapshot of progress consists of: which groups to look at, and a row for each partition of
each.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.client.group_listing import ListedGroup

GROUP_TYPES = ("classic", "consumer", "share", "streams")
"""The types of groups, as ListGroups names them."""

_PROTOCOLS = ("", "consumer", "share", "streams")


class LagRow(NamedTuple):
    """How far a group is with one partition; None for what is not known, or does not apply.

    A group, or a member of one, without any partition has a row whose ``topic`` and ``partition``
    are None.

    :param cluster: the cluster's id
    :param group_type: one of :data:`GROUP_TYPES`
    :param group_state: in Kafka's words, as in "Stable"
    :param member_id: the member that the partition is assigned to; of a share group all of them,
        separated by commas, and so ``client_id`` and ``host``
    :param start_offset: of a share group: the first offset that is not done with (KIP-932)
    :param committed_offset: of the others: the offset to go on from
    :param end_offset: after the last record; None when the topic is gone, or its leader does not
        answer
    :param last_stable_offset: the end for readers of committed records
    :param delivery_complete_count: of a share group: the records after ``start_offset`` that are
        done with (KIP-1226)
    :param lag: records to be read: ``end_offset - committed_offset``, to ``last_stable_offset``
        when asked; of a share group ``end_offset - start_offset - delivery_complete_count``
    :param time_lag_ms: how old the first record is that is to be read; 0 when there is none
    :param leader_epoch: stored with the offset
    :param metadata: stored with the offset
    :param snapshot_time_ms: when the snapshot was begun, in milliseconds since the epoch
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
    """Which groups and topics to look at, and how.

    :param groups: their ids; none for all
    :param groups_pattern: a regular expression for whole group ids; None for all
    :param group_types: of :data:`GROUP_TYPES`
    :param topics: their names; none for all
    :param topics_pattern: a regular expression for whole topic names; None for all
    :param read_committed: the lag of groups other than share groups ends at the last stable offset
    :param time_lag: look for ``time_lag_ms``, which takes reading records
    """

    groups: tuple[str, ...] = ()
    groups_pattern: str | None = None
    group_types: tuple[str, ...] = GROUP_TYPES
    topics: tuple[str, ...] = ()
    topics_pattern: str | None = None
    read_committed: bool = False
    time_lag: bool = True

    @property
    def all_topics(self) -> bool:
        """Whether it is about all topics, and so about groups that have nothing to do with any."""
        return not self.topics and self.topics_pattern is None

    def wants_topic(self, name: str) -> bool:
        """Whether it is about a topic."""
        if self.topics and name not in self.topics:
            return False
        return self.topics_pattern is None or re.fullmatch(self.topics_pattern, name) is not None

    def wants_group(self, group: ListedGroup) -> bool:
        """Whether it is about a group. Those that read no topics, as of Kafka Connect's workers,
        are left out.
        """
        return (
            group.type in self.group_types
            and group.protocol_type in _PROTOCOLS
            and (not self.groups or group.group_id in self.groups)
            and (
                self.groups_pattern is None
                or re.fullmatch(self.groups_pattern, group.group_id) is not None
            )
        )


@dataclass(frozen=True, slots=True)
class LagPart:
    """A part of a snapshot.

    :param warnings: what could not be found out, and why; one line each
    """

    rows: Sequence[LagRow]
    warnings: Sequence[str] = ()
