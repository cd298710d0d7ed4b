"""The coordinator records of ``__consumer_offsets``, as values;
:mod:`headrace.groups.record_schemas` has their bytes.

Each record has its group id, and its member id or partition if it has one. A ``value`` of None is
a tombstone. Source: the schemas of Apache Kafka's group coordinator, KIP-211 (explicit retention),
KIP-345 (static members), KIP-848 (consumer groups), KIP-932 (share groups), KIP-1071 (streams
groups).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

V = TypeVar("V")

NO_TIMESTAMP = -1
"""The expire timestamp of a commit without its own retention; a state timestamp missing in old
records.
"""

Assignment: TypeAlias = Mapping[UUID, tuple[int, ...]]
"""Partitions by topic id."""

HeldPartitions: TypeAlias = Mapping[UUID, Mapping[int, int]]
"""Partitions by topic id, each with the epoch of its assignment (KIP-1251)."""


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


@dataclass(frozen=True, slots=True)
class GenerationMember:
    """A member of a recorded generation of a classic group.

    :param group_instance_id: the instance id of a static member (KIP-345)
    :param subscription: the member's metadata for the chosen protocol, opaque to the broker
    :param assignment: the assignment by the leader, likewise opaque
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class Generation:
    """A classic group as of its last finished rebalance. Without members the group is empty.

    :param protocol_type: ``consumer``, ``connect``, …
    :param protocol: the protocol that all members support; None without members
    :param leader: None without members, and in a consumer group that has become classic and has to
        rebalance
    :param current_state_timestamp_ms: when the group entered its state, in epoch milliseconds; -1
        when unknown
    """

    protocol_type: str
    generation_id: int
    protocol: str | None
    leader: str | None
    current_state_timestamp_ms: int
    members: tuple[GenerationMember, ...] = ()


@dataclass(frozen=True, slots=True)
class ClassicMember:
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


class MemberState(IntEnum):
    """The reconciliation state of a consumer group's member; the values are those in records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


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


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that match a regular expression, sorted.

    :param version: the version of the cluster's metadata; 0, since headrace matches after each
        change
    """

    topics: tuple[str, ...]
    version: int = 0
    timestamp_ms: int = NO_TIMESTAMP


@dataclass(frozen=True, slots=True)
class ShareMember:
    """The description of a share group's member. Names are sorted."""

    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]


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
    """The current assignment of a share group's member."""

    member_epoch: int
    previous_member_epoch: int
    assigned: Assignment


class SharedTopic(NamedTuple):
    """Partitions of a topic with share state that is initialised or being initialised."""

    topic_name: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StatePartitions:
    """The partitions in which a share group has share state, by topic id.

    :param deleting: the names of topics whose state is being deleted
    """

    initializing: Mapping[UUID, SharedTopic] = field(default_factory=dict)
    initialized: Mapping[UUID, SharedTopic] = field(default_factory=dict)
    deleting: Mapping[UUID, str] = field(default_factory=dict)


Tasks: TypeAlias = Mapping[str, tuple[int, ...]]
"""Tasks of a streams group: partitions, in order, by subtopology id."""

HeldTasks: TypeAlias = Mapping[str, Mapping[int, int]]
"""Active tasks by subtopology id, each partition with the epoch of its assignment (KIP-1251)."""


class InternalTopic(NamedTuple):
    """A changelog or repartition topic in the topology of a streams group.

    :param partitions: 0 if the coordinator derives the number from other topics
    :param replication_factor: 0 for the broker's default
    :param configs: names and values of topic configs
    """

    name: str
    partitions: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...] = ()


class CopartitionGroup(NamedTuple):
    """Source topics that must have the same number of partitions, as indexes into the lists of
    their subtopology.
    """

    source_topics: tuple[int, ...] = ()
    source_topic_regex: tuple[int, ...] = ()
    repartition_source_topics: tuple[int, ...] = ()


class Subtopology(NamedTuple):
    """A part of a topology whose tasks are assigned together, one task for each partition."""

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    source_topic_regex: tuple[str, ...] = ()
    state_changelog_topics: tuple[InternalTopic, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()


class Topology(NamedTuple):
    """The topology of a streams group, as its first member has sent it."""

    epoch: int
    subtopologies: tuple[Subtopology, ...]


class Endpoint(NamedTuple):
    """The address of a member for interactive queries."""

    host: str
    port: int


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


@dataclass(frozen=True, slots=True)
class TaskAssignment:
    """Tasks of a streams group's member by role."""

    active: Tasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)


