"""The coordinator records of ``__consumer_offsets``, as values;
:mod:`headrace.groups.record_schemas` has their bytes.

Each record has its group id, and its member id or partition if it has one. A ``value`` of None is
a tombstone. The class of a record has the name of Kafka's definition, and its value is a message of
it. Where a machine needs another value, the ``read`` of the record makes it of the fields of the
definition, and its ``fields()`` returns them.

Source: the schemas of Apache Kafka's group coordinator, KIP-211 (explicit retention), KIP-345
(static members), KIP-848 (consumer groups), KIP-932 (share groups), KIP-1071 (streams groups).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from headrace.outcome import Outcome
from headrace.protocol.record_batch import NO_TIMESTAMP
from headrace.protocol.stored import (
    ConsumerGroupRegularExpressionValue,
    GroupMetadataValue,
    ShareGroupMemberMetadataValue,
    StreamsGroupTopologyValue,
)

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")

NOTHING: Mapping[Any, Any] = MappingProxyType({})
"""No partitions or tasks."""

Assignment: TypeAlias = Mapping[UUID, tuple[int, ...]]
"""Partitions by topic id."""

HeldPartitions: TypeAlias = Mapping[UUID, Mapping[int, int]]
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


def _held_fields(held: Mapping[K, Mapping[int, int]]) -> list[tuple[Any, ...]]:
    return [(name, epochs.keys(), epochs.values()) for name, epochs in held.items()]


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


class ClassicMember(NamedTuple):
    """The fields that only classic members of a consumer group have.

    :param protocols: the protocols of its JoinGroup, the preferred one first, each with its
        metadata
    """

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """The description of a consumer group's member. Names are sorted.

    :param subscribed_topic_regex: "" for none
    :param server_assignor: the assignor that the member prefers; None for no preference
    :param classic: None for a member of the consumer protocol
    """

    group_instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMember | None = None

    @classmethod
    def read(cls, *fields: Any) -> ConsumerMember:
        """Return the member with these fields of a record."""
        member, classic = cls(*fields[:-1]), fields[-1]
        return replace(
            member,
            subscribed_topic_regex=member.subscribed_topic_regex or "",
            classic=None if classic is None else ClassicMember(*classic),
        )


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
class ConsumerAssignment:
    """The current assignment of a consumer group's member.

    :param assigned: the partitions that the member may read
    :param pending_revocation: the partitions that the member has to revoke and may still read
    """

    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: HeldPartitions = field(default_factory=dict)
    pending_revocation: HeldPartitions = field(default_factory=dict)

    def fields(self) -> tuple[Any, ...]:
        """Return the fields of a record."""
        held = map(_held_fields, (self.assigned, self.pending_revocation))
        return self.member_epoch, self.previous_member_epoch, self.state, *held

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


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """The current assignment of a share group's member, which waits for nobody."""

    state: ClassVar = MemberState.STABLE
    member_epoch: int
    previous_member_epoch: int
    assigned: Assignment

    def fields(self) -> tuple[Any, ...]:
        """Return the fields of a record."""
        return self.member_epoch, self.previous_member_epoch, self.state, self.assigned.items()

    @classmethod
    def read(cls, *fields: Any) -> CurrentAssignment:
        """Return the assignment with these fields of a record."""
        member_epoch, previous_epoch, _, assigned = fields
        return cls(member_epoch, previous_epoch, dict(assigned))


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

    def fields(self) -> tuple[Any, ...]:
        """Return the fields of a record."""
        shared = (
            [(topic_id, *topic) for topic_id, topic in topics.items()]
            for topics in (self.initializing, self.initialized)
        )
        return *shared, self.deleting.items()

    @classmethod
    def read(cls, *fields: Any) -> StatePartitions:
        """Return the partitions with these fields of a record."""
        initializing, initialized, deleting = fields
        return cls(_shared(initializing), _shared(initialized), dict(deleting))


Tasks: TypeAlias = Mapping[str, tuple[int, ...]]
"""Tasks of a streams group: partitions, in order, by subtopology id."""

HeldTasks: TypeAlias = Mapping[str, Mapping[int, int]]
"""Tasks by subtopology id, each partition with the epoch of its assignment if the task is active
(KIP-1251), and 0 otherwise.
"""

Endpoint: TypeAlias = tuple[str, int]
"""The host and port of a member for interactive queries."""


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


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """The description of a streams group's member.

    :param process_id: the Kafka Streams instance of the member; its members share state directories
    :param client_tags: names and values, sorted
    """

    group_instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] = ()


