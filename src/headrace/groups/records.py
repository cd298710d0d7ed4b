"""The coordinator records of ``__consumer_offsets``, as values;
:mod:`headrace.groups.record_schemas` has their bytes.

Each record has its group id, and its member id or partition if it has one. A ``value`` of None is
a tombstone. The class of a record has the name of Kafka's definition, and its value is a message of
it. Where a machine needs another value, the ``read`` of the record makes it of the fields of the
definition.

Source: the schemas of Apache Kafka's group coordinator, KIP-211 (explicit retention), KIP-345
(static members), KIP-848 (consumer groups), KIP-932 (share groups), KIP-1071 (streams groups).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar
from uuid import UUID

from headrace.outcome import Outcome
from headrace.protocol.record_batch import NO_TIMESTAMP
from headrace.protocol.stored import (
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupRegularExpressionValue,
    GroupMetadataValue,
    ShareGroupMemberMetadataValue,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataValue,
    StreamsGroupTopologyValue,
)

K = TypeVar("K")
R = TypeVar("R")

NOTHING: Mapping[Any, Any] = MappingProxyType({})
"""No partitions or tasks."""

Assignment = Mapping[UUID, tuple[int, ...]]
"""Partitions by topic id."""

HeldPartitions = Mapping[UUID, Mapping[int, int]]
"""Partitions by topic id, each with the epoch of its assignment (KIP-1251)."""


def each(partitions: Mapping[K, Iterable[int]]) -> Iterator[tuple[K, int]]:
    """Yield partitions of topics, or tasks of subtopologies, one by one."""
    for key, numbers in partitions.items():
        for number in numbers:
            yield key, number


def by_key(partitions: Iterable[tuple[K, int]]) -> dict[K, tuple[int, ...]]:
    """Return partitions by topic, or tasks by subtopology, in their order."""
    numbers: dict[K, list[int]] = {}
    for key, number in partitions:
        numbers.setdefault(key, []).append(number)
    return {key: tuple(own) for key, own in numbers.items()}


def _held(
    entries: Iterable[tuple[K, tuple[int, ...], tuple[int, ...] | None]], member_epoch: int
) -> dict[K, dict[int, int]]:
    """Return partitions with the epochs of their assignment. Brokers before 4.3 wrote none: the
    member epoch stands for them.
    """
    return {
        name: dict.fromkeys(partitions, member_epoch)
        if epochs is None
        else dict(zip(partitions, epochs, strict=True))
        for name, partitions, epochs in entries
    }


class CommittedOffset(NamedTuple):
    """A committed offset of one partition. A named tuple: one is made for each commit.

    :param offset: the offset of the next record to read
    :param leader_epoch: the leader epoch of the last record read; -1 when unknown
    :param metadata: the client's own text
    :param expire_timestamp_ms: when the offset expires, in epoch milliseconds; -1 if the commit had
        no retention of its own
    :param topic_id: the topic id at the time of the commit; None in records of older brokers
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = NO_TIMESTAMP
    expire_timestamp_ms: int = NO_TIMESTAMP
    topic_id: UUID | None = None


Generation = GroupMetadataValue
"""A classic group as of its last finished rebalance. Without members the group is empty, and has no
protocol and no leader. A consumer group that has become classic and has to rebalance has no leader,
either.
"""

GenerationMember = Generation.MemberMetadata
"""A member of a recorded generation. Its subscription, for the chosen protocol, and its assignment
are opaque to the broker. The rebalance timeout is -1 in records of version 0.
"""


ConsumerMember = ConsumerGroupMemberMetadataValue
"""The description of a consumer group's member. Names are sorted. The regular expression is "" if
there is none. Classic metadata is None for a member of the consumer protocol.
"""

ClassicMember = ConsumerMember.ClassicMemberMetadata
"""What only classic members of a consumer group have: the protocols of its JoinGroup, the preferred
one first, each with its metadata.
"""


class MemberState(IntEnum):
    """The reconciliation state of a member. The values are those in records; those of streams
    groups are greater by one.

    :cvar UNREVOKED: the member has been asked to give up partitions or tasks, and still has them
    :cvar UNRELEASED: it waits until others give up theirs
    """

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """The current assignment of a member. In share groups it has only these fields, and is always
    stable, as the member waits for nobody.

    :param assigned: the partitions or tasks that the member may read or run
    """

    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Any = field(default_factory=dict)

    @classmethod
    def read(cls, *fields: Any) -> CurrentAssignment:
        """Return the assignment of a share group's member with these fields of a record."""
        member_epoch, previous_epoch, _, assigned = fields
        return cls(member_epoch, previous_epoch, assigned=dict(assigned))