class StreamsMemberState(IntEnum):
    """The reconciliation state of a streams group's member; the values are those in records."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3


@dataclass(frozen=True, slots=True)
class HeldTaskAssignment:
    """Tasks of a streams group's member by role; active tasks with the epochs of their
    assignment.
    """

    active: HeldTasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)


@dataclass(frozen=True, slots=True)
class StreamsAssignment:
    """The current assignment of a streams group's member.

    :param assigned: the tasks that the member may run
    :param pending_revocation: the tasks that the member has to close and may still run
    """

    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: StreamsMemberState = StreamsMemberState.STABLE
    assigned: HeldTaskAssignment = field(default_factory=HeldTaskAssignment)
    pending_revocation: HeldTaskAssignment = field(default_factory=HeldTaskAssignment)


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


class ConsumerGroupMemberMetadata(_MemberRecord[ConsumerMember]):
    """Type 5: a member of a consumer group."""


class ConsumerGroupTargetAssignmentMetadata(_GroupRecord[AssignmentEpoch]):
    """Type 6: the epoch of the target assignment; it follows the records of type 7."""


class ConsumerGroupTargetAssignmentMember(_MemberRecord[Assignment]):
    """Type 7: the target assignment of a member."""


class ConsumerGroupCurrentMemberAssignment(_MemberRecord[ConsumerAssignment]):
    """Type 8: the current assignment of a member."""


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


class ShareGroupTargetAssignmentMetadata(_GroupRecord[AssignmentEpoch]):
    """Type 12: the epoch of the target assignment; it follows the records of type 13."""


class ShareGroupTargetAssignmentMember(_MemberRecord[Assignment]):
    """Type 13: the target assignment of a member."""


class ShareGroupCurrentMemberAssignment(_MemberRecord[CurrentAssignment]):
    """Type 14: the current assignment of a member."""


class ShareGroupStatePartitionMetadata(_GroupRecord[StatePartitions]):
    """Type 15: the partitions in which a share group has share state."""


class StreamsGroupMetadata(_GroupRecord[StreamsEpoch]):
    """Type 17: the epoch of a streams group."""


class StreamsGroupMemberMetadata(_MemberRecord[StreamsMember]):
    """Type 19: a member of a streams group."""


class StreamsGroupTargetAssignmentMetadata(_GroupRecord[AssignmentEpoch]):
    """Type 20: the epoch of the target assignment; it follows the records of type 21."""


class StreamsGroupTargetAssignmentMember(_MemberRecord[TaskAssignment]):
    """Type 21: the target assignment of a member."""


class StreamsGroupCurrentMemberAssignment(_MemberRecord[StreamsAssignment]):
    """Type 22: the current assignment of a member."""


class StreamsGroupTopology(_GroupRecord[Topology]):
    """Type 23: the topology of a streams group."""


ConsumerGroupRecord: TypeAlias = (
    ConsumerGroupMetadata
    | ConsumerGroupMemberMetadata
    | ConsumerGroupTargetAssignmentMetadata
    | ConsumerGroupTargetAssignmentMember
    | ConsumerGroupCurrentMemberAssignment
    | ConsumerGroupRegularExpression
)
"""The records of a consumer group."""

StreamsGroupRecord: TypeAlias = (
    StreamsGroupMetadata
    | StreamsGroupMemberMetadata
    | StreamsGroupTargetAssignmentMetadata
    | StreamsGroupTargetAssignmentMember
    | StreamsGroupCurrentMemberAssignment
    | StreamsGroupTopology
)
"""The records of a streams group."""

GroupRecord: TypeAlias = (
    OffsetCommit
    | GroupMetadata
    | ConsumerGroupRecord
    | ShareGroupMemberMetadata
    | ShareGroupMetadata
    | ShareGroupTargetAssignmentMetadata
    | ShareGroupTargetAssignmentMember
    | ShareGroupCurrentMemberAssignment
    | ShareGroupStatePartitionMetadata
    | StreamsGroupRecord
)