class StreamsEpoch(NamedTuple):
    """The epoch of a streams group.

    :param metadata_hash: the hash of the topics of the topology
    :param validated_topology_epoch: the topology epoch whose topics all exist with the right
        numbers of partitions; -1 for none
    :param assignment_configs: the configs of the last target assignment, names and values
    """

    epoch: int
    metadata_hash: int
    validated_topology_epoch: int = -1
    assignment_configs: tuple[tuple[str, str], ...] = ()

    def fields(self) -> tuple[Any, ...]:
        """Return the fields of a record."""
        return *self[:3], self.assignment_configs or None

    @classmethod
    def read(cls, *fields: Any) -> StreamsEpoch:
        """Return the epoch with these fields of a record."""
        epoch, metadata_hash, validated, configs, *_ = fields
        return cls(epoch, metadata_hash, validated, configs or ())


class TaskAssignment(NamedTuple):
    """Tasks of a streams group's member by role."""

    active: Tasks = NOTHING
    standby: Tasks = NOTHING
    warmup: Tasks = NOTHING

    def fields(self) -> Iterable[Any]:
        """Return the fields of a record."""
        return (tasks.items() for tasks in self)

    @classmethod
    def read(cls, *fields: Any) -> TaskAssignment:
        """Return the tasks with these fields of a record."""
        return cls(*map(dict, fields))


class HeldTaskAssignment(NamedTuple):
    """Tasks that a streams group's member has, by role."""

    active: HeldTasks = NOTHING
    standby: HeldTasks = NOTHING
    warmup: HeldTasks = NOTHING

    def fields(self) -> tuple[Any, ...]:
        """Return the fields of a record. Only active tasks have epochs there."""
        active, *others = map(_held_fields, self)
        return active, *([entry[:2] for entry in entries] for entries in others)


NO_TASKS = HeldTaskAssignment()


@dataclass(frozen=True, slots=True)
class StreamsAssignment:
    """The current assignment of a streams group's member.

    :param assigned: the tasks that the member may run
    :param pending_revocation: the tasks that the member has to close and may still run
    """

    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: HeldTaskAssignment = NO_TASKS
    pending_revocation: HeldTaskAssignment = NO_TASKS

    def fields(self) -> tuple[Any, ...]:
        """Return the fields of a record."""
        held = *self.assigned.fields(), *self.pending_revocation.fields()
        return self.member_epoch, self.previous_member_epoch, self.state + 1, *held

    @classmethod
    def read(cls, *fields: Any) -> StreamsAssignment:
        """Return the assignment with these fields of a record."""
        member_epoch, previous_epoch, state, *tasks = fields
        held = (
            HeldTaskAssignment(_held(active, member_epoch), _held(standby, 0), _held(warmup, 0))
            for active, standby, warmup in (tasks[:3], tasks[3:])
        )
        return cls(member_epoch, previous_epoch, MemberState(state - 1), *held)


@dataclass(frozen=True, slots=True)
class _GroupRecord(Generic[V]):
    group_id: str
    value: V | None


@dataclass(frozen=True, slots=True)
class _MemberRecord(Generic[V]):
    group_id: str
    member_id: str
    value: V | None


class OffsetCommit(NamedTuple):
    """Types 0 and 1: a committed offset. A named tuple: one is made for each commit."""

    group_id: str
    topic: str
    partition: int
    value: CommittedOffset | None


class GroupMetadata(_GroupRecord[Generation]):
    """Type 2: the last finished generation of a classic group."""


class ConsumerGroupMetadata(_GroupRecord[GroupEpoch]):
    """Type 3: the epoch of a consumer group."""

    read = GroupEpoch


class ConsumerGroupMemberMetadata(_MemberRecord[ConsumerMember]):
    """Type 5: a member of a consumer group."""

    read = ConsumerMember.read


class ConsumerGroupTargetAssignmentMetadata(_GroupRecord[AssignmentEpoch]):
    """Type 6: the epoch of the target assignment; it follows the records of type 7."""

    read = AssignmentEpoch


class ConsumerGroupTargetAssignmentMember(_MemberRecord[Assignment]):
    """Type 7: the target assignment of a member."""

    read = dict


class ConsumerGroupCurrentMemberAssignment(_MemberRecord[ConsumerAssignment]):
    """Type 8: the current assignment of a member."""

    read = ConsumerAssignment.read


