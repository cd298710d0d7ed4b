"""A share group: membership, epochs and who gets which partitions (KIP-932,
docs/behaviour/share-groups.md).

There is one request, the heartbeat, and no hand-over of partitions between members, for they share
them. Three epochs say who has heard of what::

    group epoch        grows when a subscription, a subscribed topic or the set of ready
                       partitions changes
    assignment epoch   the group epoch for which the target assignment was computed
    member epoch       the assignment epoch that the member was last told

A partition is ready, and can be handed out, when its share state is initialised. What a heartbeat
needs of that (:meth:`ShareGroup.to_initialize`) is initialised before the heartbeat is decided.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar
from uuid import UUID

from headrace.deadlines import Deadlines
from headrace.errors import ErrorCode, Refusal
from headrace.groups.deadlines import SESSION, GroupDeadlines, TimerKey
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

FIRST_EPOCH = 1
"""Of a group without records of its epoch; the first member makes it 2."""


class ShareGroup:
    """One share group. Commands decide; :meth:`replay` applies their records.

    :ivar target: what each member shall have, as of ``target_epoch``
    :ivar current: what each member was last told
    """

    type_name = "share"
    protocol_type = "share"

    def __init__(self, group_id: str, timers: Deadlines[TimerKey]) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.members: dict[str, ShareMember] = {}
        self.target_epoch = AssignmentEpoch(FIRST_EPOCH, 0)
        self.target: dict[str, Assignment] = {}
        self.current: dict[str, CurrentAssignment] = {}
        self.state_partitions = StatePartitions()
        self._timers = GroupDeadlines(timers, group_id)
        self._covered: dict[UUID, set[int]] | None = (
            None  # by the target; derived, None when out of date
        )

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    @property
    def is_empty(self) -> bool:
        return not self.members

    # Members --------------------------------------------------------------------------------------

    def leave(self, member_id: str, topics: Topics) -> Outcome[GroupRecord, None]:
        """Remove a member. The others get its partitions with their heartbeats."""
        others = (member for other_id, member in self.members.items() if other_id != member_id)
        return self._remove(member_id, topics_hash(subscribed(others, topics)))

    def check_member(self, request: ShareHeartbeat, max_size: int) -> Refusal | None:
        """Return the error of a heartbeat that the group refuses; None when it accepts it."""
        known = self.current.get(request.member_id)
        if known is None:
            if request.member_epoch != LEAVE_EPOCH and len(self.members) >= max_size:
                return Refusal(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"The share group has reached its maximum capacity of {max_size} members.",
                )
            if request.member_epoch != JOIN_EPOCH:
                return Refusal(
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    f"Member {request.member_id} is not a member of group {self.group_id}.",
                )
            return None
        if request.member_epoch > known.member_epoch:
            return Refusal(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The share group member has a greater member epoch "
                f"({request.member_epoch}) than the one known by the "
                f"group coordinator ({known.member_epoch}). The member must abandon all its "
                f"partitions and rejoin.",
            )
        accepted = (JOIN_EPOCH, LEAVE_EPOCH, known.member_epoch, known.previous_member_epoch)
        if request.member_epoch not in accepted:
            return Refusal(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The share group member has a smaller member epoch "
                f"({request.member_epoch}) than the one known by the "
                f"group coordinator ({known.member_epoch}), and it does not match the "
                f"previous member epoch "
                f"({known.previous_member_epoch}). The member must abandon all its "
                f"partitions and rejoin.",
            )
        return None

    def _remove(self, member_id: str, metadata_hash: int) -> Outcome[GroupRecord, None]:
        group_id = self.group_id
        records = (
            ShareGroupCurrentMemberAssignment(group_id, member_id, None),
            ShareGroupTargetAssignmentMember(group_id, member_id, None),
            ShareGroupMemberMetadata(group_id, member_id, None),
            ShareGroupMetadata(group_id, GroupEpoch(self.epoch + 1, metadata_hash)),
        )
        return Outcome(None, records, apply=partial(self._timers.cancel, SESSION, member_id))

    def expire(self, member_id: str) -> Outcome[GroupRecord, None]:
        """Remove a member whose session has ended."""
        assert member_id in self.members, member_id
        return self._remove(member_id, self.metadata_hash if len(self.members) > 1 else 0)

    def restart_session(self, member_id: str, settings: ShareGroupSettings, now_ms: int) -> None:
        """Start a member's session, or start it again."""
        self._timers.set(SESSION, member_id, now_ms + settings.session_timeout_ms)

    def start_sessions(self, settings: ShareGroupSettings, now_ms: int) -> None:
        """Start the sessions of all members, after a restart."""
        for member_id in self.members:
            self.restart_session(member_id, settings, now_ms)

    def covered(self) -> Mapping[UUID, set[int]]:
        """The partitions that somebody shall have, by topic id."""
        if self._covered is None:
            self._covered = {}
            for assignment in self.target.values():
                for topic_id, partitions in assignment.items():
                    self._covered.setdefault(topic_id, set()).update(partitions)
        return self._covered

    # Share state ----------------------------------------------------------------------------------
    #
    # Each change of share state is written here before the share coordinator hears of it, and
    # again when it is done:
    # headrace.coordinators.share_state_recovery has the order.

    def to_initialize(self, request: ShareHeartbeat, topics: Topics) -> dict[UUID, SharedTopic]:
        """The partitions that the group will be subscribed to with this heartbeat and that have no
        share state yet.
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
        """The share state of these partitions is about to begin, perhaps anew."""
        known = self.state_partitions
        deleting = {
            topic_id: name
            for topic_id, name in known.deleting.items()
            if topic_id not in partitions
        }
        return self._become(
            StatePartitions(union(known.initializing, partitions), known.initialized, deleting)
        )

    def initialized(self, partitions: Partitions) -> Outcome[GroupRecord, None]:
        """The share state of these partitions has begun: they can be handed out from now on."""
        known = self.state_partitions
        done = intersection(partitions, known.initializing)  # a topic may be gone
        initializing, initialized = (
            without(known.initializing, done),
            union(known.initialized, done),
        )
        return self._become(StatePartitions(initializing, initialized, known.deleting))

    def deleting(self, topic_ids: Collection[UUID]) -> Outcome[GroupRecord, None]:
        """The share state of these topics is about to be deleted."""
        left = self._without(topic_ids)
        names = {
            topic_id: topic.topic_name
            for topic_id, topic in self.stateful().items()
            if topic_id in topic_ids
        }
        return self._become(replace(left, deleting={**self.state_partitions.deleting, **names}))

    def deleted(self, topic_ids: Collection[UUID]) -> Outcome[GroupRecord, None]:
        """The share state of these topics, or the topics themselves, are gone."""
        return self._become(self._without(topic_ids))

    def settled(self, stateful: Partitions) -> Outcome[GroupRecord, None]:
        """After a restart nothing is under way: what has share state is ready, what has none is
        not.

        :param stateful: of :meth:`stateful` the partitions that the share coordinator knows
        """
        return self._become(StatePartitions({}, stateful, {}))

    def _without(self, topic_ids: Collection[UUID]) -> StatePartitions:
        known = self.state_partitions
        return StatePartitions(
            {
                topic_id: topic
                for topic_id, topic in known.initializing.items()
                if topic_id not in topic_ids
            },
            {
                topic_id: topic
                for topic_id, topic in known.initialized.items()
                if topic_id not in topic_ids
            },
            {
                topic_id: name
                for topic_id, name in known.deleting.items()
                if topic_id not in topic_ids
            },
        )

    def _become(self, new: StatePartitions) -> Outcome[GroupRecord, None]:
        if new == self.state_partitions:
            return Outcome(None)
        return Outcome(None, (ShareGroupStatePartitionMetadata(self.group_id, new),))

    def stateful(self) -> dict[UUID, SharedTopic]:
        """The partitions in which the group has share state, or is getting it."""
        return union(self.state_partitions.initialized, self.state_partitions.initializing)

    def topic_ids(self) -> set[UUID]:
        """The topics where the group may have share state, also such as has begun to be deleted."""
        return {*self.stateful(), *self.state_partitions.deleting}

    def tombstones(self) -> tuple[GroupRecord, ...]:
        """What forgets an empty group. Its share state has to be deleted before."""
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
                _put(self.members, member_id, member)
            case ShareGroupMetadata(_, value):
                self.epoch, self.metadata_hash = value or GroupEpoch(FIRST_EPOCH, 0)
            case ShareGroupTargetAssignmentMember(_, member_id, target):
                _put(self.target, member_id, target)
                self._covered = None
            case ShareGroupTargetAssignmentMetadata(_, epoch):
                self.target_epoch = epoch or AssignmentEpoch(FIRST_EPOCH, 0)
            case ShareGroupCurrentMemberAssignment(_, member_id, current):
                _put(self.current, member_id, current)
            case ShareGroupStatePartitionMetadata(_, partitions):
                self.state_partitions = partitions or StatePartitions()


def _put(mapping: dict[str, V], key: str, value: V | None) -> None:
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value
