"""The positions and members of groups, from few requests: one of each kind to each coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError, is_missing_group
from headrace.client.groups import (
    SHARE,
    STREAMS,
    TYPES,
    GroupDescription,
    GroupMember,
    ListedGroup,
    describe_groups,
)
from headrace.client.offsets import (
    LATEST,
    CommittedOffset,
    ShareOffset,
    committed_offsets,
    share_offsets,
)
from headrace.client.share_state import share_states
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.share_inspection import SpanState

from .model import LagQuery
from .partition_leaders import PartitionLeaders

Position = CommittedOffset | ShareOffset


def offset_of(position: Position | None) -> int | None:
    """Return the committed offset, or the start offset of a share group."""
    if position is None:
        return None
    return position.offset if isinstance(position, CommittedOffset) else position.start_offset


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
    committing = [id_ for kind in TYPES if kind != SHARE for id_ in ids[kind]]
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
