"""The results of :class:`headrace.admin.AdminClient`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, Node
from confluent_kafka import admin as confluent
from confluent_kafka.admin import AclOperation, MemberAssignment


@dataclass(frozen=True, slots=True)
class SharePartitionOffsetInfo:
    """The progress of a share group in one partition (KIP-932, KIP-1226).

    :param start_offset: share-partition start offset; None if the group has no state there
    :param leader_epoch: the partition's leader epoch, stored with the start offset; None without it
    :param lag: records not yet accepted, rejected or archived; None while unknown
    :param error: the broker's refusal for this partition; None if there is none
    """

    start_offset: int | None
    leader_epoch: int | None
    lag: int | None
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class ShareMemberDescription:
    """A member of a share group.

    :param host: its address with a leading slash, as in Kafka's tools
    :param assignment: the assigned partitions, in ``assignment.topic_partitions``
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
    """A description of a share group.

    :param authorized_operations: operations that this client may perform; None if they were not
        requested, or the broker sends none
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
    """A share group in a listing."""

    group_id: str
    state: ConsumerGroupState


@dataclass(frozen=True, slots=True)
class ListShareGroupsResult:
    """The share groups of a cluster.

    :param valid: the groups by id
    :param errors: an error for each broker that refused or did not answer
    """

    valid: Sequence[ShareGroupListing]
    errors: Sequence[KafkaException]


@dataclass(frozen=True, slots=True)
class StreamsTasks:
    """Tasks of a member of a streams group: task numbers by subtopology id (KIP-1071)."""

    active: Mapping[str, tuple[int, ...]]
    standby: Mapping[str, tuple[int, ...]]
    warmup: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class StreamsMemberDescription:
    """A member of a streams group.

    :param host: its address with a leading slash, as in Kafka's tools
    :param process_id: the Kafka Streams instance of the member
    :param assignment: the partitions that its active tasks read, in
        ``assignment.topic_partitions``
    """

    member_id: str
    client_id: str
    host: str
    member_epoch: int
    topology_epoch: int
    process_id: str
    tasks: StreamsTasks
    target_tasks: StreamsTasks
    assignment: MemberAssignment


@dataclass(frozen=True, slots=True)
class StreamsSubtopologyDescription:
    """A subtopology of a streams group, with the names of its topics."""

    subtopology_id: str
    source_topics: tuple[str, ...]
    repartition_source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    state_changelog_topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StreamsGroupDescription:
    """A description of a streams group.

    :param state_name: Kafka's name of the state, such as "NotReady" or "Reconciling"
    :param authorized_operations: operations that this client may perform; None if they were not
        requested, or the broker sends none
    """

    group_id: str
    state_name: str
    coordinator: Node
    group_epoch: int
    target_assignment_epoch: int
    topology_epoch: int
    subtopologies: tuple[StreamsSubtopologyDescription, ...]
    members: tuple[StreamsMemberDescription, ...]
    authorized_operations: tuple[AclOperation, ...] | None = None


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group of any type in a listing, by Kafka's names.

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

    :param valid: the groups by id
    :param errors: an error for each broker that refused or did not answer
    """

    valid: Sequence[GroupListing]
    errors: Sequence[KafkaException]


class MemberDescription(confluent.MemberDescription):
    """confluent-kafka's description of a member, with further fields.

    :param member_epoch: None in a group of the classic protocol
    :param upgraded: in a group of the consumer protocol, whether the member uses that protocol
        rather than the classic one (KIP-848); None if unknown
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
    """confluent-kafka's description of a consumer group, with further fields.

    :param state_name: Kafka's name of the state; ``state`` is UNKNOWN for "Assigning" and
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
