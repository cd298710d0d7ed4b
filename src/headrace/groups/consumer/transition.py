"""One member's transition in a consumer group: its subscription, epochs and assignments.

ConsumerGroupHeartbeat and the JoinGroup of a classic member have the same transition (KIP-848).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from uuid import UUID

from headrace.groups.heartbeats.group import Context, HeartbeatTransition
from headrace.groups.records import (
    Assignment,
    ConsumerAssignment,
    ConsumerGroupRegularExpression,
    ConsumerMember,
    GroupEpoch,
    MemberState,
    ResolvedRegex,
)
from headrace.groups.settings import ConsumerSettings, MaySee
from headrace.protocol.errors import ErrorCode, Refusal

from .assignors import ASSIGNORS, Subscriber
from .reconciliation import Goal, Owned, reconcile
from .regex import RegexMatch
from .state import ConsumerState


class MemberTransition(HeartbeatTransition[ConsumerState, ConsumerSettings]):
    """The transition of an accepted member. Changes nothing; collects records.

    :param member: the member with its new subscription
    :param owned: the partitions that the member reports; None when it reports none
    :param regex_match: the topics that match the member's regular expression. Without them the
        group keeps those it has, and a member with a new expression gets no partitions for it yet
    :param may_see: the topics that the regular expression may match; None for all
    :param assigns: a target assignment may be computed; else the member waits while the current one
        is out of date
    :ivar resolved_version: the catalog version whose topics were matched with the member's regular
        expression; None if they were not, or without an expression
    """

    def __init__(
        self,
        state: ConsumerState,
        member_id: str,
        member: ConsumerMember,
        owned: Owned | None,
        context: Context[ConsumerSettings],
        *,
        assigns: bool = True,
        regex_match: RegexMatch | None = None,
        may_see: MaySee | None = None,
    ) -> None:
        super().__init__(state, member_id, member, context)
        self.assigns = assigns
        self._regex_match = regex_match
        self._may_see = may_see
        self.owned = owned
        self.former = state.members.get(member_id) or ConsumerMember()
        self.regexes: Mapping[str, ResolvedRegex] = state.regexes
        self.resolved_version = state.resolved_versions.get(member.subscribed_topic_regex)

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
    def _subscription(member: ConsumerMember) -> tuple[tuple[str, ...], str]:
        return member.subscribed_topic_names, member.subscribed_topic_regex

    def _prepare(self) -> Refusal | None:
        """Take the topics that match the member's regular expression, and forget an expression that
        no member has any more.
        """
        old, new = self.former.subscribed_topic_regex, self.member.subscribed_topic_regex
        match = self._regex_match
        if match is None or match.regex != new:
            match = None
        elif match.error:
            return Refusal(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex `{new}` is not a valid regular expression: {match.error}.",
            )
        group_id, regexes = self.state.group_id, dict(self.state.regexes)
        if old in regexes and old != new and self.state.regex_users[old] == 1:
            del regexes[old]
            self.records.append(ConsumerGroupRegularExpression(group_id, old, None))
        resolved_version = self.resolved_version
        # Another member may have brought the topics while this match waited.
        if match is not None and (resolved_version is None or match.version > resolved_version):
            self.resolved_version = match.version
            topics = match.topics
            if self._may_see is not None:
                topics = tuple(filter(self._may_see, topics))
            if new not in regexes or regexes[new].topics != topics:
                regexes[new] = ResolvedRegex(topics, 0, self.context.wall_ms)
                self.records.append(ConsumerGroupRegularExpression(group_id, new, regexes[new]))
        self.regexes = regexes
        return None

    def _next_epoch(self) -> GroupEpoch | None:
        state = self.state
        if self._resubscribed or self.regexes != state.regexes:
            return GroupEpoch(self.epoch.epoch + 1, self._topics_hash())
        new_hash = state.topics_hash(self.catalog, state.subscribed)
        return None if new_hash == state.metadata_hash else GroupEpoch(state.epoch + 1, new_hash)

    def _topics_hash(self) -> int:
        names = Counter(self.state.name_users)
        names.subtract(self.former.subscribed_topic_names)
        names.update(self.member.subscribed_topic_names)
        subscribed = {name for name, count in names.items() if count > 0}
        for resolved in self.regexes.values():
            subscribed.update(resolved.topics)
        return self.state.topics_hash(self.catalog, frozenset(subscribed))

    def _assigns(self) -> bool:
        return self.assigns and super()._assigns()

    def _assign(self) -> Mapping[str, Assignment]:
        members = self.members
        subscriptions: dict[tuple[tuple[str, ...], str], frozenset[UUID]] = {}
        subscribers = {}
        for member_id, member in members.items():
            subscription = self._subscription(member)
            if subscription not in subscriptions:
                subscriptions[subscription] = frozenset(self._topic_ids(member))
            subscribers[member_id] = Subscriber(
                member.group_instance_id, subscriptions[subscription]
            )
        topic_ids: set[UUID] = set().union(*subscriptions.values())
        topics = sorted(
            (self.catalog.topics_by_id[topic_id] for topic_id in topic_ids),
            key=lambda topic: topic.name,
        )
        assign = ASSIGNORS[preferred_assignor(members.values(), self.settings.assignors)]
        partitions = {topic.topic_id: topic.partitions for topic in topics}
        return assign(subscribers, partitions, self.state.target)

    def _topic_ids(self, member: ConsumerMember) -> set[UUID]:
        names: set[str] = set(member.subscribed_topic_names)
        resolved = self.regexes.get(member.subscribed_topic_regex)
        if resolved is not None:
            names.update(resolved.topics)
        topics = self.catalog.topics
        return {topics[name].topic_id for name in names if name in topics}

    def _reconcile(self) -> ConsumerAssignment:
        was, target_epoch = self.was, self.target_epoch.epoch
        waits = not self.assigns and self.epoch.epoch != target_epoch
        has_target = was.state is MemberState.STABLE and was.member_epoch == target_epoch
        if waits or (has_target and not self._resubscribed):
            return was
        goal = Goal(target_epoch, self.target, self._topic_ids(self.member), self.state.is_free)
        return reconcile(was, goal, self.owned, resubscribed=self._resubscribed)


def preferred_assignor(members: Iterable[ConsumerMember], assignors: tuple[str, ...]) -> str:
    """Return the assignor that most members prefer; on a tie, the one configured first."""
    votes = Counter(member.server_assignor for member in members)
    return max(assignors, key=votes.__getitem__)
