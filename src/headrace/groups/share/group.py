"""A share group (KIP-932, docs/behaviour/share-groups.md).

Members share partitions, so there is no revocation. A partition is ready, that is assignable, when
its share state is initialised; the group epoch also grows when the set of ready partitions changes.
The partitions of :meth:`ShareGroup.to_initialize` are initialised before the heartbeat is decided.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from headrace.groups.catalog import Topic, Topics
from headrace.groups.deadlines import SESSION
from headrace.groups.heartbeats.group import HeartbeatGroup, HeartbeatTransition
from headrace.groups.heartbeats.member import LEAVE_EPOCH, Heartbeat, HeartbeatReply
from headrace.groups.heartbeats.state import FIRST_EPOCH, HeartbeatState
from headrace.groups.records import (
    NOTHING,
    SHARE_RECORDS,
    Assignment,
    CurrentAssignment,
    GroupEpoch,
    GroupOutcome,
    GroupRecord,
    RecordOfGroup,
    SharedTopic,
    ShareMember,
    StatePartitions,
)
from headrace.groups.service import HeartbeatService
from headrace.outcome import Outcome
from headrace.protocol.configuration import Configuration
from headrace.protocol.errors import ErrorCode, Refusal, invalid_request

from .assignors import assign_simple

MAX_SHARE_MEMBER_ID_LENGTH = 36
"""Kafka's own: the length of a UUID in hexadecimal."""


@dataclass(frozen=True, slots=True)
class ShareHeartbeat(Heartbeat):
    """A ShareGroupHeartbeat request.

    :param subscribed_topic_names: sorted; None for no change
    """

    subscribed_topic_names: tuple[str, ...] | None

    @property
    def asks_assignment(self) -> bool:
        """True if the member joins or subscribes."""
        return self.joins or self.subscribed_topic_names is not None

    def check(self, group_id: str, config: Configuration) -> Refusal | None:
        """Return the error of a request that is invalid for any group."""
        message = None
        if not 0 < len(self.member_id) <= MAX_SHARE_MEMBER_ID_LENGTH:
            return Refusal(ErrorCode.INVALID_REQUEST)
        if not group_id:
            message = "GroupId can't be empty."
        elif self.rack_id == "":
            message = "RackId can't be empty."
        elif self.joins and not self.subscribed_topic_names:
            message = "SubscribedTopicNames must be set in first request."
        elif self.member_epoch < LEAVE_EPOCH:
            message = "MemberEpoch is invalid."
        return None if message is None else invalid_request(message)


ShareHeartbeatReply = HeartbeatReply[Assignment]

Partitions = Mapping[UUID, SharedTopic]
"""Partitions of topics, by topic id."""


def partitions_of(partitions: Partitions, topic_id: UUID) -> frozenset[int]:
    """Return the partitions of one topic."""
    topic = partitions.get(topic_id)
    return frozenset(topic.partitions) if topic is not None else frozenset()


def union(some: Partitions, more: Partitions) -> dict[UUID, SharedTopic]:
    """Return all partitions that are in either set."""
    result = dict(some)
    for topic_id, (name, partitions) in more.items():
        result[topic_id] = SharedTopic(
            name, tuple(sorted({*partitions, *partitions_of(some, topic_id)}))
        )
    return result


def selected(some: Partitions, others: Partitions, *, are_in_both: bool) -> dict[UUID, SharedTopic]:
    """Return the partitions of the first set that are also in the other one, or are not."""
    partitions = {}
    for topic_id, (name, numbers) in some.items():
        in_others = partitions_of(others, topic_id)
        of_topic = tuple(number for number in numbers if (number in in_others) is are_in_both)
        if of_topic:
            partitions[topic_id] = SharedTopic(name, of_topic)
    return partitions