@dataclass(frozen=True, slots=True)
class ConsumerAssignment(CurrentAssignment):
    """The current assignment of a consumer group's member.

    :param pending_revocation: the partitions that the member has to revoke and may still read
    """

    assigned: HeldPartitions = field(default_factory=dict)
    pending_revocation: HeldPartitions = field(default_factory=dict)

    @classmethod
    def read(cls, *fields: Any) -> ConsumerAssignment:
        """Return the assignment with these fields of a record."""
        member_epoch, previous_epoch, state, *held = fields
        partitions = (_held(entries, member_epoch) for entries in held)
        return cls(member_epoch, previous_epoch, MemberState(state), *partitions)


ResolvedRegex = ConsumerGroupRegularExpressionValue
"""The topics that match a regular expression, sorted. The version of the cluster's metadata is 0,
since headrace matches after each change.
"""

ShareMember = ShareGroupMemberMetadataValue
"""The description of a share group's member. Names are sorted."""


class GroupEpoch(NamedTuple):
    """The epoch of a consumer or share group, and the hash of the topics that it is
    subscribed to.
    """

    epoch: int
    metadata_hash: int


class AssignmentEpoch(NamedTuple):
    """The group epoch for which the target assignment was computed, and the time in epoch
    milliseconds.
    """

    epoch: int
    timestamp_ms: int


class SharedTopic(NamedTuple):
    """Partitions of a topic with share state that is initialised or being initialised."""

    topic_name: str
    partitions: tuple[int, ...]


def _shared(entries: Iterable[tuple[Any, ...]]) -> dict[UUID, SharedTopic]:
    return {topic_id: SharedTopic(*topic) for topic_id, *topic in entries}


@dataclass(frozen=True, slots=True)
class StatePartitions:
    """The partitions in which a share group has share state, by topic id.

    :param deleting: the names of topics whose state is being deleted
    """

    initializing: Mapping[UUID, SharedTopic] = field(default_factory=dict)
    initialized: Mapping[UUID, SharedTopic] = field(default_factory=dict)
    deleting: Mapping[UUID, str] = field(default_factory=dict)

    def without(self, topic_ids: Collection[UUID]) -> StatePartitions:
        """Return the partitions of other topics."""
        others: Iterator[dict[UUID, Any]] = (
            {topic_id: topics[topic_id] for topic_id in topics if topic_id not in topic_ids}
            for topics in (self.initializing, self.initialized, self.deleting)
        )
        return StatePartitions(*others)

    @classmethod
    def read(cls, *fields: Any) -> StatePartitions:
        """Return the partitions with these fields of a record."""
        initializing, initialized, deleting = fields
        return cls(_shared(initializing), _shared(initialized), dict(deleting))


Tasks = Mapping[str, tuple[int, ...]]
"""Tasks of a streams group: partitions, in order, by subtopology id."""

HeldTasks = Mapping[str, Mapping[int, int]]
"""Tasks by subtopology id, each partition with the epoch of its assignment if the task is active
(KIP-1251), and 0 otherwise.
"""

Topology = StreamsGroupTopologyValue
"""The topology of a streams group, as its first member has sent it."""

Subtopology = Topology.Subtopology
"""A part of a topology whose tasks are assigned together, one task for each partition."""

InternalTopic = Topology.TopicInfo
"""A changelog or repartition topic. Its number of partitions is 0 if the coordinator derives it
from other topics, its replication factor 0 for the broker's default.
"""

CopartitionGroup = Topology.CopartitionGroup
"""Source topics that must have the same number of partitions, as indexes into the lists of their
subtopology.
"""


StreamsMember = StreamsGroupMemberMetadataValue
"""The description of a streams group's member. Its process is a Kafka Streams instance, whose
members share state directories; its endpoint serves interactive queries. Tags are sorted.
"""

StreamsEpoch = StreamsGroupMetadataValue
"""The epoch of a streams group, the hash of the topics of its topology, and the configs of the last
target assignment. The validated topology epoch is -1 unless all topics of the topology exist with
the right numbers of partitions.
"""

TasksT = TypeVar("TasksT", Tasks, HeldTasks, Tasks | None)


class ByRole(NamedTuple, Generic[TasksT]):
    """Tasks of a streams group's member by role."""

    active: TasksT = NOTHING
    standby: TasksT = NOTHING
    warmup: TasksT = NOTHING

    @classmethod
    def read(cls, *fields: Any) -> TaskAssignment:
        """Return the tasks with these fields of a record."""
        return ByRole(*map(dict, fields))


TaskAssignment = ByRole[Tasks]
HeldTaskAssignment = ByRole[HeldTasks]
"""Tasks that a member should have, and those that it has."""

NO_TASKS: HeldTaskAssignment = ByRole()


