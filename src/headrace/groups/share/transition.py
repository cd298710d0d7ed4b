"""One member's heartbeat to a share group, and the resulting epochs and assignments (KIP-932)."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.groups.heartbeats import assignment_due
from headrace.groups.records import (
    Assignment,
    AssignmentEpoch,
    CurrentAssignment,
    GroupEpoch,
    GroupRecord,
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberMetadata,
    ShareGroupMetadata,
    ShareGroupTargetAssignmentMember,
    ShareGroupTargetAssignmentMetadata,
)
from headrace.groups.settings import ShareGroupSettings, Topic, Topics
from headrace.groups.topics import partitions_of, subscribed, topics_hash

from .assignors import assign_simple
from .group import ShareGroup
from .member import JOIN_EPOCH, ShareHeartbeat, ShareHeartbeatReply


class ShareMemberTransition:
    """The heartbeat of an accepted member. Changes nothing; collects records.

    :ivar records: to append, in the order in which Kafka writes them
    """

    def __init__(
        self,
        group: ShareGroup,
        request: ShareHeartbeat,
        topics: Topics,
        settings: ShareGroupSettings,
        wall_ms: int,
    ) -> None:
        self.group, self.request, self.settings, self.wall_ms = group, request, settings, wall_ms
        known = group.members.get(request.member_id)
        self.member = request.member(group.members)
        self.changed = self.member != known
        self.resubscribed = (
            known is None or known.subscribed_topic_names != self.member.subscribed_topic_names
        )
        self.members = {**group.members, request.member_id: self.member}
        self.topics = subscribed(self.members.values(), topics)
        self.epoch = group.epoch
        self.target_epoch = group.target_epoch
        self.target: Mapping[str, Assignment] = group.target
        self.records: list[GroupRecord] = []
        self.now_current = self.was_current = group.current.get(request.member_id)

    def run(self) -> None:
        """Decide the heartbeat."""
        if self.changed:
            self._write(
                ShareGroupMemberMetadata(self.group.group_id, self.request.member_id, self.member)
            )
        self._bump_epoch()
        if self.epoch > self.target_epoch.epoch and self._assignment_due():
            self._assign()
        self._advance()

    def _write(self, record: GroupRecord) -> None:
        self.records.append(record)

    def _assignment_due(self) -> bool:
        interval_ms = self.settings.assignment_interval_ms
        return assignment_due(self.target_epoch, interval_ms, self.wall_ms)

    def _bump_epoch(self) -> None:
        new_hash = topics_hash(self.topics)
        if not (self.resubscribed or new_hash != self.group.metadata_hash):
            assigned_all = (
                self.epoch > self.target_epoch.epoch
                or not self._assignment_due()
                or self._covers_all()
            )
            if assigned_all:
                return
        self.epoch += 1
        self._write(ShareGroupMetadata(self.group.group_id, GroupEpoch(self.epoch, new_hash)))

    def _assignable(self, topic: Topic) -> set[int]:
        """Return the partitions of a topic that have share state."""
        ready = partitions_of(self.group.state_partitions.initialized, topic.topic_id)
        return {partition for partition in ready if partition < topic.partitions}

    def _covers_all(self) -> bool:
        covered = self.group.covered()
        return all(
            self._assignable(topic) == covered.get(topic.topic_id, set()) for topic in self.topics
        )

    def _assign(self) -> None:
        """Compute a target assignment."""
        ids = {topic.name: topic.topic_id for topic in self.topics}
        subscriptions = {
            member_id: {ids[name] for name in member.subscribed_topic_names if name in ids}
            for member_id, member in self.members.items()
        }
        assignable = {topic.topic_id: self._assignable(topic) for topic in self.topics}
        target = assign_simple(subscriptions, assignable, self.group.target)
        for member_id, assignment in target.items():
            if assignment != self.group.target.get(member_id):
                self._write(
                    ShareGroupTargetAssignmentMember(self.group.group_id, member_id, assignment)
                )
        self.target = target
        self.target_epoch = AssignmentEpoch(self.epoch, self.wall_ms)
        self._write(ShareGroupTargetAssignmentMetadata(self.group.group_id, self.target_epoch))

    def _advance(self) -> None:
        """Give the member its target assignment at once; members share partitions, so there is no
        revocation.
        """
        was = self.was_current or CurrentAssignment(JOIN_EPOCH, JOIN_EPOCH, {})
        epoch, previous, assigned = was.member_epoch, was.previous_member_epoch, was.assigned
        if epoch != self.target_epoch.epoch:
            epoch, previous = self.target_epoch.epoch, epoch
            assigned = self.target.get(self.request.member_id, {})
        names = set(self.member.subscribed_topic_names)
        wanted = {topic.topic_id for topic in self.topics if topic.name in names}
        assigned = {
            topic_id: partitions for topic_id, partitions in assigned.items() if topic_id in wanted
        }
        self.now_current = CurrentAssignment(epoch, previous, assigned)
        if self.now_current != self.was_current:
            self._write(
                ShareGroupCurrentMemberAssignment(
                    self.group.group_id, self.request.member_id, self.now_current
                )
            )

    def reply(self) -> ShareHeartbeatReply:
        """Return the answer to the heartbeat."""
        now = self.now_current
        assert now is not None
        tell = (
            self.request.member_epoch == JOIN_EPOCH
            or self.request.subscribed_topic_names is not None
            or self.was_current is None
            or self.was_current.assigned != now.assigned
        )
        return ShareHeartbeatReply(
            self.request.member_id,
            now.member_epoch,
            self.settings.heartbeat_interval_ms,
            now.assigned if tell else None,
        )