class ShareState(HeartbeatState[ShareMember, GroupEpoch, Assignment, CurrentAssignment]):
    """The durable state of a share group. Only :meth:`replay` changes it.

    :ivar partitions: the partitions in which the group has share state
    """

    records = SHARE_RECORDS
    no_member = ShareMember(None)
    no_epoch = GroupEpoch(FIRST_EPOCH, 0)
    no_target = NOTHING
    no_current = CurrentAssignment()

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.partitions = StatePartitions()
        # the partitions of the target assignment; None if out of date
        self._covered: dict[UUID, set[int]] | None = None

    @property
    def state_name(self) -> str:
        """Kafka's name for the state of the group."""
        return "Stable" if self.members else "Empty"

    def subscribed_without(self, member_ids: Collection[str]) -> frozenset[str]:
        """Return the names of the topics to which other members than these are subscribed."""
        return subscribed_names(
            member for member_id, member in self.members.items() if member_id not in member_ids
        )

    def covered(self) -> Mapping[UUID, set[int]]:
        """Return the partitions that are assigned to any member, by topic id."""
        if self._covered is None:
            self._covered = {}
            for assignment in self.target.values():
                for topic_id, partitions in assignment.items():
                    self._covered.setdefault(topic_id, set()).update(partitions)
        return self._covered

    def other_tombstones(self) -> Iterator[GroupRecord]:
        """Yield the tombstone of the list of partitions with share state."""
        yield SHARE_RECORDS.other(self.group_id, None)

    def replay(self, record: GroupRecord) -> None:
        """Apply one durable record of this group."""
        super().replay(record)
        if isinstance(record, SHARE_RECORDS.target):
            self._covered = None

    def _replay_other(self, record: RecordOfGroup) -> None:
        self.partitions = record.value or StatePartitions()


def subscribed_names(members: Iterable[ShareMember]) -> frozenset[str]:
    """Return the names of the topics to which any of these members is subscribed."""
    return frozenset(name for member in members for name in member.subscribed_topic_names)


class ShareMemberTransition(HeartbeatTransition[ShareState]):
    """The heartbeat of an accepted member. Changes nothing; collects records.

    :ivar topics: the existing topics to which any member is subscribed, sorted by name
    """

    def _prepare(self) -> None:
        self._names = subscribed_names(self.members.values())
        topics = self.catalog.topics
        self.topics = [topics[name] for name in sorted(self._names) if name in topics]

    @property
    def is_settled(self) -> bool:
        """True if the member has its target assignment, and the group needs no other one."""
        return super().is_settled and self._covers_all()

    def _next_epoch(self) -> GroupEpoch | None:
        former, state = self.former, self.state
        new_hash = state.topics_hash(self.catalog, self._names)
        resubscribed = former.subscribed_topic_names != self.member.subscribed_topic_names
        if not resubscribed and new_hash == self.epoch.metadata_hash:
            is_assigned = self.epoch.epoch <= self.target_epoch.epoch
            if not is_assigned or not self._is_due() or self._covers_all():
                return None  # no partitions have become ready, or they may not be assigned yet
        return GroupEpoch(state.epoch + 1, new_hash)

    def _assignable(self, topic: Topic) -> set[int]:
        """Return the partitions of a topic that have share state."""
        ready = partitions_of(self.state.partitions.initialized, topic.topic_id)
        return {partition for partition in ready if partition < topic.partitions}

    def _covers_all(self) -> bool:
        covered = self.state.covered()
        return all(
            self._assignable(topic) == covered.get(topic.topic_id, set()) for topic in self.topics
        )

    def _assign(self) -> Mapping[str, Assignment]:
        ids = {topic.name: topic.topic_id for topic in self.topics}
        subscriptions = {
            member_id: {ids[name] for name in member.subscribed_topic_names if name in ids}
            for member_id, member in self.members.items()
        }
        assignable = {topic.topic_id: self._assignable(topic) for topic in self.topics}
        return assign_simple(subscriptions, assignable, self.state.target)

    def _reconcile(self) -> CurrentAssignment:
        """Give the member its target assignment at once: members share partitions, so there is no
        revocation.
        """
        was, epoch, assigned = self.was, self.target_epoch.epoch, self.was.assigned
        previous = was.previous_member_epoch
        if was.member_epoch != epoch:
            previous, assigned = was.member_epoch, self.target
        names = frozenset(self.member.subscribed_topic_names)
        subscribed = {topic.topic_id for topic in self.topics if topic.name in names}
        assigned = {
            topic_id: partitions
            for topic_id, partitions in assigned.items()
            if topic_id in subscribed
        }
        return CurrentAssignment(epoch, previous, assigned=assigned)


