"""A consumer group (KIP-848, docs/behaviour/groups.md).

A heartbeat has the member's subscription and the partitions that the member holds; the answer has
the partitions that the member may read. Members of the classic protocol may also join:
:mod:`headrace.groups.consumer.classic_members`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from operator import attrgetter
from uuid import UUID

from headrace.groups.classic.group import ClassicGroup
from headrace.groups.deadlines import (
    JOIN,
    PENDING,
    REJOIN,
    RESYNC,
    REVOKE,
    SESSION,
    SYNC,
    TimerChanges,
)
from headrace.groups.heartbeats.group import Context, HeartbeatGroup, HeartbeatTransition
from headrace.groups.records import (
    Assignment,
    ConsumerAssignment,
    ConsumerGroupRegularExpression,
    ConsumerMember,
    GroupEpoch,
    GroupOutcome,
    GroupRecord,
    HeldPartitions,
    MemberState,
    OffsetCommit,
    ResolvedRegex,
)
from headrace.groups.service import HeartbeatService
from headrace.outcome import Completion, Outcome
from headrace.protocol.errors import ErrorCode, Refusal

from .assignors import ASSIGNORS, Subscriber, configured_assignors
from .member import ConsumerHeartbeat, ConsumerHeartbeatReply
from .migration import downgraded, downgrades, upgraded
from .reconciliation import Goal, holds_only, reconcile
from .state import ConsumerState


class MemberTransition(HeartbeatTransition[ConsumerState]):
    """The transition of an accepted member. Changes nothing; collects records.

    ConsumerGroupHeartbeat and the JoinGroup of a classic member have the same one.

    :ivar regexes: the topics that match each regular expression, with the changes of this heartbeat
    :ivar resolved_version: the catalog version whose topics were matched with the member's regular
        expression; None if they were not, or without an expression
    """

    @property
    def is_settled(self) -> bool:
        """True if the member has its target assignment, and the group needs no other one."""
        is_resolved = (
            not self.member.subscribed_topic_regex or self.resolved_version == self.catalog.version
        )
        return is_resolved and super().is_settled

    @property
    def _resubscribed(self) -> bool:
        return self._subscription(self.member) != self._subscription(self.former)

    @staticmethod
    def _subscription(member: ConsumerMember) -> tuple[tuple[str, ...], str | None]:
        return member.subscribed_topic_names, member.subscribed_topic_regex

    def _prepare(self) -> Refusal | None:
        """Take the topics that match the member's regular expression, and forget an expression that
        no member has any more.
        """
        old, new = self.former.subscribed_topic_regex, self.member.subscribed_topic_regex
        match = self.request.regex_match
        if match is None or match.regex != new:
            match = None
        elif match.error:
            return Refusal(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex `{new}` is not a valid regular expression: {match.error}.",
            )
        group_id, regexes = self.state.group_id, dict(self.state.regexes)
        self.regexes: Mapping[str, ResolvedRegex] = regexes
        resolved_version = self.resolved_version = self.state.resolved_versions.get(new or "")
        if old in regexes and old != new and self.state.regex_users[old] == 1:
            del regexes[old]
            self.records.append(ConsumerGroupRegularExpression(group_id, old, None))
        # Another member may have brought the topics while this match waited.
        if match is not None and (resolved_version is None or match.version > resolved_version):
            self.resolved_version = match.version
            topics, may_see = match.topics, self.request.may_see
            if may_see is not None:
                topics = tuple(filter(may_see, topics))
            if new not in regexes or regexes[new].topics != topics:
                regexes[new] = ResolvedRegex(topics, 0, self.context.wall_ms)
                self.records.append(ConsumerGroupRegularExpression(group_id, new, regexes[new]))
        return None

    def _next_epoch(self) -> GroupEpoch | None:
        state = self.state
        resubscribes = self._resubscribed or self.regexes != state.regexes
        if resubscribes:
            names = Counter(state.name_users)
            names.subtract(self.former.subscribed_topic_names)
            names.update(self.member.subscribed_topic_names)
            matched = (resolved.topics for resolved in self.regexes.values())
            subscribed = frozenset(+names).union(*matched)
        else:
            subscribed = state.subscribed
        new_hash = state.topics_hash(self.catalog, subscribed)
        if not resubscribes and new_hash == self.epoch.metadata_hash:
            return None
        return GroupEpoch(state.epoch + 1, new_hash)

    def _assigns(self) -> bool:
        return self.request.assigns and super()._assigns()

    def _assign(self) -> Mapping[str, Assignment]:
        members = self.members
        distinct = {self._subscription(member): member for member in members.values()}
        subscribed = {key: self._topic_ids(member) for key, member in distinct.items()}
        subscribers = {
            member_id: Subscriber(member.instance_id, subscribed[self._subscription(member)])
            for member_id, member in members.items()
        }
        topic_ids = frozenset[UUID]().union(*subscribed.values())
        topics = map(self.catalog.topics_by_id.__getitem__, topic_ids)
        assignors = configured_assignors(self.group.config)
        assign = ASSIGNORS[preferred_assignor(members.values(), assignors)]
        in_order = sorted(topics, key=attrgetter("name"))
        partitions = {topic.topic_id: topic.partitions for topic in in_order}
        return assign(subscribers, partitions, self.state.target)

    def _topic_ids(self, member: ConsumerMember) -> frozenset[UUID]:
        names: set[str] = set(member.subscribed_topic_names)
        resolved = self.regexes.get(member.subscribed_topic_regex or "")
        if resolved is not None:
            names.update(resolved.topics)
        topics = self.catalog.topics
        return frozenset(topics[name].topic_id for name in names if name in topics)

    def _reconcile(self) -> ConsumerAssignment:
        was, target_epoch = self.was, self.target_epoch.epoch
        waits = not self.request.assigns and self.epoch.epoch != target_epoch
        has_target = was.state is MemberState.STABLE and was.member_epoch == target_epoch
        if waits or (has_target and not self._resubscribed):
            return was
        goal = Goal(target_epoch, self.target, self._topic_ids(self.member), self.state.is_free)
        return reconcile(was, goal, self.request.owned, resubscribed=self._resubscribed)


def preferred_assignor(members: Iterable[ConsumerMember], assignors: tuple[str, ...]) -> str:
    """Return the assignor that most members prefer; on a tie, the one configured first."""
    votes = Counter(member.server_assignor for member in members)
    return max(assignors, key=votes.__getitem__)


class ConsumerGroup(HeartbeatGroup[ConsumerState, ConsumerHeartbeat, ConsumerHeartbeatReply]):
    """One consumer group. Commands decide and change nothing; :meth:`replay` applies their
    records.
    """

    type_name = "consumer"
    member_timers = (SESSION, REVOKE, REJOIN, RESYNC)
    state_type = ConsumerState
    transition_type = MemberTransition

    def apply(self, transition: MemberTransition, timers: TimerChanges) -> None:
        """Apply the volatile changes of a member's transition."""
        super().apply(transition, timers)
        regex, version = transition.member.subscribed_topic_regex, transition.resolved_version
        if version is not None and regex in self.state.regexes:
            self.state.resolved_versions[regex] = version

    def _is_released(self, owner: str) -> bool:
        return owner in self.state.classic_members or super()._is_released(owner)

    def _may_repeat(self, request: ConsumerHeartbeat, current: ConsumerAssignment) -> bool:
        return holds_only(request.owned, current.assigned)

    # Committed offsets ----------------------------------------------------------------------------

    def is_subscribed(self, topic: str) -> bool:
        """Return whether a member is subscribed to a topic, by name or by regular expression."""
        return topic in self.state.subscribed

    def _assignment_epoch(self, held: HeldPartitions, commit: OffsetCommit) -> int | None:
        if commit.value is None or commit.value.topic_id is None:
            return None
        return held.get(commit.value.topic_id, {}).get(commit.partition)


