"""The heartbeat of a streams group's member and its answer (KIP-1071)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from headrace.groups.heartbeats.member import (
    NO_TIMEOUT,
    STATIC_LEAVE_EPOCH,
    Heartbeat,
    HeartbeatReply,
)
from headrace.groups.records import (
    ByRole,
    HeldTaskAssignment,
    InternalTopic,
    StreamsMember,
    TaskAssignment,
    Tasks,
    Topology,
)
from headrace.protocol.configuration import Configuration
from headrace.protocol.errors import ErrorCode, Refusal, invalid_request

NO_LAG = -1
"""The acceptable recovery lag in answers that do not have it."""


class StatusCode(IntEnum):
    """A condition of the group that a heartbeat's answer reports."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


TaskOffset = tuple[str, int, int]
"""The sum of the changelog offsets of a task: subtopology id, partition, offset."""


class Status(NamedTuple):
    """A status with its text."""

    code: StatusCode
    detail: str


@dataclass(frozen=True, slots=True)
class StreamsHeartbeat(Heartbeat):
    """A StreamsGroupHeartbeat request. None stands for no change.

    :param rebalance_timeout_ms: the longest time to close revoked tasks; -1 for no change
    :param topology: given when the member joins
    :param tasks: the tasks that the member reports as its own
    :param task_offsets: the changelog offsets of tasks; ``task_end_offsets`` those at the ends of
        the changelogs
    :param shutdown_application: ask all members to shut down
    :param endpoint_epoch: the epoch of the endpoints that the member knows
    """

    rebalance_timeout_ms: int
    topology: Topology | None
    tasks: ByRole[Tasks | None]
    process_id: str | None
    user_endpoint: StreamsMember.Endpoint | None
    client_tags: tuple[StreamsMember.KeyValue, ...] | None
    task_offsets: tuple[TaskOffset, ...] | None = None
    task_end_offsets: tuple[TaskOffset, ...] | None = None
    shutdown_application: bool = False
    endpoint_epoch: int = 0

    @property
    def topology_epoch(self) -> int | None:
        """The epoch of the topology; None without one."""
        return None if self.topology is None else self.topology.epoch

    @property
    def owned(self) -> TaskAssignment | None:
        """The tasks that the member reports; None when it reports none."""
        active, standby, warmup = self.tasks
        if active is None or standby is None or warmup is None:
            return None
        return ByRole(active, standby, warmup)

    def check(self, group_id: str, config: Configuration) -> Refusal | None:
        """Return the error of a request that is invalid for any group."""
        subtopologies = () if self.topology is None else self.topology.subtopologies
        if any(subtopology.source_topic_regex for subtopology in subtopologies):
            return invalid_request("Regular expressions for source topics are not supported yet.")
        if refusal := Heartbeat.check(self, group_id, config):
            return refusal
        for subtopology in subtopologies:
            for topic in subtopology.state_changelog_topics:
                if topic.partitions:
                    return Refusal(
                        ErrorCode.STREAMS_INVALID_TOPOLOGY,
                        f"Changelog topic {topic.name} must have an undefined partition count, "
                        f"but it is set to {topic.partitions}.",
                    )
        return None

    def _fault(self) -> str | None:
        if self.joins:
            if self.rebalance_timeout_ms == NO_TIMEOUT:
                return "RebalanceTimeoutMs must be provided in first request."
            for name, tasks in zip(("Active", "Standby", "Warmup"), self.tasks, strict=True):
                if tasks is None or tasks:
                    return f"{name}Tasks must be empty when (re-)joining."
            return "Topology must be non-null when (re-)joining." if self.topology is None else None
        if self.member_epoch < STATIC_LEAVE_EPOCH:
            return f"MemberEpoch is {self.member_epoch}, but must be greater than or equal to -2."
        if len({tasks is None for tasks in self.tasks}) > 1:
            return "If one task-type is non-null, all must be non-null."
        if self.topology is not None:
            return "Topology can only be provided when (re-)joining."
        return None

    def member(self, former: StreamsMember) -> StreamsMember:
        """Return the member with the changes of this heartbeat."""
        member = Heartbeat.member(self, former)
        if self.joins:  # a member that joins without an endpoint has none any more
            member.user_endpoint = self.user_endpoint
        return member


class EndpointPartitions(NamedTuple):
    """The partitions that the tasks of a member read, for interactive queries.

    :param active: partitions by topic, of active tasks; likewise ``standby``
    """

    endpoint: StreamsMember.Endpoint
    active: Sequence[tuple[str, tuple[int, ...]]]
    standby: Sequence[tuple[str, tuple[int, ...]]]


@dataclass(frozen=True, slots=True)
class StreamsHeartbeatReply(HeartbeatReply[HeldTaskAssignment]):
    """The answer to a heartbeat.

    :param endpoints: the endpoints of all members; None if the member knows them
    :param missing_topics: internal topics to create, with their numbers of partitions
    """

    statuses: tuple[Status, ...] = ()
    endpoint_epoch: int = 0
    endpoints: tuple[EndpointPartitions, ...] | None = None
    missing_topics: tuple[InternalTopic, ...] = ()
    task_offset_interval_ms: int = 0
    acceptable_recovery_lag: int = NO_LAG