class ShareGroup(HeartbeatGroup[ShareState, ShareHeartbeat, ShareHeartbeatReply]):
    """One share group. Commands decide and change nothing; :meth:`replay` applies their records."""

    type_name = "share"
    member_timers = (SESSION,)
    becomes_classic = False
    earlier_epoch_detail = ", and it does not match the previous member epoch ({})"
    state_type = ShareState
    transition_type = ShareMemberTransition

    # Share state ----------------------------------------------------------------------------------
    #
    # Each change of share state is recorded here before it is sent to the share coordinator, and
    # again when it is done: see headrace.coordinators.share_state_recovery.

    def to_initialize(self, request: ShareHeartbeat, topics: Topics) -> dict[UUID, SharedTopic]:
        """Return the subscribed partitions without share state, including those of this
        heartbeat.
        """
        members = self.state.members
        member = request.member(members.get(request.member_id) or self.state.no_member)
        names = subscribed_names({**members, request.member_id: member}.values())
        initialized = self.state.partitions.initialized
        incomplete = {
            topic.topic_id: SharedTopic(topic.name, tuple(range(topic.partitions)))
            for topic in (topics[name] for name in sorted(names) if name in topics)
            if len(partitions_of(initialized, topic.topic_id)) < topic.partitions
        }
        return selected(incomplete, initialized, are_in_both=False)

    def initializing(self, partitions: Partitions) -> GroupOutcome[None]:
        """Record that the share state of these partitions is about to be initialised."""
        before = self.state.partitions
        initializing = union(before.initializing, partitions)
        deleting = before.without(partitions.keys()).deleting
        return self._become(replace(before, initializing=initializing, deleting=deleting))

    def initialized(self, partitions: Partitions) -> GroupOutcome[None]:
        """Record that the share state of these partitions is initialised; they are assignable."""
        before = self.state.partitions
        # A topic may have been deleted.
        done = selected(partitions, before.initializing, are_in_both=True)
        left = selected(before.initializing, done, are_in_both=False)
        initialized = union(before.initialized, done)
        return self._become(StatePartitions(left, initialized, before.deleting))

    def deleting(self, topic_ids: Collection[UUID]) -> GroupOutcome[None]:
        """Record that the share state of these topics is about to be deleted."""
        before = self.state.partitions
        names = {
            topic_id: topic.topic_name
            for topic_id, topic in self.stateful().items()
            if topic_id in topic_ids
        }
        return self._become(
            replace(before.without(topic_ids), deleting={**before.deleting, **names})
        )

    def deleted(self, topic_ids: Collection[UUID]) -> GroupOutcome[None]:
        """Record that the share state of these topics, or the topics themselves, are deleted."""
        return self._become(self.state.partitions.without(topic_ids))

    def settled(self, stateful: Partitions) -> GroupOutcome[None]:
        """Record after a restart that partitions with share state are ready and others are not.

        :param stateful: the partitions that the share coordinator knows
        """
        return self._become(StatePartitions(initialized=stateful))

    def _become(self, partitions: StatePartitions) -> GroupOutcome[None]:
        if partitions == self.state.partitions:
            return Outcome(None)
        return Outcome(None, (SHARE_RECORDS.other(self.group_id, partitions),))

    def stateful(self) -> dict[UUID, SharedTopic]:
        """Return the partitions whose share state is initialised or being initialised."""
        return union(self.state.partitions.initialized, self.state.partitions.initializing)

    def topic_ids(self) -> set[UUID]:
        """Return the topics that may have share state of the group, also those being deleted."""
        return {*self.stateful(), *self.state.partitions.deleting}


class ShareGroupService(HeartbeatService[ShareGroup, ShareHeartbeat, ShareHeartbeatReply]):
    """Commands to share groups."""

    kind = ShareGroup
    record_types = ShareState.records

    def to_initialize(
        self, group_id: str, request: ShareHeartbeat
    ) -> tuple[ShareGroup, Partitions] | None:
        """Return the group of a heartbeat, and the partitions whose share state should be
        initialised before; None if there are none, or the heartbeat will be refused.
        """
        if request.leaves or request.check(group_id, self._config) is not None:
            return None
        group = self.member_group(group_id, request)
        if isinstance(group, Refusal) or group.check(request) is not None:
            return None
        partitions = group.to_initialize(request, self.catalog.topics)
        return (group, partitions) if partitions else None

    def empty_group(self, group_id: str, *, create: bool) -> ShareGroup | Refusal:
        """Return an empty share group, whose offsets may be changed, or the error of the request.

        :param create: create a group that does not exist; its first record makes it durable
        """
        if not group_id:
            return Refusal(ErrorCode.INVALID_GROUP_ID, "The group id is invalid.")
        if create and group_id not in self._groups:
            return self.new_group(group_id)
        group = self.group(group_id)
        if isinstance(group, ShareGroup) and not group.is_empty:
            return Refusal(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
        return group

    def all(self) -> list[ShareGroup]:
        """Return all share groups."""
        return [group for group in self._groups.values() if isinstance(group, ShareGroup)]
