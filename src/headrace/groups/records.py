"""The coordinator records of ``__consumer_offsets``, as values;
:mod:`headrace.groups.record_schemas` has their bytes.

Each names its group, and its member or partition where the record is about one. Its ``value`` is
None for a tombstone. Source: the schemas of Apache Kafka's group coordinator, KIP-211 (explicit
retention), KIP-345 (static members), KIP-848 (consumer groups), KIP-932 (share groups).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, TypeAlias
from uuid import UUID

NO_TIMESTAMP = -1
"""An expire timestamp that was not asked for; a state timestamp that older records do not have."""

Assignment: TypeAlias = Mapping[UUID, tuple[int, ...]]
"""Partitions by topic id."""

HeldPartitions: TypeAlias = Mapping[UUID, Mapping[int, int]]
"""Partitions by topic id, each with the epoch at which its member got it (KIP-1251)."""


class CommittedOffset(NamedTuple):
    """How far a group has come in one partition. A named tuple, since one is made for each commit.

    :param offset: of the next record to read
    :param leader_epoch: of the last record read; -1 when unknown
    :param metadata: the client's own text
    :param expire_timestamp_ms: when the commit asked for its own retention; else -1
    :param topic_id: of the topic at the time of the commit; None in records of older brokers
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = NO_TIMESTAMP
    expire_timestamp_ms: int = NO_TIMESTAMP
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class GenerationMember:
    """A member of a finished generation.

    :param group_instance_id: of a static member (KIP-345)
    :param subscription: the member's metadata for the chosen protocol, opaque to the broker
    :param assignment: what the leader gave it, likewise opaque
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
    """A classic group as of its last finished rebalance; without members the group is empty.

    :param protocol_type: ``consumer``, ``connect``, …
    :param protocol: what the members agreed on; None when there are none
    :param current_state_timestamp_ms: since when the group is in its state; -1 when unknown
    """

    protocol_type: str
    generation_id: int
    protocol: str | None
    leader: str | None
    current_state_timestamp_ms: int
    members: tuple[GenerationMember, ...] = ()


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """What a consumer group knows of a member that speaks the classic protocol.

    :param protocols: those of its JoinGroup, the one it likes best first, each with its metadata
    """

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A consumer group's member as it introduced itself. Names are sorted.

    :param subscribed_topic_regex: "" for none
    :param server_assignor: the assignor that it would like; None when it leaves that to the others
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
    """How far a consumer group's member is on the way to its target assignment, in the numbers of
    its records.
    """

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


@dataclass(frozen=True, slots=True)
class ConsumerAssignment:
    """What a consumer group's member was last told.

    :param assigned: what it may read
    :param pending_revocation: what it has been told to give up and may still be reading
    """

    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: HeldPartitions = field(default_factory=dict)
    pending_revocation: HeldPartitions = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that match a regular expression, sorted.

    :param version: of the cluster's metadata; as headrace looks at each change at once, 0
    """

    topics: tuple[str, ...]
    version: int = 0
    timestamp_ms: int = NO_TIMESTAMP


@dataclass(frozen=True, slots=True)
class ShareMember:
    """A share group's member. Names are sorted."""

    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]


class GroupEpoch(NamedTuple):
    """The epoch of a consumer or share group, and the hash of the topics it is subscribed to."""

    epoch: int
    metadata_hash: int


class AssignmentEpoch(NamedTuple):
    """The group epoch for which the target assignment was computed, and when."""

    epoch: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """What a member was last told."""

    member_epoch: int
    previous_member_epoch: int
    assigned: Assignment


class SharedTopic(NamedTuple):
    """Partitions of a topic that have, or are getting, share state."""

    topic_name: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StatePartitions:
    """Where a share group has state in the share coordinator, by topic id.

    :param deleting: the names of topics whose state is being deleted
    """

    initializing: Mapping[UUID, SharedTopic] = field(default_factory=dict)
    initialized: Mapping[UUID, SharedTopic] = field(default_factory=dict)
    deleting: Mapping[UUID, str] = field(default_factory=dict)


class OffsetCommit(NamedTuple):
    """Types 0 and 1: a committed offset. A named tuple, since one is made for each commit."""

    group_id: str
    topic: str
    partition: int
    value: CommittedOffset | None


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """Type 2: a classic group's last finished generation."""

    group_id: str
    value: Generation | None


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """Type 3: a consumer group's epoch."""

    group_id: str
    value: GroupEpoch | None


@dataclass(frozen=True, slots=True)
class ConsumerGroupMemberMetadata:
    """Type 5: a consumer group's member."""

    group_id: str
    member_id: str
    value: ConsumerMember | None


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMetadata:
    """Type 6: the epoch of the target assignment; closes the records of type 7 before it."""

    group_id: str
    value: AssignmentEpoch | None


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMember:
    """Type 7: what a member shall have."""

    group_id: str
    member_id: str
    value: Assignment | None


@dataclass(frozen=True, slots=True)
class ConsumerGroupCurrentMemberAssignment:
    """Type 8: what a member has."""

    group_id: str
    member_id: str
    value: ConsumerAssignment | None


@dataclass(frozen=True, slots=True)
class ConsumerGroupRegularExpression:
    """Type 16: the topics of a regular expression that members are subscribed to."""

    group_id: str
    regex: str
    value: ResolvedRegex | None


@dataclass(frozen=True, slots=True)
class ShareGroupMemberMetadata:
    """Type 10: a share group's member."""

    group_id: str
    member_id: str
    value: ShareMember | None


@dataclass(frozen=True, slots=True)
class ShareGroupMetadata:
    """Type 11: a share group's epoch."""

    group_id: str
    value: GroupEpoch | None


@dataclass(frozen=True, slots=True)
class ShareGroupTargetAssignmentMetadata:
    """Type 12: the epoch of the target assignment; closes the records of type 13 before it."""

    group_id: str
    value: AssignmentEpoch | None


@dataclass(frozen=True, slots=True)
class ShareGroupTargetAssignmentMember:
    """Type 13: what a member shall have."""

    group_id: str
    member_id: str
    value: Assignment | None


@dataclass(frozen=True, slots=True)
class ShareGroupCurrentMemberAssignment:
    """Type 14: what a member has."""

    group_id: str
    member_id: str
    value: CurrentAssignment | None


@dataclass(frozen=True, slots=True)
class ShareGroupStatePartitionMetadata:
    """Type 15: where a share group has state."""

    group_id: str
    value: StatePartitions | None


ConsumerGroupRecord: TypeAlias = (
    ConsumerGroupMetadata
    | ConsumerGroupMemberMetadata
    | ConsumerGroupTargetAssignmentMetadata
    | ConsumerGroupTargetAssignmentMember
    | ConsumerGroupCurrentMemberAssignment
    | ConsumerGroupRegularExpression
)
"""The records of a consumer group."""

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
)
