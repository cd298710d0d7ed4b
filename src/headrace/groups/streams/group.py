"""A streams group (KIP-1071, docs/behaviour/groups.md).

Members are threads of Kafka Streams applications. The first member brings the topology; from it the
coordinator derives the tasks and the internal topics. The answer has the tasks that the member may
run, and what the group lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import islice, starmap

from headrace.deadlines import Deadlines
from headrace.groups.catalog import Topics
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.deadlines import ASSIGN, TimerChanges, TimerKey
from headrace.groups.heartbeats.group import Context, HeartbeatGroup, HeartbeatTransition
from headrace.groups.records import (
    STREAMS_RECORDS,
    AssignmentEpoch,
    GroupOutcome,
    GroupRecord,
    HeldTaskAssignment,
    HeldTasks,
    OffsetCommit,
    StreamsAssignment,
    StreamsEpoch,
    StreamsMember,
    TaskAssignment,
    Topology,
)
from headrace.groups.service import HeartbeatService
from headrace.outcome import Apply, Outcome
from headrace.protocol.configuration import Configuration
from headrace.protocol.errors import ErrorCode, Refusal, invalid_request

from .assignor import TaskMember, assign_sticky
from .member import (
    EndpointPartitions,
    Status,
    StatusCode,
    StreamsHeartbeat,
    StreamsHeartbeatReply,
)
from .reconciliation import Goal, holds_only, reconcile
from .state import StreamsState
from .topics import (
    MAX_STREAMS_TASKS,
    ConfiguredTopology,
    check_topology,
    configure,
    in_order,
    required_topics,
    sources,
)

MemberOffsets = Mapping[str, dict[tuple[str, int], int]]
"""Sums of changelog offsets by task, by member id."""

_STANDBY_REPLICAS = "num.standby.replicas"
_INITIAL_DELAY = "initial.rebalance.delay.ms"

NO_TOPOLOGY_EPOCH = -1
"""The validated topology epoch of a group while topics are missing."""


class StreamsTransition(HeartbeatTransition[StreamsState]):
    """The heartbeat of an accepted member. Changes nothing; collects records. A new topology is
    recorded after the member.

    :ivar statuses: conditions to report
    :ivar configured: the topology as it is configured now
    :ivar offsets: the changelog offsets that the member tells, by task, and those at the ends; each
        is None if it tells none
    """

    def _prepare(self) -> Refusal | None:
        """Take the topology of the first member, and configure it again if it or its topics have
        changed.
        """
        self.statuses: list[Status] = []
        self.offsets: list[dict[tuple[str, int], int] | None] = []
        topology = self._topology()
        if isinstance(topology, Refusal):
            return topology
        state, member_epoch = self.state, self.member.topology_epoch
        if member_epoch < topology.epoch:
            self.report(
                StatusCode.STALE_TOPOLOGY,
                f"The member's topology epoch {member_epoch} is behind the group's topology epoch "
                f"{topology.epoch}.",
            )
        required = (
            state.required
            if state.topology is not None
            else required_topics(topology.subtopologies)
        )
        self._metadata_hash = state.topics_hash(self.catalog, required)
        configured = self.group.configured  # None before the first topology
        if configured is None or self._metadata_hash != self.epoch.metadata_hash:
            configured = configure(topology, self.catalog.topics)
            if isinstance(configured, Refusal):
                return configured
        self.configured: ConfiguredTopology = configured
        return self._check_tasks(configured) or self._take_offsets(topology)

    def _next_epoch(self) -> StreamsEpoch | None:
        validated = self.configured.epoch if self.configured.is_ready else NO_TOPOLOGY_EPOCH
        configs = self.group.assignment_configs
        epoch = StreamsEpoch(self.epoch.epoch, self._metadata_hash, validated, configs)
        if not self._needs_assignment and epoch == self.epoch:
            return None
        epoch.epoch += 1
        return epoch

    @property
    def _needs_assignment(self) -> bool:
        """True if the member is new or has changed; for a static one, in what matters to assignors,
        so that it can come back from another host.
        """
        if self.request.instance_id is None:
            return self.member != self.former
        return any(
            getattr(self.member, name) != getattr(self.former, name)
            for name in ("topology_epoch", "rack_id", "client_tags", "process_id")
        )

    def report_missing_tags(self) -> None:
        """Report that the member lacks client tags that standby tasks are spread by."""
        keys = {tag.key for tag in self.member.client_tags}
        missing = [tag for tag in self.group.rack_tags if tag not in keys]
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
        if refusal := check_topology(theirs):
            return refusal
        if ours is None:
            self.records.append(STREAMS_RECORDS.other(self.state.group_id, theirs))
            return theirs
        is_same = ours.epoch == theirs.epoch and in_order(ours.subtopologies) == in_order(
            theirs.subtopologies
        )
        if ours.epoch <= theirs.epoch and not is_same:
            return invalid_request("Topology updates are not supported yet.")
        return ours

    def report(self, code: StatusCode, detail: str) -> None:
        """Add a condition to report."""
        self.statuses.append(Status(code, detail))

    def _check_tasks(self, configured: ConfiguredTopology) -> Refusal | None:
        """Return the error of reported tasks that the topology does not have."""
        request = self.request
        if not configured.is_ready:
            return None
        for tasks in request.tasks:
            for subtopology_id, partitions in (tasks or {}).items():
                subtopology = configured.subtopologies.get(subtopology_id)
                if subtopology is None:
                    return invalid_request(
                        f"Subtopology {subtopology_id} does not exist in the topology."
                    )
                for partition in partitions:
                    if not 0 <= partition < subtopology.tasks:
                        return invalid_request(
                            f"Task {partition} for subtopology {subtopology_id} is invalid. Number "
                            f"of tasks for this subtopology: {subtopology.tasks}"
                        )
        return None

    def _take_offsets(self, topology: Topology) -> Refusal | None:
        """Take the offsets that the member tells; return the error of a task that is named twice.

        Those of other subtopologies are dropped, and all beyond the largest number of tasks, so
        that a group has a limit.
        """
        ids = {subtopology.subtopology_id for subtopology in topology.subtopologies}
        for offsets in (self.request.task_offsets, self.request.task_end_offsets):
            by_task: dict[tuple[str, int], int] = {}
            for subtopology_id, partition, offset in offsets or ():
                if (subtopology_id, partition) in by_task:
                    return invalid_request(
                        f"Task offsets contain a duplicate entry for subtopology {subtopology_id} "
                        f"and partition {partition}."
                    )
                by_task[subtopology_id, partition] = offset
            tasks = [task for task in islice(by_task, MAX_STREAMS_TASKS) if task[0] in ids]
            self.offsets.append(None if offsets is None else {t: by_task[t] for t in tasks})
        return None

    # Assignments ----------------------------------------------------------------------------------

    def _assigns(self) -> bool:
        """Return whether a target assignment is needed and due; report that the group waits."""
        reason = None
        if self.group.timers.has(ASSIGN) or self.group.begins_delay():  # for its first members
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
        offsets, own_offsets = self.group.task_offsets, self.offsets[0]
        if own_offsets is not None:
            offsets = {**offsets, self.member_id: own_offsets}
        return self.group.target(self.state, self.members, self.configured, offsets)

    def _reconcile(self) -> StreamsAssignment:
        is_free_on_process = partial(self.state.is_free_on, self.member.process_id)
        goal = Goal(self.target_epoch.epoch, self.target, self.state.is_free, is_free_on_process)
        return reconcile(self.was, goal, self.request.owned)


class StreamsGroup(HeartbeatGroup[StreamsState, StreamsHeartbeat, StreamsHeartbeatReply]):
    """One streams group. Commands decide and change nothing; :meth:`replay` applies their records.

    :ivar configured: the topology with the numbers of partitions of its topics; None until it is
        needed
    :ivar shutdown_member_id: the member that asked all members to shut down; None if none did
    :ivar endpoint_epoch: counts the changes of assignments of members with an endpoint
    :ivar task_offsets: the changelog offsets that members have told: sums by task, by member id;
        ``task_end_offsets`` those at the ends of the changelogs
    """

    type_name = "streams"
    state_type = StreamsState
    transition_type = StreamsTransition

    def __init__(self, group_id: str, timers: Deadlines[TimerKey], config: Configuration) -> None:
        super().__init__(group_id, timers, config)
        self.configured: ConfiguredTopology | None = None
        self.shutdown_member_id: str | None = None
        self.endpoint_epoch = 0
        self.task_offsets: dict[str, dict[tuple[str, int], int]] = {}
        self.task_end_offsets: dict[str, dict[tuple[str, int], int]] = {}

    # Heartbeat ------------------------------------------------------------------------------------

    def _needs_room(self, request: StreamsHeartbeat, owner: str | None) -> bool:
        # A static member that comes back takes the place that it has left.
        return request.joins and owner is None

    def _may_repeat(self, request: StreamsHeartbeat, current: StreamsAssignment) -> bool:
        return holds_only(request.owned, current.assigned)

    def begins_delay(self) -> bool:
        """Return whether a heartbeat begins the initial rebalance delay, or may do so."""
        return self.is_empty and self.number(_INITIAL_DELAY) > 0

    @property
    def rack_tags(self) -> tuple[str, ...]:
        """The client tags that members should have."""
        return self.config.group_list(self.group_id, "streams.rack.aware.assignment.tags")

    @property
    def assignment_configs(self) -> tuple[StreamsEpoch.LastAssignmentConfig, ...]:
        """The configs that begin a new group epoch when they change."""
        configs = {_STANDBY_REPLICAS: str(self.number(_STANDBY_REPLICAS))}
        if self.rack_tags:
            configs["rack.aware.assignment.tags"] = ",".join(self.rack_tags)
        return tuple(starmap(StreamsEpoch.LastAssignmentConfig, configs.items()))

    def target(
        self,
        state: StreamsState,
        members: Mapping[str, StreamsMember],
        configured: ConfiguredTopology,
        offsets: MemberOffsets,
    ) -> Mapping[str, TaskAssignment]:
        """Return a target assignment; no tasks while topics are missing."""
        if not configured.is_ready:
            return dict.fromkeys(members, state.no_target)
        previous = {
            member_id: TaskMember(
                member.process_id,
                state.current.get(member_id, state.no_current).assigned,
                offsets.get(member_id, {}),
            )
            for member_id, member in members.items()
        }
        return assign_sticky(previous, configured.subtopologies, self.number(_STANDBY_REPLICAS))

    def _answer(
        self, request: StreamsHeartbeat, transition: StreamsTransition, timers: TimerChanges
    ) -> tuple[StreamsHeartbeatReply, Apply]:
        member_id, member = request.member_id, transition.member
        if self.begins_delay() and not self.timers.has(ASSIGN):
            timers[ASSIGN, ""] = transition.context.now_ms + self.number(_INITIAL_DELAY)
        moves = transition.was.assigned != transition.now.assigned
        endpoint, endpoint_epoch = member.user_endpoint, self.endpoint_epoch
        if endpoint != transition.former.user_endpoint or (moves and endpoint is not None):
            endpoint_epoch += 1
        shutdown_member_id = self.shutdown_member_id
        if shutdown_member_id is None and request.shutdown_application:
            shutdown_member_id = member_id
        configured = transition.configured
        if configured.problem is not None:
            transition.statuses.append(configured.problem)
        if shutdown_member_id is not None:
            transition.report(
                StatusCode.SHUTDOWN_APPLICATION,
                f"Streams group member {shutdown_member_id} encountered a fatal error and "
                f"requested a shutdown for the entire application.",
            )
        transition.report_missing_tags()
        reply = StreamsHeartbeatReply(
            member_id,
            transition.now.member_epoch,
            self.number("heartbeat.interval.ms"),
            transition.now.assigned if request.joins or moves else None,
            tuple(transition.statuses),
            endpoint_epoch,
            None if endpoint_epoch == request.endpoint_epoch else self._endpoints(transition),
            configured.missing,
            self.number("task.offset.interval.ms"),
            self.number("acceptable.recovery.lag"),
        )
        if transition.state is not self.state and len(self.state.members) == 1:
            shutdown_member_id = None  # with its last member the application has shut down

        def apply() -> None:
            self.timers.apply(timers)
            before = self.shutdown_member_id, self.endpoint_epoch
            if before != (shutdown_member_id, endpoint_epoch):
                self.steady.clear()
            self.configured = configured
            self.shutdown_member_id = shutdown_member_id
            self.endpoint_epoch = endpoint_epoch
            by_member = self.task_offsets, self.task_end_offsets
            for all_offsets, offsets in zip(by_member, transition.offsets, strict=True):
                if offsets is not None:
                    all_offsets[member_id] = offsets

        return reply, apply

    def _endpoints(self, transition: StreamsTransition) -> tuple[EndpointPartitions, ...]:
        """Return the partitions that members with an endpoint read."""
        state, topics, configured = self.state, transition.catalog.topics, transition.configured
        members = [
            (member, state.current[member_id].assigned)
            for member_id, member in state.members.items()
            if member_id != transition.member_id
        ]
        members.append((transition.member, transition.now.assigned))
        return tuple(
            EndpointPartitions(
                member.user_endpoint,
                _partitions(held.active, configured, topics),
                _partitions(held.standby, configured, topics),
            )
            for member, held in members
            if member.user_endpoint is not None
        )

    # Leaving --------------------------------------------------------------------------------------

    def _paused(self, current: StreamsAssignment) -> StreamsAssignment:
        active = {
            subtopology_id: dict.fromkeys(epochs, 0)
            for subtopology_id, epochs in current.assigned.active.items()
        }
        assigned = current.assigned._replace(active=active)
        return super()._paused(replace(current, assigned=assigned))

    def shut_down(self, member_id: str) -> None:
        """Ask all members to shut down, as one of them does that leaves."""
        if self.shutdown_member_id is None and not self.is_empty:
            self.shutdown_member_id = member_id
            self.steady.clear()

    # Time -----------------------------------------------------------------------------------------

    def assign(self, wall_ms: int) -> GroupOutcome[None]:
        """Compute the first target assignment, after the initial rebalance delay."""
        state = self.state
        waits = state.epoch > state.target_epoch.epoch
        if self.is_empty or not waits or self.configured is None:
            return Outcome(None)
        target = self.target(state, state.members, self.configured, self.task_offsets)
        epoch = AssignmentEpoch(state.epoch, wall_ms)
        return Outcome(None, tuple(state.retarget(target, epoch)))

    # Committed offsets ----------------------------------------------------------------------------

    def _assignment_epoch(self, held: HeldTaskAssignment, commit: OffsetCommit) -> int | None:
        subtopology_id = self.state.source_subtopologies.get(commit.topic)
        if subtopology_id is None:
            return None
        return held.active.get(subtopology_id, {}).get(commit.partition)

    def is_subscribed(self, topic: str) -> bool:
        """Return whether a group that has members reads a topic."""
        return not self.is_empty and topic in self.state.source_subtopologies

    # Replay ---------------------------------------------------------------------------------------

    def replay(self, record: GroupRecord) -> None:
        """Apply one durable record of this group."""
        super().replay(record)
        if isinstance(record, STREAMS_RECORDS.member) and record.value is None:
            self.task_offsets.pop(record.member_id, None)
            self.task_end_offsets.pop(record.member_id, None)
        if self.is_empty:
            self.shutdown_member_id = None


def _partitions(
    tasks: HeldTasks, configured: ConfiguredTopology, topics: Topics
) -> list[tuple[str, tuple[int, ...]]]:
    by_topic = []
    for subtopology_id, partitions in tasks.items():
        subtopology = configured.subtopologies.get(subtopology_id)
        if subtopology is None:
            continue
        for name in sorted({*sources(subtopology.subtopology)} & topics.keys()):
            read = sorted(partitions)[: topics[name].partitions]  # as in Kafka
            by_topic.append((name, tuple(read)))
    return by_topic


HeartbeatOutcome = GroupOutcome[StreamsHeartbeatReply | Refusal]


class StreamsGroupService(HeartbeatService[StreamsGroup, StreamsHeartbeat, StreamsHeartbeatReply]):
    """Commands to streams groups."""

    kind = StreamsGroup
    record_types = StreamsState.records
    reply_type = StreamsHeartbeatReply

    def _join_or_stay(
        self, group_id: str, request: StreamsHeartbeat, context: Context
    ) -> HeartbeatOutcome:
        outcome = super()._join_or_stay(group_id, request, context)
        if isinstance(outcome.reply, Refusal) or group_id in self._groups:
            return outcome
        # The endpoints of a new group have no epoch yet.
        return outcome.with_reply(replace(outcome.reply, endpoint_epoch=0))

    def _converted(self, classic: ClassicGroup) -> tuple[GroupRecord, ...] | None:
        return () if classic.is_empty else None

    def _leave(
        self, group_id: str, request: StreamsHeartbeat, context: Context
    ) -> HeartbeatOutcome:
        outcome = super()._leave(group_id, request, context)
        group = self.group(group_id)
        if request.shutdown_application and isinstance(group, StreamsGroup):
            return outcome.then(partial(group.shut_down, request.member_id))
        return outcome

    def expire(
        self, group: StreamsGroup, kind: str, member_id: str, now_ms: int, wall_ms: int
    ) -> GroupOutcome[None]:
        """Handle a timer of a group that has run out: of a member, or the initial rebalance
        delay.
        """
        if kind == ASSIGN:
            return group.assign(wall_ms)
        return super().expire(group, kind, member_id, now_ms, wall_ms)
