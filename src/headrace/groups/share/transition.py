"""One member's heartbeat to a share group (KIP-932)."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.groups.heartbeats.transition import Context, HeartbeatTransition
from headrace.groups.records import Assignment, CurrentAssignment, GroupEpoch
from headrace.groups.settings import ShareGroupSettings, Topic

from .assignors import assign_simple
from .member import ShareHeartbeat
from .partitions import partitions_of
from .state import ShareState, subscribed_names


class ShareMemberTransition(HeartbeatTransition[ShareState, ShareGroupSettings]):
    """The heartbeat of an accepted member. Changes nothing; collects records.

    :ivar topics: the existing topics to which any member is subscribed, sorted by name
    """

    def __init__(
        self, state: ShareState, request: ShareHeartbeat, context: Context[ShareGroupSettings]
    ) -> None:
        self.former = state.members.get(request.member_id)
        super().__init__(state, request.member_id, request.member(self.former), context)
        self._names = subscribed_names(self.members.values())
        topics = context.catalog.topics
        self.topics = [topics[name] for name in sorted(self._names) if name in topics]

    @property
    def is_settled(self) -> bool:
        """True if the member has its target assignment, and the group needs no other one."""
        return super().is_settled and self._covers_all()

    def _next_epoch(self) -> GroupEpoch | None:
        former, state = self.former, self.state
        new_hash = state.topics_hash(self.catalog, self._names)
        resubscribed = (
            former is None or former.subscribed_topic_names != self.member.subscribed_topic_names
        )
        if resubscribed or new_hash != state.metadata_hash or self._has_partitions_to_assign():
            return GroupEpoch(state.epoch + 1, new_hash)
        return None

    def _has_partitions_to_assign(self) -> bool:
        """Return whether partitions have become ready, and may be assigned now."""
        is_assigned = self.epoch.epoch <= self.target_epoch.epoch
        return is_assigned and self._is_due() and not self._covers_all()

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
        epoch, previous = self.was.member_epoch, self.was.previous_member_epoch
        assigned = self.was.assigned
        if epoch != self.target_epoch.epoch:
            epoch, previous = self.target_epoch.epoch, epoch
            assigned = self.target
        names = frozenset(self.member.subscribed_topic_names)
        subscribed = {topic.topic_id for topic in self.topics if topic.name in names}
        assigned = {
            topic_id: partitions
            for topic_id, partitions in assigned.items()
            if topic_id in subscribed
        }
        return CurrentAssignment(epoch, previous, assigned)
