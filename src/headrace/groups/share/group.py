"""A share group (KIP-932, docs/behaviour/share-groups.md).

Members share partitions, so there is no revocation. A partition is ready, that is assignable, when
its share state is initialised; the group epoch also grows when the set of ready partitions changes.
The partitions of :meth:`ShareGroup.to_initialize` are initialised before the heartbeat is decided.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

from headrace.groups.deadlines import SESSION
from headrace.groups.heartbeats.group import HeartbeatGroup
from headrace.groups.heartbeats.transition import Context
from headrace.groups.records import (
    GroupOutcome,
    SharedTopic,
    ShareGroupStatePartitionMetadata,
    StatePartitions,
)
from headrace.groups.settings import ShareGroupSettings, Topics
from headrace.outcome import Outcome

from .member import ShareHeartbeat, ShareHeartbeatReply
from .partitions import Partitions, intersection, partitions_of, union, without
from .state import ShareState, subscribed_names
from .transition import ShareMemberTransition

V = TypeVar("V")


class ShareGroup(
    HeartbeatGroup[
        ShareState, ShareHeartbeat, ShareHeartbeatReply, ShareGroupSettings, ShareMemberTransition
    ]
):
    """One share group. Commands decide and change nothing; :meth:`replay` applies their records."""

    type_name = "share"
    member_timers = (SESSION,)
    becomes_classic = False
    earlier_epoch_detail = ", and it does not match the previous member epoch ({})"
    state_type = ShareState

    def _transition(
        self, state: ShareState, request: ShareHeartbeat, context: Context[ShareGroupSettings]
    ) -> ShareMemberTransition:
        return ShareMemberTransition(state, request, context)

    # Share state ----------------------------------------------------------------------------------
    #
    # Each change of share state is recorded here before it is sent to the share coordinator, and
    # again when it is done: see headrace.coordinators.share_state_recovery.

    def to_initialize(self, request: ShareHeartbeat, topics: Topics) -> dict[UUID, SharedTopic]:
        """Return the subscribed partitions without share state, including those of this
        heartbeat.
        """
        members = self.state.members
        member = request.member(members.get(request.member_id))
        names = subscribed_names({**members, request.member_id: member}.values())
        uninitialized = {}
        for topic in (topics[name] for name in sorted(names) if name in topics):
            ready = partitions_of(self.state.partitions.initialized, topic.topic_id)
            if len(ready) < topic.partitions:
                missing = tuple(
                    partition for partition in range(topic.partitions) if partition not in ready
                )
                uninitialized[topic.topic_id] = SharedTopic(topic.name, missing)
        return uninitialized

    def initializing(self, partitions: Partitions) -> GroupOutcome[None]:
        """Record that the share state of these partitions is about to be initialised."""
        before = self.state.partitions
        return self._become(
            replace(
                before,
                initializing=union(before.initializing, partitions),
                deleting=_without(before.deleting, partitions),
            )
        )

    def initialized(self, partitions: Partitions) -> GroupOutcome[None]:
        """Record that the share state of these partitions is initialised; they are assignable."""
        before = self.state.partitions
        done = intersection(partitions, before.initializing)  # a topic may have been deleted
        return self._become(
            replace(
                before,
                initializing=without(before.initializing, done),
                initialized=union(before.initialized, done),
            )
        )

    def deleting(self, topic_ids: Collection[UUID]) -> GroupOutcome[None]:
        """Record that the share state of these topics is about to be deleted."""
        names = {
            topic_id: topic.topic_name
            for topic_id, topic in self.stateful().items()
            if topic_id in topic_ids
        }
        deleting = {**self.state.partitions.deleting, **names}
        return self._become(replace(self._without(topic_ids), deleting=deleting))

    def deleted(self, topic_ids: Collection[UUID]) -> GroupOutcome[None]:
        """Record that the share state of these topics, or the topics themselves, are deleted."""
        return self._become(self._without(topic_ids))

    def settled(self, stateful: Partitions) -> GroupOutcome[None]:
        """Record after a restart that partitions with share state are ready and others are not.

        :param stateful: the partitions that the share coordinator knows
        """
        return self._become(StatePartitions({}, stateful, {}))

    def _without(self, topic_ids: Collection[UUID]) -> StatePartitions:
        before = self.state.partitions
        return StatePartitions(
            _without(before.initializing, topic_ids),
            _without(before.initialized, topic_ids),
            _without(before.deleting, topic_ids),
        )

    def _become(self, partitions: StatePartitions) -> GroupOutcome[None]:
        if partitions == self.state.partitions:
            return Outcome(None)
        return Outcome(None, (ShareGroupStatePartitionMetadata(self.group_id, partitions),))

    def stateful(self) -> dict[UUID, SharedTopic]:
        """Return the partitions whose share state is initialised or being initialised."""
        return union(self.state.partitions.initialized, self.state.partitions.initializing)

    def topic_ids(self) -> set[UUID]:
        """Return the topics that may have share state of the group, also those being deleted."""
        return {*self.stateful(), *self.state.partitions.deleting}


def _without(by_topic: Mapping[UUID, V], topic_ids: Container[UUID]) -> dict[UUID, V]:
    return {topic_id: value for topic_id, value in by_topic.items() if topic_id not in topic_ids}