@dataclass(frozen=True, slots=True)
class StreamsAssignment(CurrentAssignment):
    """The current assignment of a streams group's member.

    :param pending_revocation: the tasks that the member has to close and may still run
    """

    assigned: HeldTaskAssignment = NO_TASKS
    pending_revocation: HeldTaskAssignment = NO_TASKS

    def fields(self) -> Iterable[Any]:
        """Return the fields of a record. Only active tasks have epochs there."""
        yield from (self.member_epoch, self.previous_member_epoch, self.state + 1)
        for active, standby, warmup in (self.assigned, self.pending_revocation):
            yield from (active, by_key(each(standby)), by_key(each(warmup)))

    @classmethod
    def read(cls, *fields: Any) -> StreamsAssignment:
        """Return the assignment with these fields of a record."""
        member_epoch, previous_epoch, state, *tasks = fields
        held = (
            ByRole(_held(active, member_epoch), _held(standby, 0), _held(warmup, 0))
            for active, standby, warmup in (tasks[:3], tasks[3:])
        )
        return cls(member_epoch, previous_epoch, MemberState(state - 1), *held)


class OffsetCommit(NamedTuple):
    """Types 0 and 1: a committed offset. A named tuple: one is made for each commit."""

    group_id: str
    topic: str
    partition: int
    value: CommittedOffset | None


@dataclass(frozen=True, slots=True)
class RecordOfGroup:
    """A record of which a group has one."""

    group_id: str
    value: Any
    read: ClassVar[Callable[..., Any] | None]


@dataclass(frozen=True, slots=True)
class RecordOfMember:
    """A record of which each member has one."""

    group_id: str
    member_id: str
    value: Any
    read: ClassVar[Callable[..., Any] | None]


class GroupMetadata(RecordOfGroup):
    """Type 2: the last finished generation of a classic group."""

    value: Generation | None
    read = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupRegularExpression:
    """Type 16: the topics of a regular expression that members are subscribed to."""

    group_id: str
    regex: str
    value: ResolvedRegex | None
    read: ClassVar = None


GroupRecord = OffsetCommit | RecordOfGroup | RecordOfMember | ConsumerGroupRegularExpression


class RecordTypes(NamedTuple):
    """The types of a kind's records: the group's epoch, a member, the epoch of the target
    assignment, which follows the targets, a member's target and its current assignment, and the one
    that only the kind has.
    """

    group: type[RecordOfGroup]
    member: type[RecordOfMember]
    target_epoch: type[RecordOfGroup]
    target: type[RecordOfMember]
    current: type[RecordOfMember]
    other: Any


RecordT = TypeVar("RecordT", RecordOfGroup, RecordOfMember)


def _type(base: type[RecordT], name: str, read: Callable[..., Any] | None = None) -> type[RecordT]:
    """Return the class of a type of records.

    :param name: of Kafka's definition
    :param read: makes the value of the fields of the definition
    """
    return type(name, (base,), {"__slots__": (), "read": read})


CONSUMER_RECORDS = RecordTypes(
    _type(RecordOfGroup, "ConsumerGroupMetadata", GroupEpoch),
    _type(RecordOfMember, "ConsumerGroupMemberMetadata"),
    _type(RecordOfGroup, "ConsumerGroupTargetAssignmentMetadata", AssignmentEpoch),
    _type(RecordOfMember, "ConsumerGroupTargetAssignmentMember", dict),
    _type(RecordOfMember, "ConsumerGroupCurrentMemberAssignment", ConsumerAssignment.read),
    ConsumerGroupRegularExpression,
)
SHARE_RECORDS = RecordTypes(
    _type(RecordOfGroup, "ShareGroupMetadata", GroupEpoch),
    _type(RecordOfMember, "ShareGroupMemberMetadata"),
    _type(RecordOfGroup, "ShareGroupTargetAssignmentMetadata", AssignmentEpoch),
    _type(RecordOfMember, "ShareGroupTargetAssignmentMember", dict),
    _type(RecordOfMember, "ShareGroupCurrentMemberAssignment", CurrentAssignment.read),
    _type(RecordOfGroup, "ShareGroupStatePartitionMetadata", StatePartitions.read),
)
STREAMS_RECORDS = RecordTypes(
    _type(RecordOfGroup, "StreamsGroupMetadata"),
    _type(RecordOfMember, "StreamsGroupMemberMetadata"),
    _type(RecordOfGroup, "StreamsGroupTargetAssignmentMetadata", AssignmentEpoch),
    _type(RecordOfMember, "StreamsGroupTargetAssignmentMember", ByRole.read),
    _type(RecordOfMember, "StreamsGroupCurrentMemberAssignment", StreamsAssignment.read),
    _type(RecordOfGroup, "StreamsGroupTopology"),
)

GroupOutcome = Outcome[GroupRecord, R]
"""The result of a decision about a group, with a reply."""