@dataclass(frozen=True, slots=True)
class ConsumerGroupRegularExpression:
    """Type 16: the topics of a regular expression that members are subscribed to."""

    group_id: str
    regex: str
    value: ResolvedRegex | None


class ShareGroupMemberMetadata(_MemberRecord[ShareMember]):
    """Type 10: a member of a share group."""


class ShareGroupMetadata(_GroupRecord[GroupEpoch]):
    """Type 11: the epoch of a share group."""

    read = GroupEpoch


class ShareGroupTargetAssignmentMetadata(_GroupRecord[AssignmentEpoch]):
    """Type 12: the epoch of the target assignment; it follows the records of type 13."""

    read = AssignmentEpoch


class ShareGroupTargetAssignmentMember(_MemberRecord[Assignment]):
    """Type 13: the target assignment of a member."""

    read = dict


class ShareGroupCurrentMemberAssignment(_MemberRecord[CurrentAssignment]):
    """Type 14: the current assignment of a member."""

    read = CurrentAssignment.read


class ShareGroupStatePartitionMetadata(_GroupRecord[StatePartitions]):
    """Type 15: the partitions in which a share group has share state."""

    read = StatePartitions.read


class StreamsGroupMetadata(_GroupRecord[StreamsEpoch]):
    """Type 17: the epoch of a streams group."""

    read = StreamsEpoch.read


class StreamsGroupMemberMetadata(_MemberRecord[StreamsMember]):
    """Type 19: a member of a streams group."""

    read = StreamsMember


class StreamsGroupTargetAssignmentMetadata(_GroupRecord[AssignmentEpoch]):
    """Type 20: the epoch of the target assignment; it follows the records of type 21."""

    read = AssignmentEpoch


class StreamsGroupTargetAssignmentMember(_MemberRecord[TaskAssignment]):
    """Type 21: the target assignment of a member."""

    read = TaskAssignment.read


class StreamsGroupCurrentMemberAssignment(_MemberRecord[StreamsAssignment]):
    """Type 22: the current assignment of a member."""

    read = StreamsAssignment.read


class StreamsGroupTopology(_GroupRecord[Topology]):
    """Type 23: the topology of a streams group."""


class RecordTypes(NamedTuple):
    """The types of a kind's records: the group's epoch, a member, the epoch of the target
    assignment, a member's target and its current assignment, and the one that only the kind has.
    """

    group: Any
    member: Any
    target_epoch: Any
    target: Any
    current: Any
    other: Any


CONSUMER_RECORDS = RecordTypes(
    ConsumerGroupMetadata,
    ConsumerGroupMemberMetadata,
    ConsumerGroupTargetAssignmentMetadata,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupRegularExpression,
)
SHARE_RECORDS = RecordTypes(
    ShareGroupMetadata,
    ShareGroupMemberMetadata,
    ShareGroupTargetAssignmentMetadata,
    ShareGroupTargetAssignmentMember,
    ShareGroupCurrentMemberAssignment,
    ShareGroupStatePartitionMetadata,
)
STREAMS_RECORDS = RecordTypes(
    StreamsGroupMetadata,
    StreamsGroupMemberMetadata,
    StreamsGroupTargetAssignmentMetadata,
    StreamsGroupTargetAssignmentMember,
    StreamsGroupCurrentMemberAssignment,
    StreamsGroupTopology,
)

GroupRecord: TypeAlias = (
    OffsetCommit
    | GroupMetadata
    | ConsumerGroupMetadata
    | ConsumerGroupMemberMetadata
    | ConsumerGroupTargetAssignmentMetadata
    | ConsumerGroupTargetAssignmentMember
    | ConsumerGroupCurrentMemberAssignment
    | ConsumerGroupRegularExpression
    | ShareGroupMemberMetadata
    | ShareGroupMetadata
    | ShareGroupTargetAssignmentMetadata
    | ShareGroupTargetAssignmentMember
    | ShareGroupCurrentMemberAssignment
    | ShareGroupStatePartitionMetadata
    | StreamsGroupMetadata
    | StreamsGroupMemberMetadata
    | StreamsGroupTargetAssignmentMetadata
    | StreamsGroupTargetAssignmentMember
    | StreamsGroupCurrentMemberAssignment
    | StreamsGroupTopology
)

GroupOutcome: TypeAlias = Outcome[GroupRecord, R]
"""The result of a decision about a group, with a reply."""
