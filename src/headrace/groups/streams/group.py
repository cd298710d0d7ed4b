"""A streams group (KIP-1071, docs/behaviour/groups.md).

Members are threads of Kafka Streams applications. The first member brings the topology; from it the
coordinator derives the tasks and the internal topics. The answer has the tasks that the member may
run, and what the group lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from headrace.deadlines import Deadlines
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.deadlines import ASSIGN, TimerChanges, TimerKey
from headrace.groups.heartbeats.group import Context, HeartbeatGroup
from headrace.groups.heartbeats.member import STATIC_LEAVE_EPOCH
from headrace.groups.heartbeats.service import HeartbeatService
from headrace.groups.records import (
    NO_TASKS,
    AssignmentEpoch,
    GroupMetadata,
    GroupOutcome,
    GroupRecord,
    HeldTasks,
    OffsetCommit,
    StreamsAssignment,
    StreamsGroupMemberMetadata,
)
from headrace.groups.settings import StreamsSettings, Topics
from headrace.outcome import Apply, Outcome
from headrace.protocol.errors import Refusal

from .member import (
    EndpointPartitions,
    StatusCode,
    StreamsHeartbeat,
    StreamsHeartbeatReply,
    TaskOffset,
)
from .reconciliation import holds_only
from .state import StreamsState
from .topics import MAX_STREAMS_TASKS, ConfiguredTopology, sources
from .transition import StreamsTransition, compute_target


class StreamsGroup(
    HeartbeatGroup[
        StreamsState, StreamsHeartbeat, StreamsHeartbeatReply, StreamsSettings, StreamsTransition
    ]
):
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

    def __init__(
        self, group_id: str, timers: Deadlines[TimerKey], state: StreamsState | None = None
    ) -> None:
        super().__init__(group_id, timers, state)
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

    def _transition(
        self, state: StreamsState, request: StreamsHeartbeat, context: Context[StreamsSettings]
    ) -> StreamsTransition:
        offsets = self.task_offsets
        if request.task_offsets is not None:
            offsets = {**offsets, request.member_id: self._told(request.task_offsets, request)}
        is_delayed = self.timers.has(ASSIGN) or self._begins_delay(context.settings)
        return StreamsTransition(
            state, request, self.configured, context, initial_delay=is_delayed, offsets=offsets
        )

    def _begins_delay(self, settings: StreamsSettings) -> bool:
        return self.is_empty and settings.initial_rebalance_delay_ms > 0

    def _answer(
        self, request: StreamsHeartbeat, transition: StreamsTransition, timers: TimerChanges
    ) -> tuple[StreamsHeartbeatReply, Apply]:
        context, settings = transition.context, transition.settings
        member_id, member = request.member_id, transition.member
        if self._begins_delay(settings) and not self.timers.has(ASSIGN):
            timers.set(ASSIGN, "", context.now_ms + settings.initial_rebalance_delay_ms)
        moves = transition.was.assigned != transition.now.assigned
        endpoint, endpoint_epoch = member.user_endpoint, self.endpoint_epoch
        if endpoint != transition.former.user_endpoint or (moves and endpoint is not None):
            endpoint_epoch += 1
        shutdown_member_id = self.shutdown_member_id
        if shutdown_member_id is None and request.shutdown_application:
            shutdown_member_id = member_id
        configured = transition.configured
        assert configured is not None
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
            settings.heartbeat_interval_ms,
            transition.now.assigned if request.joins or moves else None,
            tuple(transition.statuses),
            endpoint_epoch,
            None
            if endpoint_epoch == request.endpoint_epoch
            else self._endpoints(transition, configured),
            configured.missing,
            settings.task_offset_interval_ms,
            settings.acceptable_recovery_lag,
        )
        if transition.state is not self.state and len(self.state.members) == 1:
            shutdown_member_id = None  # with its last member the application has shut down

        def apply() -> None:
            timers.apply()
            before = self.shutdown_member_id, self.endpoint_epoch
            if before != (shutdown_member_id, endpoint_epoch):
                self.steady.clear()
            self.configured = configured
            self.shutdown_member_id = shutdown_member_id
            self.endpoint_epoch = endpoint_epoch
            if request.task_offsets is not None:
                self.task_offsets[member_id] = transition.offsets[member_id]
            if request.task_end_offsets is not None:
                self.task_end_offsets[member_id] = self._told(request.task_end_offsets, request)

        return reply, apply

    def _endpoints(
        self, transition: StreamsTransition, configured: ConfiguredTopology
    ) -> tuple[EndpointPartitions, ...]:
        """Return the partitions that members with an endpoint read."""
        state, topics = self.state, transition.catalog.topics
        members = [
            (member, state.current[member_id].assigned)
            for member_id, member in state.members.items()
            if member_id != transition.member_id and member_id in state.current
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

    def _told(
        self, offsets: Sequence[TaskOffset], request: StreamsHeartbeat
    ) -> dict[tuple[str, int], int]:
        """Return the offsets that a member tells, by task.

        Those of other subtopologies are dropped, and all beyond the largest number of tasks, so
        that a group has a limit.
        """
        topology = self.state.topology or request.topology
        subtopologies = () if topology is None else topology.subtopologies
        ids = {subtopology.subtopology_id for subtopology in subtopologies}
        return {
            (subtopology_id, partition): offset
            for subtopology_id, partition, offset in offsets[:MAX_STREAMS_TASKS]
            if subtopology_id in ids
        }

    # Leaving --------------------------------------------------------------------------------------

    def _paused(self, current: StreamsAssignment) -> StreamsAssignment:
        active = {
            subtopology_id: dict.fromkeys(epochs, 0)
            for subtopology_id, epochs in current.assigned.active.items()
        }
        return replace(
            current,
            member_epoch=STATIC_LEAVE_EPOCH,
            assigned=current.assigned._replace(active=active),
            pending_revocation=NO_TASKS,
        )

    def shut_down(self, member_id: str) -> None:
        """Ask all members to shut down, as one of them does that leaves."""
        if self.shutdown_member_id is None and not self.is_empty:
            self.shutdown_member_id = member_id
            self.steady.clear()

    # Time -----------------------------------------------------------------------------------------

    def assign(self, context: Context[StreamsSettings]) -> GroupOutcome[None]:
        """Compute the first target assignment, after the initial rebalance delay."""
        state = self.state
        waits = state.epoch > state.target_epoch.epoch
        if self.is_empty or not waits or self.configured is None:
            return Outcome(None)
        replicas = context.settings.standby_replicas
        target = compute_target(state, state.members, self.configured, replicas, self.task_offsets)
        epoch = AssignmentEpoch(state.epoch, context.wall_ms)
        return Outcome(None, tuple(state.retarget(target, epoch)))

    # Committed offsets ----------------------------------------------------------------------------

    def _held_since(self, current: StreamsAssignment, commit: OffsetCommit, epoch: int) -> bool:
        subtopology_id = self.state.source_subtopologies.get(commit.topic)
        if subtopology_id is None:
            return False
        for held in (current.assigned, current.pending_revocation):
            since = held.active.get(subtopology_id, {}).get(commit.partition)
            if since is not None:
                return since <= epoch
        return False

    def is_subscribed(self, topic: str) -> bool:
        """Return whether a group that has members reads a topic."""
        return not self.is_empty and topic in self.state.source_subtopologies

    # Replay ---------------------------------------------------------------------------------------

    def replay(self, record: GroupRecord) -> None:
        """Apply one durable record of this group."""
        super().replay(record)
        if isinstance(record, StreamsGroupMemberMetadata) and record.value is None:
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


class StreamsGroupService(
    HeartbeatService[StreamsGroup, StreamsHeartbeat, StreamsHeartbeatReply, StreamsSettings]
):
    """Commands to streams groups."""

    kind = StreamsGroup
    record_types = StreamsState.records.all()
    settings_type = StreamsSettings
    reply_type = StreamsHeartbeatReply

    def _join_or_stay(
        self, group_id: str, request: StreamsHeartbeat, context: Context[StreamsSettings]
    ) -> HeartbeatOutcome:
        outcome = super()._join_or_stay(group_id, request, context)
        if isinstance(outcome.reply, Refusal) or group_id in self._groups:
            return outcome
        # The endpoints of a new group have no epoch yet.
        return outcome.with_reply(replace(outcome.reply, endpoint_epoch=0))

    def _take_over(
        self, classic: ClassicGroup, request: StreamsHeartbeat, context: Context[StreamsSettings]
    ) -> HeartbeatOutcome | None:
        """Join the first member of a streams group that replaces an empty classic group."""
        if not classic.is_empty:
            return None
        group_id = classic.group_id
        outcome = self.new_group(group_id).heartbeat(request, context)
        if isinstance(outcome.reply, Refusal):
            return outcome
        return outcome._replace(records=(GroupMetadata(group_id, None), *outcome.records))

    def _leave(
        self, group_id: str, request: StreamsHeartbeat, context: Context[StreamsSettings]
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
            return group.assign(self.context(group.group_id, now_ms, wall_ms))
        return super().expire(group, kind, member_id, now_ms, wall_ms)
