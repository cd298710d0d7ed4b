"""One member's heartbeat to a streams group, and the resulting epochs and assignments (KIP-1071).

The records come in the order in which Kafka writes them: the member, the topology, the group epoch,
the target assignment, the member's current assignment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from headrace.errors import ErrorCode, Refusal
from headrace.groups.heartbeats import assignment_due
from headrace.groups.records import (
    AssignmentEpoch,
    GroupRecord,
    StreamsAssignment,
    StreamsEpoch,
    StreamsGroupCurrentMemberAssignment,
    StreamsGroupMemberMetadata,
    StreamsGroupMetadata,
    StreamsGroupTargetAssignmentMember,
    StreamsGroupTargetAssignmentMetadata,
    StreamsGroupTopology,
    StreamsMember,
    StreamsMemberState,
    TaskAssignment,
    Topology,
)
from headrace.groups.settings import StreamsSettings, TopicCatalog

from .assignor import TaskMember, assign_sticky
from .member import Status, StatusCode, StreamsHeartbeat
from .reconciliation import Goal, reconcile
from .state import StreamsState, hash_of
from .topics import ConfiguredTopology, check_topology, configure, in_order, required_topics

MemberOffsets: TypeAlias = Mapping[str, Mapping[tuple[str, int], int]]
"""Sums of changelog offsets by task, by member id."""

NO_TOPOLOGY_EPOCH = -1
"""The validated topology epoch of a group while topics are missing."""


class StreamsTransition:
    """The heartbeat of an accepted member. Changes nothing; collects records.

    :param configured: the topology as it was configured last; None if unknown
    :param initial_delay: the group waits for its first members before it assigns tasks
    :param offsets: the changelog offsets that members have told
    :ivar records: to append
    :ivar statuses: conditions to report
    :ivar configured: the topology as it is configured now
    :ivar was: the member's assignment before
    :ivar now: the member's assignment after
    """

    def __init__(
        self,
        group: StreamsState,
        request: StreamsHeartbeat,
        configured: ConfiguredTopology | None,
        catalog: TopicCatalog,
        settings: StreamsSettings,
        wall_ms: int,
        *,
        initial_delay: bool,
        offsets: MemberOffsets,
    ) -> None:
        self.group, self.request, self.configured = group, request, configured
        self.catalog, self.settings, self.wall_ms = catalog, settings, wall_ms
        self.initial_delay, self.offsets = initial_delay, offsets
        self.member_id = request.member_id
        self.known = group.members.get(self.member_id) or StreamsMember()
        self.member = request.member(self.known)
        self.was = group.current.get(self.member_id) or StreamsAssignment()
        self.now = self.was
        self.epoch = group.epoch
        self.target_epoch = group.target_epoch.epoch
        self.target = group.target.get(self.member_id) or TaskAssignment()
        self.records: list[GroupRecord] = []
        self.statuses: list[Status] = []

    def run(self) -> Refusal | None:
        """Decide the heartbeat.

        :returns: the error of a topology or of tasks that are invalid
        """
        group_id = self.group.group_id
        if self.member != self.known:
            self.records.append(StreamsGroupMemberMetadata(group_id, self.member_id, self.member))
        topology = self._topology()
        if isinstance(topology, Refusal):
            return topology
        self._report_stale_topology()
        metadata_hash = self._topics_hash(topology)
        refusal = (
            self._configure(topology, metadata_hash) or self._check_tasks() or self._check_offsets()
        )
        if refusal is not None:
            return refusal
        assert self.configured is not None
        ready = self.configured.is_ready
        validated = topology.epoch if ready else NO_TOPOLOGY_EPOCH
        configs = self.settings.assignment_configs
        same = (metadata_hash, validated, configs)
        if self._needs_assignment or self.group.epoch[1:] != same:
            self.epoch = StreamsEpoch(self.group.epoch.epoch + 1, *same)
            self.records.append(StreamsGroupMetadata(group_id, self.epoch))
        self._assign()
        self._reconcile()
        if self.configured.problem is not None:
            self.statuses.append(self.configured.problem)
        return None

    @property
    def _needs_assignment(self) -> bool:
        """True if the member is new or has changed; for a static one, in what matters to assignors,
        so that it can come back from another host.
        """
        if self.request.group_instance_id is None:
            return self.member != self.known
        return any(
            getattr(self.member, name) != getattr(self.known, name)
            for name in ("topology_epoch", "rack_id", "client_tags", "process_id")
        )

    @property
    def missing_tags(self) -> tuple[Status, ...]:
        """The status of a member without the client tags that standby tasks are spread by."""
        has = dict(self.member.client_tags)
        missing = [tag for tag in self.settings.rack_tags if tag not in has]
        if not missing:
            return ()
        detail = (
            f"Missing required client tags for rack-aware standby assignment: "
            f"[{', '.join(missing)}]. Configure them via 'client.tag.<tagKey>' in your Streams "
            f"config."
        )
        return (Status(StatusCode.MISSING_CLIENT_TAGS, detail),)

    @property
    def is_settled(self) -> bool:
        """True if the member has its target assignment, and the group needs no other one."""
        return (
            self.now.state is StreamsMemberState.STABLE
            and self.now.member_epoch == self.target_epoch == self.epoch.epoch
            and not self.initial_delay
        )

    # Topology -------------------------------------------------------------------------------------

    def _topology(self) -> Topology | Refusal:
        """Return the topology of the group, or that of its first member, which becomes it."""
        ours, theirs = self.group.topology, self.request.topology
        if theirs is None:
            return ours or Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)
        refusal = check_topology(theirs)
        if refusal is not None:
            return refusal
        if ours is None:
            self.records.append(StreamsGroupTopology(self.group.group_id, theirs))
            return theirs
        if ours.epoch <= theirs.epoch and not _is_same(ours, theirs):
            return Refusal(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
        return ours

    def _report_stale_topology(self) -> None:
        ours, theirs = self.group.topology, self.member.topology_epoch
        if ours is not None and theirs < ours.epoch:
            self._report(
                StatusCode.STALE_TOPOLOGY,
                f"The member's topology epoch {theirs} is behind the group's topology epoch "
                f"{ours.epoch}.",
            )

    def _report(self, code: StatusCode, detail: str) -> None:
        self.statuses.append(Status(code, detail))

    def _topics_hash(self, topology: Topology) -> int:
        if self.group.topology is not None:
            return self.group.topics_hash(self.catalog)
        return hash_of(sorted(required_topics(topology)), self.catalog)

    def _configure(self, topology: Topology, metadata_hash: int) -> Refusal | None:
        """Configure the topology again if it or its topics have changed."""
        unchanged = (
            self.group.topology is not None and metadata_hash == self.group.epoch.metadata_hash
        )
        if self.configured is not None and unchanged:
            return None
        configured = configure(topology, self.catalog.topics)
        if isinstance(configured, Refusal):
            return configured
        self.configured = configured
        return None

    def _check_tasks(self) -> Refusal | None:
        """Return the error of reported tasks that the topology does not have."""
        assert self.configured is not None
        request = self.request
        if not self.configured.is_ready:
            return None
        for tasks in (request.active, request.standby, request.warmup):
            for subtopology_id, partitions in (tasks or {}).items():
                message = self._task_fault(subtopology_id, partitions)
                if message is not None:
                    return Refusal(ErrorCode.INVALID_REQUEST, message)
        return None

    def _check_offsets(self) -> Refusal | None:
        """Return the error of a task whose offset is told twice."""
        for offsets in (self.request.task_offsets, self.request.task_end_offsets):
            seen: set[tuple[str, int]] = set()
            for subtopology_id, partition, _ in offsets or ():
                if (subtopology_id, partition) in seen:
                    return Refusal(
                        ErrorCode.INVALID_REQUEST,
                        f"Task offsets contain a duplicate entry for subtopology {subtopology_id} "
                        f"and partition {partition}.",
                    )
                seen.add((subtopology_id, partition))
        return None

    def _task_fault(self, subtopology_id: str, partitions: tuple[int, ...]) -> str | None:
        assert self.configured is not None
        subtopology = self.configured.subtopologies.get(subtopology_id)
        if subtopology is None:
            return f"Subtopology {subtopology_id} does not exist in the topology."
        for partition in partitions:
            if not 0 <= partition < subtopology.tasks:
                return (
                    f"Task {partition} for subtopology {subtopology_id} is invalid. Number of "
                    f"tasks for this subtopology: {subtopology.tasks}"
                )
        return None

    # Assignments ----------------------------------------------------------------------------------

    def _assign(self) -> None:
        """Compute a target assignment if the group needs one, or report that it has to wait."""
        if self.initial_delay:
            self.target = TaskAssignment()
            self._report(
                StatusCode.ASSIGNMENT_DELAYED,
                "Assignment delayed due to the configured initial rebalance delay.",
            )
        elif self.target_epoch >= self.epoch.epoch:
            return
        elif not assignment_due(
            self.group.target_epoch, self.settings.assignment_interval_ms, self.wall_ms
        ):
            self._report(
                StatusCode.ASSIGNMENT_DELAYED,
                "Assignment delayed due to the configured assignment interval.",
            )
        else:
            assert self.configured is not None
            members = {**self.group.members, self.member_id: self.member}
            replicas = self.settings.standby_replicas
            target = compute_target(self.group, members, self.configured, replicas, self.offsets)
            self.target = target[self.member_id]
            self.target_epoch = self.epoch.epoch
            self.records += target_records(self.group, target, self.target_epoch, self.wall_ms)

    def _reconcile(self) -> None:
        """Reconcile the member with its target assignment."""
        group, process_id = self.group, self.member.process_id

        def is_free_on_process(subtopology_id: str, partition: int) -> bool:
            return not group.is_on_process(process_id, subtopology_id, partition)

        def is_free(subtopology_id: str, partition: int) -> bool:
            return not group.has_active(subtopology_id, partition)

        goal = Goal(self.target_epoch, self.target, is_free, is_free_on_process)
        self.now = reconcile(self.was, goal, self.request.owned)
        if self.now != self.was:
            self.records.append(
                StreamsGroupCurrentMemberAssignment(group.group_id, self.member_id, self.now)
            )


def _is_same(some: Topology, other: Topology) -> bool:
    return some.epoch == other.epoch and in_order(some.subtopologies) == in_order(
        other.subtopologies
    )


def compute_target(
    group: StreamsState,
    members: Mapping[str, StreamsMember],
    configured: ConfiguredTopology,
    standby_replicas: int,
    offsets: MemberOffsets,
) -> Mapping[str, TaskAssignment]:
    """Return a target assignment; no tasks while topics are missing."""
    if not configured.is_ready:
        return dict.fromkeys(members, TaskAssignment())
    previous = {
        member_id: TaskMember(
            member.process_id,
            (group.current.get(member_id) or StreamsAssignment()).assigned,
            offsets.get(member_id, {}),
        )
        for member_id, member in members.items()
    }
    return assign_sticky(previous, configured.task_counts, standby_replicas)


def target_records(
    group: StreamsState, target: Mapping[str, TaskAssignment], epoch: int, wall_ms: int
) -> list[GroupRecord]:
    """Return the records of a new target assignment."""
    records: list[GroupRecord] = [
        StreamsGroupTargetAssignmentMember(group.group_id, member_id, assignment)
        for member_id, assignment in target.items()
        if assignment != group.target.get(member_id)
    ]
    epoch_record = AssignmentEpoch(epoch, wall_ms)
    records.append(StreamsGroupTargetAssignmentMetadata(group.group_id, epoch_record))
    return records
