"""One member's heartbeat to a streams group, and the resulting epochs and assignments (KIP-1071).

A new topology is recorded after the member.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TypeAlias

from headrace.groups.heartbeats.group import Context, HeartbeatTransition
from headrace.groups.records import (
    StreamsAssignment,
    StreamsEpoch,
    StreamsGroupTopology,
    StreamsMember,
    TaskAssignment,
    Topology,
)
from headrace.groups.settings import StreamsSettings
from headrace.protocol.errors import ErrorCode, Refusal

from .assignor import TaskCount, TaskMember, assign_sticky
from .member import Status, StatusCode, StreamsHeartbeat
from .reconciliation import Goal, reconcile
from .state import StreamsState
from .topics import ConfiguredTopology, check_topology, configure, in_order, required_topics

MemberOffsets: TypeAlias = Mapping[str, dict[tuple[str, int], int]]
"""Sums of changelog offsets by task, by member id."""

NO_TOPOLOGY_EPOCH = -1
"""The validated topology epoch of a group while topics are missing."""


class StreamsTransition(HeartbeatTransition[StreamsState, StreamsSettings]):
    """The heartbeat of an accepted member. Changes nothing; collects records.

    :param configured: the topology as it was configured last; None if unknown
    :param initial_delay: the group waits for its first members before it assigns tasks
    :param offsets: the changelog offsets that members have told
    :ivar statuses: conditions to report
    :ivar configured: the topology as it is configured now
    """

    def __init__(
        self,
        state: StreamsState,
        request: StreamsHeartbeat,
        configured: ConfiguredTopology | None,
        context: Context[StreamsSettings],
        *,
        initial_delay: bool,
        offsets: MemberOffsets,
    ) -> None:
        self.former = state.members.get(request.member_id) or StreamsMember()
        super().__init__(state, request.member_id, request.member(self.former), context)
        self.request, self.configured = request, configured
        self.initial_delay, self.offsets = initial_delay, offsets
        self.statuses: list[Status] = []
        self._metadata_hash = state.metadata_hash

    def _prepare(self) -> Refusal | None:
        """Take the topology of the first member, and configure it again if it or its topics have
        changed.
        """
        topology = self._topology()
        if isinstance(topology, Refusal):
            return topology
        self._report_stale_topology()
        state = self.state
        required = state.required if state.topology is not None else required_topics(topology)
        self._metadata_hash = state.topics_hash(self.catalog, required)
        is_unchanged = state.topology is not None and self._metadata_hash == state.metadata_hash
        if self.configured is None or not is_unchanged:
            configured = configure(topology, self.catalog.topics)
            if isinstance(configured, Refusal):
                return configured
            self.configured = configured
        return self._check_tasks(self.configured) or self._check_offsets()

    def _next_epoch(self) -> StreamsEpoch | None:
        assert self.configured is not None
        validated = self.configured.epoch if self.configured.is_ready else NO_TOPOLOGY_EPOCH
        configs = self.settings.assignment_configs
        epoch = StreamsEpoch(self.epoch.epoch, self._metadata_hash, validated, configs)
        if not self._needs_assignment and epoch == self.epoch:
            return None
        return epoch._replace(epoch=epoch.epoch + 1)

    @property
    def _needs_assignment(self) -> bool:
        """True if the member is new or has changed; for a static one, in what matters to assignors,
        so that it can come back from another host.
        """
        if self.request.group_instance_id is None:
            return self.member != self.former
        return any(
            getattr(self.member, name) != getattr(self.former, name)
            for name in ("topology_epoch", "rack_id", "client_tags", "process_id")
        )

    def report_missing_tags(self) -> None:
        """Report that the member lacks client tags that standby tasks are spread by."""
        has = dict(self.member.client_tags)
        missing = [tag for tag in self.settings.rack_tags if tag not in has]
        if missing:
            self.report(
                StatusCode.MISSING_CLIENT_TAGS,
                f"Missing required client tags for rack-aware standby assignment: "
                f"[{', '.join(missing)}]. Configure them via 'client.tag.<tagKey>' in your Streams "
                f"config.",
            )

    @property
    def is_settled(self) -> bool:
        """True if the member has its target assignment, and the group needs no other one."""
        return not self.statuses and super().is_settled

    # Topology -------------------------------------------------------------------------------------

    def _topology(self) -> Topology | Refusal:
        """Return the topology of the group, or that of its first member, which becomes it."""
        ours, theirs = self.state.topology, self.request.topology
        if theirs is None:
            return ours or Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)
        refusal = check_topology(theirs)
        if refusal is not None:
            return refusal
        if ours is None:
            self.records.append(StreamsGroupTopology(self.state.group_id, theirs))
            return theirs
        if ours.epoch <= theirs.epoch and not _is_same(ours, theirs):
            return Refusal(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
        return ours

    def _report_stale_topology(self) -> None:
        ours, theirs = self.state.topology, self.member.topology_epoch
        if ours is not None and theirs < ours.epoch:
            self.report(
                StatusCode.STALE_TOPOLOGY,
                f"The member's topology epoch {theirs} is behind the group's topology epoch "
                f"{ours.epoch}.",
            )

    def report(self, code: StatusCode, detail: str) -> None:
        """Add a condition to report."""
        self.statuses.append(Status(code, detail))

    def _check_tasks(self, configured: ConfiguredTopology) -> Refusal | None:
        """Return the error of reported tasks that the topology does not have."""
        request = self.request
        if not configured.is_ready:
            return None
        for tasks in (request.active, request.standby, request.warmup):
            for subtopology_id, partitions in (tasks or {}).items():
                subtopology = configured.subtopologies.get(subtopology_id)
                if subtopology is None:
                    return Refusal(
                        ErrorCode.INVALID_REQUEST,
                        f"Subtopology {subtopology_id} does not exist in the topology.",
                    )
                for partition in partitions:
                    if not 0 <= partition < subtopology.tasks:
                        return Refusal(
                            ErrorCode.INVALID_REQUEST,
                            f"Task {partition} for subtopology {subtopology_id} is invalid. Number "
                            f"of tasks for this subtopology: {subtopology.tasks}",
                        )
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

    # Assignments ----------------------------------------------------------------------------------

    def _assigns(self) -> bool:
        """Return whether a target assignment is needed and due; report that the group waits."""
        reason = None
        if self.initial_delay:
            self.target = self.state.no_target
            reason = "initial rebalance delay"
        elif self.epoch.epoch > self.target_epoch.epoch and not self._is_due():
            reason = "assignment interval"
        if reason is None:
            return super()._assigns()
        self.report(
            StatusCode.ASSIGNMENT_DELAYED, f"Assignment delayed due to the configured {reason}."
        )
        return False

    def _assign(self) -> Mapping[str, TaskAssignment]:
        assert self.configured is not None
        replicas = self.settings.standby_replicas
        return compute_target(self.state, self.members, self.configured, replicas, self.offsets)

    def _reconcile(self) -> StreamsAssignment:
        is_free_on_process = partial(self.state.is_free_on, self.member.process_id)
        goal = Goal(self.target_epoch.epoch, self.target, self.state.is_free, is_free_on_process)
        return reconcile(self.was, goal, self.request.owned)


def _is_same(some: Topology, other: Topology) -> bool:
    return some.epoch == other.epoch and in_order(some.subtopologies) == in_order(
        other.subtopologies
    )


def compute_target(
    state: StreamsState,
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
            state.current.get(member_id, state.no_current).assigned,
            offsets.get(member_id, {}),
        )
        for member_id, member in members.items()
    }
    counts = {
        subtopology_id: TaskCount(subtopology.tasks, bool(subtopology.changelogs))
        for subtopology_id, subtopology in configured.subtopologies.items()
    }
    return assign_sticky(previous, counts, standby_replicas)
