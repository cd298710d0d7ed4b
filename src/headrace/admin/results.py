"""What :class:`headrace.admin.AdminClient` answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, Node
from confluent_kafka import admin as confluent
from confluent_kafka.admin import AclOperation, MemberAssignment


@dataclass(frozen=True, slots=True)
class SharePartitionOffsetInfo:
    """How far a share group is with one partition (KIP-932, KIP-1226).

    :param start_offset: the first offset not yet dealt with; None before the group's first state
        there
    :param leader_epoch: of the partition's leader when that state was written; None with it
    :param lag: records not yet accepted, rejected or given up; None while unknown
    :param error: why the broker tells nothing of this partition; None when it does
    """

    start_offset: int | None
    leader_epoch: int | None
    lag: int | None
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class ShareMemberDescription:
    """One member of a share group.

    :param host: its address with a leading slash, as Kafka prints it
    :param assignment: the partitions it may acquire records from, as
        ``assignment.topic_partitions``
    """

    member_id: str
    client_id: str
    host: str
    member_epoch: int
    rack_id: str | None
    subscribed_topics: tuple[str, ...]
    assignment: MemberAssignment


@dataclass(frozen=True, slots=True)
class ShareGroupDescription:
    """A share group as its coordinator describes it.

    :param authorized_operations: what we may do with it; None unless asked for, and where the
        broker does not know
    """

    group_id: str
    state: ConsumerGroupState
    coordinator: Node
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ShareMemberDescription, ...]
    authorized_operations: tuple[AclOperation, ...] | None = None


@dataclass(frozen=True, slots=True)
class ShareGroupListing:
    """A share group in a list."""

    group_id: str
    state: ConsumerGroupState


@dataclass(frozen=True, slots=True)
class ListShareGroupsResult:
    """The share groups of a cluster.

    :param valid: by group id
    :param errors: one for each broker that did not tell
    """

    valid: Sequence[ShareGroupListing]
    errors: Sequence[KafkaException]


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group of any type in a list, in Kafka's own words.

    :param type: "classic", "consumer", "share" or "streams"
    :param protocol: "consumer", "share", "connect" …; empty for a group that has only committed
        offsets
    :param state: "Empty", "Stable", "PreparingRebalance" …
    """

    group_id: str
    type: str
    protocol: str
    state: str


@dataclass(frozen=True, slots=True)
class ListGroupsResult:
    """The groups of a cluster.

    :param valid: by group id
    :param errors: one for each broker that did not tell
    """

    valid: Sequence[GroupListing]
    errors: Sequence[KafkaException]


class MemberDescription(confluent.MemberDescription):
    """confluent-kafka's description of a member, and what it leaves out.

    :param member_epoch: None in a group of the classic protocol
    :param upgraded: whether the member speaks the consumer protocol (KIP-848), True or False while
        a group of that type may have members of both kinds; None where the broker does not tell
    """

    def __init__(
        self,
        *args: Any,
        member_epoch: int | None = None,
        upgraded: bool | None = None,
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        self.member_epoch = member_epoch
        self.upgraded = upgraded


class ConsumerGroupDescription(confluent.ConsumerGroupDescription):
    """confluent-kafka's description of a consumer group, and what it leaves out.

    :param state_name: the state in Kafka's words; ``state`` is UNKNOWN for "Assigning" and
        "Reconciling"
    :param group_epoch: None in a group of the classic protocol
    :param target_assignment_epoch: None in a group of the classic protocol
    """

    members: list[MemberDescription]  # type: ignore[assignment]

    def __init__(
        self,
        *args: Any,
        state_name: str,
        group_epoch: int | None = None,
        target_assignment_epoch: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        self.state_name = state_name
        self.group_epoch = group_epoch
        self.target_assignment_epoch = target_assignment_epoch
