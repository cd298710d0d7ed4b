"""A streams group: members, topology, epochs and assignments (KIP-1071,
docs/behaviour/groups.md).

Members are threads of Kafka Streams applications. They send one request, the heartbeat. The first
member brings the topology; from it the coordinator derives the tasks and the internal topics. The
answer has the tasks that the member may run, and what the group lacks.
:class:`~headrace.groups.streams.state.StreamsState` is the durable state of the group;
:class:`~headrace.groups.streams.transition.StreamsTransition` decides one member's heartbeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from headrace.deadlines import Deadlines
from headrace.errors import ErrorCode, Refusal
from headrace.groups.deadlines import (
    ASSIGN,
    REVOKE,
    SESSION,
    GroupDeadlines,
    TimerChanges,
    TimerKey,
)
from headrace.groups.heartbeats import (
    check_instance,
    fenced_member,
    group_full,
    unknown_member,
    unreleased_instance,
)
from headrace.groups.limits import MAX_STREAMS_TASKS
from headrace.groups.records import (
    AssignmentEpoch,
    CommittedOffset,
    GroupRecord,
    HeldTaskAssignment,
    HeldTasks,
    OffsetCommit,
    StreamsAssignment,
    StreamsGroupCurrentMemberAssignment,
    StreamsGroupMemberMetadata,
    StreamsGroupMetadata,
    StreamsGroupRecord,
    StreamsGroupTargetAssignmentMember,
    StreamsGroupTargetAssignmentMetadata,
    StreamsMemberState,
    TaskAssignment,
    Topology,
)
from headrace.groups.settings import StreamsSettings, TopicCatalog
from headrace.groups.steady import SteadyHeartbeats
from headrace.outcome import Outcome

from .endpoints import endpoint_partitions
from .member import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    EndpointPartitions,
    Status,
    StatusCode,
    StreamsHeartbeat,
    StreamsHeartbeatReply,
    TaskOffset,
)
from .reconciliation import holds_only
from .state import StreamsState
from .topics import ConfiguredTopology
from .transition import StreamsTransition, compute_target, target_records


class StreamsGroup:
    """One streams group. Commands decide and change nothing; :meth:`replay` applies their records.

    :ivar state: the durable state
    :ivar configured: the topology with the numbers of partitions of its topics; None until it is
        needed
    :ivar shutdown_member_id: the member that asked all members to shut down; None if none did
    :ivar endpoint_epoch: counts the changes of assignments of members with an endpoint
    :ivar task_offsets: the changelog offsets that members have told: sums by task, by member id;
        ``task_end_offsets`` those at the ends of the changelogs
    :ivar steady: heartbeats that changed nothing
    """

    type_name = "streams"
    protocol_type = "streams"

    def __init__(self, group_id: str, timers: Deadlines[TimerKey]) -> None:
        self.group_id = group_id
        self.state = StreamsState(group_id)
        self.timers = GroupDeadlines(timers, group_id)
        self.configured: ConfiguredTopology | None = None
        self.shutdown_member_id: str | None = None
        self.endpoint_epoch = 0
        self.task_offsets: dict[str, dict[tuple[str, int], int]] = {}
        self.task_end_offsets: dict[str, dict[tuple[str, int], int]] = {}
        self.steady: SteadyHeartbeats[StreamsHeartbeat, StreamsHeartbeatReply | Refusal] = (
            SteadyHeartbeats(self.timers)
        )

    @property
    def state_name(self) -> str:
        """Kafka's name for the state of the group."""
        return self.state.state_name

    @property
    def is_empty(self) -> bool:
        """True if the group has no members."""
        return self.state.is_empty

    # Heartbeat ------------------------------------------------------------------------------------

    def heartbeat(
        self,
        request: StreamsHeartbeat,
        catalog: TopicCatalog,
        settings: StreamsSettings,
        now_ms: int,
        wall_ms: int,
    ) -> Outcome[GroupRecord, StreamsHeartbeatReply | Refusal]:
        """Join or keep a member, and return the tasks that it may run."""
        refusal = self._check(request, settings.max_size)
        if refusal is not None:
            return Outcome(refusal)
        owner = self.state.static_members.get(request.group_instance_id or "")
        replacement: tuple[StreamsGroupRecord, ...] = ()
        if request.joins and owner is not None:
            replacement = self._replacement(owner, request.member_id)
        topology = self.state.topology or request.topology
        told = self._told(request.task_offsets, topology)
        told_ends = self._told(request.task_end_offsets, topology)
        offsets = self.task_offsets
        if told is not None:
            offsets = {**offsets, request.member_id: told}
        begins_delay = self.is_empty and settings.initial_rebalance_delay_ms > 0
        is_delayed = self.timers.has(ASSIGN)
        transition = StreamsTransition(
            self.state.after(replacement) if replacement else self.state,
            request,
            self.configured,
            catalog,
            settings,
            wall_ms,
            initial_delay=begins_delay or is_delayed,
            offsets=offsets,
        )
        refusal = transition.run()
        if refusal is not None:
            return Outcome(refusal)
        timers = self._timer_changes(transition, settings, now_ms)
        if owner is not None and replacement and owner != request.member_id:
            timers.cancel(SESSION, owner)
            timers.cancel(REVOKE, owner)
        if begins_delay and not is_delayed:
            timers.set(ASSIGN, "", now_ms + settings.initial_rebalance_delay_ms)
        moves = transition.was.assigned != transition.now.assigned
        tells = request.joins or moves
        endpoint, endpoint_epoch = transition.member.user_endpoint, self.endpoint_epoch
        if endpoint != transition.known.user_endpoint or (moves and endpoint is not None):
            endpoint_epoch += 1
        endpoints = None
        if endpoint_epoch != request.endpoint_epoch:
            endpoints = self._endpoints(transition, catalog)
        shutdown_member_id = self.shutdown_member_id
        if shutdown_member_id is None and request.shutdown_application:
            shutdown_member_id = request.member_id
        assert transition.configured is not None
        reply = StreamsHeartbeatReply(
            request.member_id,
            transition.now.member_epoch,
            settings.heartbeat_interval_ms,
            (*transition.statuses, *_shutdown(shutdown_member_id), *transition.missing_tags),
            transition.now.assigned if tells else None,
            endpoint_epoch,
            endpoints,
            transition.configured.missing,
            settings.task_offset_interval_ms,
            settings.acceptable_recovery_lag,
        )
        if replacement and self.state.members.keys() == {owner}:
            shutdown_member_id = None  # with its last member the application has shut down
        apply = partial(
            self._apply,
            timers,
            transition.configured,
            shutdown_member_id,
            endpoint_epoch,
            request.member_id,
            (told, told_ends),
        )
        outcome: Outcome[GroupRecord, StreamsHeartbeatReply | Refusal] = Outcome(
            reply, (*replacement, *transition.records), apply=apply
        )
        if (
            outcome.records
            or reply.statuses
            or request.member_epoch != reply.member_epoch
            or not transition.is_settled
        ):
            return outcome
        return self.steady.remembering(
            outcome, request, catalog.version, settings.session_timeout_ms
        )

    def _check(self, request: StreamsHeartbeat, max_size: int) -> Refusal | None:
        state, instance_id = self.state, request.group_instance_id
        if request.joins:
            return self._check_join(request, max_size)
        if instance_id is not None:
            refusal = check_instance(state.static_members, request.member_id, instance_id)
            if refusal is not None:
                return refusal
        known = state.current.get(request.member_id)
        if known is None:
            return unknown_member(self.group_id, request.member_id)
        return _check_epoch(request, known)

    def _check_join(self, request: StreamsHeartbeat, max_size: int) -> Refusal | None:
        state, instance_id = self.state, request.group_instance_id
        owner = None if instance_id is None else state.static_members.get(instance_id)
        if owner is not None:
            if state.current[owner].member_epoch == STATIC_LEAVE_EPOCH:
                return None
            return unreleased_instance(request.member_id, instance_id or "", owner)
        if len(state.members) < max_size or request.member_id in state.members:
            return None
        return group_full("streams", max_size)

    def _replacement(self, old_id: str, new_id: str) -> tuple[StreamsGroupRecord, ...]:
        """Return the records of a static member that comes back, with another or the same id. It
        keeps its tasks, not its offsets.
        """
        state, group_id = self.state, self.group_id
        returned = replace(state.current[old_id], member_epoch=0, previous_member_epoch=0)
        target = state.target.get(old_id) or TaskAssignment()
        return (
            *self._removal(old_id),
            StreamsGroupMemberMetadata(group_id, new_id, state.members[old_id]),
            StreamsGroupTargetAssignmentMember(group_id, new_id, target),
            StreamsGroupCurrentMemberAssignment(group_id, new_id, returned),
        )

    def _timer_changes(
        self, transition: StreamsTransition, settings: StreamsSettings, now_ms: int
    ) -> TimerChanges:
        """Restart a member's session; start or cancel its rebalance timeout."""
        timers, member_id = TimerChanges(self.timers), transition.member_id
        timers.set(SESSION, member_id, now_ms + settings.session_timeout_ms)
        if transition.now.state is not StreamsMemberState.UNREVOKED_TASKS:
            timers.cancel(REVOKE, member_id)
        elif transition.now is not transition.was:
            timers.set(REVOKE, member_id, now_ms + transition.member.rebalance_timeout_ms)
        return timers

    def _endpoints(
        self, transition: StreamsTransition, catalog: TopicCatalog
    ) -> tuple[EndpointPartitions, ...]:
        assert transition.configured is not None
        state = self.state
        members = [
            (member, state.current[member_id].assigned)
            for member_id, member in state.members.items()
            if member_id != transition.member_id and member_id in state.current
        ]
        members.append((transition.member, transition.now.assigned))
        return endpoint_partitions(members, transition.configured, catalog.topics)

    def _apply(
        self,
        timers: TimerChanges,
        configured: ConfiguredTopology,
        shutdown_member_id: str | None,
        endpoint_epoch: int,
        member_id: str,
        all_told: tuple[dict[tuple[str, int], int] | None, ...],
    ) -> None:
        """Apply the volatile changes of a heartbeat."""
        timers.apply()
        if (shutdown_member_id, endpoint_epoch) != (self.shutdown_member_id, self.endpoint_epoch):
            self.steady.forget()
        self.configured = configured
        self.shutdown_member_id = shutdown_member_id
        self.endpoint_epoch = endpoint_epoch
        for offsets, told in zip((self.task_offsets, self.task_end_offsets), all_told, strict=True):
            if told is not None:
                offsets[member_id] = told

    def _told(
        self, offsets: Sequence[TaskOffset] | None, topology: Topology | None
    ) -> dict[tuple[str, int], int] | None:
        """Return the offsets that a member tells, by task; None if it tells none.

        Those of other subtopologies are dropped, and all beyond the largest number of tasks, so
        that a group has a limit.
        """
        if offsets is None:
            return None
        subtopologies = () if topology is None else topology.subtopologies
        ids = {subtopology.subtopology_id for subtopology in subtopologies}
        return {
            (subtopology_id, partition): offset
            for subtopology_id, partition, offset in offsets[:MAX_STREAMS_TASKS]
            if subtopology_id in ids
        }

    # Leaving --------------------------------------------------------------------------------------

    def leave(
        self, request: StreamsHeartbeat
    ) -> Outcome[GroupRecord, StreamsHeartbeatReply | Refusal]:
        """Remove a member. Others get its tasks with later heartbeats."""
        member_id = request.member_id
        refusal = self._check_leave(request)
        outcome: Outcome[GroupRecord, StreamsHeartbeatReply | Refusal]
        if refusal is not None:
            outcome = Outcome(refusal)
        else:
            reply = StreamsHeartbeatReply(member_id, request.member_epoch)
            pauses = request.member_epoch == STATIC_LEAVE_EPOCH
            outcome = (self._pause if pauses else self.remove)(member_id).with_reply(reply)
        if request.shutdown_application:
            return outcome.then(partial(self._shut_down, member_id))
        return outcome

    def _check_leave(self, request: StreamsHeartbeat) -> Refusal | None:
        member_id, instance_id = request.member_id, request.group_instance_id
        if instance_id is not None:
            return check_instance(self.state.static_members, member_id, instance_id)
        if member_id in self.state.members:
            return None
        return unknown_member(self.group_id, member_id)

    def _pause(self, member_id: str) -> Outcome[GroupRecord, None]:
        """Let a static member leave temporarily; it keeps its tasks until its session ends."""
        current = self.state.current[member_id]
        gone = replace(
            current,
            member_epoch=STATIC_LEAVE_EPOCH,
            assigned=replace(current.assigned, active=_since_ever(current.assigned.active)),
            pending_revocation=HeldTaskAssignment(),
        )
        record = StreamsGroupCurrentMemberAssignment(self.group_id, member_id, gone)
        return Outcome(None, (record,), apply=partial(self.timers.cancel, REVOKE, member_id))

    def _shut_down(self, member_id: str) -> None:
        if self.shutdown_member_id is None and not self.is_empty:
            self.shutdown_member_id = member_id
            self.steady.forget()

    def remove(self, member_id: str) -> Outcome[GroupRecord, None]:
        """Remove a member that leaves, or whose session or rebalance timeout has ended."""
        group_id, epoch = self.group_id, self.state.epoch
        timers = TimerChanges(self.timers)
        timers.cancel(SESSION, member_id)
        timers.cancel(REVOKE, member_id)
        records: tuple[StreamsGroupRecord, ...] = (
            *self._removal(member_id),
            StreamsGroupMetadata(group_id, epoch._replace(epoch=epoch.epoch + 1)),
        )
        if self.state.members.keys() == {member_id}:
            # Nothing is left to assign; the next member does not wait for the assignment interval.
            nobody = AssignmentEpoch(epoch.epoch + 1, 0)
            records += (StreamsGroupTargetAssignmentMetadata(group_id, nobody),)
        return Outcome(None, records, apply=timers.apply)

    def _removal(self, member_id: str) -> tuple[StreamsGroupRecord, ...]:
        return (
            StreamsGroupCurrentMemberAssignment(self.group_id, member_id, None),
            StreamsGroupTargetAssignmentMember(self.group_id, member_id, None),
            StreamsGroupMemberMetadata(self.group_id, member_id, None),
        )

    # Time -----------------------------------------------------------------------------------------

    def expire(
        self, kind: str, member_id: str, settings: StreamsSettings, wall_ms: int
    ) -> Outcome[GroupRecord, None]:
        """Handle a timer that has run out: a member's session or rebalance timeout, or the initial
        rebalance delay of the group.
        """
        if kind == ASSIGN:
            return self._assign(settings, wall_ms)
        if member_id in self.state.members and kind in (SESSION, REVOKE):
            return self.remove(member_id)
        return Outcome(None)

    def _assign(self, settings: StreamsSettings, wall_ms: int) -> Outcome[GroupRecord, None]:
        """Compute the first target assignment, after the initial rebalance delay."""
        state = self.state
        waits = state.epoch.epoch > state.target_epoch.epoch
        if self.is_empty or not waits or self.configured is None:
            return Outcome(None)
        replicas = settings.standby_replicas
        target = compute_target(state, state.members, self.configured, replicas, self.task_offsets)
        return Outcome(None, tuple(target_records(state, target, state.epoch.epoch, wall_ms)))

    def start_sessions(self, settings: StreamsSettings, now_ms: int) -> None:
        """Start the sessions and rebalance timeouts of all members after a restart."""
        self.state.complete_members()
        for member_id, member in self.state.members.items():
            self.timers.set(SESSION, member_id, now_ms + settings.session_timeout_ms)
            if self.state.current[member_id].state is StreamsMemberState.UNREVOKED_TASKS:
                self.timers.set(REVOKE, member_id, now_ms + member.rebalance_timeout_ms)

    # Offsets --------------------------------------------------------------------------------------

    def check_commit(
        self,
        member_id: str,
        member_epoch: int,
        commits: Sequence[OffsetCommit],
        *,
        knows_epochs: bool,
    ) -> ErrorCode:
        """Return the error if these offsets may not be committed, or NONE.

        A member may commit with an earlier epoch if it has run the tasks that read the partitions
        since then (KIP-1251).

        :param knows_epochs: the request version supports member epochs (OffsetCommit 9 and later)
        """
        if member_epoch < 0 and self.is_empty:
            return ErrorCode.NONE
        current = self.state.current.get(member_id)
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not knows_epochs:
            return ErrorCode.UNSUPPORTED_VERSION
        if member_epoch == current.member_epoch:
            return ErrorCode.NONE
        if member_epoch < current.member_epoch and all(
            self._held_since(current, one, member_epoch) for one in commits
        ):
            return ErrorCode.NONE
        return ErrorCode.STALE_MEMBER_EPOCH

    def _held_since(self, current: StreamsAssignment, commit: OffsetCommit, epoch: int) -> bool:
        """Return whether a member has run the task that reads a partition since this epoch."""
        subtopology_id = self.state.source_subtopologies.get(commit.topic)
        if subtopology_id is None:
            return False
        for held in (current.assigned, current.pending_revocation):
            since = held.active.get(subtopology_id, {}).get(commit.partition)
            if since is not None:
                return since <= epoch
        return False

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Return the error if a member may not fetch offsets, or NONE. The id may be None."""
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        current = self.state.current.get(member_id or "")
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        matches = member_epoch == current.member_epoch
        return ErrorCode.NONE if matches else ErrorCode.STALE_MEMBER_EPOCH

    def check_offset_delete(self) -> ErrorCode:
        """Return the error if no offsets of the group may be deleted, or NONE (KIP-496).

        Those of topics that :meth:`is_subscribed` names are kept in any case.
        """
        return ErrorCode.NONE

    def is_subscribed(self, topic: str) -> bool:
        """Return whether a group that has members reads a topic."""
        return not self.is_empty and topic in self.state.source_subtopologies

    def retention_starts_ms(self, committed: CommittedOffset) -> int | None:
        """Return when the retention of an offset began, in epoch milliseconds: with its commit."""
        return committed.commit_timestamp_ms

    def tombstones(self) -> tuple[GroupRecord, ...]:
        """Return the records that delete the group, except its offsets."""
        return tuple(self.state.tombstones())

    # Replay ---------------------------------------------------------------------------------------

    def replay(self, record: StreamsGroupRecord) -> None:
        """Apply one durable record of this group."""
        self.state.replay(record)
        self.steady.forget()
        if isinstance(record, StreamsGroupMemberMetadata) and record.value is None:
            self.task_offsets.pop(record.member_id, None)
            self.task_end_offsets.pop(record.member_id, None)
        if self.is_empty:
            self.shutdown_member_id = None


def _since_ever(active: HeldTasks) -> HeldTasks:
    return {subtopology_id: dict.fromkeys(epochs, 0) for subtopology_id, epochs in active.items()}


def _shutdown(member_id: str | None) -> tuple[Status, ...]:
    if member_id is None:
        return ()
    detail = (
        f"Streams group member {member_id} encountered a fatal error and requested a shutdown for "
        f"the entire application."
    )
    return (Status(StatusCode.SHUTDOWN_APPLICATION, detail),)


def _check_epoch(request: StreamsHeartbeat, known: StreamsAssignment) -> Refusal | None:
    epoch, current = request.member_epoch, known.member_epoch
    if epoch in (JOIN_EPOCH, current):
        return None
    if (
        epoch < current
        and epoch == known.previous_member_epoch
        and holds_only(request.owned, known.assigned)
    ):
        return None  # the answer to its last heartbeat was lost
    return fenced_member("streams", epoch, current)
