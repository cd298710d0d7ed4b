"""A consumer group (KIP-848, docs/behaviour/groups.md).

A heartbeat has the member's subscription and the partitions that the member holds; the answer has
the partitions that the member may read. Members of the classic protocol may also join:
:mod:`headrace.groups.consumer.classic_members`.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.groups.deadlines import REJOIN, RESYNC, REVOKE, SESSION, TimerChanges
from headrace.groups.heartbeats.group import HeartbeatGroup
from headrace.groups.heartbeats.member import STATIC_LEAVE_EPOCH
from headrace.groups.heartbeats.transition import Context
from headrace.groups.records import ConsumerAssignment, ConsumerMember, OffsetCommit
from headrace.groups.settings import ConsumerSettings

from .member import ConsumerHeartbeat, ConsumerHeartbeatReply
from .reconciliation import holds_only
from .state import ConsumerState
from .transition import MemberTransition


class ConsumerGroup(
    HeartbeatGroup[
        ConsumerState,
        ConsumerHeartbeat,
        ConsumerHeartbeatReply,
        ConsumerSettings,
        MemberTransition,
    ]
):
    """One consumer group. Commands decide and change nothing; :meth:`replay` applies their
    records.
    """

    type_name = "consumer"
    member_timers = (SESSION, REVOKE, REJOIN, RESYNC)
    state_type = ConsumerState

    def _transition(
        self, state: ConsumerState, request: ConsumerHeartbeat, context: Context[ConsumerSettings]
    ) -> MemberTransition:
        member = request.member(state.members.get(request.member_id) or ConsumerMember())
        return MemberTransition(
            state,
            request.member_id,
            member,
            request.owned,
            context,
            regex_match=request.regex_match,
            may_see=request.may_see,
        )

    def apply(self, transition: MemberTransition, timers: TimerChanges) -> None:
        """Apply the volatile changes of a member's transition."""
        super().apply(transition, timers)
        regex, version = transition.member.subscribed_topic_regex, transition.resolved_version
        if version is not None and regex in self.state.regexes:
            self.state.resolved_versions[regex] = version

    def unresolved_regex(self, request: ConsumerHeartbeat, version: int) -> str | None:
        """Return the member's regular expression, if the topics of this version of the catalog were
        not matched with it.
        """
        members, regex = self.state.members, request.subscribed_topic_regex
        if regex is None:
            owner = self.owner(request.group_instance_id) or ""
            member = members.get(request.member_id) or members.get(owner)
            regex = member.subscribed_topic_regex if member is not None else ""
        return regex if regex and self.state.resolved_versions.get(regex) != version else None

    def _is_released(self, owner: str) -> bool:
        return owner in self.state.classic_members or super()._is_released(owner)

    def _may_repeat(self, request: ConsumerHeartbeat, current: ConsumerAssignment) -> bool:
        return holds_only(request.owned, current.assigned)

    def _paused(self, current: ConsumerAssignment) -> ConsumerAssignment:
        return replace(current, member_epoch=STATIC_LEAVE_EPOCH, pending_revocation={})

    # Committed offsets ----------------------------------------------------------------------------

    def is_subscribed(self, topic: str) -> bool:
        """Return whether a member is subscribed to a topic, by name or by regular expression."""
        return topic in self.state.subscribed

    def _held_since(self, current: ConsumerAssignment, commit: OffsetCommit, epoch: int) -> bool:
        _, _, partition, value = commit
        if value is None or value.topic_id is None:
            return False
        epochs = (
            held.get(value.topic_id, {}).get(partition)
            for held in (current.assigned, current.pending_revocation)
        )
        return any(since is not None and since <= epoch for since in epochs)