class ConsumerGroupService(
    HeartbeatService[ConsumerGroup, ConsumerHeartbeat, ConsumerHeartbeatReply]
):
    """Commands to consumer groups; :mod:`.classic_members` has those of classic members."""

    kind = ConsumerGroup
    record_types = ConsumerState.records

    def unresolved_regex(self, group_id: str, request: ConsumerHeartbeat) -> str | None:
        """Return the regular expression that a heartbeat needs matched with the topics; None for
        nearly all. The heartbeat has the result in its ``regex_match``; without it, the member gets
        the partitions with a later heartbeat.
        """
        if request.leaves:
            return None
        group, regex = self._groups.get(group_id), request.subscribed_topic_regex
        if not isinstance(group, ConsumerGroup):
            return regex or None
        state = group.state
        if regex is None:
            owner = group.owner(request.instance_id) or ""
            member = state.members.get(request.member_id) or state.members.get(owner)
            regex = (member or state.no_member).subscribed_topic_regex
        is_resolved = state.resolved_versions.get(regex or "") == self.catalog.version
        return None if is_resolved else regex or None

    def _converted(self, classic: ClassicGroup) -> tuple[GroupRecord, ...] | Refusal:
        return () if classic.is_empty else upgraded(classic, self.catalog, self._config)

    def _join_or_stay(
        self, group_id: str, request: ConsumerHeartbeat, context: Context
    ) -> GroupOutcome[ConsumerHeartbeatReply | Refusal]:
        outcome = super()._join_or_stay(group_id, request, context)
        former = self._groups.get(group_id)
        if isinstance(outcome.reply, Refusal) or not isinstance(former, ClassicGroup):
            return outcome
        # The classic group becomes a consumer group: its members have to rejoin.
        completions: list[Completion] = []
        timers: TimerChanges = {(JOIN, ""): None, (SYNC, ""): None}
        for member_id in former.members.pending:
            timers[PENDING, member_id] = None
        for member in former.members.all():
            completions += member.refused(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            timers[SESSION, member.member_id] = context.now_ms + member.session_timeout_ms
            for kind in (REJOIN, RESYNC):  # set before the group became classic
                timers[kind, member.member_id] = None
        outcome = outcome._replace(completions=tuple(completions))
        return outcome.then(partial(former.timers.apply, timers))

    def remove(
        self, group: ConsumerGroup, member_ids: Collection[str], context: Context
    ) -> GroupOutcome[None]:
        """Remove members. If only classic members remain, the group becomes classic and
        rebalances.
        """
        state = group.state
        if not downgrades(state, member_ids, self._config):
            return super().remove(group, member_ids, context)
        records = downgraded(state, member_ids, context, state.epoch, rebalances=True)
        return Outcome(None, records, apply=partial(self.rebalance, group.group_id, context))

    def rebalance(self, group_id: str, context: Context) -> None:
        """Begin a rebalance of a group that has become classic."""
        group = self._groups[group_id]
        assert isinstance(group, ClassicGroup)
        group.rebalance(context.now_ms, context.wall_ms)
