"""A share group: membership, epochs and who gets which partitions (KIP-932, docs/behaviour/share-groups.md).

There is one request, the heartbeat, and no hand-over of partitions between members, for they share them. Three epochs
say who has heard of what::

    group epoch        grows when a subscription, a subscribed topic or the set of ready partitions changes
    assignment epoch   the group epoch for which the target assignment was computed
    member epoch       the assignment epoch that the member was last told

A partition is ready when its share state is initialised: the heartbeat that first sees a partition asks for that
(``initialize`` in its reply), :meth:`ShareGroup.initialized` reports it done, a later heartbeat hands it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

from headrace.errors import ErrorCode, Refusal
from headrace.outcome import Outcome

from .deadlines import SESSION, Deadlines, GroupDeadlines, TimerKey
from .records import (
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
from .settings import ShareSettings, Topic, Topics
from .share_heartbeat import JOIN_EPOCH, LEAVE_EPOCH, HeartbeatStep, ShareHeartbeat, ShareHeartbeatReply
from .share_topics import Partitions, intersection, partitions_of, subscribed, topics_hash, union, without

V = TypeVar("V")

EXPIRE_RETRY_MS = 1_000
"""If the removal of a silent member cannot be written, it is tried again after this time."""


class ShareGroup:
    """One share group. Commands decide; :meth:`replay` applies their records.

    :ivar target: what each member shall have, as of ``target_epoch``
    :ivar current: what each member was last told
    """

    type_name = "share"
    protocol_type = "share"

    def __init__(self, group_id: str, timers: Deadlines[TimerKey]) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.members: dict[str, ShareMember] = {}
        self.target_epoch = AssignmentEpoch(0, 0)
        self.target: dict[str, Assignment] = {}
        self.current: dict[str, CurrentAssignment] = {}
        self.state_partitions = StatePartitions()
        self._timers = GroupDeadlines(timers, group_id)
        self._initialize_asked_ms: dict[UUID, int] = {}  # forgotten by a restart, after which it is asked again
        self._covered: dict[UUID, set[int]] | None = None  # by the target; derived, None when out of date

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    @property
    def is_empty(self) -> bool:
        return not self.members

    # Heartbeat -------------------------------------------------------------------------------------------------------

    def heartbeat(
        self, request: ShareHeartbeat, topics: Topics, settings: ShareSettings, now_ms: int
    ) -> Outcome[GroupRecord, ShareHeartbeatReply | Refusal]:
        """A member joins, stays or leaves, and learns what it is to read."""
        refusal = self._check_member(request, settings)
        if refusal is not None:
            return Outcome(refusal)
        if request.member_epoch == LEAVE_EPOCH:
            stay = (member for member_id, member in self.members.items() if member_id != request.member_id)
            records = self._remove(request.member_id, topics_hash(subscribed(stay, topics)))
            return Outcome(ShareHeartbeatReply(request.member_id, LEAVE_EPOCH), records)
        step = HeartbeatStep(self, request, topics, settings, now_ms)
        step.run()
        self._timers.set(SESSION, request.member_id, now_ms + settings.session_timeout_ms)
        for topic_id in step.initialize:
            self._initialize_asked_ms[topic_id] = now_ms
        return Outcome(step.reply(), tuple(step.records))

    def _check_member(self, request: ShareHeartbeat, settings: ShareSettings) -> Refusal | None:
        known = self.current.get(request.member_id)
        if known is None:
            if request.member_epoch != JOIN_EPOCH:
                return Refusal(
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    f"Member {request.member_id} is not a member of group {self.group_id}.",
                )
            if len(self.members) >= settings.max_size:
                return Refusal(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"The share group has reached its maximum capacity of {settings.max_size} members.",
                )
            return None
        if request.member_epoch > known.member_epoch:
            return Refusal(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The share group member has a greater member epoch ({request.member_epoch}) than the one known by the "
                f"group coordinator ({known.member_epoch}). The member must abandon all its partitions and rejoin.",
            )
        accepted = (JOIN_EPOCH, LEAVE_EPOCH, known.member_epoch, known.previous_member_epoch)
        if request.member_epoch not in accepted:
            return Refusal(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The share group member has a smaller member epoch ({request.member_epoch}) than the one known by the "
                f"group coordinator ({known.member_epoch}), and it does not match the previous member epoch "
                f"({known.previous_member_epoch}). The member must abandon all its partitions and rejoin.",
            )
        return None

    def _remove(self, member_id: str, metadata_hash: int) -> tuple[GroupRecord, ...]:
        """What takes a member out. The others take over at their heartbeats."""
        group_id = self.group_id
        return (
            ShareGroupCurrentMemberAssignment(group_id, member_id, None),
            ShareGroupTargetAssignmentMember(group_id, member_id, None),
            ShareGroupMemberMetadata(group_id, member_id, None),
            ShareGroupMetadata(group_id, GroupEpoch(self.epoch + 1, metadata_hash)),
        )

    def expire(self, member_id: str, now_ms: int) -> Outcome[GroupRecord, None]:
        """A member's session is over."""
        if member_id not in self.members:  # the record of its joining could not be written
            return Outcome(None)
        self._timers.set(SESSION, member_id, now_ms + EXPIRE_RETRY_MS)  # cancelled when its removal is replayed
        return Outcome(None, self._remove(member_id, self.metadata_hash if len(self.members) > 1 else 0))

    def start_sessions(self, settings: ShareSettings, now_ms: int) -> None:
        """After a restart: the members' sessions begin anew."""
        for member_id in self.members:
            self._timers.set(SESSION, member_id, now_ms + settings.session_timeout_ms)

    def covered(self) -> Mapping[UUID, set[int]]:
        """The partitions that somebody shall have, by topic id."""
        if self._covered is None:
            self._covered = {}
            for assignment in self.target.values():
                for topic_id, partitions in assignment.items():
                    self._covered.setdefault(topic_id, set()).update(partitions)
        return self._covered

    # Share state -----------------------------------------------------------------------------------------------------

    def to_initialize(self, topics: Iterable[Topic], settings: ShareSettings, now_ms: int) -> dict[UUID, SharedTopic]:
        """The partitions of subscribed topics whose share state is neither there nor on its way."""
        wanted = {}
        for topic in topics:
            known = partitions_of(self.state_partitions.initialized, topic.topic_id)
            asked_ms = self._initialize_asked_ms.get(topic.topic_id)
            if asked_ms is not None and now_ms - asked_ms < settings.initialize_retry_interval_ms:
                known = known | partitions_of(self.state_partitions.initializing, topic.topic_id)
            if len(known) < topic.partitions:
                missing = tuple(partition for partition in range(topic.partitions) if partition not in known)
                wanted[topic.topic_id] = SharedTopic(topic.name, missing)
        return wanted

    def initialized(self, partitions: Partitions) -> Outcome[GroupRecord, None]:
        """Share state was initialised: these partitions can be handed out from now on."""
        done = intersection(partitions, self.state_partitions.initializing)
        return self._state_partitions(
            without(self.state_partitions.initializing, done), union(self.state_partitions.initialized, done)
        )

    def initialize_failed(self, partitions: Partitions) -> Outcome[GroupRecord, None]:
        """Share state could not be initialised: the next heartbeat asks again."""
        failed = intersection(partitions, self.state_partitions.initializing)
        left = without(self.state_partitions.initializing, failed)
        return self._state_partitions(left, self.state_partitions.initialized)

    def topic_deleted(self, topic_id: UUID) -> Outcome[GroupRecord, None]:
        """A topic is gone, and its share state with it."""
        known = self.state_partitions
        initializing = {id_: topic for id_, topic in known.initializing.items() if id_ != topic_id}
        initialized = {id_: topic for id_, topic in known.initialized.items() if id_ != topic_id}
        return self._state_partitions(initializing, initialized)

    def _state_partitions(self, initializing: Partitions, initialized: Partitions) -> Outcome[GroupRecord, None]:
        new = replace(self.state_partitions, initializing=initializing, initialized=initialized)
        if new == self.state_partitions:
            return Outcome(None)
        return Outcome(None, (ShareGroupStatePartitionMetadata(self.group_id, new),))

    def shared_topics(self) -> list[tuple[str, tuple[int, ...]]]:
        """The topics in which the group has or is getting share state, with the partitions."""
        known = union(self.state_partitions.initialized, self.state_partitions.initializing)
        return [(name, partitions) for name, partitions in known.values()]

    def share_partitions(self) -> list[tuple[UUID, int]]:
        """Where the group has or is getting share state, as (topic id, partition)."""
        known = union(self.state_partitions.initialized, self.state_partitions.initializing)
        return [(topic_id, partition) for topic_id, topic in known.items() for partition in topic.partitions]

    def tombstones(self) -> tuple[GroupRecord, ...]:
        """What forgets an empty group. Its share state has to be deleted before."""
        return (
            ShareGroupTargetAssignmentMetadata(self.group_id, None),
            ShareGroupStatePartitionMetadata(self.group_id, None),
            ShareGroupMetadata(self.group_id, None),
        )

    # Replay ----------------------------------------------------------------------------------------------------------

    def replay(self, record: GroupRecord) -> None:
        """Apply one durable record of this group."""
        match record:
            case ShareGroupMemberMetadata(_, member_id, member):
                _put(self.members, member_id, member)
                if member is None:
                    self._timers.cancel(SESSION, member_id)
            case ShareGroupMetadata(_, value):
                self.epoch, self.metadata_hash = value or GroupEpoch(0, 0)
            case ShareGroupTargetAssignmentMember(_, member_id, target):
                _put(self.target, member_id, target)
                self._covered = None
            case ShareGroupTargetAssignmentMetadata(_, epoch):
                self.target_epoch = epoch or AssignmentEpoch(0, 0)
            case ShareGroupCurrentMemberAssignment(_, member_id, current):
                _put(self.current, member_id, current)
            case ShareGroupStatePartitionMetadata(_, partitions):
                self.state_partitions = partitions or StatePartitions()


def _put(mapping: dict[str, V], key: str, value: V | None) -> None:
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value
