"""A share group: members, epochs and assignments (KIP-932, docs/behaviour/share-groups.md).

Members send one request, the heartbeat. They share partitions, so there is no revocation. Three
epochs track the progress of a change::

    group epoch        grows when a subscription, a subscribed topic or the set of ready
                       partitions changes
    assignment epoch   the group epoch for which the target assignment was computed
    member epoch       the assignment epoch that the member has reached

A partition is ready, that is assignable, when its share state is initialised. The partitions of
:meth:`ShareGroup.to_initialize` are initialised before the heartbeat is decided.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar
from uuid import UUID

from headrace.deadlines import Deadlines
from headrace.errors import Refusal
from headrace.groups.deadlines import SESSION, GroupDeadlines, TimerKey
from headrace.groups.heartbeats import (
    FIRST_EPOCH,
    NO_TARGET,
    fenced_member,
    group_full,
    put,
    unknown_member,
)
from headrace.groups.records import (
    Assignment,
    AssignmentEpoch,
    CurrentAssignment,
    GroupEpoch,
    GroupRecord,
    SharedTopic,
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberMetadata,
    ShareGroupMetadata,
    ShareGroupStatePartitionMetadata,
    ShareGroupTargetAssignmentMember,
    ShareGroupTargetAssignmentMetadata,
    ShareMember,
    StatePartitions,
)
from headrace.groups.settings import ShareGroupSettings, Topics
from headrace.groups.topics import (
    Partitions,
    intersection,
    partitions_of,
    subscribed,
    topics_hash,
    union,
    without,
)
from headrace.outcome import Outcome

from .member import JOIN_EPOCH, LEAVE_EPOCH, ShareHeartbeat

V = TypeVar("V")


class ShareGroup:
    """One share group. Commands decide and change nothing; :meth:`replay` applies their records.

    :ivar target: the target assignment of each member, as of ``target_epoch``
    :ivar current: the current assignment of each member
    """

    type_name = "share"
    protocol_type = "share"

    def __init__(self, group_id: str, timers: Deadlines[TimerKey]) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.members: dict[str, ShareMember] = {}
        self.target_epoch = NO_TARGET
        self.target: dict[str, Assignment] = {}
        self.current: dict[str, CurrentAssignment] = {}
        self.state_partitions = StatePartitions()
        self._timers = GroupDeadlines(timers, group_id)
        # the partitions of the target assignment; None if out of date
        self._covered: dict[UUID, set[int]] | None = None

    @property
    def state_name(self) -> str:
        """Kafka's name for the state of the group."""
        return "Stable" if self.members else "Empty"

    @property
    def is_empty(self) -> bool:
        """True if the group has no members."""
        return not self.members

    # Members --------------------------------------------------------------------------------------

    def leave(self, member_id: str, topics: Topics) -> Outcome[GroupRecord, None]:
        """Remove a member. Others get its partitions with later heartbeats."""
        others = (member for other_id, member in self.members.items() if other_id != member_id)
        return self._remove(member_id, topics_hash(subscribed(others, topics)))

    def check_member(self, request: ShareHeartbeat, max_size: int) -> Refusal | None:
        """Return the error if the group refuses the heartbeat, or None."""
        known = self.current.get(request.member_id)
        if known is None:
            if request.member_epoch != LEAVE_EPOCH and len(self.members) >= max_size:
                return group_full("share", max_size)
            if request.member_epoch != JOIN_EPOCH:
                return unknown_member(self.group_id, request.member_id)
            return None
        epoch, current, previous = (
            request.member_epoch,
            known.member_epoch,
            known.previous_member_epoch,
        )
        if epoch > current:
            return fenced_member("share", epoch, current)
        if epoch not in (JOIN_EPOCH, LEAVE_EPOCH, current, previous):
            more = f", and it does not match the previous member epoch ({previous})"
            return fenced_member("share", epoch, current, more)
        return None

    def _remove(self, member_id: str, metadata_hash: int) -> Outcome[GroupRecord, None]:
        group_id, epoch = self.group_id, self.epoch + 1
        records: tuple[GroupRecord, ...] = (
            ShareGroupCurrentMemberAssignment(group_id, member_id, None),
            ShareGroupTargetAssignmentMember(group_id, member_id, None),
            ShareGroupMemberMetadata(group_id, member_id, None),
            ShareGroupMetadata(group_id, GroupEpoch(epoch, metadata_hash)),
        )
        if len(self.members) == 1:  # nobody is left to be assigned anything
            target_epoch = AssignmentEpoch(epoch, 0)
            records = (*records, ShareGroupTargetAssignmentMetadata(group_id, target_epoch))
        return Outcome(None, records, apply=partial(self._timers.cancel, SESSION, member_id))

    def expire(self, member_id: str) -> Outcome[GroupRecord, None]:
        """Remove a member whose session has ended."""
        assert member_id in self.members, member_id
        return self._remove(member_id, self.metadata_hash if len(self.members) > 1 else 0)

    def restart_session(self, member_id: str, settings: ShareGroupSettings, now_ms: int) -> None:
        """Start or restart a member's session."""
        self._timers.set(SESSION, member_id, now_ms + settings.session_timeout_ms)

    def start_sessions(self, settings: ShareGroupSettings, now_ms: int) -> None:
        """Start the sessions of all members, after a restart."""
        # A member whose record could not be decoded at the start has to rejoin.
        for member_id in self.members.keys() - self.current.keys():
            self.current[member_id] = CurrentAssignment(0, 0, {})
        for member_id in self.current.keys() - self.members.keys():
            del self.current[member_id]
        for member_id in self.members:
            self.restart_session(member_id, settings, now_ms)

    def covered(self) -> Mapping[UUID, set[int]]:
        """Return the partitions that are assigned to any member, by topic id."""
        if self._covered is None:
            self._covered = {}
            for assignment in self.target.values():
                for topic_id, partitions in assignment.items():
                    self._covered.setdefault(topic_id, set()).update(partitions)
        return self._covered

    # Share state ----------------------------------------------------------------------------------
    #
    # Each change of share state is recorded here before it is sent to the share coordinator, and
    # again when it is done: see headrace.coordinators.share_state_recovery.

    def to_initialize(self, request: ShareHeartbeat, topics: Topics) -> dict[UUID, SharedTopic]:
        """Return the subscribed partitions without share state, including those of this
        heartbeat.
        """
        wanted = {}
        for topic in subscribed(
            {**self.members, request.member_id: request.member(self.members)}.values(), topics
        ):
            ready = partitions_of(self.state_partitions.initialized, topic.topic_id)
            if len(ready) < topic.partitions:
                missing = tuple(
                    partition for partition in range(topic.partitions) if partition not in ready
                )
                wanted[topic.topic_id] = SharedTopic(topic.name, missing)
        return wanted

    def initializing(self, partitions: Partitions) -> Outcome[GroupRecord, None]:
        """Record that the share state of these partitions is about to be initialised."""
        known = self.state_partitions
        deleting = _without(known.deleting, partitions)
        return self._become(
            StatePartitions(union(known.initializing, partitions), known.initialized, deleting)
        )

    def initialized(self, partitions: Partitions) -> Outcome[GroupRecord, None]:
        """Record that the share state of these partitions is initialised; they are assignable."""
        known = self.state_partitions
        done = intersection(partitions, known.initializing)  # a topic may have been deleted
        initializing, initialized = (
            without(known.initializing, done),
            union(known.initialized, done),
        )
        return self._become(StatePartitions(initializing, initialized, known.deleting))

    def deleting(self, topic_ids: Collection[UUID]) -> Outcome[GroupRecord, None]:
        """Record that the share state of these topics is about to be deleted."""
        left = self._without(topic_ids)
        names = {
            topic_id: topic.topic_name
            for topic_id, topic in self.stateful().items()
            if topic_id in topic_ids
        }
        return self._become(replace(left, deleting={**self.state_partitions.deleting, **names}))

    def deleted(self, topic_ids: Collection[UUID]) -> Outcome[GroupRecord, None]:
        """Record that the share state of these topics, or the topics themselves, are deleted."""
        return self._become(self._without(topic_ids))

    def settled(self, stateful: Partitions) -> Outcome[GroupRecord, None]:
        """Record after a restart that partitions with share state are ready and others are not.

        :param stateful: the partitions that the share coordinator knows
        """
        return self._become(StatePartitions({}, stateful, {}))

    def _without(self, topic_ids: Collection[UUID]) -> StatePartitions:
        known = self.state_partitions
        return StatePartitions(
            _without(known.initializing, topic_ids),
            _without(known.initialized, topic_ids),
            _without(known.deleting, topic_ids),
        )

    def _become(self, new: StatePartitions) -> Outcome[GroupRecord, None]:
        if new == self.state_partitions:
            return Outcome(None)
        return Outcome(None, (ShareGroupStatePartitionMetadata(self.group_id, new),))

    def stateful(self) -> dict[UUID, SharedTopic]:
        """Return the partitions whose share state is initialised or being initialised."""
        return union(self.state_partitions.initialized, self.state_partitions.initializing)

    def topic_ids(self) -> set[UUID]:
        """Return the topics that may have share state of the group, also those being deleted."""
        return {*self.stateful(), *self.state_partitions.deleting}

    def tombstones(self) -> tuple[GroupRecord, ...]:
        """Return the records that delete an empty group. Delete its share state first."""
        return (
            ShareGroupTargetAssignmentMetadata(self.group_id, None),
            ShareGroupStatePartitionMetadata(self.group_id, None),
            ShareGroupMetadata(self.group_id, None),
        )

    # Replay ---------------------------------------------------------------------------------------

    def replay(self, record: GroupRecord) -> None:
        """Apply one durable record of this group."""
        match record:
            case ShareGroupMemberMetadata(_, member_id, member):
                put(self.members, member_id, member)
            case ShareGroupMetadata(_, value):
                self.epoch, self.metadata_hash = value or GroupEpoch(FIRST_EPOCH, 0)
            case ShareGroupTargetAssignmentMember(_, member_id, target):
                put(self.target, member_id, target)
                self._covered = None
            case ShareGroupTargetAssignmentMetadata(_, epoch):
                self.target_epoch = epoch or NO_TARGET
            case ShareGroupCurrentMemberAssignment(_, member_id, current):
                put(self.current, member_id, current)
            case ShareGroupStatePartitionMetadata(_, partitions):
                self.state_partitions = partitions or StatePartitions()


def _without(by_topic: Mapping[UUID, V], topic_ids: Container[UUID]) -> dict[UUID, V]:
    return {topic_id: one for topic_id, one in by_topic.items() if topic_id not in topic_ids}
